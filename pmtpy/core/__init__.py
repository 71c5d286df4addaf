"""The words and the arithmetic: what the author of a backend imports. No input or output, no threads.

Channels say what a column means, rows carry counts and curves, a source delivers them on a clock; counters are
unwrapped and powers integrated here and nowhere else.
"""

from __future__ import annotations

from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Identity, Quantity, outermost
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock, seconds_of
from pmtpy.core.markers import Span
from pmtpy.core.rows import Block, Floats, Frame, Ints, Layout, Point, Row
from pmtpy.core.source import Discovery, PolledSource, Source, Timestamps, Traits
from pmtpy.core.state import State, joules, seconds, watts

__all__ = [
    "HOST_CLOCK",
    "NS_PER_S",
    "Block",
    "Channel",
    "Clock",
    "Derivation",
    "Discovery",
    "EnergyMethod",
    "Floats",
    "Frame",
    "Identity",
    "Ints",
    "Layout",
    "Point",
    "PolledSource",
    "Quantity",
    "Row",
    "Source",
    "Span",
    "State",
    "Timestamps",
    "Traits",
    "joules",
    "outermost",
    "seconds",
    "seconds_of",
    "watts",
]
