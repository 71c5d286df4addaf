"""Counters of zones or of perf events, read together."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._sysfs import Registers, entries, sysfs_root, why
from pmtpy.backends.machine import IN_A_CONTAINER
from pmtpy.backends.rapl import _device as powercap
from pmtpy.backends.rapl import _perf as perf_events
from pmtpy.backends.rapl._channels import IN_TOTAL, MAX_WATTS, SMALLEST_RANGE_J, Kind
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block, Layout
from pmtpy.core.source import PolledSource, Traits
from pmtpy.errors import BackendUnavailableError, ReadError, TargetError

_WAYS = ("powercap", "perf")
_PERMIT = (
    "the counters are for root only since 2020, because they reveal what other users' programs do (CVE-2020-8694). "
    "If that is no concern here, until the next boot: sudo chmod a+r /sys/class/powercap/intel-rapl*/energy_uj ; "
    "for good: pmtpy doctor --rules prints a udev rule and a tmpfiles line to install; "
    "or, for perf events instead: sudo sysctl kernel.perf_event_paranoid=0 (or CAP_PERFMON)"
)
_LOAD = (
    "sudo modprobe intel_rapl_msr (for Intel and AMD alike); virtual machines, WSL and processors other than x86 have "
    f"no RAPL; {IN_A_CONTAINER}"
)
# A counter that has failed for so long is taken for lost: below the time after which the whole sensor would be.
_FAILING_NS = NS_PER_S
_LOOK_NS = 10 * NS_PER_S  # between two looks for one that was lost, which reads the tree
_MASKED = f"containers hide /sys/devices/virtual/powercap; {IN_A_CONTAINER} (or the option sysfs_root=/host/sys)"


class Opening:
    """The counters, found and opened by the first way that works."""

    def __init__(
        self, root: str | PathLike[str] | None, via: str | None, perf: perf_events.Events | None, without: str = ""
    ) -> None:
        if via is not None and via not in _WAYS:
            msg = f"rapl can be read via {' or '.join(_WAYS)}, not via {via!r}"
            raise TargetError(msg)
        if perf is not None and not callable(getattr(perf, "read", None)):
            msg = f"rapl: perf= takes an object, for rehearsals, and not {perf!r}; to choose perf events say via=perf"
            raise TargetError(msg)
        self._root = sysfs_root(root)
        self._perf = perf or perf_events.KernelEvents()
        self._without = frozenset(name.strip() for name in without.split(",") if name.strip())
        self._tree = powercap.left_out(powercap.scan(self._root), self._without)
        self.channels: tuple[Channel, ...] = ()
        self.notes: tuple[str, ...] = ()
        # The kernel takes the difference of a perf event's register as signed, so half a range is the limit.
        self.deadline_s = SMALLEST_RANGE_J / 2 / MAX_WATTS
        self.way = ""
        self._counters: Registers | perf_events.OpenEvents | None = None
        if via is None and self._denied():
            refusal = self._open_perf()
            if refusal is not None:
                no_perf, refusal = refusal.reason, self._open_powercap()
                if refusal is not None:
                    refusal = BackendUnavailableError("rapl", f"{refusal.reason}; {no_perf}", refusal.remedy)
        else:
            refusal = self._open_perf() if via == "perf" else self._open_powercap()
        if refusal is not None:
            raise refusal

    @property
    def counters(self) -> Registers | perf_events.OpenEvents:
        """What is open, by the one way or the other."""
        assert self._counters is not None  # noqa: S101  (the beginning has raised otherwise)
        return self._counters

    def close(self) -> None:
        """Close whatever is open. May be called twice."""
        self.counters.close()

    def _denied(self) -> bool:
        return any(z.denied and z.part.kind in IN_TOTAL for z in self._tree.zones)

    def _open_powercap(self) -> BackendUnavailableError | None:
        tree = self._tree
        self._check_without([zone.part.name for zone in tree.zones])
        readable = [z for z in tree.zones if z.energy_uj is not None]
        self.channels, rules = powercap.channels(tree)
        if not any(c.domain for c, z in zip(self.channels, readable, strict=True) if z.part.kind is Kind.PACKAGE):
            return self._why_no_package()
        try:
            # Without the platform, a duplicate or a part of a package the total is as good as with it.
            self._counters = Registers(_locator(self._root, readable), alone=Layout(self.channels).beside_total)
        except OSError as error:
            if of_a_handler(error):
                raise
            remedy = _PERMIT if isinstance(error, PermissionError) else _LOAD
            return BackendUnavailableError("rapl", f"{error.filename}: {why(error)}", remedy)
        self.way, self.notes = "powercap", (*tree.notes, *rules)
        self.deadline_s = min(
            (c.wrap * c.scale if c.wrap else SMALLEST_RANGE_J) / (c.max_watts or MAX_WATTS) for c in self.channels
        )
        return None

    def _check_without(self, names: Sequence[str]) -> None:
        unknown = sorted(self._without - set(names))
        if unknown and names:
            msg = f"rapl: without={unknown[0]} names no counter here; there are {', '.join(names)}"
            raise TargetError(msg)

    def _why_no_package(self) -> BackendUnavailableError:
        tree = self._tree
        directory = self._root / "class" / "powercap"
        unreadable = [z for z in tree.zones if z.part.kind is Kind.PACKAGE and z.problem]
        if unreadable:
            denied = any(z.denied for z in unreadable)
            reason = f"no counter of a package can be read: {unreadable[0].problem}"
            return BackendUnavailableError("rapl", reason, _PERMIT if denied else _LOAD)
        if tree.dangling:
            reason = f"{directory} lists {', '.join(tree.dangling)}, but what these links point to is hidden"
            return BackendUnavailableError("rapl", reason, _MASKED)
        if tree.zones or tree.notes:
            there = [z.part.name for z in tree.zones] + list(tree.notes)
            return BackendUnavailableError(
                "rapl", f"{directory} has no zone of a package, only: {'; '.join(there)}", _LOAD
            )
        others = [path.name for path in entries(directory).paths]
        seen = f"holds {', '.join(others)}, but no intel-rapl zone" if others else "does not exist or is empty"
        return BackendUnavailableError("rapl", f"{directory} {seen}", _LOAD)

    def _open_perf(self) -> BackendUnavailableError | None:
        found = perf_events.find_events(self._root)
        self._check_without([event.part.name for event in found])
        events = [event for event in found if event.part.name not in self._without]
        if not any(event.part.kind is Kind.PACKAGE for event in events):
            where = self._root / "bus" / "event_source" / "devices" / "power"
            return BackendUnavailableError("rapl", f"{where} has no perf event for the energy of a package", _LOAD)
        amd = self._tree.vendor in powercap.AMD_VENDORS
        self.channels = perf_events.channels(events, dies_mirrored=amd)
        try:
            self._counters = perf_events.OpenEvents(
                events,
                self._perf,
                lambda: perf_events.find_events(self._root),
                alone=Layout(self.channels).beside_total,
            )
        except OSError as error:
            if of_a_handler(error):
                raise
            return BackendUnavailableError("rapl", f"perf events could not be opened: {why(error)}", _PERMIT)
        lacks = [event.part for event in found if event not in events]
        lacking = (powercap.lacking(part, self.channels, dies_mirrored=amd) for part in lacks)
        self.way, self.notes = "perf events", ("read through perf events", *lacking)
        return None


def _locator(root: Path, wanted: Sequence[powercap.Zone]) -> Callable[[], Sequence[Path | None]]:
    """Make the function that finds the energy files of the zones by what they count, whatever their numbers are now."""
    first: list[Path] | None = [zone.energy_file for zone in wanted]

    def locate() -> Sequence[Path | None]:
        nonlocal first
        if first is not None:
            known, first = first, None
            return known
        now = {zone.part: zone.energy_file for zone in powercap.scan(root).zones}
        return [now.get(zone.part) for zone in wanted]

    return locate


class RaplSource(PolledSource):
    """All RAPL counters of the host, read together. No thread; a reading takes a few microseconds per counter."""

    def __init__(self, opening: Opening, clock: Clock) -> None:
        super().__init__(clock)
        self._opening = opening
        self._counters = opening.counters
        self._counters.renewed = set()
        self.channels = opening.channels
        self._beside = Layout(self.channels).beside_total
        self._spared = self._beside  # columns without which a row still says something
        self._broken_ns: int | None = None  # since when no reading was whole
        self._looked_ns = 0  # when files that had vanished were last looked for
        self.traits = Traits(deadline_s=opening.deadline_s)
        self._tops = [2**64 if c.wrap is None else int(c.wrap) for c in self.channels]
        packages = {c.domain.split("/")[1] for c in self.channels if c.domain}
        self.identity = Identity(
            "rapl",
            f"{len(packages)} socket{'s' if len(packages) != 1 else ''}",
            version=opening.way,
            notes=opening.notes,
        )

    def poll(self) -> Sequence[float] | Block:
        """Read every counter once; of those that were registered or opened anew, the Block says so."""
        try:
            counts = self._counts()
            self._broken_ns = None
        except ReadError as error:
            counts = self._without_failing(error)
        return self._marked(counts)

    def _counts(self) -> Sequence[float]:
        counters = self._counters
        if counters.unread and self._clock.now_ns() - self._looked_ns > _LOOK_NS:
            self._looked_ns = self._clock.now_ns()
            counters.look_again()
        counts = counters.numbers()
        self._unread = counters.unread
        if not (min(counts) >= 0 and all(map(operator.le, counts, self._tops))):  # or one is NaN
            counts = self._within(counts)
        return counts

    def _without_failing(self, error: ReadError) -> Sequence[float]:
        """Go on without the counters that have failed for a while; ReadError until then, and where no total is left.

        Others, as of the other packages, count on; until it is known that it does not pass, a failure is a lost row.
        """
        now_ns = self._clock.now_ns()
        if self._broken_ns is None:
            self._broken_ns = now_ns
        if now_ns - self._broken_ns < _FAILING_NS:
            raise error
        everything, spared = frozenset(range(len(self.channels))), self._spared
        self._spared = self._counters.alone = everything
        try:
            counts = self._within(self._counters.numbers())
            failing = {i for i, count in enumerate(counts) if math.isnan(count)}
            if everything - self._beside <= failing:
                raise error
            spared |= failing
        finally:
            self._spared = self._counters.alone = spared
        return counts

    def _marked(self, counts: Sequence[float]) -> Sequence[float] | Block:
        """Return a row; counters whose files or events were opened anew need not continue."""
        renewed = self._counters.renewed
        if not renewed:
            return counts
        self._counters.renewed = set()
        self._spared = self._counters.alone = self._spared.difference(renewed) | self._beside
        self._last_t_ns = max(self._clock.now_ns(), self._last_t_ns + 1)
        if len(renewed) == len(counts):
            return Block.row(self._last_t_ns, counts, fresh=True)
        return replace(Block.row(self._last_t_ns, counts), restarted=tuple(sorted(renewed)))

    def _within(self, counts: Sequence[float]) -> list[float]:
        """Return the counts without those that a register cannot show; ReadError where the total needs one of them."""
        wrong = {
            i: f"the counter shows {count}, outside its range of 0 to {top}"
            for i, (count, top) in enumerate(zip(counts, self._tops, strict=True))
            if not 0 <= count <= top
        }
        needed = sorted(wrong.keys() - self._spared)
        if needed:
            raise ReadError("; ".join(f"{self.channels[i].name}: {wrong[i]}" for i in needed))
        self._unread = wrong | self._counters.unread
        return [math.nan if i in wrong else count for i, count in enumerate(counts)]

    def close(self) -> None:
        """Close all counters. May be called twice."""
        self._opening.close()
