"""What the kernel and the gain of a sensor are found to be, by class of recording: right, open, declined or wrong.

Recordings are drawn by ``tests/support/drawn_sensors.py``, which shares no code with the package: kernels of the three
families and of two that are none of them, loads of random switching, bursts, square waves and one step, against a
meter whose clock is off. A family is ``right`` if it is that of the sensor (a second width with less than a tenth of
the variance may be left out), ``open`` if none is named, ``wrong`` if another is. Of the gain are counted the intervals
that hold the truth, and the median of |error| over half-width, which is 0.34 where intervals are as wide as
they need to be.

``python -m benchmarks.bench_kernels [ROUNDS]`` prints one JSON document.
"""

from __future__ import annotations

import collections
import sys
import time

import numpy as np

from benchmarks.common import report
from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.core import LoadIntervals
from tests.support.drawn_sensors import KERNELS, Drawn, Kernel, draw

_LOADS = ("telegraph", "bursts", "square", "step")
_MINOR = 0.1


def _family(kernel: Kernel) -> str:
    """Family of a kernel, its second width left out if that is minor."""
    parts = kernel.window_s**2 / 12.0, kernel.tau_s**2
    if kernel.family == "boxcar*one-pole" and min(parts) < _MINOR * sum(parts):
        return "boxcar" if parts[0] > parts[1] else "one-pole"
    return kernel.family


def _verdict(found: Characterisation, drawn: Drawn) -> str:
    if found.kernel is None:
        return "declined"
    if found.kernel.family == AMBIGUOUS:
        return "open"
    kernel = drawn.sensor.kernel
    return "right" if found.kernel.family in (kernel.family, _family(kernel)) else "wrong"


def _found(drawn: Drawn, seed: int) -> Characterisation:
    rng = np.random.default_rng(seed)
    t, watts = drawn.meter(rng, rate=float(rng.normal(0.0, 5e-4)), shift_s=float(rng.uniform(-0.3, 0.3)))
    load = LoadIntervals.switched(drawn.edges_s)
    return characterise("drawn", Series(drawn.t_s, drawn.watts), load=load, meter=Series(t, watts))


def main() -> None:
    """Run as many rounds of each pair of kernel and load as the command line says, or 1."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    ratios: dict[str, list[float]] = collections.defaultdict(list)
    start, seed = time.process_time(), 0
    for family in KERNELS:
        for kind in _LOADS:
            for _ in range(rounds):
                seed += 1
                drawn = draw(seed, family=family, load=kind, seconds=15.0)
                found = _found(drawn, seed)
                groups = ("all", f"kernel {family}", f"load {kind}", f"phase {drawn.sensor.phase}")
                held = None if found.transfer is None else found.transfer.gain.contains(drawn.sensor.gain)
                for group in groups:
                    counts[group][_verdict(found, drawn)] += 1
                    if found.transfer is not None:
                        gain = found.transfer.gain
                        counts[group]["gain held" if held else "gain missed"] += 1
                        ratios[group].append(abs(gain.value - drawn.sensor.gain) / gain.half_width)
    document: dict[str, object] = {
        group: dict(count)
        | ({"gain_error_over_half_width": round(float(np.median(ratios[group])), 3)} if ratios[group] else {})
        for group, count in sorted(counts.items())
    }
    report({"recordings": seed, "cpu_seconds_each": round((time.process_time() - start) / seed, 2)} | document)


if __name__ == "__main__":
    main()
