"""What happened between two readings of a sensor: nothing, new samples, a restart, or something that cannot be.

Pure: records and instants in, decisions out.

Facts: the time base counts 512 MHz and is common to all OCCs of a machine; the number of samples per second is not
the nominal one but constant, so a count that does not fit the time is a restart. Tröpgen, Bielert, Ilsche,
"Evaluating the Energy Measurements of the IBM POWER9 On-Chip Controller", ICPE '23, doi 10.1145/3578244.3583729.
"""

from __future__ import annotations

import enum

from pmtpy.backends.occ.layout import SUM_RANGE, TAG_RANGE, UNKNOWN_TIME, Entry, Record
from pmtpy.errors import ReadError

_MAX_SAMPLE = 0xFFFF
# True rates found: 0.998 of the nominal one, and 0.499 for the two rails that are sampled at every fourth tick.
_SLOWEST, _FASTEST = 0.2, 1.1


class Step(enum.Enum):
    """What happened since the reading before."""

    NOTHING = enum.auto()
    SAMPLES = enum.auto()
    RESTART = enum.auto()


def stamp_ns(stamp: int) -> int:
    """Nanoseconds of a stamp of the 512 MHz time base (one tick is 125/64 ns)."""
    return stamp * 125 // 64


class Progress:
    """Follows one sensor from reading to reading. Driven by its source; decides, and keeps only what it accepted."""

    __slots__ = ("_entry", "_last", "_last_ns", "_learned_s", "_learned_tags")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._last: Record | None = None
        self._last_ns = 0
        self._learned_s = 0.0
        self._learned_tags = 0

    def judge(self, new: Record, now_ns: int) -> Step:
        """Compare ``new``, read at ``now_ns``, with the last accepted reading.

        Raises ReadError: it contradicts itself or the one before: a torn record, or one that the OCC was just writing.
        """
        name, old = self._entry.name, self._last
        check(name, new)
        if old is None:
            return Step.RESTART
        if new == old:
            return Step.NOTHING
        if (new.stamp == UNKNOWN_TIME) != (old.stamp == UNKNOWN_TIME):
            return Step.RESTART
        timed = new.stamp != UNKNOWN_TIME
        if timed and new.stamp <= old.stamp:
            relation = "older than" if new.stamp < old.stamp else "of the same instant as"
            msg = f"{name}: the record is {relation} the one before, but differs from it"
            raise ReadError(msg)
        if not timed and new.tag == old.tag and new.total == old.total:
            return Step.NOTHING
        seconds = (stamp_ns(new.stamp - old.stamp) if timed else now_ns - self._last_ns) * 1e-9
        tags = (new.tag - old.tag) % TAG_RANGE
        if tags == 0:
            msg = f"{name}: the record changed, but counts no new sample"
            raise ReadError(msg)
        total = (new.total - old.total) % SUM_RANGE
        if not self._expected(tags, seconds, timed=timed) or total > _MAX_SAMPLE * tags:
            return Step.RESTART
        _check_mean(name, old, new, total / tags)
        return Step.SAMPLES

    def accept(self, new: Record, now_ns: int, step: Step) -> None:
        """Continue from ``new``."""
        old, self._last = self._last, new
        last_ns, self._last_ns = self._last_ns, now_ns
        if step is Step.RESTART or old is None:
            self._learned_s, self._learned_tags = 0.0, 0
        elif step is Step.SAMPLES:
            timed = new.stamp != UNKNOWN_TIME
            self._learned_s += (stamp_ns(new.stamp - old.stamp) if timed else now_ns - last_ns) * 1e-9
            self._learned_tags += (new.tag - old.tag) % TAG_RANGE

    def _expected(self, tags: int, seconds: float, *, timed: bool) -> bool:
        """Whether so many samples fit the time, by the rate seen so far, or roughly by the nominal one."""
        # Host times are up to one cycle of the buffers (tens of milliseconds) away from the samples, at either end.
        slack_s = 0.0 if timed else 0.1
        nominal = self._entry.rate_hz if 0 < self._entry.rate_hz < 1e5 else 0.0
        if self._learned_tags >= 2 and self._learned_s > 0:
            rate = self._learned_tags / self._learned_s
            # Each end of what was learned may be off by one sample, as may each end of this interval.
            learned = 2 / self._learned_tags + 2 * slack_s / self._learned_s
            off = seconds * rate * (learned + 1e-3) + 2 + 2 * slack_s * rate
            return abs(tags - seconds * rate) <= off
        if not nominal:
            return tags < TAG_RANGE // 2
        low, high = (seconds - slack_s) * nominal * _SLOWEST, (seconds + slack_s) * nominal * _FASTEST
        return low - 2 <= tags <= high + 2


def check(name: str, new: Record) -> None:
    """Refuse a record that cannot be right, whatever came before (:class:`ReadError`)."""
    if not new.written:
        msg = f"{name}: the record is empty; the firmware has switched this group of sensors off, or has just started"
        raise ReadError(msg)
    if new.highest and not new.lowest <= new.sample <= new.highest:
        msg = f"{name}: the sample {new.sample} lies outside of its own extremes, {new.lowest} to {new.highest}"
        raise ReadError(msg)


def _check_mean(name: str, old: Record, new: Record, mean: float) -> None:
    """The mean of samples lies between the extremes, unless these were cleared in between."""
    cleared = new.lowest > old.lowest or new.highest < old.highest
    if new.highest and not cleared and not new.lowest <= mean <= new.highest:
        msg = f"{name}: the mean {mean:g} lies outside of the extremes since start, {new.lowest} to {new.highest}"
        raise ReadError(msg)
