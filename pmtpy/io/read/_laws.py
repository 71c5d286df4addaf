"""Whether the powers of a recording of ours make its energies: a digit that was lost in one of them shows.

The rule by which each channel's energy came about is in the metadata: a counter has moved by its power times the time
since it moved before, samples are joined by straight lines, means hold since the row before. Few rows that break the
rule are wrong in one of their fields, and are noted; where many do, it is not the rule that the recording was made by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints
from pmtpy.io.columns import downsampled
from pmtpy.io.read._recording import Recording

_OFF, _TIME_S, _JOULES = 0.03, 2e-6, 3e-6  # relative; of the two rounded times, and of the two rounded energies
_MOST_WRONG, _MOST_WRONG_SHARE = 4, 1e-3  # rows that may be wrong, and which share of all

Columns = dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class _Law:
    """One channel: its rule, its newest row, when it moved last, and what was found."""

    name: str
    rule: str
    refresh_s: float
    last: tuple[float, float, float] | None = None  # time, watts, joules
    moved_s: float = np.nan
    rows: int = 0
    wrong: int = 0
    first: str = field(default="")

    def feed(self, t: Floats, watts: Floats, joules: Floats, unbroken: npt.NDArray[np.bool_], at: Ints) -> None:
        """Take the rows of a block; ``unbroken``: nothing is lost before a row."""
        if self.last is None:
            self.last = float(t[0]), float(watts[0]), float(joules[0])
        before = self.last
        t, watts, joules = (np.concatenate([[b], now]) for b, now in zip(before, (t, watts, joules), strict=True))
        self.last = float(t[-1]), float(watts[-1]), float(joules[-1])
        span, risen = np.diff(t), np.diff(joules)
        if self.rule == "counter":
            # A restart that shows no energy begins the count anew, at an instant that the row does not tell.
            anew = (risen == 0.0) & (np.isnan(watts[1:]) | ~unbroken)
            moves = np.flatnonzero((risen != 0.0) | anew)
            moved = np.where(anew[moves], np.nan, t[1:][moves])
            since = np.diff(moved, prepend=self.moved_s)
            self.moved_s = float(moved[-1]) if len(moved) else self.moved_s
            span = np.full(len(span), np.nan)
            span[moves] = np.maximum(since, self.refresh_s)
        mean = (watts[1:] + watts[:-1]) / 2 if self.rule == "integrated" else watts[1:]
        expected = mean * span
        with np.errstate(invalid="ignore"):
            off = np.abs(risen - expected) > (
                _OFF * np.maximum(np.abs(risen), np.abs(expected)) + _TIME_S * np.abs(mean) + _JOULES
            )
        off &= unbroken & (risen != 0.0)  # of time without known energy nothing is counted
        self.rows += len(span)
        found = np.flatnonzero(off)
        if len(found) and not self.wrong:
            i = int(found[0])
            self.first = (
                f"line {at[i]}: {self.name}_W is {watts[i + 1]:g} W and {self.name}_J has risen by {risen[i]:g} J"
                f" where {expected[i]:g} J belong to it"
            )
        self.wrong += len(found)


class EnergyLaws:
    """What rows of ours are held against, block by block; :meth:`end` notes what was found."""

    def __init__(self, recording: Recording, names: list[str]) -> None:
        self._recording = recording
        facts = recording.facts or {}
        every = downsampled(facts)
        self._laws = []
        for channel in facts.get("channels", []) if not facts.get("converted_from") else []:
            name, rule, refresh_s = channel["name"], channel.get("rule"), channel.get("refresh_s")
            if isinstance(rule, str) and {f"{name}_W", f"{name}_J"} <= set(names):
                refresh_s = refresh_s if isinstance(refresh_s, float) else 0.0
                self._laws.append(_Law(name, "interval mean" if every else rule, refresh_s))

    def feed(self, columns: Columns, at: Ints) -> None:
        """Take the next rows."""
        if self._laws and len(at):
            unbroken = columns["lost"] == 0
            for law in self._laws:
                law.feed(columns["elapsed"], columns[f"{law.name}_W"], columns[f"{law.name}_J"], unbroken, at)

    def end(self) -> None:
        """Note rows of which one field must be wrong."""
        for law in self._laws:
            if 0 < law.wrong <= max(_MOST_WRONG, _MOST_WRONG_SHARE * law.rows):
                more = f" (and {law.wrong - 1} more such rows)" if law.wrong > 1 else ""
                self._recording.notes.append(
                    f"{law.first}{more}: one of the two is wrong; copy the file again from its source"
                )
