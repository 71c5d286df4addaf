"""The narrow waist: what a backend must offer. Counts with times, nothing else.

A backend module has two functions:

``discover(**options) -> Discovery``
    What devices are there, or why none are. Cheap, opens nothing exclusively, never raises.
``open_source(device, *, clock, **explicit options) -> Source``
    Opens one device, or raises :class:`~pmtpy.errors.BackendUnavailableError` with reason and remedy.

A source never scales, unwraps, integrates, smooths, locks, sleeps or starts threads.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy._handlers import let_out
from pmtpy.core.channel import Channel, Derivation, Identity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block, Row
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, ReadError, SourceLostError, Verdict

# A call is taken to have been held up if it lasts this long, and this many times as long as the shortest so far.
_HELD_UP_NS, _HELD_UP = 1_000_000, 8
_TRIES = 3
_MIN_FAILURES = 3  # failures that make a device lost, however long they took
_NEVER_NS = 1 << 62
_new = tuple.__new__  # what Row(...) does in the end, at half the cost


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a backend finds on this machine.

    Attributes
    ----------
    devices : tuple of str
        Names that ``open_source`` takes; ``""`` stands for a backend with a single, unnamed device.
    findings : tuple of Finding
        What is to be said of a device or, without a device's name, of the backend: why there is none, what a driver is
        missing for. A device of which nothing is said works.
    """

    devices: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @classmethod
    def none(cls, backend: str, why: str, *cure: str, obstacle: Obstacle | None = None) -> Discovery:
        """Say that there is no device: what was looked for and not found, what is in the way, the steps of the cure."""
        return cls((), (Finding(backend, "", Verdict.BROKEN, why, obstacle, tuple(filter(None, cure))),))

    def require(self) -> None:
        """Raise :class:`~pmtpy.errors.BackendUnavailableError`, which says why, unless there is a device."""
        if not self.devices:
            raise BackendUnavailableError(self.findings[0])

    def of(self, device: str) -> Finding | None:
        """Return what keeps a device from being used, or limits it; of several, the first; None if nothing does."""
        about = [f for f in self.findings if f.obstacle is not None or not f.usable]
        own = [f for f in about if f.device == device]
        return next(iter(own or [f for f in about if not f.device]), None)

    @property
    def reason(self) -> str:
        """Why there is no device, or the first reason that a finding gives; empty if there is none."""
        return next((f.found for f in self.findings if not f.usable or f.obstacle), "")

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return next((f.remedy for f in self.findings if not f.usable or f.obstacle), "")


class Timestamps(enum.Enum):
    """What the time of a row says."""

    HOST_READ = "host read"  # when the host read it; the value may be as old as the time between two readings
    DEVICE_READ = "device read"  # when the device answered, by its own clock; the value may be older
    DEVICE_UPDATE = "device update"  # when the device renewed the value, by its own clock


@dataclass(frozen=True, slots=True)
class Traits:
    """How a source is to be read, and what the times of its rows say.

    Attributes
    ----------
    interval_s : float
        How often the poller should read it, seconds.
    deadline_s : float or None
        The longest time between two readings after which counters are still unambiguous, seconds; None: no limit.
    blocking : bool
        One reading takes so long (a bus transaction) that only the poller may pay for it.
    streaming : bool
        Rows come by themselves, so that the newest row is the present state.
    timestamps : Timestamps
        What the times of the rows say, as far as it is known by now.
    """

    interval_s: float = 0.1
    deadline_s: float | None = None
    blocking: bool = False
    streaming: bool = False
    timestamps: Timestamps = Timestamps.HOST_READ


@dataclass(frozen=True, slots=True)
class Remarks:
    """What a source knows of a stretch of time beyond its rows.

    Attributes
    ----------
    time_u_s : float
        Standard uncertainty of the times of the rows, common to all of them, seconds: the whole curve may be shifted.
    warnings : tuple of str
        What a reader of an energy of this stretch must know, in whole sentences; where one speaks of a channel, it
        begins with its name and a colon.
    missing_s : float
        Standard uncertainty of how much time lies between the rows, seconds: some may be missing that nothing counts.
    aged_s : float
        How old a value may be at its row, seconds; 0 where rows bear the instant of its renewal. Who reads the source
        knows it.
    failure : str
        Why the last reading failed of those that did, which who reads the source knows as well; empty: none did.
    """

    time_u_s: float = 0.0
    warnings: tuple[str, ...] = ()
    missing_s: float = 0.0
    aged_s: float = 0.0
    failure: str = ""


class Source(ABC):
    """One opened device.

    Attributes
    ----------
    identity : Identity
    channels : tuple of Channel
        The DIRECT ones are the columns of every Block, in this order.
    traits : Traits
        How it is to be read. A source that finds out more later replaces the record.
    """

    identity: Identity
    channels: tuple[Channel, ...]
    traits: Traits = Traits()

    @abstractmethod
    def read(self) -> Block:
        """Deliver what has come since the last call, without waiting for more.

        Called by one thread at a time. Times strictly increase within and across Blocks; counts are untouched, and
        the arrays are the reader's from then on; known loss is in ``lost``, a known restart in ``fresh``.

        Raises
        ------
        SourceLostError
            The device is gone; every later call raises it again.
        """

    def read_row(self) -> Block | Row:
        """Do what :meth:`read` does, in the cheapest form: a single row need not be arrays; it is the reader's."""
        return self.read()

    @property
    def last_read_failed(self) -> bool:
        """Whether the last reading failed, rather than found nothing new."""
        return bool(self.last_failure)

    @property
    def last_failure(self) -> str:
        """Why the last reading failed; empty: it did not, or nothing is known of why."""
        return ""

    @property
    def unread(self) -> Mapping[int, str]:
        """Why single columns of the newest row hold no number (NaN), as far as that is known."""
        return {}

    @property
    def has_backlog(self) -> bool:
        """Whether a part of what has come waits for another :meth:`read`, because all at once would be too much."""
        return False

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:  # noqa: ARG002  (the default has nothing to say)
        """Return what is known of a stretch beyond its rows: by now, at any time, also after :meth:`close`."""
        return Remarks()

    def limits(self) -> Mapping[str, float]:
        """Return what keeps the device from running as fast as it could, by cause in words.

        The value is for how many seconds it has done so by now, from any beginning, of which differences count;
        infinite where all that is known is that it does so at this moment. Asks the device, so it is for times at
        which nobody measures. May be called beside :meth:`read` from another thread; never raises.
        """
        return {}

    def settings(self) -> Mapping[str, str]:
        """Return what is set on the device and changes its power, by name, with units: ``power limit: 350 W``.

        When and how it may be called is as of :meth:`limits`.
        """
        return {}

    def mark(self, label: str) -> bool:  # noqa: ARG002  (the default has no use for it)
        """Put ``label`` into the device's own stream; return False where the device cannot."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Release the device. May be called twice."""


def columns(channels: Sequence[Channel]) -> int:
    """Return the number of columns of a Block: the DIRECT channels."""
    return sum(channel.derivation is Derivation.DIRECT for channel in channels)


class PolledSource(Source):
    """A source whose device is asked, one reading at a time. A subclass writes :meth:`poll`.

    A failed reading (:class:`ReadError`) becomes a lost row; what a signal's handler of the program raised, and was
    taken for the failure (``from`` it), comes out of the reading as itself. Readings that fail for ``gone_after_s``
    without one between them that does not, or a register that stays silent for ``stale_s``, mean that the device is
    gone. It is a matter of time and not of calls: whoever reads in a tight loop makes hundreds while a device is busy
    for a moment.
    """

    gone_after_s: float = 2.0
    stale_s: float | None = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures, self._failure = 0, ""  # in a row, and why the last of them
        self._unread: dict[int, str] = {}  # for poll() to set: why single columns of its row are NaN
        self._failing_ns = 0  # since when
        self._lost: SourceLostError | None = None
        self._last_t_ns = -1
        self._heard_ns = clock.now_ns()  # the last row, or the last word of a device that sleeps
        self._shortest_ns = self._patience_ns = _NEVER_NS

    @property
    def last_read_failed(self) -> bool:
        """Whether the last reading failed, rather than found nothing new."""
        return self._failures > 0

    @property
    def last_failure(self) -> str:
        """Why the last reading failed; empty: it did not."""
        return self._failure if self._failures else ""

    @property
    def unread(self) -> Mapping[int, str]:
        """Why single columns of the newest row hold no number."""
        return self._unread

    @abstractmethod
    def poll(self) -> Sequence[float] | Block | None:
        """Take one reading: a count per DIRECT channel.

        A device that stamps its own readings returns a Block; None means that it has not refreshed. Readings that
        failed are counted as rows lost before the next row, unless that Block says itself what was lost before its
        rows (``lost`` is not None): a device with a memory of its own loses nothing by a failed call.
        A column that alone could not be read is NaN; why, if that is known, is left in ``self._unread``.
        Raises :class:`ReadError` for a failure that may pass, :class:`SourceLostError` for one that will not.
        """

    def close(self) -> None:
        """Release the device. May be called twice."""

    def read(self) -> Block:
        """Poll once; the row's time is the middle of the call."""
        taken = self.read_row()
        return taken if isinstance(taken, Block) else Block.row(taken.t_ns, taken.counts, lost=taken.lost)

    def read_row(self) -> Block | Row:
        """Poll once; the row's time is the middle of the call."""
        if self._lost is not None:
            raise self._lost
        before = self._clock.now_ns()
        try:
            counts = self.poll()
        except ReadError as error:
            let_out(error)
            self._failed(error, before)
            return Block.empty(columns(self.channels))
        except SourceLostError as error:
            let_out(error)
            self._lost = error
            raise
        after = self._clock.now_ns()
        if counts is None or isinstance(counts, Block):
            return self._passed_on(counts, after)
        took = after - before
        if took > self._patience_ns:
            before, after, counts = self._again(before, after, counts)
            if isinstance(counts, Block):
                return self._passed_on(counts, after)
        elif took < self._shortest_ns:
            self._shortest_ns, self._patience_ns = took, max(_HELD_UP_NS, _HELD_UP * took)
        lost = self._failures
        if lost:
            self._failures = 0
        t_ns = (before + after) // 2
        if t_ns <= self._last_t_ns:
            t_ns = self._last_t_ns + 1
        self._last_t_ns, self._heard_ns = t_ns, after
        return _new(Row, (t_ns, tuple(counts), lost))  # a source may hand out the same list again and again

    def asleep(self, error: ReadError) -> bool:  # noqa: ARG002  (the default knows of no sleep)
        """Whether a failure is that of a device which sleeps, for as long as it likes."""
        return False

    def _failed(self, error: ReadError, now_ns: int) -> None:
        """Count a failed reading; raise SourceLostError when they have been failing for long."""
        if self.asleep(error):
            self._failing_ns = self._heard_ns = now_ns
        elif not self._failures:
            self._failing_ns = now_ns
        self._failures, self._failure = self._failures + 1, str(error)
        failing_s = (now_ns - self._failing_ns) / NS_PER_S
        if self._failures >= _MIN_FAILURES and failing_s >= self.gone_after_s:
            why = f"{self._failures} readings in a row failed, for {failing_s:.3g} s; the last one: {error}"
            raise self._gone(why) from error

    def _again(self, before: int, after: int, counts: Sequence[float]) -> tuple[int, int, Sequence[float] | Block]:
        """Read again after a call that was held up, and return the shortest: its middle tells best when was read.

        Another thread that holds the interpreter, or another program, may come between a reading and the clock: of
        four files beside one busy thread every twentieth call takes 5 ms and more instead of 20 us.
        """
        for _ in range(_TRIES):
            start = self._clock.now_ns()
            try:
                anew = self.poll()
            except (ReadError, SourceLostError) as error:
                let_out(error)
                break  # the next reading will tell; this one is good
            end = self._clock.now_ns()
            if isinstance(anew, Block):  # no later one says that a counter has begun anew
                return start, end, anew
            if anew is None:
                break
            if end - start < after - before:
                before, after, counts = start, end, anew
            if end - start <= self._patience_ns:
                break
        return before, after, counts

    def _passed_on(self, block: Block | None, now_ns: int) -> Block:
        """Pass on the rows of a device that stamps its readings itself, with the failed readings before them."""
        if block is None or not len(block):
            if self.stale_s is not None and now_ns - self._heard_ns > self.stale_s * NS_PER_S:
                raise self._gone(f"the register has not changed for {self.stale_s:g} s")
            return Block.empty(columns(self.channels))
        lost, self._failures = self._failures, 0
        self._heard_ns = now_ns
        if block.lost is not None or not lost:
            return block
        return replace(block, lost=np.array([lost] + [0] * (len(block) - 1), np.int64))

    def _rows_bear(self, timestamps: Timestamps) -> None:
        """Say what the times of the rows are, as it turns out."""
        if timestamps is not self.traits.timestamps:
            self.traits = replace(self.traits, timestamps=timestamps)

    def _gone(self, why: str) -> SourceLostError:
        self._lost = SourceLostError(f"{self.identity.backend} {self.identity.model}: {why}")
        return self._lost
