"""Benchmarks that figures in the pages come from still run: the smallest of each, for what it needs of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALLEST = (
    ("bench_coverage", "3"),
    ("bench_clocking", "1"),
    ("bench_lattice", "2"),
    ("bench_intervals", "0", "1"),
    ("bench_energy", "1", "full", "step"),
    ("bench_sensors", "1"),
    ("bench_repetition", "1"),
    ("bench_stopping", "1"),
)


@pytest.mark.slow
@pytest.mark.parametrize("command", SMALLEST, ids=lambda command: command[0])
def test_the_smallest_run_of_a_benchmark_prints_its_figures(command: tuple[str, ...]) -> None:
    module, *arguments = command
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert any(character.isdigit() for character in ran.stdout)
