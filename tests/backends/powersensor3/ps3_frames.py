"""The wire format once more, written the slow way from the description of the protocol: the oracle of the codec."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def frame(device_us: int, levels: Iterable[int], *, marked: bool = False) -> bytes:
    """One frame, 18 bytes."""
    out = [0xF0 | device_us % 1024 >> 6, 0x40 | device_us & 0x3F]
    for i, level in enumerate(levels):
        out += [0x80 | i << 4 | level >> 6, (0x40 if marked and i == 0 else 0) | level & 0x3F]
    return bytes(out)


def stream(levels: npt.NDArray[np.integer], device_us: npt.NDArray[np.integer], marked: Iterable[int] = ()) -> bytes:
    """Many frames."""
    marks = set(marked)
    return b"".join(
        frame(int(t), [int(v) for v in row], marked=i in marks)
        for i, (t, row) in enumerate(zip(device_us, levels, strict=True))
    )


def random_stream(
    n: int, seed: int = 1, interval_us: float = 50.0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], bytes]:
    """Levels, times and bytes of n frames of noise."""
    levels = np.random.default_rng(seed).integers(0, 1024, (n, 8))
    times = (np.arange(n) * interval_us + 12345).astype(np.int64)
    return levels, times, stream(levels, times)
