"""A part of a recording: from one time to another, and not more than so many rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.core import arguments
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import TargetError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Part:
    """Rows from ``start`` (included) to ``stop`` (not), in seconds since the first row, at most ``max_rows``."""

    start: float = 0.0
    stop: float = math.inf
    max_rows: int | None = None

    @staticmethod
    def of(start: float | None, stop: float | None, max_rows: int | None) -> Part:
        """Make a part of what a user asked for.

        Raises TargetError: it is no part of anything.
        """
        what = "a number of seconds since the first row"
        first = 0.0 if start is None else arguments.number(start, what)
        part = Part(first, math.inf if stop is None else arguments.number(stop, what), max_rows)
        if max_rows is not None:
            arguments.number(arguments.instance(max_rows, int, "a number of rows"), "a number of rows", least=0)
        if not part.start < part.stop or (max_rows is not None and max_rows < 0):
            asked = f"start={start}, stop={stop}, max_rows={max_rows}"
            msg = f"a part goes from start to a later stop and has not less than no rows; asked for was {asked}"
            raise TargetError(msg)
        return part

    @property
    def whole(self) -> bool:
        """Whether it is everything."""
        return self == Part()

    def rows(self, elapsed: Floats, taken: int = 0) -> slice:
        """Return which of the rows, given by their times in order, belong to it, if ``taken`` were found before."""
        first, last = (int(i) for i in np.searchsorted(elapsed, [self.start, self.stop]))
        return slice(first, last if self.max_rows is None else min(last, max(first, first + self.max_rows - taken)))

    def note(self) -> str:
        """Say what was asked for."""
        ends = "" if self.stop == math.inf else f" to {self.stop:g} s"
        most = "" if self.max_rows is None else f", at most {amount(self.max_rows, 'row')}"
        return f"a part: from {self.start:g} s{ends}{most}"

    def of_table(self, table: pd.DataFrame) -> pd.DataFrame:
        """Cut a whole table down to it."""
        if self.whole:
            return table
        attrs = table.attrs
        cut: pd.DataFrame = table.iloc[self.rows(table["elapsed"].to_numpy())].reset_index(drop=True)
        cut.attrs = attrs | {"notes": [*attrs["notes"], self.note()]}
        return cut


WHOLE = Part()
"""All of a recording."""
