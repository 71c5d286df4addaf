"""A virtual PowerSensor3: a board that no host program can tell from a real one, and the truth about it."""

from pmtpy.emulators.powersensor3._board import Board
from pmtpy.emulators.powersensor3._log import BootLog, History, Mark, Truth
from pmtpy.emulators.powersensor3._memory import MemoryTransport
from pmtpy.emulators.powersensor3._spec import BoardSpec, Pair, Stored, parse_pairs
from pmtpy.emulators.powersensor3._virtual import VirtualBoard
from pmtpy.emulators.powersensor3.source import BoardSource, open_virtual

__all__ = [
    "Board",
    "BoardSource",
    "BoardSpec",
    "BootLog",
    "History",
    "Mark",
    "MemoryTransport",
    "Pair",
    "Stored",
    "Truth",
    "VirtualBoard",
    "open_virtual",
    "parse_pairs",
]
