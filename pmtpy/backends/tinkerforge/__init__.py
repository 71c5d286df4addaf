"""Tinkerforge bricklets behind a Brick Daemon: Voltage/Current 1.0 and 2.0, Industrial Dual inputs.

``protocol`` and ``bricklets`` are pure; ``_device`` is the connection; ``_source`` is the waist.
"""

from __future__ import annotations

from pmtpy.backends.tinkerforge._source import TinkerforgeSource, discover, open_source

__all__ = ["TinkerforgeSource", "discover", "open_source"]
