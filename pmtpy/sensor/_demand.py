"""Who needs rows of a source, and how often it is to be read for them: a dump, an open region, a momentary power."""

from __future__ import annotations

import math
import threading

from pmtpy.core.channel import EnergyMethod
from pmtpy.core.rows import Layout
from pmtpy.core.source import Timestamps, Traits

_MISSED = 0.75  # share of the period between readings, below which a register is renewed unseen
_GUARD_PARTS = 4  # a counter is read this often within the time after which it would be ambiguous
_WATCH_S = 0.1  # between two readings of counters while a region is open, or more where the source is slower
_FRESH_PERIODS = 0.5  # periods: a counter that was read since needs no reading
_LINGER_PERIODS = 10  # for which the poller waits for the next region before it ends: beginning a thread costs 0.1 ms


class Demand:
    """What is asked of the poller of one source. Regions may come and go in any thread, the rest in one at a time.

    Attributes
    ----------
    always : bool
        Rows are needed all the time: something is sampled, or streams.
    interval_s : float
        Time between two readings where nobody asks for another.
    dump_s : float or None
        Time between two rows of a dump; None: there is none.
    """

    __slots__ = (
        "_idle",
        "_lock",
        "_powers",
        "_regions",
        "_resting",
        "_sampled",
        "_unseen",
        "always",
        "dump_s",
        "interval_s",
    )

    def __init__(self, layout: Layout, traits: Traits, interval_s: float) -> None:
        self.interval_s = interval_s
        self.dump_s: float | None = None
        self._sampled = [c for c in layout.energy if c.energy_method is not EnergyMethod.COUNTER]
        self._powers = layout.energy if self._sampled else []  # a counter misses nothing between two readings
        # Readings may keep step with these. Of a counter whose refresh is not stated it is told by how far readings are
        # off each other's line, which is nothing if all are of one age.
        self._unseen = [c for c in layout.energy if c in self._sampled or not c.refresh_s]
        self.always = traits.streaming or bool(self._sampled)
        self._regions = 0
        self._lock = threading.Lock()
        self._idle = 0  # periods since a region was open
        self._resting = True  # the poller does not watch

    @property
    def regions(self) -> int:
        """How many regions are open."""
        return self._regions

    def enter(self) -> bool:
        """Count a region that begins; return whether the poller is to be woken for it."""
        with self._lock:
            self._regions += 1
            wake, self._resting = self._resting, False
        return wake

    def leave(self) -> None:
        """Count a region that ends."""
        with self._lock:
            self._regions -= 1

    def period_s(self, traits: Traits) -> float | None:
        """Time between two readings of the poller; None: nobody needs any."""
        if self.dump_s is not None:
            return self.dump_s
        if self.always:
            return self.interval_s
        if self._regions > 0:
            # What goes wrong between the two readings of a region shows only in readings between them.
            deadline_s = traits.deadline_s or math.inf
            return min(max(self.interval_s, _WATCH_S), deadline_s / _GUARD_PARTS)
        return None

    def irregular(self, traits: Traits, period_s: float) -> bool:
        """Whether readings are to come at uneven times: what they hold is renewed more often, and may keep step.

        A dump is regular, as it was asked for.
        """
        if self.dump_s is not None or traits.streaming:
            return False
        if traits.timestamps is Timestamps.DEVICE_UPDATE:  # all that a reading holds is renewed together
            return any(c.refresh_s is not None and c.refresh_s < _MISSED * period_s for c in self._powers)
        return any((c.refresh_s or 0.0) < _MISSED * period_s for c in self._unseen)

    def due(self, age_s: float | None, period_s: float) -> bool | None:
        """Whether the poller has to read now; None: it may end, since it only watched regions and there are none.

        A region reads at both its ends, so one that is shorter than the period costs no reading of the poller's;
        ``age_s`` is that of the newest row.
        """
        if self.always or self.dump_s is not None:
            return True
        with self._lock:
            self._idle = 0 if self._regions else self._idle + 1
            self._resting = self._idle > _LINGER_PERIODS
            if self._resting:
                return None
            return bool(self._regions) and not (age_s is not None and age_s < _FRESH_PERIODS * period_s)
