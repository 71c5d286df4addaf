"""The content of a recording, and the account of lines in it that cannot be read."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from pmtpy.core.rows import Floats
from pmtpy.errors import FileFormatError

_NAMED = 5  # broken lines that a message names one by one


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzip."""
    content = path.read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{path} is not whole: {error}"
        raise FileFormatError(msg) from error


class Recording:
    """The content of one file, and what is wrong with it.

    Attributes
    ----------
    path : Path
    content : bytes
        Decompressed.
    broken_lines : list of int
        Numbers of the lines that could not be read, from 1.
    """

    def __init__(self, path: Path, content: bytes, *, skip_broken: bool) -> None:
        self.path = path
        self.content = content
        self.broken_lines: list[int] = []
        self._skip_broken = skip_broken
        self._reasons: list[str] = []

    def first_line(self) -> str:
        """Return the first line, as far as it is text."""
        return self.content[:4096].split(b"\n", 1)[0].decode("utf-8", "replace").strip()

    def lines(self) -> list[bytes]:
        """Return the lines without their ends. A last line that looks cut off is reported and left out."""
        lines = self.content.split(b"\n")
        last = lines.pop()
        if last:
            if looks_cut(last, lines[-1] if lines else b""):
                self.broken(len(lines) + 1, "it has no end (was the writer stopped while writing it?)")
                last = b""
            lines.append(last)
        return [line.rstrip(b"\r") for line in lines]

    def broken(self, number: int, why: str) -> None:
        """Note that line ``number`` cannot be read."""
        self.broken_lines.append(number)
        if len(self._reasons) < _NAMED:
            self._reasons.append(f"line {number}: {why}")

    def judge(self) -> None:
        """Raise if there are broken lines that were not to be skipped. Call when all lines were seen."""
        self.broken_lines.sort()
        if self._skip_broken or not self.broken_lines:
            return
        more = len(self.broken_lines) - len(self._reasons)
        msg = f"{self.path}: " + "; ".join(self._reasons) + (f"; and {more} more" if more else "")
        raise FileFormatError(msg + ". skip_broken=True leaves such lines out")

    def error(self, why: str) -> FileFormatError:
        """Make an error about the file as a whole."""
        return FileFormatError(f"{self.path}: {why}")

    def numbers(self, lines: list[bytes], at: list[int], width: int) -> tuple[Floats, list[int]]:
        """Read blank-separated numbers; return them, shape (n, width), and the numbers of the lines they stand in.

        ``at`` holds the number of each line. Lines of another width, or with anything else in them, are broken.
        """
        fields = [line.split() for line in lines]
        good = [i for i, row in enumerate(fields) if len(row) == width]
        try:
            table = np.array([fields[i] for i in good], dtype=np.bytes_).astype(np.float64)
        except ValueError:
            good = [i for i in good if all(map(_is_number, fields[i]))]
            table = np.array([fields[i] for i in good], dtype=np.bytes_).astype(np.float64)
        kept = set(good)
        for i, row in enumerate(fields):
            if i not in kept:
                why = f"{len(row)} fields where there should be {width}" if len(row) != width else "not all are numbers"
                self.broken(at[i], why)
        return table.reshape(-1, width), [at[i] for i in good]


def looks_cut(last: bytes, before: bytes) -> bool:
    """Whether a last line without an end is cut off: its last field is written otherwise than in the line before.

    Loggers write a column with the same number of decimals throughout, so a number that was cut in two shows.
    """
    if last.count(b",") != before.count(b",") or len(last.split()) != len(before.split()):
        return True
    a, b = (line.replace(b",", b" ").split()[-1:] for line in (last, before.rstrip(b"\r")))
    return [len(f.partition(b".")[2]) for f in a] != [len(f.partition(b".")[2]) for f in b]


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
