"""The recipe for training loops, on a sensor whose power is known."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

import pmtpy as pmt
from pmtpy.core.clock import HOST_CLOCK

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "joules_per_step.py"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("joules_per_step", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "joules_per_step", made)
    spec.loader.exec_module(made)
    return made


def test_steady_steps_cost_what_the_sensor_counted_for_them(recipe: ModuleType) -> None:
    waited: list[int] = []
    with pmt.create("rapl:virtual", load="constant:60") as sensor:
        steps = recipe.Steps(
            sensor, warm_up=2, tail=1, wait=lambda: waited.append(1), shared="the other jobs of this socket"
        )
        assert math.isnan(steps.per_unit())
        assert "no steady step" in steps.report()
        begun_ns = HOST_CLOCK.now_ns()
        for step in range(8):
            while HOST_CLOCK.now_ns() - begun_ns < 30e6:
                pass
            begun_ns = HOST_CLOCK.now_ns()
            steps.done(units=128)
            if step in {3, 7}:
                steps.epoch()
        assert len(steps.joules) == 6
        assert len(waited) == 9
        assert steps.epochs == [pytest.approx(sum(steps.joules[:2])), pytest.approx(sum(steps.joules[2:]))]
        # Registers count on every millisecond; the ends of the sum are off by two of them at most.
        steady_j, steady_s = sum(steps.joules[:5]), sum(steps.seconds[:5])
        assert steady_j == pytest.approx(60.0 * steady_s, abs=60.0 * 4e-3 + 0.02 * 60.0 * steady_s)
        assert steps.per_unit() == pytest.approx(steady_j / (5 * 128))
        said = steps.report()
        assert "5 steady steps" in said
        assert "2 warm-up steps left out, 1 at the end" in said
        assert "shared with the other jobs" in said
