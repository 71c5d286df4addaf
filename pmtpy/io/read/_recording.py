"""The content of a recording, and the account of lines in it that cannot be read."""

from __future__ import annotations

import contextlib
import gzip
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pmtpy.errors import FileFormatError
from pmtpy.io.read._memory import Budget, free_bytes
from pmtpy.io.read._sidecar import beside

_NAMED = 5  # broken lines that a message names one by one
_HEAD = 1 << 16  # bytes by which the format is told
_BLOCK = 1 << 21  # bytes of lines that are read at once: less is slower, more takes memory and is not faster
_MARK = b"\xef\xbb\xbf"  # before a text that a spreadsheet has saved as UTF-8
_GZIP = b"\x1f\x8b"
_UNSUSPECTED = 1 << 26  # bytes that may always be unpacked
_RATIO = 200  # text of ours packs to a fifth or a tenth, and nothing whose times go on to less than a hundredth
_COST = 8  # bytes of memory per byte of a text that is taken apart line by line
_CUT = "it has no end (was the writer stopped while writing it?)"


class Recording:
    """One file, gzip undone, and what is wrong with it.

    Parameters
    ----------
    skip_broken : bool
        Whether lines that cannot be read are left out; else :meth:`judge` raises.
    utc_offset_s, ticks_per_ms : float or None
        As :func:`pmtpy.load` was asked.
    only : str or None
        The one power whose column and energy are asked for: those of others are checked, and need not be held.

    Attributes
    ----------
    budget : Budget
        What reading it may take.
    facts : dict or None
        The metadata beside it, or in it.
    no_facts : str
        Why there are none.
    spoilt : bool
        Whether there are some that cannot be believed.
    packed : bool
        Whether it is compressed.
    head : bytes
        How it starts.
    broken_lines : list of int
        Numbers of the lines that could not be read, from 1.
    notes : list of str
        What is to be said about it besides.
    unit : str
        What is counted: lines, or what takes their place.
    """

    def __init__(
        self,
        path: Path,
        *,
        skip_broken: bool,
        utc_offset_s: float | None = None,
        ticks_per_ms: float | None = None,
        only: str | None = None,
    ) -> None:
        self.path = path
        self.utc_offset_s, self.ticks_per_ms, self.only = utc_offset_s, ticks_per_ms, only
        known = beside(path)
        self.facts, self.no_facts, self.spoilt = known.facts, known.why, known.spoilt
        self.budget = Budget(path, free_bytes())
        self.notes: list[str] = []
        self.unit = "line"
        self.broken_lines: list[int] = []
        self._skip_broken = skip_broken
        self._reasons: list[str] = []
        with path.open("rb") as raw:
            self.packed = raw.read(len(_GZIP)) == _GZIP
        with self._opened() as file:
            self.head = self._take(file, _HEAD)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with self.path.open("rb") as file:
            if not self.packed:
                if file.read(len(_MARK)) != _MARK:
                    file.seek(0)
                yield file
                return
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]

    def _take(self, file: IO[bytes], size: int) -> bytes:
        """Read on; a file that unpacks to what no recording does is refused before it is unpacked."""
        try:
            part = file.read(size)
            if self.packed and file.tell() > max(_UNSUSPECTED, _RATIO * self.path.stat().st_size):
                raise self.error(f"it unpacks to more than {_RATIO} times its size; if you trust it, unpack it first")
            return part  # noqa: TRY300
        except (OSError, EOFError, zlib.error) as error:
            msg = f"{self.path} is not whole: {error}; copy it again from its source"
            raise FileFormatError(msg) from error

    def first_line(self) -> str:
        """Return the first line, as far as it is text."""
        return self.head[:4096].split(b"\n", 1)[0].decode("utf-8", "replace").strip()

    def content(self, cost: int = 1) -> bytes:
        """Return everything; refused if it takes more memory than there is, at ``cost`` bytes for each of its bytes."""
        return b"".join(self.parts(cost))

    def parts(self, cost: int = 1) -> Iterator[bytes]:
        """Yield everything, some megabytes at a time; refused as :meth:`content` is."""
        size = 0
        with self._opened() as file:
            while part := self._take(file, _BLOCK):
                size += len(part)
                self.budget.allow(size * cost, f"the recording of {size / 1e6:.0f} MB or more")
                yield part

    def blocks(self, first: int = 2, cost: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from ``first`` (1 or 2) on, some megabytes at a time, and the number of the first of them.

        Refused once they take more memory than there is, at ``cost`` bytes for each of theirs.

        A last line without an end is given one, unless it looks cut off: then it is reported and left out.
        """
        number, rest, before, size = 1, b"", b"", 0
        with self._opened() as file:
            while part := self._take(file, _BLOCK):
                size += len(part)
                self.budget.allow(size * cost, f"the recording of {size / 1e6:.0f} MB or more")
                end = part.rfind(b"\n") + 1
                block, rest = (rest + part[:end], part[end:]) if end else (b"", rest + part)
                self.budget.allow(len(rest) * _COST, "a line without an end")
                if block and number < first:
                    block, number = block[block.find(b"\n") + 1 :], first
                if block:
                    before = block[block.rfind(b"\n", 0, -1) + 1 : -1]
                    yield number, block
                    number += block.count(b"\n")
        if rest and number >= first:
            if _looks_cut(rest, before):
                self.cut(number)
            else:
                yield number, rest + b"\n"

    def broken(self, number: int, why: str) -> None:
        """Note that line ``number`` cannot be read."""
        self.broken_lines.append(number)
        if len(self._reasons) < _NAMED:
            self._reasons.append(f"{self.unit} {number}: {why}")

    def cut(self, number: int) -> None:
        """Note that the last line is cut off: what a writer that was killed may leave, and says it left."""
        if self.facts is not None and self.facts.get("complete") is False:
            self.broken_lines.append(number)
            self.notes.append(f"line {number}, the last, was cut off when the writer was stopped, and is left out")
        else:
            self.broken(number, _CUT)

    def judge(self) -> None:
        """Raise if there are broken lines that were not to be skipped. Call when all lines were seen."""
        self.broken_lines.sort()
        if self._skip_broken or not self._reasons:
            return
        more = len(self.broken_lines) - len(self._reasons)
        msg = f"{self.path}: " + "; ".join(self._reasons) + (f"; and {more} more" if more > 0 else "")
        cure = "skip_broken=True leaves them out, as does --skip-broken on the command line"
        raise FileFormatError(f"{msg}. {cure}")

    def empty(self, why: str) -> FileFormatError:
        """Make the error of a file of which no row is left, where that is not the fault of its lines."""
        self.judge()
        return self.error(why)

    def error(self, why: str) -> FileFormatError:
        """Make an error about the file as a whole."""
        return FileFormatError(f"{self.path}: {why}")


def check_opens(path: Path) -> None:
    """Raise what keeps a recording from being opened: that is a matter of the path, what follows one of the content.

    Raises OSError: it cannot be opened.
    Raises FileFormatError: it is a pipe or a device, of which nothing can be read twice, and an end may never come.
    """
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        msg = f"{path} is no ordinary file, and a recording is read more than once: write it into a file first"
        raise FileFormatError(msg)
    path.open("rb").close()


def _looks_cut(last: bytes, before: bytes) -> bool:
    """Whether a last line without an end is cut off: its last field is written otherwise than in the line before.

    Loggers write a column with the same number of decimals throughout, so a number that was cut in two shows.
    """
    if last.count(b",") != before.count(b",") or len(last.split()) != len(before.split()):
        return True
    a, b = (line.replace(b",", b" ").split()[-1:] for line in (last, before.rstrip(b"\r")))
    return [len(f.partition(b".")[2]) for f in a] != [len(f.partition(b".")[2]) for f in b]
