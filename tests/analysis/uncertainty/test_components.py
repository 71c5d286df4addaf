"""Every part of an uncertainty has a place in the table that says how it adds up."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.energy.estimate import region_energy
from pmtpy.analysis.uncertainty._causes import Causes
from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, sum_budgets, uncertainty_budget
from pmtpy.analysis.uncertainty.components import COMPONENTS
from pmtpy.analysis.uncertainty.interval import Edge, IntervalStatistics
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.response import Response
from tests.support.uncertainty.one import summarise_one

T = np.arange(0.0, 10.0, 0.1)
WATTS = 100.0 + 50.0 * np.sin(T)


def test_whatever_a_budget_or_a_reconstruction_is_made_of_is_in_the_table() -> None:
    made = set()
    for channel, y in [
        (Channel("p", Quantity.POWER, gain_u=0.05, refresh_s=0.1, window_s=0.02, resolution=1.0), WATTS),
        (Channel("e", Quantity.ENERGY, gain_u=0.05, refresh_s=0.1, resolution=1.0), WATTS),
    ]:
        t_ns = np.round(T * 1e9).astype(np.int64)
        seen = summarise_one(
            channel, t_ns, y, start_ns=2_030_000_000, end_ns=9_940_000_000, joules=600.0, uncovered_s=0.5, lost=3
        )
        made |= {name for name, _ in uncertainty_budget(channel, seen).components}
    response = Response(0.1, 0.02, gain_u=0.05, offset_u=1.0)
    made |= {name for name, _ in region_energy(T, WATTS, response, start_s=2.0, end_s=7.0).parts}
    assert {"gain", "resolution", "edges", "sampling", "uncovered", "reconstruction"} <= made
    assert made <= COMPONENTS.keys()


def test_the_table_the_causes_and_the_page_name_the_same_parts() -> None:
    causes = Causes(Channel("p", Quantity.POWER), IntervalStatistics(seconds=1.0, joules=1.0, rows=0)).components()
    assert causes.keys() <= COMPONENTS.keys()
    page = (Path(__file__).parents[3] / "docs/uncertainty.md").read_text(encoding="utf-8")
    rows = {name.strip() for row in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE) for name in row.split(",")}
    assert COMPONENTS.keys() <= rows


def test_what_lasts_is_no_matter_of_the_ends() -> None:
    lasting = [of for of in COMPONENTS.values() if of.lasting]
    assert lasting
    assert not any(of.at_ends or of.shared for of in lasting)
    assert all(of.repeated for of in lasting)


def test_what_channels_share_adds_linearly_in_their_sum() -> None:
    one = UncertaintyBudget.of([("blind", 3.0), ("noise", 3.0)])
    other = UncertaintyBudget.of([("blind", 4.0), ("noise", 4.0)])
    found = sum_budgets([one, other], ["package", "package"])
    assert dict(found.components) == {"blind": 7.0, "noise": 5.0}
    assert math.isclose(found.uncertainty_joules, math.hypot(7.0, 5.0))


def test_no_energy_is_off_by_more_than_what_the_part_can_draw() -> None:
    """A window of a second around 10 ms shows what happened before and behind, 130 J of it, of a card of 1 kW."""
    step = Edge(watts=200.0, peak_to_peak_watts=300.0)
    seen = IntervalStatistics(0.01, 1.0, 1, step, step, sample_s=0.05, range_watts=(50.0, 350.0), peak_watts=350.0)

    def judged(most: float | None) -> UncertaintyBudget:
        shown = Channel("gpu", Quantity.POWER, refresh_s=0.05, window_s=1.0, gain_u=0.05, max_watts=most)
        return uncertainty_budget(shown, seen)

    assert judged(None).uncertainty_joules > 50.0
    found = judged(1000.0)
    # A rectangle from nothing to 10 J, whose middle is 4 J from what was found.
    assert found.uncertainty_joules == pytest.approx(math.hypot(10.0 / math.sqrt(12.0), 4.0))
    assert math.hypot(*(u for _, u in found.components)) == pytest.approx(found.uncertainty_joules)
    assert dict(judged(1e6).components)["edges"] == dict(judged(None).components)["edges"]  # a bound further off: none
