"""A program that is asked for readings, as ``ipmitool``: whatever it does is an answer, or a failed reading."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.errors import ReadError

Ask = Callable[[Sequence[str]], bytes]
"""Runs the program with more arguments; returns what it prints."""


def asking(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Ask:
    """Return what asks a program; secrets belong into its environment, which other users do not see.

    What is returned raises :class:`ReadError` where the program is not there, does not answer in time, or fails.
    """
    name = Path(command[0]).name

    def ask(arguments: Sequence[str]) -> bytes:
        try:
            done = subprocess.run(
                [*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=timeout_s, env=dict(environment),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            msg = f"{name} has not answered within {timeout_s:g} s"
            raise ReadError(msg) from error
        except OSError as error:
            if of_a_handler(error):
                raise
            msg = f"{name} cannot be run: {error.strerror}"
            raise ReadError(msg) from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            msg = f"{name}: {said[-1] if said else f'status {done.returncode}'}"
            raise ReadError(msg)
        return done.stdout

    return ask
