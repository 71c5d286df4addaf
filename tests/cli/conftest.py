"""How the command line is run in tests: as a user runs it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from pmtpy.emulators.powersensor3 import VirtualBoard
from tests.support.prepared import Prepared

ROOT = Path(__file__).parents[2]
Pmtpy = Callable[..., "subprocess.CompletedProcess[str]"]
Started = Callable[..., "subprocess.Popen[str]"]


def _environment() -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PMT_")}
    return {**clean, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def pmtpy(tmp_path: Path, prepared: Prepared) -> Pmtpy:
    """Run ``pmtpy ARGS`` in an empty folder and return what it did."""

    def run(*args: object, env: Mapping[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
        environment = {**_environment(), **(env or {})}
        of_the_interpreter = any(name.startswith(("PYTHON", "LANG", "LC_")) for name in env or ())
        command = [sys.executable, "-m", "pmtpy"] if of_the_interpreter else prepared.command
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            [*command, *map(str, args)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False, **options,
        )  # fmt: skip

    return run


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Start ``pmtpy ARGS`` in an empty folder; what still runs at the end is killed."""
    children: list[subprocess.Popen[str]] = []

    def start(*args: object, **options: object) -> subprocess.Popen[str]:
        environment = {**_environment(), **options.pop("env", {})}  # type: ignore[dict-item]
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        child = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, "-m", "pmtpy", *map(str, args)], cwd=tmp_path, env=environment, text=True, **settings
        )
        children.append(child)
        return child  # type: ignore[no-any-return]

    yield start
    for child in children:
        child.kill()
        child.wait()
        for pipe in filter(None, (child.stdin, child.stdout, child.stderr)):  # what it started may still hold them
            pipe.close()


def wait_for(condition: Callable[[], bool], limit_s: float = 240.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def board() -> Iterator[VirtualBoard]:
    """A virtual board behind a pseudo-terminal."""
    with VirtualBoard(load="constant:60") as virtual:
        yield virtual
