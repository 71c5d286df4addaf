"""What estimators advise reaches who recorded; of this program's own recordings it is said what its options can do."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.cli.characterise import page
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.errors import Reason
from pmtpy.lab.found import Found
from pmtpy.lab.own_cures import own_cures

POLLS_S = np.arange(0.0, 20.0, 0.01)


def _shown(renewed_s: float, levels_w: tuple[float, ...] = ()) -> Series:
    """Readings of noise, or of levels, renewed at such a period."""
    rng = np.random.default_rng(3)
    at = np.floor(POLLS_S / renewed_s).astype(np.int64)
    values = rng.choice(levels_w, at[-1] + 1) if levels_w else rng.normal(100.0, 1.0, at[-1] + 1)
    return Series(POLLS_S, values[at])


@pytest.mark.parametrize(
    ("polls", "theirs", "own"),
    [
        (_shown(0.01), "poll at least three times as often", "--interval polls it more often"),
        (_shown(0.21, (50.0, 90.0)), "use a load that switches irregularly", "more of the load may tell (--duration)"),
    ],
    ids=["polls", "load"],
)
def test_what_a_user_cannot_change_is_not_advised(polls: Series, theirs: str, own: str) -> None:
    found = characterise("gpu", polls)
    assert theirs in found.declined["update_period_ms"]
    made = own_cures(found)
    assert own in made.declined["update_period_ms"]
    said = "\n".join(
        getattr(line, "text", "")
        for line in page("nvml:0", Found.of(made, "nvml:0", None, polls, channel=None).document())
    )
    assert "poll at" not in said
    assert "use a" not in said


def test_an_open_kernel_asks_for_more_of_the_load() -> None:
    rng = np.random.default_rng(1)
    on = np.arange(1.0, 19.0, 2.0)
    load = LoadIntervals(on, on + 1.0)
    updates = np.arange(0.0, 20.0, 0.1)
    level = 60.0 + 100.0 * np.array([float(np.any((on <= t) & (t < on + 1.0))) for t in updates])
    watts = (level + rng.normal(0.0, 5.0, len(level)))[np.floor(POLLS_S / 0.1 + 1e-9).astype(np.int64)]
    found = characterise("gpu", Series(POLLS_S, watts), load=load)
    assert found.kernel is not None
    assert "; use a" in found.kernel.reason
    made = own_cures(found)
    assert made.kernel is not None
    assert made.kernel.reason.endswith("; more of the load may tell (--duration)")
    assert made.declined["kernel"].endswith("; more of the load may tell (--duration)")


def test_a_cure_is_known_whatever_its_words_are_and_so_is_that_of_what_needs_the_declined() -> None:
    reason = copy.deepcopy(Reason("no flank is seen", polls="ask it sooner", load="drive it harder"))
    assert reason.after("needs the kernel") == "needs the kernel: no flank is seen; ask it sooner; drive it harder"
    said = {
        "kernel": reason,
        "gradient": reason.after("needs the kernel"),
        "energy": Reason("use a meter; poll at will"),
    }
    made = own_cures(Characterisation("gpu", declined=said)).declined
    polls, load = (
        "--interval polls it more often, as far as it answers so fast",
        "more of the load may tell (--duration)",
    )
    assert made["kernel"] == f"no flank is seen; {polls}; {load}"
    assert made["gradient"] == f"needs the kernel: {made['kernel']}"
    assert made["energy"] == said["energy"]
