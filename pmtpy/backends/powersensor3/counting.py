"""The number of each frame, from stamps of 10 bits that jitter. Pure: arrays in and out.

The board samples on an even lattice, and stamps each frame with whole microseconds modulo 1024, a few of them late or
early as its interrupts allow. So a stamp tells on which frame of a turn it stands (a turn is 17.9 to 34.9 frames), as
long as it is off by less than a quarter of an interval; what is on the lattice follows its predecessor. Where stamps
leave the lattice and stay off it, frames are missing: as few as the new place allows. Stamps cannot tell a multiple
of a turn, and hardly 41 frames of 50 us, which are two turns and 2 us: that is for the arrivals to say
(:mod:`pmtpy.backends.powersensor3.timebase`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.backends.powersensor3.codec import DEVICE_CLOCK_US, Levels
from pmtpy.core.rows import Floats, Ints

TOLERANCE = 0.25  # of an interval: how far a stamp may be off its place
SURE_US, ALIKE_US = 3.0, 5.0  # remainders that differ by less agree for sure; that cannot be told apart by stamps
_ROUNDING_US = 1.5  # stamps are cut to whole microseconds, and so is what they are compared with
_OTHER = 0.02  # an interval this far from the nominal one is that of another board
_GLITCH = 3  # as many stamps in a row may be off without frames missing
_MEDIAN_OF = 16
_FEW, _ENOUGH, _MANY = 32, 2048, 1 << 20
_LAST = 64  # stamps that tell where the lattice stands
_AT_ONCE = 8192
_TURNS = 3  # within which the shortest gap is looked for: 40 frames and more, so that every remainder occurs


@dataclass(frozen=True, slots=True)
class Gap:
    """A place where frames are missing.

    Attributes
    ----------
    first, row : int
        Rows from ``first`` on wait until it is known how many; the missing ones belong before ``row``.
    rest_us : float
        What the stamps leave of the time, modulo 1024 us.
    known : int
        The fewest missing frames that leave this; 0 where stamps have but moved a little.
    """

    first: int
    row: int
    rest_us: float
    known: int

    def moved(self, rows: int) -> Gap:
        """Return the same gap where rows have been put before it, or taken away."""
        return replace(self, first=self.first + rows, row=self.row + rows)


@dataclass(frozen=True, slots=True)
class Counted:
    """Frames with their numbers.

    Attributes
    ----------
    numbers : int64, shape (n,)
        Strictly increasing; the first frame of all is number 0.
    gaps : tuple of Gap
        Where the fewest missing frames that the stamps allow were taken; more may be missing.
    """

    numbers: Ints
    gaps: tuple[Gap, ...] = ()


class FrameCounter:
    """Numbers frames, batch by batch. Used by one thread at a time.

    Attributes
    ----------
    interval_us : float
        Sampling interval in microseconds of the board: the nominal one until enough frames have been seen.
    """

    def __init__(self, nominal_us: float) -> None:
        self.interval_us = nominal_us
        self._number = -1
        self._phase_us = 0.0  # where the last frame stands on the board's clock, free of jitter
        self._run = 0  # frames over which the interval was measured
        self._jitter_us = 0.0  # standard deviation of stamps
        self._limit_us = TOLERANCE * nominal_us  # beyond which a stamp is off

    def count(self, stamps: Levels, *, last: bool = False) -> Counted:
        """Number the frames; the last ones are left out where only their successor can tell, unless none will come.

        A caller gives the frames that were left out again, before those that came after them.
        """
        if self._run >= _ENOUGH and 0 < len(stamps) <= _AT_ONCE:
            off = self._glance(stamps)
            if off:
                first = self._number + 1
                self._follow(off, len(stamps))
                return Counted(np.arange(first, first + len(stamps)))
        us = stamps.astype(np.float64)
        if self._number < 0 and len(us):
            self._begin(us)
        numbers: list[Ints] = []
        gaps: list[Gap] = []
        done = 0
        while done < len(us):
            part = us[done : done + max(_FEW, min(self._run // 4, _AT_ONCE))]
            end = done + len(part) == len(us)
            found, breaks = self._lattice(part, wait=end and not last)
            gaps += [gap.moved(done) for gap in breaks]
            numbers.append(found)
            done += len(found)
            if len(found) < len(part) and end:
                break
        return Counted(np.concatenate(numbers) if numbers else np.empty(0, np.int64), tuple(gaps))

    def _glance(self, stamps: Levels) -> list[float]:
        """Return by how much the last stamps are off if the batch goes on without a gap; else nothing.

        Told by its steps, and where its first stamp and its last ones stand on the lattice. These are plain numbers:
        so few are done before as many calls of numpy have begun.
        """
        short = stamps[1:] - stamps[:-1]
        np.bitwise_and(short, DEVICE_CLOCK_US - 1, out=short)
        slack = 2 * self._limit_us
        if len(short) and (short.min() < self.interval_us - slack or short.max() > self.interval_us + slack):
            return []
        limit, interval, half = self._limit_us, self.interval_us, DEVICE_CLOCK_US / 2
        first = max(0, len(stamps) - _LAST)
        begin = self._phase_us + interval - half
        if abs((int(stamps[0]) - begin) % DEVICE_CLOCK_US - half) > limit:
            return []
        begin += first * interval
        last = stamps[first:].tolist()
        off = [(us - begin - i * interval) % DEVICE_CLOCK_US - half for i, us in enumerate(last)]
        return off if max(off) <= limit and min(off) >= -limit else []

    def skip(self, frames: int) -> None:
        """Take note that the newest frame has another number than was thought."""
        self._number += frames

    def unseen(self, rest_us: float, about: float, slack: float, gaps: int = 1) -> int | None:
        """Return the number of frames nearest to ``about`` whose absence leaves ``rest_us`` in the stamps, or None.

        None where no such number lies within ``slack`` frames. ``gaps``: in how many gaps they may be missing.
        """
        low = max(0, int(np.ceil(about - slack)))
        several = np.arange(low, max(low, int(about + slack)) + 1)
        fits = several[np.abs(_wrapped(several * self.interval_us - rest_us)) <= gaps * ALIKE_US]
        fits = fits[np.abs(fits - about) <= slack]
        return int(fits[np.argmin(np.abs(fits - about))]) if len(fits) else None

    def next_alike(self, rest_us: float, missing: int) -> int:
        """Return the next larger number of frames than ``missing`` whose absence leaves the same in the stamps."""
        several = np.arange(missing + 1, missing + 1 + DEVICE_CLOCK_US)
        return missing + 1 + int(np.argmax(np.abs(_wrapped(several * self.interval_us - rest_us)) <= ALIKE_US))

    def _begin(self, us: Floats) -> None:
        """Take the first stamp as it is, and the interval from the first batch where it is not the nominal one."""
        steps = np.diff(us) % DEVICE_CLOCK_US
        if len(steps) >= _FEW:
            middle = float(np.median(steps))
            even = steps[np.abs(steps - middle) <= TOLERANCE * middle]
            seen = float(even.mean())
            if abs(seen - self.interval_us) > _OTHER * self.interval_us:
                self.interval_us = seen
        self._phase_us = float(us[0]) - self.interval_us
        off = _wrapped(us[:_FEW] - self._expected(min(_FEW, len(us))))
        self._phase_us += float(np.median(off))  # the first stamp may be the one that is off

    def _expected(self, n: int) -> Floats:
        expected: Floats = self._phase_us + self.interval_us * np.arange(1.0, n + 1.0)
        return expected

    def _lattice(self, us: Floats, *, wait: bool) -> tuple[Ints, list[Gap]]:
        """Lay a part of a batch on the lattice; return the numbers and the gaps."""
        n = len(us)
        off = _wrapped(us - self._expected(n))
        numbers = np.arange(self._number + 1, self._number + 1 + n)
        gaps: list[Gap] = []
        row = _first(np.abs(off) > self._limit_us, 0)
        while row < n:
            back = _first(np.abs(off[: row + 1 + _GLITCH]) <= self._limit_us, row + 1)
            if back <= min(n - 1, row + _GLITCH):
                row = _first(np.abs(off) > self._limit_us, back)
                continue
            if wait and n - row <= _GLITCH:
                n = row
                break
            rest = self._level(off[row : row + _MEDIAN_OF])
            missing = self._shortest(rest)
            gaps.append(Gap(row, row, rest, missing))
            numbers[row:] += missing
            # From here on the lattice is where the stamps are now, which they know better than the sum of the gaps.
            self._phase_us += float(_wrapped(np.array(rest - missing * self.interval_us)))
            off[row:] = _wrapped(off[row:] - rest)
            row = _first(np.abs(off) > self._limit_us, row + 1)
        if n:
            last = off[max(n - _LAST, gaps[-1].row if gaps else 0) : n].tolist()
            self._follow(last, int(numbers[n - 1]) - self._number)
        return numbers[:n], gaps

    def _follow(self, off: Sequence[float], frames: int) -> None:
        """Take note of where the last frame stands, how much stamps jitter, and of the interval."""
        near = [us for us in off if abs(us) <= self._limit_us]
        shift = math.fsum(near) / len(near) if near else 0.0
        self._number += frames
        self._phase_us = (self._phase_us + frames * self.interval_us + shift) % DEVICE_CLOCK_US
        self._run = min(self._run + frames, _MANY)
        # Before the run is long, the nominal interval is better known than the stamps tell.
        self.interval_us += shift / max(self._run, _ENOUGH)
        if len(near) >= _FEW and self._run >= _ENOUGH:
            deviation = math.sqrt(max(0.0, math.fsum([us * us for us in near]) / len(near) - shift * shift))
            self._jitter_us += (deviation - self._jitter_us) / (8 if self._jitter_us else 1)
            self._limit_us = min(TOLERANCE * self.interval_us, _ROUNDING_US + 5 * self._jitter_us)

    def _level(self, off: Floats) -> float:
        """By how much the next stamps are off; some of them may be glitches, or lie behind another gap."""
        moved = _wrapped(off - off[0])
        middle = np.sort(moved)[(len(moved) - 1) // 2]
        return float(off[0] + moved[np.abs(moved - middle) <= TOLERANCE * self.interval_us].mean())

    def _shortest(self, rest_us: float) -> int:
        """Return the fewest missing frames that leave this remainder; none, where stamps have but moved a little."""
        several = np.arange(
            abs(rest_us) > TOLERANCE * self.interval_us, int(_TURNS * DEVICE_CLOCK_US / self.interval_us)
        )
        misfit = np.abs(_wrapped(several * self.interval_us - rest_us))
        sure = np.flatnonzero(misfit <= max(SURE_US, _ROUNDING_US + self._jitter_us))
        return int(several[sure[0] if len(sure) else np.argmin(misfit)])


def _wrapped(us: npt.NDArray[np.floating]) -> Floats:
    """Differences on the board's clock, -512 to 512 us."""
    return np.asarray((us + DEVICE_CLOCK_US / 2) % DEVICE_CLOCK_US - DEVICE_CLOCK_US / 2, np.float64)


def _first(found: npt.NDArray[np.bool_], begin: int) -> int:
    """Return the first row from ``begin`` on that is true; the length of the array if there is none."""
    hits = np.flatnonzero(found[begin:])
    return begin + int(hits[0]) if len(hits) else len(found)
