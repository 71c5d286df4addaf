"""The driver's own buffer of recent power samples: every sample that it took, however late it is fetched.

The stamps' epoch is not documented (on Linux it has been found to follow the clock since boot), so they are those of a
clock of its own. Source: NVML API reference, ``nvmlDeviceGetSamples``; capacities and epoch: reports of users.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pmtpy.backends._device_clock import DeviceClock
from pmtpy.backends.nvml import _errors as errors
from pmtpy.backends.nvml._device import MEMBER, Library
from pmtpy.backends.nvml._errors import Fault
from pmtpy.backends.nvml._source import AsleepError, Locate, NvmlSource
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.clock import Clock
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Block, median
from pmtpy.core.source import Timestamps, Traits
from pmtpy.errors import ReadError

_TOTAL_POWER_SAMPLES = 0  # nvml.h, nvmlSamplingType_t


def fetch(library: Library, handle: object, last_us: int, most_watts: float) -> list[tuple[int, float]]:
    """Return (stamp in us, mW) of the samples newer than ``last_us``, in order of time; impossible ones as NaN.

    A sample of 0 is none either: of a GPU that sleeps.

    Raises Fault: the driver has no such buffer, or fails.
    """

    def parse(answer: Any) -> dict[int, float]:
        kind, samples = answer
        return {int(s.timeStamp): _milliwatts(s, MEMBER.get(int(kind)), most_watts) for s in samples}

    try:
        taken = library.read(parse, "nvmlDeviceGetSamples", handle, _TOTAL_POWER_SAMPLES, last_us)
    except Fault as fault:
        if fault.code == errors.NOT_FOUND:  # nothing newer
            return []
        raise
    return sorted((t, mw) for t, mw in taken.items() if last_us < t < 2**53)


def _milliwatts(sample: Any, member: str | None, most_watts: float) -> float:
    value = float(getattr(sample.sampleValue, member)) if member else math.nan
    return value if 0 <= value <= most_watts * 1e3 else math.nan


def step_us(stamps: Sequence[int]) -> float | None:
    """Return the usual time between samples; None where there are too few to tell."""
    return median(np.diff(stamps)) if len(stamps) > 2 else None


class SampleSource(NvmlSource):
    """One channel of power, with every sample that the driver kept. The samples of before opening are not delivered."""

    def __init__(
        self, clock: Clock, library: Library, locate: Locate, identity: Identity, *, channel: Channel, capacity: int
    ) -> None:
        super().__init__(clock, library, locate, identity)
        self.channels = (channel,)
        self._most_watts = channel.max_watts or math.inf
        self._step_ns = round((channel.refresh_s or 0.1) * 1e9)
        # Twice as often as the ring turns over loses nothing; a person watching wants to see something each second.
        turn_s = capacity * self._step_ns / 1e9
        self.traits = Traits(min(1.0, turn_s / 4), deadline_s=turn_s, timestamps=Timestamps.DEVICE_UPDATE)
        self._time = DeviceClock()
        self._restarted = False
        self._missing = 0  # samples since the last row that were none
        self._last_us = self._learn(self._fetch(0))

    def _fetch(self, last_us: int) -> list[tuple[int, float]]:
        return fetch(self._library, self._handle, last_us, self._most_watts)

    def _learn(self, samples: Sequence[tuple[int, float]]) -> int:
        """Learn from the newest sample where the stamps lie on the host's clock; return its stamp, 0 for none."""
        if not samples:
            return 0
        self._time.place(samples[-1][0] * 1000, self._clock.now_ns())
        return samples[-1][0]

    def _take(self) -> Block | None:
        old_us = self._last_us
        samples = self._fetch(old_us)
        if not samples:
            self._look_for_restart()
            return None
        self._last_us = self._learn(samples)
        rows: list[tuple[int, float, int]] = []
        lost = self._missing  # a failed fetch loses nothing: the ring still holds it
        before_us = old_us
        for stamp_us, milliwatts in samples:
            gap_ns = (stamp_us - before_us) * 1000
            lost += max(0, round(gap_ns / self._step_ns) - 1) if before_us else 0
            before_us = stamp_us
            t_ns = stamp_us * 1000 + self._time.offset_ns
            if not milliwatts > 0:
                lost += 1
            elif t_ns > self._newest_ns:
                rows.append((t_ns, milliwatts, lost))
                self._newest_ns, lost = t_ns, 0
        self._missing = lost
        if not rows:
            if not any(milliwatts for _, milliwatts in samples):
                msg = f"{self._who} is asleep: all its samples of power are 0"
                raise AsleepError(msg)
            msg = f"{self._who}: {amount(len(samples), 'sample')} of power, none possible"
            raise ReadError(msg)
        times, counts, gaps = zip(*rows, strict=True)
        restarted, self._restarted = self._restarted, False
        return Block(np.array(times, np.int64), np.array(counts)[:, None], np.array(gaps, np.int64), fresh=restarted)

    def _look_for_restart(self) -> None:
        """Notice a buffer that began anew with smaller stamps, which would otherwise look like silence."""
        newest = self._fetch(0)
        if newest and newest[-1][0] < self._last_us:
            self._time.forget()
            self._last_us, self._restarted = self._learn(newest), True
