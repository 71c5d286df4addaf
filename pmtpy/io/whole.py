"""A file that is replaced as a whole: a reader sees the old one or the new one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from pmtpy.errors import SinkError


def write_whole(path: Path, facts: Mapping[str, object], *, indent: int | None = None) -> None:
    """Write facts as JSON, as :func:`put_whole` does."""
    put_whole(path, json.dumps(facts, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def put_whole(path: Path, text: str) -> None:
    """Write a file of JSON beside the place and put it there in one step.

    Bytes that are no UTF-8 (of a command or a path; Python keeps each as a lone surrogate) become JSON's own escapes,
    by which they are read as they were.

    Raises SinkError: it cannot be written.
    """
    draft = path.with_name(path.name + ".tmp")
    try:
        draft.unlink(missing_ok=True)  # what a writer that was killed left, or no file at all
        with draft.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        msg = f"cannot write {path}: {error.strerror or error}"
        raise SinkError(msg) from error
