"""Blocks of readings over hours, from a recording or a sensor."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock, ManualClock
from pmtpy.core.rows import Floats
from pmtpy.lab.procedures import shown_watts
from pmtpy.sensor.registry import create, is_virtual, opener, options_from_text, split_target
from pmtpy.sensor.sensor import acquisition_of

if TYPE_CHECKING:
    import pandas as pd

Blocks = tuple[Floats, Floats, Floats, Floats]  # middle in s, mean W, sd of readings W, readings
_STEP_S = 0.1


def recorded_stability(table: pd.DataFrame, column: str, length_s: float) -> Blocks:
    """Cut a recording into blocks; a block with lost rows or unknown powers has no mean."""
    t, w = table["elapsed"].to_numpy(np.float64), table[column].to_numpy(np.float64)
    lost = table["lost"].to_numpy(np.float64) > 0
    count = int((t[-1] - t[0]) / length_s)
    edges = np.searchsorted(t, t[0] + length_s * np.arange(count + 1))
    rows = []
    for i, (a, b) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        known = w[:0] if lost[a + 1 : b].any() else w[a:b]
        rows.append(_block(t[0] + length_s * (i + 0.5), known))
    return _columns(rows)


def measure_stability(
    target: str,
    options: Mapping[str, str],
    *,
    total_s: float,
    every_s: float,
    length_s: float,
    channel: str | None,
    progress: Callable[[str], None] = lambda _: None,
) -> Blocks:
    """Take a block of readings again and again. The sensor is opened for each, so that it is free in between.

    The hours of a virtual sensor pass in simulated time.

    Raises TargetError, BackendUnavailableError: the target cannot be opened, or has no such channel.
    """
    virtual = is_virtual(target)
    clock = ManualClock() if virtual else HOST_CLOCK
    typed = {k: v for k, v in options_from_text(target, options).items() if k != "history_s"}
    seeded = False
    if virtual:
        typed.setdefault("load", "constant:90")
        seeded = "seed" in inspect.signature(opener(*split_target(target))).parameters
    begin_ns, rows = clock.now_ns(), []
    for k in range(int(total_s / every_s) + 1):
        _wait(clock, begin_ns + round(k * every_s * NS_PER_S))
        progress(f"{target}: block {k + 1}, after {k * every_s / 3600:.3g} h")
        if virtual and seeded:
            typed["seed"] = k + 1  # each block has noise of its own, as it would hours later
        with create(target, clock=clock, history_s=length_s + 1.0, **typed) as sensor:  # type: ignore[arg-type]
            start_ns = clock.now_ns()
            while clock.now_ns() - start_ns < length_s * NS_PER_S:
                _wait(clock, clock.now_ns() + round(_STEP_S * NS_PER_S))
                if virtual:
                    acquisition_of(sensor).step()
                else:
                    sensor.read()
            recent = sensor.history()
        w = shown_watts(recent, channel, target)
        w = w[np.isfinite(w) & (recent.t_ns > start_ns)]
        rows.append(_block((start_ns - begin_ns) / NS_PER_S + length_s / 2, w))
    return _columns(rows)


def _wait(clock: Clock, until_ns: int) -> None:
    if isinstance(clock, ManualClock):
        clock.advance(max(0, until_ns - clock.now_ns()) / NS_PER_S)
    else:
        clock.wait_until(until_ns, threading.Event())


def _block(middle_s: float, w: Floats) -> tuple[float, float, float, float]:
    """Return a block; of fewer than two readings neither mean nor deviation is known."""
    return (middle_s, w.mean(), w.std(ddof=1), len(w)) if len(w) > 1 else (middle_s, np.nan, np.nan, 1)


def _columns(rows: Sequence[tuple[float, float, float, float]]) -> Blocks:
    made = np.array(rows, np.float64).reshape(-1, 4)
    return made[:, 0], made[:, 1], made[:, 2], made[:, 3]
