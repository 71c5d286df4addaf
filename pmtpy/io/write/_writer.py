"""The thread between a sensor and a file: the sensor never waits for a disk.

Rows that the disk refuses, or that arrive faster than it takes them, are dropped for this file alone. They are counted,
the gap stands in the ``lost`` column of the next row that is written, and the end says how many there were. Labels of
dropped rows move to that row. An error is kept for the end; writing is tried again with the rows that come later.

The thread also finishes the file, once it was told to: whoever waits for that may be interrupted (Ctrl-C), wait again
or not at all, and several may wait. Nothing that happens to them reaches the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pmtpy.core import threads
from pmtpy.core.clock import HOST_CLOCK, Anchor, Wake
from pmtpy.core.presentation import amount, duration, not_covered
from pmtpy.core.rows import Frame, Ints
from pmtpy.core.source import Remarks
from pmtpy.errors import SinkError
from pmtpy.io.columns import with_gap
from pmtpy.io.write.base import WORTH_A_REMARK, Ending, RecordedLoad, RecordedMark, RecordedRegion, Sink
from pmtpy.io.write.downsample import Thinner

_NOTHING = Remarks()
_MOST_REGIONS = 100_000  # and as many marks: some megabytes of metadata
_MOST_STRETCHES = 65_536  # of a load
DEFAULT_MAX_ROWS = 200_000
"""Rows that may wait: ten seconds of a PowerSensor3, some 35 MB with four pairs."""

_BROKEN_OFF = "it was broken off before it began"
_FLUSH_S = 0.25  # a killed process loses what waits, and is to lose less than a second
# Rows per call of the sink: enough that its calls of numpy do not count, few enough for the processor's cache.
_LEAST_ROWS, _MOST_ROWS = 1024, 4096


@dataclass(slots=True)
class _Gap:
    """Rows missing from the file since the last row written, and the labels they carried."""

    rows: int = 0
    labels: tuple[str, ...] = ()

    def add(self, frame: Frame) -> None:
        self.rows += len(frame) + int(frame.lost.sum())
        self.labels += tuple(label for _, label in frame.marks)

    def before(self, frame: Frame) -> Frame:
        return with_gap(frame, self.rows, self.labels) if self.rows or self.labels else frame


class _Nowhere:
    """The sink before there is one, and where none can be opened."""

    def write(self, _: Frame) -> None:
        """Write nothing."""

    def close(self, ending: Ending) -> Ending:
        """Close nothing."""
        return ending


class Writer:
    """Owns a sink and the thread that feeds it.

    Parameters
    ----------
    opened : callable
        Opens the sink, which is written to and closed by the writer's thread alone. It is asked when that thread is
        there: without one nothing is touched.
    max_rows : int
        Rows that may wait. A Frame that comes when so many wait already is dropped; one that comes before is taken
        whole, so a single large Frame is never dropped for its size.
    thinner : Thinner or None
        Makes one row for each interval; None: every row.

    Attributes
    ----------
    error : SinkError or None
        The first thing that went wrong, as soon as it has.

    Raises PmtError: no thread can be started.
    Raises whatever ``opened`` does.
    """

    def __init__(
        self, opened: Callable[[], Sink], max_rows: int = DEFAULT_MAX_ROWS, *, thinner: Thinner | None = None
    ) -> None:
        self.error: SinkError | None = None
        self._sink: Sink = _Nowhere()
        self._max_rows = max_rows
        self._thinner = thinner
        self._lock = threading.Lock()  # guards the six below; never held while something is written
        self._queue: list[Frame] = []
        self._queued = 0
        self._gap = _Gap()  # on the way into the queue
        self._regions: list[RecordedRegion] = []
        self._marks: list[RecordedMark] = []
        self._dropped = 0
        self._lost = 0
        # by column, ns: of the first row and of the newest, the time; and for how long no energy was known by then
        self._first: tuple[int, Ints] | None = None
        self._newest: tuple[int, Ints] | None = None
        self._missing = _Gap()  # on the way out of it; of the thread alone, as is the next
        self._rows = 0
        self._wake = Wake()
        # when and why it was told to end, what is known then, of how long before that rows may show nothing, ns, and
        # when the load was on
        self._end: tuple[Anchor, str, Remarks, int, RecordedLoad | None] | None = None
        self._finished = Wake()  # joining would not do: on Python 3.10 Ctrl-C in join() spoils the thread
        self._ending: Ending | None = None
        self._thread = threading.Thread(target=self._run, name="pmtpy-writer", daemon=True)
        try:
            threads.start(self._thread, "files are written")
        except BaseException:  # Ctrl-C as it began: nobody has this writer, to end it
            self.end(HOST_CLOCK.anchor(), _BROKEN_OFF)
            raise
        try:
            self._sink = opened()
        except BaseException:
            self.stop(HOST_CLOCK.anchor(), _BROKEN_OFF)
            raise

    def put(self, frame: Frame) -> None:
        """Queue the rows of ``frame``, or drop and count them; never blocks. After :meth:`end` nothing is taken."""
        if not len(frame):
            return
        with self._lock:
            if self._end is not None:
                return
            self._lost += int(frame.lost.sum())
            self._first = self._first or (int(frame.t_ns[0]), frame.uncovered_ns[0].copy())
            self._newest = int(frame.t_ns[-1]), frame.uncovered_ns[-1].copy()
            if self._queued >= self._max_rows:
                self._dropped += len(frame)
                self._gap.add(frame)
                return
            self._queue.append(self._gap.before(frame))
            self._queued += len(frame)
            self._gap = _Gap()
            hurry = self._queued * 2 >= self._max_rows
        if hurry:
            self._wake.set()

    @property
    def so_far(self) -> tuple[int, int]:
        """Rows that were written, and rows that are missing between them: lost by the sensor or dropped here."""
        with self._lock:
            return self._rows, self._lost + self._dropped

    def note(self, region: RecordedRegion) -> None:
        """Keep a region that the program measured meanwhile, for the metadata at the end; the first of very many."""
        with self._lock:
            if len(self._regions) < _MOST_REGIONS:
                self._regions.append(region)

    def note_mark(self, mark: RecordedMark) -> None:
        """Keep when a mark was set, for the metadata at the end; of the first of very many."""
        with self._lock:
            if len(self._marks) < _MOST_REGIONS:
                self._marks.append(mark)

    def end(
        self,
        anchor: Anchor,
        failure: str = "",
        remarks: Remarks = _NOTHING,
        short_ns: int = 0,
        load: RecordedLoad | None = None,
    ) -> None:
        """Tell the thread to write what waits, close the sink and end. Does not wait; only the first call counts.

        Parameters
        ----------
        anchor : Anchor
            Wall and monotonic time of the end.
        failure : str
            Why the dump ends early, if it does (the sensor was lost); the file is then marked incomplete.
        remarks : Remarks
            What the sensor knows of the time of the dump beyond its rows.
        short_ns : int
            Of how long before the end its rows show nothing, or may not.
        load : RecordedLoad, optional
            When the device worked, as far as that is known.
        """
        with self._lock:
            if self._end is None:
                self._end = (anchor, failure, remarks, short_ns, load)
        self._wake.set()

    def wait(self) -> Ending:
        """Wait until the file is finished, after :meth:`end`, and say how it went."""
        while self._ending is None:  # set before it is told
            self._finished.wait(_FLUSH_S)
        self._thread.join()
        return self._ending

    def stop(self, anchor: Anchor, failure: str = "") -> Ending:
        """Do :meth:`end`, then :meth:`wait`."""
        self.end(anchor, failure)
        return self.wait()

    def _run(self) -> None:
        while self._end is None:
            self._wake.wait(_FLUSH_S)
            self._wake.clear()
            self._drain()
        self._drain()
        self._ending = self._finish(*self._end)
        self._finished.set()

    def _drain(self) -> None:
        with self._lock:
            frames, self._queue, self._queued = self._queue, [], 0
        if not frames:
            return
        for batch in _batches(frames):
            self._write(self._missing.before(batch), batch)

    def _write(self, frame: Frame, raw: Frame) -> None:
        """Write ``frame``; if that fails, count the rows of ``raw``, which it was made of, as missing."""
        try:
            thinned = self._thinner.feed(frame) if self._thinner is not None else frame
            self._sink.write(thinned)
        except Exception as error:  # noqa: BLE001  (a thread has nobody to raise to: it is kept for the end)
            self._keep(error)
            self._missing.add(raw)
            with self._lock:
                self._dropped += len(raw)
        else:
            self._rows += len(thinned)
            self._missing = _Gap()

    def _keep(self, error: Exception) -> None:
        if self.error is None:
            self.error = error if isinstance(error, SinkError) else SinkError(f"a row could not be written: {error!r}")
            self.error.__cause__ = error.__cause__ if isinstance(error, SinkError) else error

    def _finish(
        self, anchor: Anchor, failure: str, remarks: Remarks, short_ns: int, load: RecordedLoad | None
    ) -> Ending:
        self._flush()
        left = self._gap.labels + self._missing.labels
        unmarked = f"markers without a row: {', '.join(left)}" if left else ""
        if self._dropped and self.error is None:
            self.error = SinkError(
                f"{amount(self._dropped, 'row was', 'rows were')} dropped: rows came faster than they could be written"
            )
        elif self._dropped:
            first, self.error = (
                self.error,
                SinkError(f"{self.error}; {amount(self._dropped, 'row is', 'rows are')} missing"),
            )
            self.error.__cause__ = first
        text = "; ".join(filter(None, (failure, str(self.error or ""), unmarked)))
        uncovered_s, unknown = self._uncovered(short_ns)
        load, cut = _bounded(load)
        ending = Ending(
            anchor,
            self._rows,
            self._lost,
            self._dropped,
            not text,
            text,
            tuple(self._regions),
            (*remarks.warnings, *unknown, *cut),
            remarks.time_u_s,
            remarks.aged_s,
            uncovered_s,
            short_ns / 1e9,
            tuple(self._marks),
            load,
        )
        try:
            ending = self._sink.close(ending)
        except Exception as error:  # noqa: BLE001  (as above)
            self._keep(error)
            ending = replace(ending, complete=False, error=text or str(self.error))
        if ending.error and self.error is None:
            self.error = SinkError(ending.error)
        return ending

    def _uncovered(self, short_ns: int) -> tuple[float | None, list[str]]:
        """For how long no energy is known between the first row and the end, seconds; and that in words."""
        said = [f"its rows may lack the last {duration(short_ns / 1e9)} before its end: nothing newer has come"]
        said = said if short_ns else []
        if self._first is None or self._newest is None:
            return None, said
        (begin_ns, before), (end_ns, after) = self._first, self._newest
        unknown_ns, span_ns = int((after - before).max(initial=0)) + short_ns, end_ns - begin_ns + short_ns
        if unknown_ns <= WORTH_A_REMARK * span_ns:
            return unknown_ns / 1e9, []
        return unknown_ns / 1e9, [*said, not_covered(unknown_ns / 1e9, span_ns / 1e9)]

    def _flush(self) -> None:
        """Write the row of the interval that has not ended."""
        last = self._thinner.flush() if self._thinner is not None else None
        if last is None:
            return
        try:
            self._sink.write(last)
            self._rows += len(last)
        except Exception as error:  # noqa: BLE001  (as above)
            self._keep(error)
            self._dropped += 1


def _bounded(load: RecordedLoad | None) -> tuple[RecordedLoad | None, tuple[str, ...]]:
    """Return the first of very many stretches, and say so; of what came later nothing is known then."""
    if load is None or len(load.on_ns) <= _MOST_STRETCHES:
        return load, ()
    on_ns = load.on_ns[:_MOST_STRETCHES]
    end_ns = on_ns[-1][1]
    known_ns = tuple([(start, min(end, end_ns)) for start, end in load.known_ns if start < end_ns])
    left_s = (load.known_ns[-1][1] - end_ns) / 1e9
    said = (
        f"its load was switched so often that the stamps of the first {_MOST_STRETCHES:,} stretches alone are kept; "
        f"what it did in the last {duration(left_s)} is not known"
    )
    return RecordedLoad(on_ns, known_ns), (said,)


def _batches(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Join small frames and cut large ones, for one call of the sink each; those of a stream are as wanted."""
    waiting: list[Frame] = []
    rows = 0
    for frame in frames:
        waiting.append(frame)
        rows += len(frame)
        if rows >= _LEAST_ROWS:
            yield from _cut(Frame.joined(waiting))
            waiting, rows = [], 0
    if waiting:
        yield from _cut(Frame.joined(waiting))


def _cut(rows: Frame) -> Iterator[Frame]:
    for start in range(0, len(rows), _MOST_ROWS):
        yield rows.part(start, start + _MOST_ROWS)
