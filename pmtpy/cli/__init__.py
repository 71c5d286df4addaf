"""The command line: ``pmtpy VERB``. One module per verb, imported when the verb is used.

Only this package prints, and only it knows about exit codes: 0 done, 2 usage, 3 sensor unavailable, 4 sensor lost while
running, 1 anything else; ``run`` and ``dump -- COMMAND`` return the command's own.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from pmtpy._extras import EXTRAS, missing
from pmtpy.cli._one_blas_thread import one_blas_thread
from pmtpy.cli.command import split_command
from pmtpy.cli.common import UNAVAILABLE, USAGE, configure_logging, exit_code, say
from pmtpy.cli.parser import Parser
from pmtpy.cli.stopping import Stop, Stopped
from pmtpy.cli.terminal import ClosedStdout, settle
from pmtpy.errors import PmtError, SinkError

VERBS: Mapping[str, str] = types.MappingProxyType(
    {
        "doctor": "say why each sensor works here or not, with the exact cure",
        "list": "show every backend and its devices, or why there are none",
        "read": "take one reading of each sensor, per channel",
        "top": "watch all sensors live on one screen",
        "view": "show sensors or recordings on a page in the browser",
        "serve": "give sensors to Prometheus as metrics",
        "run": "run a command and report its energy",
        "gather": "add up what the nodes of a job used",
        "bench": "repeat a command, or two in turns, until the energy is resolved",
        "dump": "log sensors continuously to files",
        "compare": "compare sensors that measure the same power",
        "plot": "draw power over time from recordings",
        "convert": "write a recording in another format",
        "config": "show and set what a PowerSensor3 board or a PMD-USB has stored",
        "characterise": "find out how a sensor behaves, from a recording or live",
        "certify": "judge a sensor by stated rules, under a load that is made for it",
        "calibrate": "write calibration profiles; predict energy at other clocks",
        "sim": "put a virtual board (PowerSensor3, PMD, PowerSensor2) behind a pseudo-terminal",
        "completion": "print the script that completes pmtpy's words in a shell",
    }
)

_WITH_COMMAND = {"run", "bench", "dump", "compare"}
_ANALYSE = {"calibrate", "certify", "characterise", "compare"}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def _parser(chosen: str | None) -> Parser:
    """Make the parser; only the chosen verb's module is imported."""
    parser = Parser(
        prog="pmtpy",
        description="Measure energy with every sensor a machine has, and say how far each number can be trusted.",
        epilog="examples:\n"
        "  pmtpy list                              what this machine has, and why a sensor is missing\n"
        "  pmtpy run -- ./solve                    what a command costs, by every sensor that works here\n"
        "  pmtpy run -s rapl:virtual -- sleep 1    the same on an emulated sensor: it runs anywhere\n\n"
        "'pmtpy VERB --help' explains a verb, with examples. A TARGET is name[:device], for\n"
        "example rapl, nvml:0, powersensor3:/dev/ttyACM0; NAME:virtual is the real code on an\n"
        "emulated device.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for verb, does in VERBS.items():
        sub = verbs.add_parser(
            verb,
            help=does,
            description=does[0].upper() + does[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if verb == chosen:
            sub.add_argument(
                "-v", "--verbose", action="count", default=0, help="say more on stderr; -vv says everything"
            )
            sub.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
            sub.set_defaults(parser=sub)
            importlib.import_module(f"pmtpy.cli.{verb}").add_arguments(sub)
    return parser


def _asked_by_a_shell() -> None:
    """Answer a shell that completes a line (argcomplete's variables are set); does not return then."""
    try:
        from pmtpy.cli.completion import answer
    except ImportError:
        return
    words = os.environ.get("COMP_LINE", "").split()[1:]
    answer(_parser(next((w for w in words if w in VERBS), None)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]  # `list` is a verb here, once it was used
    if sys.stderr is None:  # ``2>&-``: what is said must not go to stdout, nor files be opened in its place
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (as long as we run)
    if sys.stdout is None:
        sys.stdout = cast("TextIO", ClosedStdout())
    try:
        with Stop() as stop, stop.heard():
            return _main(words, stop)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        verb = next((w for w in words if w in VERBS), "")
        say(f"pmtpy {missing(package, verb)}")
        return UNAVAILABLE
    except Stopped as ended:
        return 128 + ended.number
    except KeyboardInterrupt:
        return 130


def _main(words: list[str], stop: Stop) -> int:
    """Run the verb that the words name; what cannot be told is no success."""
    args = argparse.Namespace(verb=None)
    try:
        code = _run(words, stop, args)
        sys.stdout.flush()
    except PmtError as error:
        say(f"{_name(args)}: {error}")
        return _ended(args) or exit_code(error)
    except BrokenPipeError:  # whoever read our output has gone, having seen enough
        return _ended(args) or 0
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        refused = SinkError(f"cannot write the result: {error.strerror}; free some room, or write elsewhere")
        say(f"{_name(args)}: {refused}")
        return _ended(args) or exit_code(refused)
    finally:
        for stream in (sys.stdout, sys.stderr):
            settle(stream)
    return code


def _name(args: argparse.Namespace) -> str:
    return f"pmtpy {args.verb}" if args.verb else "pmtpy"


def _ended(args: argparse.Namespace) -> int | None:
    """Return the status of a command that has ended: ours too, unless it is 0 and what we tell is lost."""
    status: int | None = getattr(args, "ended", None)
    return status


def _run(words: list[str], stop: Stop, args: argparse.Namespace) -> int:
    """Parse the words into ``args`` and run the verb; return the exit code."""
    if "_ARGCOMPLETE" in os.environ:
        _asked_by_a_shell()
    ours, command = split_command(words)
    chosen = next((w for w in ours if not w.startswith("-")), None)
    parser = _parser(chosen)
    try:
        _, left = parser.parse_known_args(ours, args)
    except SystemExit:  # help and version are results as well
        sys.stdout.flush()
        raise
    if left:
        hint = "" if left[0].startswith("-") or args.verb not in _WITH_COMMAND else "; a command goes after --"
        understood: Parser = getattr(args, "parser", parser)
        understood.unknown(left, hint)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return USAGE
    if command and args.verb not in _WITH_COMMAND:
        args.parser.error(f"{args.verb} takes no command after --")
    args.command, args.stop, args.ended = command, stop, None
    configure_logging(args.verbose, quiet=args.quiet)
    verb = importlib.import_module(f"pmtpy.cli.{args.verb}")
    with stop.heard(), one_blas_thread() if args.verb in _ANALYSE else contextlib.nullcontext():
        code: int = verb.run(args)
    return code


class _Version(argparse.Action):
    """Prints the version, which is looked up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from pmtpy._version import __version__

        print(f"pmtpy {__version__}")
        parser.exit()
