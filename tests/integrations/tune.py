"""A tuning script, as users of Kernel Tuner write them; run by test_kernel_tuner.py with its back end for C.

The two observers of Kernel Tuner are its own, untouched. Prints one line of JSON last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import kernel_tuner
import numpy as np
from kernel_tuner.observers import BenchmarkObserver
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


class Slow(BenchmarkObserver):  # type: ignore[misc]  # Kernel Tuner has no types
    """An observer that takes its time around each kernel; none of it is the kernel's."""

    SECONDS = 0.05

    def before_start(self) -> None:
        time.sleep(self.SECONDS)

    def after_start(self) -> None:
        time.sleep(self.SECONDS)

    def after_finish(self) -> None:
        time.sleep(self.SECONDS)

    def get_results(self) -> dict[str, float]:
        return {}


class Unknown(EnergyObserver):
    """An observer whose sensor was blind during the kernel of one configuration."""

    def register_configuration(self, params: Mapping[str, object]) -> None:
        super().register_configuration(params)
        self.blind = params["MILLISECONDS"] == BLIND

    def after_finish(self) -> None:
        super().after_finish()
        if self.blind:
            self._runs.clear()


BLIND = 5


def main() -> None:
    with pmtpy.create("rapl:virtual", load="constant:60"):  # chooses the load of the virtual world
        results, _ = kernel_tuner.tune_kernel(
            "wait_ms",
            KERNEL,
            1,
            [np.zeros(1, np.int32)],
            {"MILLISECONDS": [10, 30, BLIND]},
            lang="C",
            observers=[
                PMTObserver([("rapl", "virtual"), ("nvidia", "virtual"), ("powersensor3", "virtual")]),
                PowerSensorObserver(["ps_energy", "ps_power"], "virtual"),
                EnergyObserver("rapl:virtual", "amdsmi:virtual"),
                EnergyObserver("powersensor3:virtual", name="board"),
                Slow(),
                EnergyObserver("rapl:virtual", name="long", continuous_s=1),
                Unknown("powersensor3:virtual", name="blind"),
                EnergyObserver("powersensor3:virtual", "nvml:virtual", name="both", steady=True),
            ],
            cache="cache.json",
            objective="board_energy",
            objective_higher_is_better=False,
        )
    print(json.dumps([{k: v for k, v in r.items() if isinstance(v, (int, float, str))} for r in results]))


if __name__ == "__main__":
    main()
