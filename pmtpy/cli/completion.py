"""``pmtpy completion``: the script that lets a shell complete verbs, targets, formats and options.

The completing itself is argcomplete's, which asks this program for the words at each TAB; what is known here is which
targets there are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from pmtpy._extras import extra
from pmtpy.errors import PmtError
from pmtpy.sensor.registry import BACKENDS, VIRTUAL, list_sensors

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    parser.epilog = (
        "Put the line of your shell into its start-up file:\n"
        '  bash (~/.bashrc):  eval "$(pmtpy completion bash)"\n'
        '  zsh  (~/.zshrc):   eval "$(pmtpy completion zsh)"\n'
        "  fish (~/.config/fish/config.fish):  pmtpy completion fish | source\n\n"
        "examples:\n"
        "  pmtpy completion bash\n"
        "  pmtpy completion fish"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    with extra("argcomplete", "completion"):
        from argcomplete.shell_integration import shellcode
    sys.stdout.write(shellcode(["pmtpy"], shell=args.shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Tell the shell what could stand at the cursor, and end the program; it runs only when a shell asked."""
    import argcomplete

    for action in _actions(parser):
        if action.dest in {"targets", "target", "sensor"} and action.metavar == "TARGET":
            action.completer = _targets  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  (argparse has no other list of its arguments)
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  (the same)
            for sub in action.choices.values():
                yield from _actions(sub)


def _targets(**_state: object) -> list[str]:
    """Every name, every device found on this machine, and every virtual device."""
    try:
        found = [line.target for line in list_sensors()]
    except PmtError:  # a completion that fails is one that has nothing to offer
        found = []
    return sorted({*BACKENDS, *found, *(f"{name}:{VIRTUAL}" for name in BACKENDS)})
