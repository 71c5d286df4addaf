"""What the benchmarks share: how a figure is repeated and how it is printed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def machine() -> dict[str, Any]:
    """Describe where the figures come from."""
    model = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pmtpy": importlib.metadata.version("pmtpy") if _installed() else "source tree",
    }


def _installed() -> bool:
    try:
        importlib.metadata.version("pmtpy")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def spread(values: list[float]) -> dict[str, float]:
    """Median, smallest and largest of repeated figures, and how many there are."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def repeat(figure: Callable[[], float], times: int) -> dict[str, float]:
    """Take a figure several times."""
    return spread([figure() for _ in range(times)])


def cost_of(words: list[str]) -> list[float]:
    """Run a command; return its processor seconds and its peak of memory in MB."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words
    return [used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3]


def side_by_side(
    actions: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, dict[str, float]]:
    """CPU microseconds of one call of each action, in turns of ``calls`` calls; least, lower quartile, median.

    Other programs on the machine only ever add, so the lower quartile of many short turns is the figure to compare; in
    turns, because what they add changes by the second. ``before`` is what is done before a turn of an action, which is
    not counted: what earlier turns left to be done later is not to be charged to one turn out of three.
    """
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            if before is not None and name in before:
                before[name]()
            start = time.process_time_ns()
            for _ in range(calls):
                action()
            taken[name].append((time.process_time_ns() - start) / calls / 1e3)
    return {
        name: {"least": min(us), "lower_quartile": statistics.quantiles(us)[0], "median": statistics.median(us)}
        for name, us in taken.items()
    }


def report(figures: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    json.dump({"machine": machine(), "figures": figures}, sys.stdout, indent=2)
    print()
