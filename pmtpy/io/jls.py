"""What stands where in a JLS file of ours, and reading parts of one without the rest. Needs ``pyjls``.

JLS is the format of the Joulescope: chunks of samples at a fixed rate, over each signal a pyramid of mean, standard
deviation, minimum and maximum, annotations, and a map of sample numbers to Unix time. Here

* each watt, volt and ampere column is a signal of 32-bit floats, named as in a CSV file; lost samples are NaN;
* ``elapsed`` and the joules are 64-bit signals of one value for every ``stride`` samples, exact at those. Between them
  the energy follows the watts, as it does in the sensor, and meets the next one;
* marks are text annotations of the first signal, in group 0; losses are in group 1, ``37 lost`` at the sample behind;
* metadata are JSON in user data: 1 at the start, 2 at the first row, 3 at the end.

A gap is as long as the number of lost samples, but never longer than ten seconds; ``elapsed`` knows how long it was.

Source: format and library of jetperch/jls 0.17 (``include/jls/format.h``). Its reader mends a file that was not closed,
in place, so a file that is still being written must not be opened: the writer holds a lock on it. One that was closed,
and is shorter now than its header says, was cut: mended it would look whole without the end of its rows or of their
times, and where more than some thousand bytes are missing the library breaks off, or the process with it. So it is
refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from pmtpy.core.closing import Closing
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import FileFormatError
from pmtpy.io import _locks
from pmtpy.io.columns import mean_columns

MAGIC = b"jlsfmt\r\n \n \x1a  "
AT_START, AT_FIRST, AT_END = 1, 2, 3
MARK, LOSS = 0, 1
LONGEST_GAP_S = 10
CHECKPOINTS_HZ = 100
"""Of elapsed time and joules; a slower signal has one at each sample."""

_LENGTH = slice(16, 24)  # of the file, in its header; 0 until it is closed
_LOG = "pyjls.c"
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Statistics(NamedTuple):
    """Mean, least and greatest value in each of several equal stretches; NaN where there is no sample."""

    mean: Floats
    low: Floats
    high: Floats


class Complaints(logging.Handler):
    """Collects what the library says while it is attached, instead of stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error; the rest (that a file was not closed) is told by the reader in its own words."""
        if record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())

    def attach(self) -> None:
        """Listen from now on."""
        logger = logging.getLogger(_LOG)
        logger.addHandler(self)
        logger.propagate = False  # of this library alone: a program's own log is not to fill with its inner workings

    def detach(self) -> None:
        """Listen no more."""
        logging.getLogger(_LOG).removeHandler(self)


@contextlib.contextmanager
def listening() -> Iterator[Complaints]:
    """Collect what the library says during the with-statement."""
    heard = Complaints()
    heard.attach()
    try:
        yield heard
    finally:
        heard.detach()


class JlsFile(Closing):
    """An open JLS file of ours. Used by one thread at a time; close it, or use a with-statement.

    Attributes
    ----------
    facts : dict
        The metadata, as of the end where there is one.
    rate, stride : int
        Samples a second (nominal), and samples for each value of ``elapsed`` and joules.
    names, joules : tuple of str
        Signals of samples, and of joules.
    length : int
        Sample numbers, gaps included: as far as there are times.
    notes : tuple of str
        What it lacks: it had no end, as its writer was stopped (the library has given it one), or times.
    start_unix_s : float
        Of the first row; NaN: there is none.

    Raises FileFormatError: it is still being written, was cut short, is damaged, or is not one of ours.
    """

    def __init__(self, path: Path) -> None:
        import pyjls

        self.path = path
        with path.open("rb") as file:
            stated, there = int.from_bytes(file.read(_LENGTH.stop)[_LENGTH], "little"), path.stat().st_size
            if stated > there:
                why = f"it was cut short: {there:,} of its {stated:,} bytes are there"
                raise self._error(f"{why}; copy it again from its source")
            if not stated and not _locks.take(file.fileno(), exclusive=False):
                why = "it is still being written; read it when the dump has ended, or dump to CSV or Parquet"
                raise self._error(why)
            self._file = self._ask(pyjls.Reader, str(path))
        self.facts, first = self._metadata()
        notes = []
        if not stated and self.facts.get("rows") is not None:  # else the metadata tell that it was not ended
            notes.append("the file had no end: its writer was stopped; read up to its last whole chunk")
        kept = self.facts["jls"]
        self.rate, self.stride = int(kept["rate"]), int(kept["stride"])
        self.names, self.joules = tuple(kept["signals"]), tuple(kept["joules"])
        self._ids = {signal.name: int(i) for i, signal in self._file.signals.items() if i}
        self._marked = min(self._ids.values(), default=0)
        samples = [self._file.signals[self._ids[n]].length for n in self.names if n in self._ids]
        dated = [self._file.signals[self._ids[n]].length for n in ("elapsed", *self.joules) if n in self._ids]
        self.checkpoints = int(min(dated, default=0))
        self.length = int(min([*samples, self.checkpoints * self.stride]))
        behind = int(max(samples, default=self.length)) - self.length
        if behind:
            notes.append(f"left out {amount(behind, 'sample')} at its end, without times or energies")
        self.notes = tuple(notes)
        if notes or not stated:
            self.facts["complete"] = False
        self.start_unix_s = first["unix_ns"] / 1e9 if first else float("nan")
        self._longest_gap = self.rate * LONGEST_GAP_S

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _error(self, why: str) -> FileFormatError:
        return FileFormatError(f"{self.path}: {why}")

    def _ask(self, what: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Return what the library answers; all that it does with the file is asked here.

        Raises FileFormatError: it cannot make sense of the file.
        """
        with listening() as heard:
            try:
                return what(*arguments, **named)
            except (RuntimeError, ValueError) as error:
                why = f"it is damaged, or not whole: {'; '.join([str(error), *heard.errors[:1]])}"
                raise self._error(f"{why}; copy it again from its source, or from a copy") from error

    def _metadata(self) -> tuple[dict[str, Any], dict[str, int]]:
        found: dict[int, bytes] = {}

        def take(kind: int, content: bytes | str) -> bool:
            found[kind] = content.encode() if isinstance(content, str) else content
            return False

        self._ask(self._file.user_data, take)
        try:
            facts = json.loads(found.get(AT_END) or found[AT_START])
            facts["jls"]["signals"]
            return facts, json.loads(found[AT_FIRST]) if AT_FIRST in found else {}
        except (KeyError, ValueError, TypeError) as error:
            raise self._error(
                "it is a JLS file, but not one of pmtpy (the Joulescope UI exports its own as CSV), or the dump was"
                " stopped before anything of it was on the disk: then it holds no rows"
            ) from error

    # -- samples ---------------------------------------------------------------------------------------------------

    def samples(self, name: str, first: int, last: int) -> Floats:
        """Return the samples ``first`` to ``last`` (not included) of a signal."""
        values = self._ask(self._file.fsr, self._ids[name], first, last - first)
        return np.asarray(values, np.float64)

    def statistics(self, name: str, first: int, step: int, count: int) -> Statistics:
        """Return mean, minimum and maximum of ``count`` stretches of ``step`` samples from ``first`` on.

        From the pyramid: the cost does not grow with ``step``. Inner borders are as sharp as the pyramid's.
        """
        with np.errstate(all="ignore"):
            found = np.asarray(self._ask(self._file.fsr_statistics, self._ids[name], first, step, count), np.float64)
        return Statistics(found[:, 0], found[:, 2], found[:, 3])

    def annotations(self, first: int, last: int) -> tuple[list[tuple[int, str]], list[tuple[int, int]]]:
        """Return marks and losses, each with its sample number, from ``first`` to ``last`` (not included)."""
        marks: list[tuple[int, str]] = []
        losses: list[tuple[int, int]] = []

        def take(at: int, _y: object, _kind: int, group: int, content: object) -> bool:
            if at >= last:
                return True
            text = content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
            if at >= first:  # the index may lead to some before
                if group == LOSS:
                    losses.append((at, int(text.split()[0])))
                else:
                    marks.append((at, text))
            return False

        if self._marked:
            self._ask(self._file.annotations, self._marked, first, take)
        return marks, losses

    # -- time and energy -------------------------------------------------------------------------------------------

    def elapsed(self, first: int, last: int) -> tuple[Ints, Floats]:
        """Return the checkpoints of time that surround the samples ``first`` to ``last``: numbers and seconds."""
        return self._checkpoints("elapsed", first, last)

    def _checkpoints(self, name: str, first: int, last: int) -> tuple[Ints, Floats]:
        start = min(first // self.stride, max(0, self.checkpoints - 2))
        stop = min(-(-last // self.stride) + 1, self.checkpoints)
        number: Ints = np.arange(start, max(stop, start), dtype=np.int64)
        values = self._ask(self._file.fsr, self._ids[name], start, len(number)) if len(number) else np.empty(0)
        return number * self.stride, np.asarray(values, np.float64)

    def times(self, ids: Ints) -> Floats:
        """Return the seconds since the first row of sample numbers in order."""
        if not len(ids):
            return np.empty(0)
        at, seconds = self.elapsed(int(ids[0]), int(ids[-1]) + 1)
        return np.asarray(self._between(ids, at, seconds))

    def times_at(self, ids: Ints) -> Floats:
        """Return the seconds since the first row of some sample numbers, which may lie far apart."""
        return np.array([float(self.times(ids[i : i + 1])[0]) for i in range(len(ids))])

    def energies(self, name: str, ids: Ints) -> Floats:
        """Return an energy at some sample numbers, which may lie far apart: by straight lines between checkpoints."""
        found = np.empty(len(ids))
        for i, at in enumerate(ids.tolist()):
            numbers, joules = self._checkpoints(name, at, at)
            if len(numbers) and at <= numbers[-1]:
                found[i] = np.interp(at, numbers, joules)
            else:  # behind the last checkpoint: counted on, from the watts
                rows = self.rows(at, at + 1)[0][name]
                found[i] = rows[-1] if len(rows) else np.nan
        return found

    def _between(self, ids: Ints, at: Ints, seconds: Floats) -> Floats:
        if not len(at):
            return np.asarray(ids / self.rate)
        found = np.interp(ids, at, seconds)
        behind = ids > at[-1]
        found[behind] = seconds[-1] + (ids[behind] - at[-1]) / self.rate
        return np.asarray(found)

    def sample_at(self, seconds: float) -> int:
        """Return the number of the first sample at or after ``seconds`` since the first row; :attr:`length` if none."""
        low, high = 0, self.checkpoints  # the checkpoint before it is in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            value = float(self._ask(self._file.fsr, self._ids["elapsed"], middle, 1)[0])
            low, high = (middle, high) if value < seconds else (low, middle)
        first = low * self.stride
        last = self.length if low >= self.checkpoints - 1 else min(self.length, first + self.stride + 1)
        found = int(np.searchsorted(self.times(np.arange(first, last)), seconds)) + first
        return min(found, self.length)

    def rows(self, first: int, last: int) -> tuple[dict[str, npt.NDArray[Any]], list[tuple[int, str]]]:
        """Return the rows among the samples ``first`` to ``last`` (not included): columns and marks by row.

        ``elapsed`` and ``lost`` come first, then the signals, then the joules since the first row of the file.
        """
        begin = first // self.stride * self.stride  # energy is counted on from a checkpoint
        last = min(last, self.length)
        marks, losses = self.annotations(begin, last + self._longest_gap + 1)
        ids: Ints = np.arange(begin, max(last, begin), dtype=np.int64)
        there = np.ones(len(ids), np.bool_)
        lost = np.zeros(len(ids), np.int64)
        for at, count in losses:
            there[max(0, at - min(count, self._longest_gap) - begin) : max(0, at - begin)] = False
            if at < last:
                lost[at - begin] = count
        ids, lost = ids[there], lost[there]
        seconds = self.times(ids)
        columns: dict[str, npt.NDArray[Any]] = {"elapsed": seconds, "lost": lost}
        for name in self.names:
            columns[name] = self.samples(name, begin, last)[there] if last > begin else np.empty(0)
        means = mean_columns(self.facts)
        for name in self.joules:
            watts = columns[name.removesuffix("_J") + "_W"]
            columns[name] = self._energy(name, ids, seconds, watts, lost, mean=name.removesuffix("_J") in means)
        keep = int(np.searchsorted(ids, first))
        kept = {name: values[keep:] for name, values in columns.items()}
        row = {int(i): n for n, i in enumerate(ids[keep:].tolist())} if marks else {}
        return kept, [(row[at], text) for at, text in marks if at in row]

    def _energy(self, name: str, ids: Ints, seconds: Floats, watts: Floats, lost: Ints, *, mean: bool) -> Floats:
        """Count the energy on from the watts, held to the checkpoints."""
        if not len(ids):
            return np.empty(0)
        pieces = np.diff(seconds) * (watts[1:] if mean else (watts[1:] + watts[:-1]) / 2)
        pieces[~np.isfinite(pieces) | (lost[1:] > 0)] = 0.0
        counted = np.concatenate([[0.0], np.cumsum(pieces)])
        at, joules = self._checkpoints(name, int(ids[0]), int(ids[-1]) + 1)
        row = np.searchsorted(ids, at, side="right") - 1  # a checkpoint in a gap is of the last row before it
        known = (row >= 0) & (at <= ids[-1])
        if not known.any():
            return counted
        off = joules[known] - counted[row[known]]
        return np.asarray(counted + np.interp(seconds, seconds[row[known]], off))
