"""How the relay process is started: with which interpreter, and with which program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pmtpy.backends._serial import _relay as relay
from pmtpy.errors import BackendUnavailableError


def relay_command(backend: str) -> list[str]:
    """Return the command of the relay, to which its arguments are added; ``backend`` is whose errors they are.

    Raises BackendUnavailableError: there is no interpreter, or no program for it.
    """
    return [*_interpreter(backend), "-I", "-S", *_program(backend)]


def no_relay(backend: str, why: str) -> BackendUnavailableError:
    """Make the error of a relay that cannot run; the cure is to do without."""
    return BackendUnavailableError(backend, why, 'open the device with transport="direct" (-o transport=direct)')


def _interpreter(backend: str) -> list[str]:
    """Return the command of a Python interpreter: this one, or where Python is embedded the one beside its library.

    Another program that is told to run the relay would do something else, so it is not tried.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [sys.executable, getattr(sys, "_base_executable", "")]
    candidates += [f"{prefix}/bin/{name}" for prefix in (sys.prefix, sys.base_prefix)]
    for candidate in candidates:
        file = Path(candidate or "/").name.lower()
        if ("python" in file or "pypy" in file) and os.access(candidate, os.X_OK) and not getattr(sys, "frozen", False):
            return [candidate]
    embedded = f"sys.executable is {sys.executable!r}" + (", a frozen program" if hasattr(sys, "frozen") else "")
    raise no_relay(backend, f"this program has no Python interpreter to start the relay process with ({embedded})")


def _program(backend: str) -> list[str]:
    """Return the arguments that make an interpreter run the relay; its text where it lies in an archive."""
    if Path(relay.__file__).is_file():
        return [relay.__file__]
    spec = relay.__spec__
    source = getattr(spec.loader if spec else None, "get_source", lambda _: None)(relay.__name__)
    if not source:
        raise no_relay(backend, f"the relay process cannot be found: {relay.__file__} is not a file")
    return ["-c", source]
