"""Where powers of a JLS recording are unknown though no row is lost: samples beyond a range, or of a part that failed.

A day of samples is not read for it: the pyramid knows the mean of those that are known, and where the energy rose by
less than that makes, some are not. Only there they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pmtpy.core.rows import Floats, Ints
from pmtpy.io.jls import JlsFile

_STRETCH_S = 1.0  # looked at as one
_ROWS_AT_ONCE = 1 << 18  # read at once
_SHARE = 0.002  # relative; of a mean in single precision, and of an energy between rounded times
_GRAIN = 208  # samples: borders within the pyramid are as sharp as its first summaries, at both ends


def unknown_stretches(file: JlsFile, powers: Sequence[str], means: Sequence[bool]) -> list[Floats]:
    """Return the stretches of each power of which nothing is known, in seconds since the first row, shape (m, 2).

    Parameters
    ----------
    powers : sequence of str
        Names without unit, each with watts and joules in the file.
    means : sequence of bool
        Whether their watts are means since the row before, by which a row without them is unknown alone.
    """
    found: list[list[Floats]] = [[] for _ in powers]
    for first, last in _doubtful(file, powers):
        rows, _ = file.rows(first, last + 1)
        t, whole = rows["elapsed"], rows["lost"][1:] == 0
        for name, mean, stretches in zip(powers, means, found, strict=True):
            known = np.isfinite(rows[f"{name}_W"])
            at = np.flatnonzero(~(known[1:] if mean else known[1:] & known[:-1]) & whole)
            stretches.append(np.stack([t[at], t[at + 1]], axis=1))
    return [np.concatenate(stretches) if stretches else np.empty((0, 2)) for stretches in found]


def _doubtful(file: JlsFile, powers: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the samples among which some power may be unknown, from one to another, neither too many nor twice."""
    step = max(1, round(file.rate * _STRETCH_S / file.stride)) * file.stride
    count = max(0, (file.checkpoints - 1) * file.stride // step)
    doubt = np.zeros(count, np.bool_)
    if count:
        edges: Ints = step * np.arange(count + 1, dtype=np.int64)
        seconds = np.diff(_at(file, "elapsed", edges))
        for name in powers:
            mean, low, high = file.statistics(f"{name}_W", 0, step, count)
            allowed = _SHARE * np.abs(mean) + min(1.0, _GRAIN / step) * (high - low)
            with np.errstate(invalid="ignore"):
                doubt |= ~(np.abs(np.diff(_at(file, f"{name}_J", edges)) / seconds - mean) <= allowed)
    spans = [(int(i) * step, (int(i) + 1) * step) for i in np.flatnonzero(doubt)]
    for begin, end in [*spans, (count * step, max(file.length - 1, 0))]:
        for first in range(begin, end, _ROWS_AT_ONCE):
            yield first, min(end, first + _ROWS_AT_ONCE)


def _at(file: JlsFile, name: str, edges: Ints) -> Floats:
    """Return the values of a signal of checkpoints at some of them."""
    return file.samples(name, 0, file.checkpoints)[edges // file.stride]
