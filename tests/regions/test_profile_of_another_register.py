"""A profile of a register of 0.1 s on one of the same name that is renewed once a second."""

from __future__ import annotations

import numpy as np

from pmtpy.core.response import Number, Response
from pmtpy.core.rows import Floats
from tests.support.uncertainty.stamped import Gpu, Outcome, measure

TENTH = Response.stated(
    "boxcar", refresh_s=Number(0.1, 1e-4), window_s=Number(0.1, 1e-3), delay_s=Number(0.0, 1e-3), noise=Number(0.3)
)
LEVELS = (50.0, 200.0)


def regions(
    period_ms: int, work: Floats, noise_w: float = 0.3, window_ms: int | None = None, *, of: slice = slice(3, None)
) -> list[Outcome]:
    """Measure blocks of work, all but the first three where nothing else is said, by the profile of 0.1 s."""
    options = {"profile": "k40m", "period_ms": period_ms, "window_ms": window_ms or period_ms, "tau_ms": 0}
    gpu = Gpu("gpu.instant", {**options, "noise_w": noise_w, "gain": 1.0, "offset_w": 0.0}, TENTH)
    measured = [(float(a), float(b)) for a, b in work[of]]
    return measure(gpu, work, LEVELS, measured, stamped=False, poll_s=0.05)


def blocks(seed: int, count: int = 14) -> Floats:
    """Return when work begins and ends: 0.3 to 3.5 s of it after 1 to 5 s of rest."""
    rng = np.random.default_rng(seed)
    lengths, rests = rng.uniform(0.3, 3.5, count), rng.uniform(1.0, 5.0, count)
    ends = np.cumsum(lengths + rests)
    return np.asarray(np.round(np.stack([ends - lengths, ends], axis=1), 6), np.float64)


def stranger(outcome: Outcome) -> bool:
    return any("profile is probably of another register" in w for w in outcome.measured.warnings)


def test_a_profile_of_another_register_is_not_used_and_said() -> None:
    found = [each for seed in range(2) for each in regions(1000, blocks(seed))]
    assert all(stranger(each) for each in found)
    assert {each.measured.method for each in found} == {"integrated"}
    assert np.mean([each.held for each in found]) >= 0.9  # before, 3 of 35 did
    one = found[0].measured
    assert one.refresh_s is not None
    assert abs(one.refresh_s - 1.0) < 0.03
    assert one.window_s is None
    said = "gpu.instant: its readings change at multiples of 1 s only, 10 times what its profile says (100 ms)"
    assert any(w.startswith(said) for w in one.warnings), one.warnings


def test_while_a_few_changes_leave_it_open_the_interval_holds_both() -> None:
    # Noise shows each renewal, five or so until the first region is over; without it only the load's edges are seen.
    for noise_w, which in ((0.3, 0), (0.0, 2)):
        found = [regions(1000, blocks(seed, 3), noise_w, of=slice(3))[which] for seed in range(8)]
        assert np.mean([each.held for each in found]) >= 0.7  # before, none did
        said = [any("not known yet" in w for w in each.measured.warnings) for each in found]
        assert all(each or stranger(one) for each, one in zip(said, found, strict=True))


def test_what_was_found_holds_while_later_rows_show_nothing_of_it() -> None:
    # After two minutes of rest of a sensor without noise, no change of before is kept any more.
    work = blocks(0)
    late = np.array([[work[-1, 1] + 120.0, work[-1, 1] + 121.3]])
    last = regions(1000, np.concatenate([work, late]), noise_w=0.0)[-1]
    assert stranger(last)
    assert last.held


def test_the_profile_of_the_register_itself_is_used() -> None:
    for noise_w, window_ms in ((0.3, 100), (0.0, 100), (0.0, 25)):
        found = regions(100, blocks(1), noise_w, window_ms, of=slice(None))
        assert not any("profile is" in w for each in found for w in each.measured.warnings)
        assert all("reconstruction" in each.measured.method for each in found)
