"""PowerSensor3: up to four external current and voltage pairs at 20 kHz, over USB.

``codec`` and ``board_clock`` are pure and turn bytes into frames with times; ``port`` and ``transport`` reach the
device; ``device`` speaks its commands; ``config`` knows its stored configuration; ``source`` is the waist.
"""

from __future__ import annotations

from pmtpy.backends.powersensor3.port import discover
from pmtpy.backends.powersensor3.source import PowerSensor3Source, open_source

__all__ = ["PowerSensor3Source", "discover", "open_source"]
