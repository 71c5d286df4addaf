"""The device ``powersensor3:virtual``: the real backend on a virtual board that watches the shared load.

On the host's clock the board is a process behind a pseudo-terminal, opened through the same path as a real one. On
any other clock, which a test moves, the board lives in memory and its firmware's pauses take no time.
"""

from __future__ import annotations

from pmtpy.backends import powersensor3
from pmtpy.core.clock import Clock, HostClock
from pmtpy.emulators._virtual_source import VirtualSource, check_device
from pmtpy.emulators.powersensor3._board import UPTIME_NS, Board
from pmtpy.emulators.powersensor3._memory import MemoryTransport
from pmtpy.emulators.powersensor3._spec import DEFAULT_PAIRS, BoardSpec, Stored, parse_pairs
from pmtpy.emulators.powersensor3._virtual import VirtualBoard
from pmtpy.emulators.powersensor3.serve import parse_fault
from pmtpy.emulators.world import World, shared_world
from pmtpy.errors import TargetError


class BoardSource(VirtualSource):
    """A source of the real backend, and the virtual board that it reads. Closing it ends the board.

    Attributes
    ----------
    board : VirtualBoard or Board
        The far side: on the host's clock its process, else the board itself.
    """

    def __init__(self, inner: powersensor3.PowerSensor3Source, board: VirtualBoard | Board, world: World) -> None:
        super().__init__(inner, world, leave=board.close if isinstance(board, VirtualBoard) else None)
        self.board = board


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    pairs: str = DEFAULT_PAIRS,
    variant: str = "F411",
    firmware: str = "1.6.1",
    noise: bool = True,
    seed: int | None = None,
    drift_ppm: float = 0.0,
    jitter_us: float = 0.0,
    stored: str = "good",
    streaming: bool = False,
    fault: str = "",
    transport: str = "relay",
) -> BoardSource:
    """Open the real backend on a virtual board.

    Parameters
    ----------
    load : str or None
        The load of the emulated world; None joins the one there is. Its whole power flows through the board.
    pairs : str
        A number from 1 to 4, or ``MODULE[:VOLTS[:SHARE[:NAME]]],...``.
    variant, firmware : str
        Microcontroller ("F411", "F401", "F407") and version.
    noise : bool
        As measured by the paper; off: a constant input gives a constant level.
    seed : int or None
        Of noise and faults; None: that of the world.
    drift_ppm : float
        How much faster the board's crystal runs than the host's clock.
    jitter_us : float
        Standard deviation of the board's timestamps, microseconds.
    stored : str
        State of the configuration in the flash: one of :class:`~pmtpy.emulators.powersensor3.Stored`.
    streaming : bool
        Left streaming by an earlier user.
    fault : str
        ``NAME:KEY=VALUE,...`` as for ``pmtpy sim powersensor3 --fault``.
    transport : {"relay", "direct"}
        How the host reads the port; without meaning for a board in memory.

    Raises TargetError: another device, or an option that names nothing.
    Raises BackendUnavailableError: the board cannot be measured (its flash is damaged on request), or did not start.
    """
    check_device("powersensor3", device)
    if stored not in [s.value for s in Stored]:
        raise TargetError(f"stored is one of {', '.join(s.value for s in Stored)}, not {stored!r}")
    world = shared_world(load, clock=clock)
    spec = BoardSpec(
        parse_pairs(pairs),
        variant,
        firmware,
        noise=noise,
        seed=world.seed if seed is None else seed,
        drift_ppm=drift_ppm,
        jitter_us=jitter_us,
        stored=Stored(stored),
        streaming=streaming,
    )
    faults = [parse_fault(fault)] if fault else []
    if isinstance(clock, HostClock):
        return _behind_a_terminal(spec, world, faults, transport)
    return _in_memory(spec, world, faults)


def _behind_a_terminal(
    spec: BoardSpec, world: World, faults: list[tuple[str, dict[str, float]]], transport: str
) -> BoardSource:
    board = VirtualBoard(world.spec, spec, epoch_ns=world.epoch_ns)
    try:
        for name, options in faults:
            board.inject(name, **options)
        inner = powersensor3.open_source(
            board.path, clock=world.clock, transport=transport, serial="virtual", virtual=True
        )
    except BaseException:
        board.close()
        raise
    return BoardSource(inner, board, world)


def _in_memory(spec: BoardSpec, world: World, faults: list[tuple[str, dict[str, float]]]) -> BoardSource:
    now_ns = world.clock.now_ns()
    board = Board(spec, world.load, epoch_ns=world.epoch_ns, start_ns=now_ns - UPTIME_NS, instant=True)
    line = MemoryTransport(board, world.clock)
    for name, options in faults:
        if name == "hold":
            line.hold(options["seconds"])
        else:
            board.inject(name, now_ns, **options)
    inner = powersensor3.open_source("virtual", clock=world.clock, transport=line, serial="virtual", virtual=True)
    return BoardSource(inner, board, world)
