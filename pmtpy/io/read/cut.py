"""The same part of several recordings: by wall time, counted from the first row of the first of them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from pmtpy.errors import TargetError
from pmtpy.io.read import load


@dataclass(frozen=True, slots=True)
class Cut:
    """From where to where recordings are taken, in seconds since the first row of the first of them.

    Another one is cut at the same wall times, where both tell these; else it is taken whole, for nothing says where
    it has to be cut.
    """

    start: float | None
    stop: float | None
    zero_unix_s: float
    first: str
    utc_offset_s: float | None = None

    @classmethod
    def of(
        cls,
        first: str | os.PathLike[str],
        start: float | None,
        stop: float | None,
        *,
        utc_offset_s: float | None = None,
    ) -> Cut:
        """Make a cut of what was asked for; nothing is read where that is the whole."""
        zero = math.nan if start is None and stop is None else _begin_unix_s(first, utc_offset_s)
        return cls(start, stop, zero, os.fspath(first), utc_offset_s)

    @property
    def asked(self) -> bool:
        """Whether it is less than the whole."""
        return self.start is not None or self.stop is not None

    def ends(self, path: str | os.PathLike[str]) -> tuple[float | None, float | None]:
        """Return the part of one recording, in seconds since its own first row.

        Raises TargetError: it lies outside of the recording.
        """
        if not self.asked or os.fspath(path) == self.first:
            return self.start, self.stop
        later = _begin_unix_s(path, self.utc_offset_s) - self.zero_unix_s
        if not math.isfinite(later):
            return None, None
        start = max(0.0, (self.start or 0.0) - later)
        stop = None if self.stop is None else self.stop - later
        if stop is not None and not start < stop:
            msg = f"{path} begins {later:.6g} s after {self.first}, behind the part that was asked for; leave it out"
            raise TargetError(msg)
        return start, stop


def _begin_unix_s(path: str | os.PathLike[str], utc_offset_s: float | None) -> float:
    """Return the wall time of a recording's first row; NaN where it tells none."""
    try:
        first = load(path, max_rows=1, skip_broken=True, utc_offset_s=utc_offset_s)
    except OSError as error:
        if error.errno is None:
            raise
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    return float(first["time"].iloc[0] - first["elapsed"].iloc[0]) if len(first) else math.nan
