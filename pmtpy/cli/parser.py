"""The parser of the command line: argparse's, with the nearest name where one is mistyped, and help for a terminal."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, NoReturn

from pmtpy.cli.terminal import console_of, help_on
from pmtpy.core.nearest import nearest
from pmtpy.errors import TargetError

_EXAMPLES = re.compile(r"^examples?:\n(?:  .*(?:\n|$))+", re.MULTILINE)


class Parser(argparse.ArgumentParser):
    """argparse's parser; a mistyped verb, choice or option is answered with the nearest one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # `--for -1s` is a value that is wrong, and is told so; argparse would take it for an option.
        self._negative_number_matcher = re.compile(r"^-\.?\d")

    def format_help(self) -> str:
        """Return the help, its examples before the options: they are what most come for."""
        text = self.epilog or ""
        shown = _EXAMPLES.search(text)
        before, examples, behind = (text[: shown.start()], shown[0], text[shown.end() :]) if shown else ("", "", text)
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        wrapped = argparse.HelpFormatter(self.prog)  # that of a verb leaves lines as they are
        wrapped.add_text(self.description)
        formatter.add_text(wrapped.format_help().strip("\n"))
        formatter.add_text(examples)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)  # noqa: SLF001  (as argparse itself does)
            formatter.end_section()
        formatter.add_text(f"{before}{behind}".strip("\n"))
        return formatter.format_help()

    def options(self) -> list[str]:
        """Return the options that this parser knows."""
        return list(self._option_string_actions)

    def unknown(self, words: list[str], hint: str = "") -> NoReturn:
        """End the program over words that nobody understands."""
        word = words[0].partition("=")[0]
        near = nearest(word, self.options()) if word.startswith("-") else ""
        if word in self.options():
            near = f" there: it stands behind {self.prog}"
        self.error(f"{' '.join(words)}: not understood{hint}{near}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and "" in arg_strings:  # what a script makes of a variable that is not set
            raise argparse.ArgumentError(action, "it needs a value, and this is empty")
        return super()._get_values(action, arg_strings)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if callable(action.type):
            try:
                return action.type(arg_string)
            except TargetError as error:  # says more than argparse would, which asks again
                raise argparse.ArgumentError(action, str(error)) from error
            except (ValueError, TypeError):
                pass
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            msg = f"{str(value)!r} is not one of: {', '.join(known)}{nearest(str(value), known)}"
            raise argparse.ArgumentError(action, msg)

    def _print_message(self, message: str, file: Any = None) -> None:
        stream: Any = sys.stderr if file is None else file
        console = console_of(stream) if message else None
        if console is None and stream is sys.stdout:
            stream.write(message)  # argparse forgives what is not written
        elif console is None:
            super()._print_message(message, stream)
        else:
            help_on(console, message)
