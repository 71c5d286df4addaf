"""Readings of hwmon chips, taken together."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._ina import shunt_changed
from pmtpy.backends._sysfs import Registers, why
from pmtpy.backends.hwmon._channels import INTERVAL_S
from pmtpy.backends.hwmon._device import Chip, shunts_of
from pmtpy.backends.machine import IN_A_CONTAINER
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.clock import Clock
from pmtpy.core.rows import Block, Layout
from pmtpy.core.source import PolledSource, Remarks, Traits
from pmtpy.errors import BackendUnavailableError, ReadError

# Answers of a device that sleeps or is busy (amdgpu in D3, PMBus, OCC in reset): the reading is lost, not the device.
ASLEEP = frozenset({errno.ENODATA, errno.ENXIO, errno.EAGAIN, errno.EIO, errno.EBUSY, errno.ETIMEDOUT, errno.EINVAL})
_LEAST_INTERVAL_S = 0.002
# Of the time between two conversions: one that is polled as seldom as it converts loses some for as long as the two
# keep step, and nothing shows of what they were.
_SEES_EACH = 2.0 / 3.0
REMEDY = (
    "load the chip's driver (for example: sudo modprobe ina2xx, ibmpowernv, acpi_power_meter force_cap_on=y); "
    "`ls /sys/class/hwmon/*/name` shows what the kernel has; "
    f"{IN_A_CONTAINER}"
)
UNPLUG = "pull the plug: while it is discharged the battery tells what the machine uses"


class HwmonSource(PolledSource):
    """The readings of one chip, or of all ACPI meters, read together."""

    def __init__(
        self,
        chips: Sequence[Chip],
        channels: Sequence[Channel],
        locate: Callable[[], Sequence[Path | None]],
        notes: tuple[str, ...],
        clock: Clock,
    ) -> None:
        super().__init__(clock)
        self._chips = tuple(chips)
        self.channels = tuple(channels)
        refresh = [c.refresh_s for c in self.channels if c.refresh_s]
        turns = [c.wrap * c.scale / c.max_watts for c in self.channels if c.wrap and c.max_watts]
        self.traits = Traits(
            interval_s=max(_LEAST_INTERVAL_S, min([INTERVAL_S, *(_SEES_EACH * every_s for every_s in refresh)])),
            deadline_s=0.8 * min(turns) if turns else None,
            blocking=any(chip.on_a_bus for chip in chips),
        )
        try:
            self._registers = Registers(locate, alone=Layout(self.channels).beside_total)
        except OSError as error:
            if of_a_handler(error):
                raise
            raise BackendUnavailableError("hwmon", f"{error.filename}: {why(error)}", REMEDY) from error
        self._openings = 1
        self.identity = Identity(
            "hwmon",
            chips[0].name,
            serial=chips[0].address if len(chips) == 1 else "",
            notes=notes,
            serial_is_place=True,
        )

    def poll(self) -> Sequence[float] | Block:
        """Read every file once; a Block marked fresh when the chip was registered anew."""
        if reason := self._charging():
            raise ReadError(reason)
        counts = self._registers.numbers()
        self._unread = self._registers.unread
        if self._registers.openings == self._openings:
            return counts
        self._openings = self._registers.openings
        self._last_t_ns = max(self._clock.now_ns(), self._last_t_ns + 1)
        return Block.row(self._last_t_ns, counts, fresh=True)

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:  # noqa: ARG002  (nothing tells when it was)
        """Say where the driver reckons with another shunt than at the opening."""
        (chip, *more), paths = self._chips, self._registers.paths
        now = dict(shunts_of(paths[0].parent)) if paths and not more and chip.shunts else {}
        changed = [shunt_changed(f"{chip.device} {name}", ohm, now.get(name, math.nan)) for name, ohm in chip.shunts]
        return Remarks(warnings=tuple(warning for each in changed for warning in each))

    def asleep(self, error: ReadError) -> bool:
        """Whether the chip sleeps, or its battery is charged: only one that was removed is lost."""
        return bool(self._charging()) or (isinstance(error.__cause__, OSError) and error.__cause__.errno in ASLEEP)

    def _charging(self) -> str:
        return next(filter(None, (chip.charging for chip in self._chips)), "")

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._registers.close()
