"""The words and the arithmetic: what the author of a backend imports. No input or output, no threads.

Channels say what a column means, rows carry counts and curves, a source delivers them on a clock; counters are
unwrapped and powers integrated here and nowhere else.
"""

from __future__ import annotations

from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Identity, Quantity, outermost
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock, seconds_of
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span
from pmtpy.core.response import Response
from pmtpy.core.rows import Block, Floats, Frame, Ints, Layout, Point, Row, median
from pmtpy.core.source import Discovery, PolledSource, Remarks, Source, Timestamps, Traits
from pmtpy.core.state import State, joules, seconds, watts
from pmtpy.errors import (
    BackendUnavailableError,
    Finding,
    Obstacle,
    ProtocolError,
    ReadError,
    SourceLostError,
    TargetError,
    Verdict,
)

__all__ = [
    "HOST_CLOCK",
    "NS_PER_S",
    "BackendUnavailableError",
    "Block",
    "Channel",
    "Clock",
    "Derivation",
    "Discovery",
    "EnergyMethod",
    "Finding",
    "Floats",
    "Frame",
    "Identity",
    "Ints",
    "Layout",
    "LoadIntervals",
    "Obstacle",
    "Point",
    "PolledSource",
    "ProtocolError",
    "Quantity",
    "ReadError",
    "Remarks",
    "Response",
    "Row",
    "Source",
    "SourceLostError",
    "Span",
    "State",
    "TargetError",
    "Timestamps",
    "Traits",
    "Verdict",
    "joules",
    "median",
    "outermost",
    "seconds",
    "seconds_of",
    "watts",
]
