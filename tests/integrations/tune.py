"""A tuning script, as users of Kernel Tuner write them; run by test_kernel_tuner.py with its back end for C.

The two observers of Kernel Tuner are its own, untouched. Prints one line of JSON last.
"""

from __future__ import annotations

import json

import kernel_tuner
import numpy as np
from kernel_tuner.observers.pmt import PMTObserver
from kernel_tuner.observers.powersensor import PowerSensorObserver

import pmtpy
from pmtpy.integrations.kernel_tuner import EnergyObserver

# Lasts as many milliseconds as asked for, and returns how many it lasted.
KERNEL = """
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}
float wait_ms(int *unused) {
    double start = now();
    while (now() - start < MILLISECONDS) {}
    return (float)(now() - start);
}
"""


def main() -> None:
    with pmtpy.create("rapl:virtual", load="constant:60"):  # chooses the load of the virtual world
        results, _ = kernel_tuner.tune_kernel(
            "wait_ms",
            KERNEL,
            1,
            [np.zeros(1, np.int32)],
            {"MILLISECONDS": [10, 30]},
            lang="C",
            observers=[
                PMTObserver([("rapl", "virtual"), ("nvidia", "virtual"), ("powersensor3", "virtual")]),
                PowerSensorObserver(["ps_energy", "ps_power"], "virtual"),
                EnergyObserver("rapl:virtual", "nvml:virtual"),
                EnergyObserver("powersensor3:virtual", name="board"),
                EnergyObserver("rapl:virtual", name="long", continuous_s=1),
            ],
        )
    print(json.dumps([{k: v for k, v in r.items() if isinstance(v, (int, float))} for r in results]))


if __name__ == "__main__":
    main()
