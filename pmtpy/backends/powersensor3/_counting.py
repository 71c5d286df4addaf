"""The number of each frame, from stamps of 10 bits that jitter. Pure: arrays in and out.

The board samples on an even lattice, and stamps each frame with whole microseconds modulo 1024, a few of them late or
early as its interrupts allow. So a stamp tells on which frame of a turn it stands (a turn is 17.9 to 34.9 frames), as
long as it is off by less than a quarter of an interval; what is on the lattice follows its predecessor. Where stamps
leave the lattice and stay off it, frames are missing: as few as the new place allows.

Stamps and samples have one crystal, so places repeat exactly after 11 to 25 turns (512 frames of 50 us), and until then
differ by at least 2 us: 41 frames are two turns and 2 us. A single stamp jitters by about that, the mean of many does
not. Where enough of them stand before and behind a gap, the number of missing frames is known but for multiples of
that repetition; where too few do, 41 frames and none look alike. The rest is for the arrivals to say
(:mod:`pmtpy.backends.powersensor3._board_clock`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.backends.powersensor3._codec import DEVICE_CLOCK_US, Levels
from pmtpy.core.rows import Floats, Ints, median

_TOLERANCE = 0.25  # of an interval: how far a stamp may be off its place
SURE_US, ALIKE_US = 3.0, 5.0  # remainders that differ by less agree for sure; that cannot be told apart by stamps
_LEAST_JITTER_US = 0.3  # stamps are whole microseconds
_LONGEST_TURNS, _SAME_US = 26, 0.5
_ROUNDING_US = 1.5  # stamps are cut to whole microseconds, and so is what they are compared with
_GLITCH = 3  # as many stamps in a row may be off without frames missing
_MEDIAN_OF = 7
_MIN_FRAMES, _ENOUGH_FRAMES, _SETTLED_FRAMES, _MOST_FRAMES = 32, 2048, 1 << 14, 1 << 20
_LAST = 64  # stamps that tell where the lattice stands
_BEHIND = 256  # stamps that tell where it stands behind a gap
_MOVED_OF = 5.0  # standard deviations of a sum of stamps: chance does not bring that, wherever in a batch it is looked
_SURE_OF = 3.5  # standard deviations that a mean of stamps has to stay away from another place
_AT_ONCE = 8192
_TURNS = 3  # within which the shortest gap is looked for: 40 frames and more, so that every remainder occurs


@dataclass(frozen=True, slots=True)
class Gap:
    """A place where frames are missing."""

    # rows from ``first`` on wait until it is known how many; the missing ones belong before ``row``
    first: int
    row: int
    rest_us: float  # what the stamps leave of the time, modulo 1024 us
    known: int  # the fewest missing frames that leave this; 0 where stamps have but moved a little
    alike_us: float = ALIKE_US  # numbers of frames that leave as little of a difference as this cannot be told apart

    def moved(self, rows: int) -> Gap:
        """Return the same gap where rows have been put before it, or taken away."""
        return replace(self, first=self.first + rows, row=self.row + rows)


@dataclass(frozen=True, slots=True)
class Counted:
    """Frames with their numbers."""

    numbers: Ints  # shape (n,); strictly increasing; the first frame of all is number 0
    gaps: tuple[Gap, ...] = ()  # where the fewest missing frames that the stamps allow were taken; more may be missing


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
        self._weight = 0  # stamps that tell where the lattice stands
        self._apart_us = 0.0  # between places of neighbouring numbers; 0: not worked out yet
        self._repeats = 0  # frames after which places are the same
        self._limit_us = _TOLERANCE * nominal_us  # beyond which a stamp is off

    def count(self, stamps: Levels, *, last: bool = False) -> Counted:
        """Number the frames; the last ones are left out where only their successor can tell, unless none will come.

        A caller gives the frames that were left out again, before those that came after them.
        """
        if self._run >= _ENOUGH_FRAMES and 0 < len(stamps) <= _AT_ONCE:
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
            part = us[done : done + max(_MIN_FRAMES, min(self._run // 4, _AT_ONCE))]
            end = done + len(part) == len(us)
            found, breaks = self._lattice(part, wait=not (end and last))
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
        if max(off) > limit or min(off) < -limit or (self._repeats and self._moved(math.fsum(off), len(off))):
            return []
        return off

    def skip(self, frames: int) -> None:
        """Take note that the newest frame has another number than was thought."""
        self._number += frames

    def unseen(self, rest_us: float, about: float, slack: float, alike_us: float = ALIKE_US) -> int | None:
        """Return the number of frames nearest to ``about`` whose absence leaves ``rest_us`` in the stamps, or None.

        None where no such number lies within ``slack`` frames. What differs by less than ``alike_us`` is the same.
        """
        low = max(0, int(np.ceil(about - slack)))
        several = np.arange(low, max(low, int(about + slack)) + 1)
        fits = several[np.abs(_wrapped(several * self.interval_us - rest_us)) <= alike_us]
        fits = fits[np.abs(fits - about) <= slack]
        return int(fits[np.argmin(np.abs(fits - about))]) if len(fits) else None

    def next_alike(self, rest_us: float, missing: int, alike_us: float = ALIKE_US) -> int:
        """Return the next larger number of frames than ``missing`` whose absence leaves the same in the stamps."""
        several = np.arange(missing + 1, missing + 1 + DEVICE_CLOCK_US)
        return missing + 1 + int(np.argmax(np.abs(_wrapped(several * self.interval_us - rest_us)) <= alike_us))

    def _begin(self, us: Floats) -> None:
        """Take the first stamp as it is, and the interval from the first batch where that is not of the nominal one."""
        seen, frames = _even_interval(us)
        # Stamps are off by less than a quarter of an interval: what leads further away is no jitter.
        if frames >= _MIN_FRAMES and frames * abs(seen - self.interval_us) > _TOLERANCE * self.interval_us:
            self.interval_us = seen
        self._phase_us = float(us[0]) - self.interval_us
        off = _wrapped(us[:_MIN_FRAMES] - self._expected(min(_MIN_FRAMES, len(us))))
        self._phase_us += median(off)  # the first stamp may be the one that is off
        self._weight = len(off)

    def _expected(self, n: int) -> Floats:
        expected: Floats = self._phase_us + self.interval_us * np.arange(1.0, n + 1.0)
        return expected

    def _lattice(self, us: Floats, *, wait: bool) -> tuple[Ints, list[Gap]]:
        """Lay a part of a batch on the lattice; return the numbers and the gaps."""
        n = len(us)
        off = _wrapped(us - self._expected(n))
        numbers = np.arange(self._number + 1, self._number + 1 + n)
        gaps: list[Gap] = []
        begin = row = 0
        while True:
            row = _first(np.abs(off) > self._limit_us, row)
            back = _first(np.abs(off[: row + 1 + _GLITCH]) <= self._limit_us, row + 1)
            if back <= min(n - 1, row + _GLITCH):
                row = back
                continue
            if wait and n - row <= _GLITCH:
                n = min(n, row)
            end = min(n, row)
            stamps, slipped = self._slip(off[begin:end])
            if stamps and slipped is None and end == n and wait:
                n = row = n - stamps  # those that come next tell
            if slipped:
                begin = row = end - stamps
                gap, moved_us = self._gap(row, slipped), self._place(slipped)
            elif row < n:
                gap, moved_us = self._broken(row, *self._level(off[row : row + _BEHIND]))
                begin, row = row, row + 1
            else:
                break
            gaps.append(gap)
            numbers[gap.row :] += gap.known
            off[gap.row :] = _wrapped(off[gap.row :] - moved_us)
        if n:
            last = off[max(n - _LAST, gaps[-1].row if gaps else 0) : n].tolist()
            self._follow(last, int(numbers[n - 1]) - self._number)
        return numbers[:n], gaps

    def _broken(self, row: int, rest_us: float, stamps: int) -> tuple[Gap, float]:
        """Count the frames missing before a row; return by how much later stamps are off no more, too."""
        missing = self._place_of(rest_us, stamps)
        if missing is not None:
            return self._gap(row, missing), self._place(missing)
        # It is not known any more by how many places the lattice moved: it is where the stamps are now.
        missing = self._shortest(rest_us)
        self._phase_us += float(_wrapped(np.array(rest_us - missing * self.interval_us)))
        self._weight = stamps
        return Gap(row, row, rest_us, missing), rest_us

    def _gap(self, row: int, missing: int) -> Gap:
        """Return the gap before a row where so many frames are missing for sure, but for whole repetitions."""
        return Gap(row, row, self._place(missing), missing, self._apart_us / 2)

    def _moved(self, sum_us: float, stamps: int) -> bool:
        """Whether a sum of so many stamps, by how much each is off, is more than their jitter makes."""
        return sum_us * sum_us > stamps * (_MOVED_OF * max(_LEAST_JITTER_US, self._jitter_us)) ** 2

    def _slip(self, off: Floats) -> tuple[int, int | None]:
        """Find whether stamps within the limit have moved all the same, by the place of some number of frames.

        Returns how many of them, up to the last, have; and how many frames are missing before these, but for whole
        repetitions. None: so few stamps do not tell.
        """
        if not self._repeats or not len(off):
            return 0, 0
        near = np.where(np.abs(off) <= 2 * self._limit_us, off, 0.0)  # a stamp that is off by more tells nothing
        sums = np.cumsum(near[::-1])
        stamps = 1 + int(np.argmax(sums * sums / np.arange(1, len(sums) + 1)))
        if not self._moved(float(sums[stamps - 1]), stamps):
            return 0, 0
        missing = self._place_of(*self._level(off[len(off) - stamps :][:_BEHIND]))
        return (0, 0) if missing is None and stamps >= _LAST else (stamps, missing)

    def _follow(self, off: Sequence[float], frames: int) -> None:
        """Take note of where the last frame stands, how much stamps jitter, and of the interval."""
        near = [us for us in off if abs(us) <= self._limit_us]
        shift = math.fsum(near) / len(near) if near else 0.0
        self._number += frames
        self._run = min(self._run + frames, _MOST_FRAMES)
        if len(near) >= _MIN_FRAMES and self._run >= _ENOUGH_FRAMES:
            deviation = math.sqrt(max(0.0, math.fsum([us * us for us in near]) / len(near) - shift * shift))
            self._jitter_us += (deviation - self._jitter_us) / (8 if self._jitter_us else 1)
            self._limit_us = min(_TOLERANCE * self.interval_us, _ROUNDING_US + 5 * self._jitter_us)
        if self._run >= _SETTLED_FRAMES and not self._repeats:
            self._work_out_places()
        share = 1.0 if len(near) >= _LAST else len(near) / max(1, len(near) + self._weight)
        self._weight = min(_LAST, self._weight + len(near))
        self._phase_us = (self._phase_us + frames * self.interval_us + share * shift) % DEVICE_CLOCK_US
        # Before the run is long, the nominal interval is better known than the stamps tell.
        self.interval_us += shift / max(self._run, _ENOUGH_FRAMES)

    def _place(self, missing: int) -> float:
        """By how much stamps are off behind so many missing frames."""
        return float(_wrapped(np.array(missing * self.interval_us)))

    def _level(self, off: Floats) -> tuple[float, int]:
        """By how much the next stamps are off, and how many say so; some are glitches, or lie behind another gap."""
        moved = _wrapped(off - off[0])
        middle = np.sort(moved[:_MEDIAN_OF])[(min(len(moved), _MEDIAN_OF) - 1) // 2]
        near = np.abs(moved - middle) <= self._limit_us
        begin = int(np.argmax(near))
        away = np.flatnonzero(~near[begin:])
        left = np.flatnonzero(away[_GLITCH:] - away[:-_GLITCH] == _GLITCH) if len(away) > _GLITCH else away[:0]
        end = begin + int(away[left[0]]) if len(left) else len(moved)
        behind = moved[begin:end][near[begin:end]]
        return float(off[0] + behind.mean()), len(behind)

    def _place_of(self, rest_us: float, stamps: int) -> int | None:
        """Return how many frames are missing, but for whole repetitions; None where too few stamps tell."""
        if not self._repeats:
            return None
        deviation = max(_LEAST_JITTER_US, self._jitter_us) * math.sqrt(1 / stamps + 1 / self._weight)
        if 2 * _SURE_OF * deviation > self._apart_us:
            return None
        return int(np.argmin(np.abs(_wrapped(np.arange(self._repeats) * self.interval_us - rest_us))))

    def _work_out_places(self) -> None:
        """Work out how close the places of different numbers come within the longest repetition of any board."""
        places = np.abs(_wrapped(np.arange(1, _LONGEST_TURNS * DEVICE_CLOCK_US / self.interval_us) * self.interval_us))
        same = np.flatnonzero(places < _SAME_US)
        self._repeats = int(same[0]) + 1 if len(same) else len(places)
        self._apart_us = float(places[: self._repeats - 1].min()) if self._repeats > 1 else 0.0

    def _shortest(self, rest_us: float) -> int:
        """Return the fewest missing frames that leave this remainder; none, where stamps have but moved a little."""
        several = np.arange(
            abs(rest_us) > _TOLERANCE * self.interval_us, int(_TURNS * DEVICE_CLOCK_US / self.interval_us)
        )
        misfit = np.abs(_wrapped(several * self.interval_us - rest_us))
        sure = np.flatnonzero(misfit <= SURE_US)
        return int(several[sure[0] if len(sure) else np.argmin(misfit)])


def _even_interval(us: Floats) -> tuple[float, int]:
    """Return the slope of the longest run of stamps whose steps are alike, and how many frames it is.

    Of a clock that stands still there is none.
    """
    steps = np.diff(us) % DEVICE_CLOCK_US
    middle = median(steps) if len(steps) else 0.0
    if middle <= 0.0:
        return 0.0, 0
    breaks = np.flatnonzero(np.abs(steps - middle) > _TOLERANCE * middle)
    ends = np.concatenate([breaks, [len(steps)]])
    begins = np.concatenate([[0], breaks + 1])
    longest = int(np.argmax(ends - begins))
    run = np.cumsum(np.concatenate([[0.0], steps[begins[longest] : ends[longest]]]))
    along = np.arange(len(run)) - (len(run) - 1) / 2
    return (float(along @ run / (along @ along)), len(run)) if len(run) > 1 else (0.0, 0)


def _wrapped(us: npt.NDArray[np.floating]) -> Floats:
    """Differences on the board's clock, -512 to 512 us."""
    return np.asarray((us + DEVICE_CLOCK_US / 2) % DEVICE_CLOCK_US - DEVICE_CLOCK_US / 2, np.float64)


def _first(found: npt.NDArray[np.bool_], begin: int) -> int:
    """Return the first row from ``begin`` on that is true; the length of the array if there is none."""
    hits = np.flatnonzero(found[begin:])
    return begin + int(hits[0]) if len(hits) else len(found)
