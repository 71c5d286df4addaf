"""A virtual PowerSensor3: a board that no host program can tell from a real one, and the truth about it."""

from pmtpy.emulators.powersensor3.board import Board
from pmtpy.emulators.powersensor3.log import BootLog, History, Mark, Truth
from pmtpy.emulators.powersensor3.memory import MemoryTransport
from pmtpy.emulators.powersensor3.source import VirtualSource, open_virtual
from pmtpy.emulators.powersensor3.spec import BoardSpec, Pair, Stored, parse_pairs
from pmtpy.emulators.powersensor3.virtual import VirtualBoard

__all__ = [
    "Board",
    "BoardSpec",
    "BootLog",
    "History",
    "Mark",
    "MemoryTransport",
    "Pair",
    "Stored",
    "Truth",
    "VirtualBoard",
    "VirtualSource",
    "open_virtual",
    "parse_pairs",
]
