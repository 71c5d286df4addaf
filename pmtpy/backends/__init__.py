"""Backends: one module per instrument family, each behind the waist of :mod:`pmtpy.source`. None sees another."""
