"""Tables of tuning results: what was measured of each kernel configuration at each clock.

Plain columns, no estimates; :mod:`pmtpy.cli.calibrate` reads them from files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_MAX_POWER_W = 30_000.0  # the largest machine that is one processor takes 23 kW (Cerebras CS-3, data sheet)


@dataclass(frozen=True, slots=True)
class Table:
    """Tuning results: one row for each configuration and clock."""

    config: tuple[str, ...]  # which configuration
    # shape (n,); clock asked for and clock measured
    set_mhz: Floats
    core_mhz: Floats
    temperature_c: Floats  # shape (n,); temperature; NaN where it was not measured
    # shape (n,); mean time and power of a run
    time_s: Floats
    power_w: Floats

    def rows(self, keep: Ints) -> Table:
        """Return the rows numbered ``keep``."""
        return Table(
            tuple(self.config[i] for i in keep),
            self.set_mhz[keep],
            self.core_mhz[keep],
            self.temperature_c[keep],
            self.time_s[keep],
            self.power_w[keep],
        )

    def by_config(self) -> dict[str, Ints]:
        """Row numbers of each configuration, in order of first appearance."""
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.config):
            found.setdefault(name, []).append(i)
        return {name: np.array(rows, np.int64) for name, rows in found.items()}

    def check(self) -> None:
        """Refuse what no measurement can be.

        Raises DeclinedError: a clock, time or power that is not a positive number, or a power that no processor draws.
        """
        columns = (("core_freq_mhz", self.core_mhz), ("time_ms", self.time_s), ("power_w", self.power_w))
        for name, column in columns:
            bad = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
            if len(bad):
                msg = f"row {bad[0] + 1} of the table: {name} must be a positive number, not {column[bad[0]]:g}"
                raise DeclinedError(msg)
        most = int(np.argmax(self.power_w)) if len(self.power_w) else 0
        if len(self.power_w) and self.power_w[most] > _MAX_POWER_W:
            msg = f"row {most + 1} of the table: no processor draws {self.power_w[most]:g} W; is power_w in watts?"
            raise DeclinedError(msg)
