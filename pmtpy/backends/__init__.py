"""Backends: one module per instrument family, each behind the waist of :mod:`pmtpy.core.source`. None sees another."""
