"""Virtual power meters of ElmorLabs: a PMD-USB that streams, and those that are asked, on the shared load."""

from __future__ import annotations

from pmtpy.backends import pmd
from pmtpy.backends.pmd import codec
from pmtpy.core.arguments import one_of
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.pmd._board import PmdBoard, RailBoard
from pmtpy.emulators.serial_board import MemoryLine
from pmtpy.emulators.world import shared_world

__all__ = ["PmdBoard", "RailBoard", "open_virtual"]

_MODELS = ("usb", "pmd2", "pmd2x", "wireview")


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    model: str = "usb",
    noise: bool = True,
    streaming: bool = False,
    left_at: int = 115200,
    slot: str = "",
    pairs: str = ",".join(codec.PAIRS),
    stamps: int = 4,
) -> Source:
    """Open the real backend on a virtual meter, through which the whole load flows.

    Parameters
    ----------
    noise : bool
        As in recordings; off: a constant input gives a constant code.
    streaming, left_at
        The state in which an earlier program left a PMD-USB: streaming, and the rate of its line.
    slot, pairs, stamps
        As of the real one.
    """
    check_device("pmd", device)
    one_of(model, _MODELS, "the model")
    one_of(left_at, codec.BAUDS, "the rate that it was left at")
    world = shared_world(load, clock=clock)
    layouts = dict(zip(_MODELS[1:], (codec.POLLED[1], codec.POLLED[0], codec.POLLED[2]), strict=True))
    board: PmdBoard | RailBoard
    if model == "usb":
        board = PmdBoard(world, noise_codes=1.5 if noise else 0.0, streaming=streaming, baud=left_at)
    else:
        board = RailBoard(world, layouts[model])
    line = MemoryLine(board, clock)
    return open_on(
        world,
        lambda at: pmd.open_source("virtual", clock=at, transport=line, slot=slot, pairs=pairs, stamps=stamps),
        leave=lambda: None,
    )
