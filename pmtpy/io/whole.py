"""A file that is replaced as a whole: a reader sees the old one or the new one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from pmtpy.errors import SinkError
from pmtpy.io import _locks

_DRAFT = re.compile(r"(.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)


def write_whole(path: Path, facts: Mapping[str, object], *, indent: int | None = None) -> None:
    """Write facts as JSON, as :func:`put_whole` does."""
    put_whole(path, json.dumps(facts, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def put_whole(path: Path, text: str) -> None:
    """Write a file of JSON beside the place and put it there in one step.

    Of several writers at once the last wins: each has a draft of its own. Only one that is killed leaves it behind.
    Bytes that are no UTF-8 (of a command or a path; Python keeps each as a lone surrogate) become JSON's own escapes,
    by which they are read as they were.

    Raises SinkError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise SinkError(msg) from error
    finally:  # an interrupt, too
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Keep others that ask with the same lock waiting: for who looks at a file and then puts another in its place.

    The lock is an empty file, which stays. A program that ends in any way gives it back. Where the file system has no
    locks nobody waits.

    Raises SinkError: the file cannot be made.
    """
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        msg = f"cannot write {lock}: {error.strerror or error}"
        raise SinkError(msg) from error
    try:
        _locks.wait(fd)
        yield
    finally:
        _locks.give_back(fd)
        os.close(fd)


def draft_of(name: str) -> str:
    """Return the name of the file of which ``name`` is a draft that was left behind; empty: it is none."""
    found = _DRAFT.fullmatch(name)
    return found[1] if found else ""
