"""A board for any host program: reads options, serves until Ctrl-C or until its starter is gone.

``pmtpy sim powersensor3 ...`` and ``python -m pmtpy.emulators.powersensor3 ...`` are this.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pmtpy.core import arguments
from pmtpy.emulators.powersensor3._pty_server import HOST_BUFFER_BYTES, PtyServer
from pmtpy.emulators.powersensor3._spec import DEFAULT_PAIRS, VARIANTS, BoardSpec, Stored, parse_pairs
from pmtpy.emulators.world import DEFAULT_LOAD
from pmtpy.errors import TargetError

EXAMPLES = """examples:
  pmtpy sim powersensor3
  pmtpy sim powersensor3 --load constant:60 --pairs 4 --link /tmp/ps3
  pmtpy sim powersensor3 --pairs MLX10:12:0.3:slot,MLX20:12:0.7:cable --fault lose:rate=1e-6
  pmtpy sim powersensor3 --firmware 1.2.0 --stored erased
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the virtual board to a parser."""
    add = parser.add_argument
    add(
        "--load",
        default=DEFAULT_LOAD,
        help="what flows: constant:60, square:low=30,high=90,hz=2, csv:FILE, ... (default %(default)s)",
    )
    add("--pairs", default=DEFAULT_PAIRS, help="a number, or MODULE[:VOLTS[:SHARE[:NAME]]],... (default %(default)s)")
    add("--variant", default="F411", choices=sorted(VARIANTS), help="microcontroller (default %(default)s)")
    add("--firmware", default="1.6.1", metavar="VERSION", help="old ones behave as they did (default %(default)s)")
    add("--no-noise", dest="noise", action="store_false", help="a constant input always gives the same level")
    add("--seed", type=int, default=1, help="of noise and faults (default %(default)s)")
    add(
        "--drift-ppm",
        type=float,
        default=0.0,
        metavar="PPM",
        help="how much faster than the host's its clock runs (default 0)",
    )
    add(
        "--jitter-us",
        type=float,
        default=0.0,
        metavar="US",
        help="standard deviation of its time stamps, in microseconds (default 0)",
    )
    add(
        "--stored",
        default="good",
        choices=[s.value for s in Stored],
        help="state of the configuration in its memory (default good)",
    )
    add("--streaming", action="store_true", help="as left by a program that did not stop it: it sends already")
    add("--hang-on-marker", action="store_true", help="hang, as the real firmware, when stopped with a marker pending")
    add(
        "--open-level",
        type=int,
        default=37,
        metavar="LEVEL",
        help="what unused inputs read, 0 to 1023 (default %(default)s); 1023 looks like the end of the stream",
    )
    add("--demo", action="store_true", help="call itself a demonstration build in its version")
    add("--flash-s", type=float, default=0.5, metavar="S", help="time to write the flash (default %(default)s)")
    add(
        "--boot-s",
        type=float,
        default=0.3,
        metavar="S",
        help="time from a reset until the port is back (default %(default)s)",
    )
    add("--fault", action="append", default=[], metavar="NAME:KEY=VALUE,...",
        help="a fault to rehearse (repeatable): lose:rate=1e-6,burst=3, garbage:rate=1e-6, "
        "stall:seconds=1, hold:seconds=1 or buffer:count=384")  # fmt: skip
    add("--fast", action="store_true", help="stream as fast as the host reads, in the board's own time")
    add(
        "--buffer",
        type=int,
        default=HOST_BUFFER_BYTES,
        metavar="BYTES",
        help="held for a host that does not read (default %(default)s)",
    )
    add(
        "--link", type=Path, help="symbolic link to the port; stays the same over unplugging (default: a temporary one)"
    )
    add("--epoch-ns", type=int, help="time.monotonic_ns() at which the load's time is 0 (default: now)")
    add("--control", action="store_true", help="take commands on stdin, one JSON object per line; end when it ends")


def _spec_of(options: argparse.Namespace) -> BoardSpec:
    """Return the board that the options describe."""
    return BoardSpec(
        parse_pairs(options.pairs),
        options.variant,
        options.firmware,
        demo=options.demo,
        noise=options.noise,
        seed=options.seed,
        drift_ppm=options.drift_ppm,
        jitter_us=options.jitter_us,
        stored=Stored(options.stored),
        streaming=options.streaming,
        hang_on_marker=options.hang_on_marker,
        open_level=options.open_level,
        flash_s=options.flash_s,
        boot_s=options.boot_s,
    )


def arguments_of(spec: BoardSpec) -> list[str]:
    """Return the options that describe a board: the inverse of :func:`_spec_of`."""
    switches = {"--no-noise": not spec.noise, "--demo": spec.demo, "--streaming": spec.streaming,
                "--hang-on-marker": spec.hang_on_marker}  # fmt: skip
    values = {
        "--pairs": ",".join(map(str, spec.pairs)),
        "--variant": spec.variant,
        "--firmware": spec.version,
        "--seed": spec.seed,
        "--drift-ppm": spec.drift_ppm,
        "--jitter-us": spec.jitter_us,
        "--stored": spec.stored.value,
        "--open-level": spec.open_level,
        "--flash-s": spec.flash_s,
        "--boot-s": spec.boot_s,
    }
    return [name for name, on in switches.items() if on] + [f"{name}={value}" for name, value in values.items()]


def parse_fault(text: str) -> tuple[str, dict[str, float]]:
    """Read ``name:key=value,...``.

    Raises TargetError: a value is not a number.
    """
    name, _, rest = text.partition(":")
    try:
        return name, {key: float(value) for key, _, value in (item.partition("=") for item in rest.split(",") if item)}
    except ValueError:
        raise TargetError(f"fault {text!r}: a fault is NAME:KEY=NUMBER,..., e.g. lose:rate=1e-6,burst=3") from None


def run(options: argparse.Namespace, *, asked_to_end: Callable[[], bool] = lambda: False) -> int:
    """Serve a board with parsed options until Ctrl-C or SIGTERM; say on stderr at the end what it did.

    ``asked_to_end`` tells whether a signal came before this listened to them.
    """
    with tempfile.TemporaryDirectory(prefix="pmtpy-board-") as folder:
        link = options.link or Path(folder) / "PowerSensor3"
        arguments.number(options.buffer, "a number of bytes to hold: 1 to 1e12", least=1, most=1e12)
        server = PtyServer(
            _spec_of(options),
            options.load,
            link,
            epoch_ns=options.epoch_ns,
            fast=options.fast,
            buffer_bytes=options.buffer,
            control=(sys.stdin.fileno(), sys.stdout.fileno()) if options.control else None,
        )
        for text in options.fault:
            server.inject(*parse_fault(text))
        # A handler that raises can be lost where C code calls Python back, so it only tells the server. A board that a
        # program started ends with its control line: a signal to a whole group is for the program.
        handler: Any = signal.SIG_IGN if options.control else lambda *_: server.stop()
        for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets the jobs of a script ignore SIGINT
            signal.signal(number, handler)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            signal.signal(signal.SIGHUP, handler)
        if asked_to_end():
            server.stop()
        start_ns = time.monotonic_ns()
        server.run(lambda: None if options.control else _say(f"{link}\n"))
        if not options.control:
            sys.stderr.write(_summary(server, start_ns))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _summary(server: PtyServer, start_ns: int) -> str:
    history = server.board.history
    truth = history.truth(start_ns, time.monotonic_ns())
    return (
        f"{history.frames} frames sent, {len(history.marks)} marked; the load took {truth.exact.sum():.3f} J "
        f"in all, {truth.sent_exact.sum():.3f} J while frames were sent\n"
    )


def serve(argv: Sequence[str] | None = None) -> int:
    """Put a virtual board behind a pseudo-terminal, print the path of its port, and serve until Ctrl-C.

    Parameters
    ----------
    argv : sequence of str or None
        Options as on the command line; None: those of this process.

    Returns
    -------
    int
        Exit status: 0, or 2 when an option is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="pmtpy sim powersensor3",
        description="A virtual PowerSensor3 board behind a pseudo-terminal, for any host program.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    options = parser.parse_args(argv)
    try:
        return run(options)
    except (TargetError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
