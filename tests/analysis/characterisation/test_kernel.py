from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.characterisation._description import told_by
from pmtpy.analysis.characterisation._families import BOTH, BOXCAR, ONE_POLE
from pmtpy.analysis.characterisation._forward import evaluate, problem_of
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import DeclinedError
from tests.support.drawn_sensors import Kernel as DrawnKernel
from tests.support.drawn_sensors import Power, Sensor
from tests.support.recorded import read_log, read_pmd
from tests.support.simulated import Bench, pseudo_random_bench, square_bench

_BOXCAR = SensorModel(0.1, 0.03, window_s=0.08, delay_s=-0.004, gain=0.95, offset_w=-3.0, noise_w=0.3, step_w=0.01)
_ONE_POLE = SensorModel(0.1, 0.03, window_s=0.0, tau_s=0.0125, gain=1.04, offset_w=-21.0, noise_w=0.3, step_w=0.01)


def test_a_boxcar_is_found_from_a_pseudo_random_load() -> None:
    bench = pseudo_random_bench(0.023)
    fit = fit_kernel(bench.updates(_BOXCAR), bench.stamps(), metered=False)
    assert fit.family == BOXCAR
    assert fit.best.window_s is not None
    assert fit.best.window_s.value == pytest.approx(0.08, abs=0.001)  # docs/fit.md: 1 ms
    assert fit.best.offset_s.contains(-0.004)
    assert fit.best.tau_s is None


def test_a_one_pole_is_found_from_a_pseudo_random_load() -> None:
    bench = pseudo_random_bench(0.017)
    fit = fit_kernel(bench.updates(_ONE_POLE), bench.stamps(), metered=False)
    assert fit.family == ONE_POLE
    assert fit.best.tau_s is not None
    assert fit.best.tau_s.value == pytest.approx(0.0125, rel=0.08)
    assert fit.best.window_s is None


def test_against_a_meter_gain_intercept_and_the_meters_clock_come_along() -> None:
    bench = pseudo_random_bench(0.03)
    fit = fit_kernel(bench.updates(_BOXCAR), bench.counted(shift_s=0.02, rate=0.001), metered=True)
    best = fit.best
    assert fit.family == BOXCAR
    assert best.rate is not None
    assert best.rate.contains(0.001)
    assert best.gain.value == pytest.approx(0.95, abs=0.012)
    assert best.intercept_w.value == pytest.approx(-3.0, abs=2.5)
    assert best.window_s is not None
    assert best.window_s.value == pytest.approx(0.08, abs=0.001)
    # The meter's clock is ahead by 20 ms, which nobody can tell from a kernel that ends 20 ms earlier.
    assert best.offset_s.value == pytest.approx(-0.004 - 0.02, abs=0.001)


def test_a_boxcar_behind_a_one_pole_is_told_from_both() -> None:
    model = SensorModel(0.1, window_s=0.09, tau_s=0.05, noise_w=0.2, step_w=0.01)
    bench = pseudo_random_bench(0.06, seconds=30.0)
    fit = fit_kernel(bench.updates(model), bench.stamps(), metered=False)
    assert fit.family == BOTH
    assert fit.best.window_s is not None
    assert fit.best.tau_s is not None
    assert fit.best.window_s.contains(0.09)
    assert fit.best.tau_s.contains(0.05)


def test_a_running_mean_over_many_updates_is_found() -> None:
    model = SensorModel(0.1, window_s=1.0, noise_w=0.2, step_w=0.01)
    bench = pseudo_random_bench(0.4, seconds=20.0)
    fit = fit_kernel(bench.updates(model), bench.stamps(), metered=False)
    assert fit.family == BOXCAR
    assert fit.best.window_s is not None
    assert fit.best.window_s.value == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("window", "tau"), [(0.005, 0.0), (1.5, 0.0), (0.0, 0.01), (0.0, 1.0), (1.0, 0.1)])
def test_kernels_from_a_twentieth_of_a_period_to_fifteen_are_found_and_named(window: float, tau: float) -> None:
    model = SensorModel(0.1, 0.07, window_s=window, tau_s=tau, delay_s=0.03, noise_w=0.3, step_w=0.01)
    bench = pseudo_random_bench(0.017, seconds=12.0)
    fit = fit_kernel(bench.updates(model), bench.counted(), metered=True)
    assert fit.family == (BOTH if window and tau else BOXCAR if window else ONE_POLE)
    for found, truth in ((fit.best.window_s, window), (fit.best.tau_s, tau)):
        assert (found is None) == (truth == 0.0)
        assert found is None or found.value == pytest.approx(truth, rel=0.08)
    assert fit.best.offset_s.value == pytest.approx(0.03, abs=0.01)


def test_a_gain_far_from_one_is_found_where_nothing_else_explains_the_readings() -> None:
    model = SensorModel(0.1, 0.03, window_s=0.06, gain=0.59, noise_w=0.3, step_w=0.01)
    bench = pseudo_random_bench(0.023)
    fit = fit_kernel(bench.updates(model), bench.counted(), metered=True)
    assert fit.best.gain.contains(0.59)
    assert fit.best.window_s is not None
    assert fit.best.window_s.value == pytest.approx(0.06, abs=0.001)


def test_a_second_width_of_a_hundredth_of_the_variance_may_be_left_out_but_not_its_lag() -> None:
    model = SensorModel(0.1, 0.03, window_s=0.1, tau_s=0.5, delay_s=-0.002, noise_w=0.3, step_w=0.01)
    bench = Bench(np.array([3.0, 9.0]), 12.0)
    fit = fit_kernel(bench.updates(model), bench.stamps(), metered=False)
    assert fit.family in (BOTH, AMBIGUOUS, ONE_POLE)
    assert fit.best.lag_s.contains(0.05 + 0.5 - 0.002)
    assert fit.best.tau_s is not None
    assert fit.best.tau_s.contains(0.5)


def test_a_gradual_step_does_not_tell_a_boxcar_from_a_one_pole() -> None:
    model = SensorModel(0.1, 0.05, window_s=0.025, noise_w=2.0, step_w=1.0)
    bench = Bench(np.array([3.0, 9.0]), 12.0)
    fit = fit_kernel(bench.updates(model), bench.meter(), metered=True)
    assert fit.family == AMBIGUOUS
    widths = [e for s in (fit.best, *fit.shapes, *fit.rivals) for e in (s.window_s, s.tau_s, s.spread_s) if e]
    assert min(e.low for e in widths) == 0.0  # all of them are known to a multiple of themselves


@pytest.mark.parametrize("period", [0.1, 0.0999, 0.1003])
def test_a_load_in_step_with_the_updates_is_declined(period: float) -> None:
    bench = square_bench(period)
    with pytest.raises(DeclinedError, match="too near the update period"):
        fit_kernel(bench.updates(_BOXCAR), bench.stamps(), metered=False)


@pytest.mark.parametrize(
    ("ratio", "window", "tau", "metered"),
    [
        *((0.5, 0.3, 0.0, False), (2.0 / 3.0, 0.0, 0.0125, False), (4.0 / 3.0, 0.3, 0.0, False)),
        *((2.0, 0.0, 0.0125, False), (0.5, 0.02, 0.0, True), (4.0 / 3.0, 0.02, 0.0, True)),
    ],
)
def test_a_load_in_a_simple_ratio_to_the_updates_is_never_confidently_wrong(
    ratio: float,
    window: float,
    tau: float,
    metered: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    model = SensorModel(0.1, 0.03, window_s=window, tau_s=tau, delay_s=-0.003, noise_w=0.3, step_w=0.01)
    bench = square_bench(0.1 * ratio, duty=0.3)
    try:
        fit = fit_kernel(bench.updates(model), bench.counted() if metered else bench.stamps(), metered=metered)
    except DeclinedError:
        return
    assert fit.family in (AMBIGUOUS, BOXCAR if window else ONE_POLE)
    if fit.family != AMBIGUOUS:
        width = fit.best.window_s or fit.best.tau_s
        assert width is not None
        reach = max(width.value - width.low, width.high - width.value)  # the interval is lopsided
        assert abs(width.value - (window or tau)) < 2.0 * reach


def test_a_window_and_its_alias_under_a_square_wave_are_told_apart_only_by_a_meter() -> None:
    # At half duty, windows of 22.5 ms and of the load's period less that have the same shape at the same centre.
    model = SensorModel(0.1, 0.01, window_s=0.0225, noise_w=0.3, step_w=0.01)
    bench = square_bench(0.1043)
    updates = bench.updates(model).between(1.2, 8.8)  # without the idle ends, which would tell the low level
    blind = fit_kernel(updates, bench.stamps(), metered=False)
    assert blind.family == AMBIGUOUS
    assert "nearly equally" in blind.reason
    fit = fit_kernel(updates, bench.counted(), metered=True)
    assert fit.best.window_s is not None
    assert fit.best.window_s.value == pytest.approx(0.0225, abs=0.002)


@pytest.mark.parametrize(
    ("window_s", "period_s", "gain", "told"),
    [(1.0, 0.389, 0.903, False), (0.25, 0.21, 0.93, True)],
)
def test_under_a_regular_load_a_window_over_several_periods_is_not_taken_for_what_it_shows_of_one(
    window_s: float, period_s: float, gain: float, *, told: bool
) -> None:
    # Whole periods are in its mean: it shows what the rest of it would, less by as much as that is shorter.
    model = SensorModel(0.1, 0.01, window_s=window_s, gain=gain, offset_w=-1.0, noise_w=0.3, step_w=0.01)
    bench = square_bench(period_s, seconds=30.0, duty=0.36)
    t = np.arange(5.0, 28.0, 1e-3)  # on and off all the time; nobody saw what the first windows did
    noise = np.cumsum(2e-4 * np.random.default_rng(1).standard_normal(len(t)))
    meter = PowerTrace.from_energy(t, bench.load.joules(t) + noise)
    fit = fit_kernel(bench.updates(model).between(5.0, 28.0), meter, metered=True)
    window = fit.spans("window_s")
    assert window is not None
    assert window.contains(window_s)
    assert fit.best.lag_s.contains(0.5 * window_s)
    if told:
        assert fit.family == BOXCAR
        assert fit.best.gain.value == pytest.approx(gain, rel=0.01)
        assert fit.best.gain.half_width < 0.02
    else:  # with one period more it would have a gain of 1.25, as a sensor may
        assert fit.family == AMBIGUOUS
        assert fit.best.gain.contains(gain)
        assert fit.best.gain.contains(gain * (window_s + period_s) / window_s)


@pytest.mark.parametrize(
    ("window_s", "period_s", "duty", "gain"),
    [(1.0, 0.921, 0.53, 1.06), (0.5, 0.567, 0.37, 0.938)],
)
def test_the_gain_under_a_load_of_nearly_the_windows_period_is_as_open_as_the_width_leaves_it(
    window_s: float, period_s: float, duty: float, gain: float
) -> None:
    # What is shown is the difference of two lengths: 1 % of the window is 10 % of the gain.
    model = SensorModel(0.1, 0.01, window_s=window_s, gain=gain, offset_w=-1.0, noise_w=0.3, step_w=0.01)
    bench = square_bench(period_s, seconds=30.0, duty=duty)
    fit = fit_kernel(bench.updates(model), bench.counted(), metered=True)
    window = fit.best.window_s
    assert window is not None
    assert window.contains(window_s)
    assert fit.best.gain.contains(gain)
    by_width = abs(1.0 / window_s - 1.0 / (window_s - period_s))  # derivative of the gain's logarithm
    assert fit.best.gain.half_width > 0.5 * gain * by_width * window.half_width
    assert fit.best.gain.half_width < 0.06


def test_readings_of_something_else_are_declined() -> None:
    bench, other = pseudo_random_bench(0.05, seed=1), pseudo_random_bench(0.05, seed=2)
    with pytest.raises(DeclinedError, match="explains only"):
        fit_kernel(bench.updates(_BOXCAR), other.counted(), metered=True)


def test_too_short_a_reference_and_constant_power_are_declined() -> None:
    bench = pseudo_random_bench(0.05)
    updates = bench.updates(_BOXCAR)
    with pytest.raises(DeclinedError, match="too few"):
        fit_kernel(updates.between(2.0, 3.0), bench.counted(), metered=True)
    flat = Updates(updates.k, updates.t_s, np.full(len(updates), 60.0), 0.1)
    with pytest.raises(DeclinedError, match="constant"):
        fit_kernel(flat, bench.stamps(), metered=False)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    inside, asked = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        width = float(rng.uniform(0.02, 0.08))
        boxcar = seed % 2 == 0
        model = SensorModel(
            0.07,
            rng.uniform(0, 0.07),
            window_s=width if boxcar else 0.0,
            tau_s=0.0 if boxcar else width,
            delay_s=rng.uniform(-0.006, 0.006),
            noise_w=0.5,
            step_w=0.1,
            seed=seed,
        )
        bench = pseudo_random_bench(0.07 * rng.uniform(0.2, 0.5), seconds=8.0, seed=seed)
        best = fit_kernel(bench.updates(model), bench.stamps(), metered=False).best
        found = best.window_s if boxcar else best.tau_s
        assert found is not None
        inside += found.contains(width) + best.offset_s.contains(model.delay_s)
        asked += 2
    assert inside >= 0.84 * asked  # 95 % of 16, less two binomial deviations


def _one_step(seed: int) -> tuple[SensorModel, Bench, Bench]:
    """A card, one step as the meter sees it, and as the sensor does: off its line in each state of the board."""
    rng = np.random.default_rng(seed)
    boxcar = seed % 2 == 0
    model = SensorModel(
        0.1 if boxcar else 0.02,
        rng.uniform(0.0, 0.02),
        window_s=rng.uniform(0.08, 0.3) if boxcar else 0.0,
        tau_s=0.0 if boxcar else rng.uniform(0.04, 0.2),
        delay_s=rng.uniform(-0.004, 0.004),
        gain=rng.uniform(0.9, 1.1),
        noise_w=rng.uniform(0.05, 0.3),
        step_w=0.01,
        seed=seed,
    )
    off = rng.uniform(7.0, 7.1)
    edges = np.array([1.0, 1.0 + rng.uniform(0.03, 0.15), off, off + rng.uniform(0.014, 0.037)])
    # Idle; low clocks for a while; the load; its uneven end; idle at clocks that are held.
    watts = np.array([60.0, 60.0 + 150.0 * rng.uniform(0.5, 0.8), 210.0, 130.0, 60.0 + 150.0 * rng.uniform(0.0, 0.1)])
    seen = watts + 0.0034 * 150.0 * rng.standard_normal(5)
    return model, _Levels(edges, 10.0, watts), _Levels(edges, 10.0, seen)


@dataclass(frozen=True)
class _Levels(Bench):
    watts: Floats

    @property
    def load(self) -> Table:
        return Table(np.append(-10.0, self.edges_s), self.watts)


def test_intervals_from_one_step_hold_on_boards_that_are_off_their_line() -> None:
    inside, named = [], []
    for seed in range(6):
        model, true, seen = _one_step(seed)
        rate = 1e-3 * float(np.random.default_rng(seed).standard_normal())
        fit = fit_kernel(seen.updates(model), true.counted(rate=rate), metered=True, pivot_s=5.0)
        best = fit.best
        inside += [
            best.gain.contains(model.gain),
            best.lag_s.contains(model.window_s / 2 + model.tau_s + model.delay_s),
        ]
        named.append(fit.family)
        for found, truth, family in ((best.window_s, model.window_s, BOXCAR), (best.tau_s, model.tau_s, ONE_POLE)):
            if fit.family == family:
                assert found is not None
                inside.append(found.contains(truth))
    assert np.mean(inside) >= 0.9  # 95 % of 15, less one binomial deviation
    assert all(name in (family, AMBIGUOUS) for name, family in zip(named, (BOXCAR, ONE_POLE) * 3, strict=True))
    assert named.count(AMBIGUOUS) <= 4


def test_a_second_width_that_few_readings_could_show_leaves_the_family_open() -> None:
    model = SensorModel(0.0308, 0.01, window_s=1.23 * 0.0308, tau_s=0.95 * 0.0308, noise_w=0.7, step_w=0.1)
    bench = Bench(np.array([3.0, 9.0]), 12.0)
    assert fit_kernel(bench.updates(model), bench.stamps(), metered=False).family in (BOTH, AMBIGUOUS)


def _recorded(recordings: Path, folder: str, column: str) -> KernelFit:
    t, watts = read_log(recordings / folder / "gpudata.csv.gz", column)
    t = t - 3600.0  # local time was UTC+1
    updates = update_series(t, watts, estimate_updates(t, watts))
    return fit_kernel(updates, PowerTrace.from_samples(*read_pmd(recordings / folder)), metered=True)


@pytest.mark.parametrize(("folder", "within_ms"), [("rtx3090-squarewave", 1.0), ("rtx3090-step", 8.0)])
def test_the_boxcar_of_a_recorded_ampere_card(recordings: Path, folder: str, within_ms: float) -> None:
    fit = _recorded(recordings, folder, "power.draw.instant [W]")
    assert fit.family == BOXCAR
    assert fit.best.window_s is not None
    assert fit.best.window_s.value * 1e3 == pytest.approx(99.9, abs=within_ms)
    assert fit.best.window_s.contains(0.09995)
    assert fit.best.gain.value == pytest.approx(0.948, abs=0.012)
    assert fit.best.intercept_w.value == pytest.approx(1.4, abs=2.5)


def test_the_one_pole_of_a_recorded_kepler_card(recordings: Path) -> None:
    fit = _recorded(recordings, "k40m-step", "power.draw [W]")
    assert fit.family == ONE_POLE
    assert fit.best.tau_s is not None
    assert fit.best.tau_s.value * 1e3 == pytest.approx(54.6, rel=0.08)
    assert fit.best.gain.value == pytest.approx(1.024, abs=0.012)
    assert fit.best.intercept_w.value == pytest.approx(0.8, abs=2.5)


def test_the_running_mean_of_a_recorded_ampere_card_holds_eleven_updates(recordings: Path) -> None:
    fit = _recorded(recordings, "rtx3090-step", "power.draw.average [W]")
    assert fit.family == BOXCAR
    assert fit.best.window_s is not None
    assert fit.best.window_s.value * 1e3 == pytest.approx(1100.0, abs=30.0)


def test_a_load_that_shows_few_phases_leaves_the_width_open_though_the_phase_seems_to_wander() -> None:
    # Slots of 5/6 of the period: one reading in five is on a flank, and any width up to 31 ms shows the same there.
    rng = np.random.default_rng(5)
    edges = np.arange(2400) / 12.0
    power = Power(edges[1:-1], np.where(rng.integers(0, 2, len(edges) - 1), 220.0, 60.0))
    sensor = Sensor(0.1, DrawnKernel("boxcar", 0.025), gain=0.95, offset_w=-3.0)
    k = np.arange(10, 1900)
    t = 0.03 + 0.1 * k
    wander = 2e-4 * np.sin(t)  # as polls every 10 ms make a steady phase seem to
    shown = sensor.readings(power, np.asarray(t, np.float64), rng)
    updates = Updates(k, np.asarray(t + wander), shown, 0.1, jitter_s=1.2e-4, wander_s=wander)
    meter = PowerTrace.from_energy(edges, np.concatenate([[0.0], np.cumsum(power.watts * np.diff(edges))]))
    fit = fit_kernel(updates, meter, metered=True, rate_sd=1e-6)
    window = fit.spans("window_s")
    assert window is None or window.contains(0.025)
    assert fit.family == AMBIGUOUS or (fit.family == BOXCAR and fit.best.window_s is not None)
    assert fit.best.lag_s.contains(0.0125)
    assert fit.best.gain.contains(0.95)
    assert fit.best.wander == pytest.approx(0.0, abs=0.3)


@pytest.mark.parametrize("missed", [BOXCAR, ONE_POLE, BOTH])
def test_a_family_without_a_minimum_within_reach_is_found_from_another(
    missed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = {
        family: [np.array([0.0, w, tau])]
        for family, w, tau in ((BOXCAR, 0.1, 0.0), (ONE_POLE, 0.0, 0.03), (BOTH, 0.08, 0.01))
    }
    monkeypatch.setattr("pmtpy.analysis.characterisation.kernel_fit.seeds", lambda *_: some | {missed: []})
    bench = pseudo_random_bench(0.03)
    fit = fit_kernel(bench.updates(_BOXCAR), bench.counted(), metered=True)
    assert fit.family == BOXCAR
    assert fit.best.lag_s.contains(0.04 - 0.004)


@pytest.mark.parametrize("share", [0.36, 0.47])
def test_of_a_fast_square_a_short_window_before_a_low_pass_takes_nothing_from_its_time_constant(share: float) -> None:
    # A boxcar of a quarter of the period has a hundredth of the variance of this kernel, but takes a third of what is
    # left of a load that is twice as fast as the updates: a one-pole alone would have to be so much slower.
    model = SensorModel(0.1, 0.03, window_s=0.025, tau_s=0.09, gain=0.95, offset_w=-3.0, noise_w=0.2, step_w=0.01)
    bench = square_bench(share * 0.1, 14.0, 0.42)
    fit = fit_kernel(bench.updates(model), bench.counted(rate=3e-4), metered=True, lead_s=0.3)
    best = fit.best
    assert best.tau_s is None or fit.family == AMBIGUOUS or best.tau_s.contains(0.09)
    assert fit.family != ONE_POLE or (best.tau_s is not None and best.tau_s.contains(0.09))
    assert fit.family != BOXCAR
    assert best.gain.contains(0.95)
    assert best.rate is not None
    assert best.rate.contains(3e-4)
    if fit.family == BOTH:
        assert best.window_s is not None
        assert best.window_s.contains(0.025)


@pytest.mark.parametrize("phase_s", [0.0, 0.03, 0.06, 0.09])
def test_one_step_whose_edges_few_readings_see_leaves_lag_and_clock_rate_as_open_as_they_are(phase_s: float) -> None:
    # Three tenths of the time are seen: an edge in the rest may be anywhere in it, but not in another update.
    model = SensorModel(0.1, 0.03, window_s=0.03, gain=0.95, offset_w=-3.0, noise_w=0.2, step_w=0.01)
    bench = Bench(np.array([5.0, 12.04]) + phase_s, 18.0)
    best = fit_kernel(bench.updates(model), bench.counted(rate=6e-4), metered=True, lead_s=1.5, pivot_s=9.0).best
    assert best.rate is not None
    assert best.rate.contains(6e-4)
    assert best.lag_s.contains(0.015)
    assert best.lag_s.half_width < 0.2
    assert best.gain.contains(0.95)


def test_edges_that_no_reading_sees_bound_the_lag_by_the_readings_around_them() -> None:
    # Of each period the last 40 ms are seen, and the load switches 30 ms after updates: it may be 30 ms to either side.
    u = np.asarray(0.1 * np.arange(1, 180), np.float64)
    power = Power(np.array([5.03, 12.03]), np.array([60.0, 210.0, 60.0]))
    shown = Sensor(0.1, DrawnKernel("boxcar", 0.04)).readings(power, u, np.random.default_rng(1))
    edges = np.array([-1.0, 5.03, 12.03, 20.0])
    r = np.asarray(0.001 * np.arange(-1000, 20000), np.float64)
    joules = np.interp(r, edges, np.concatenate([[0.0], np.cumsum(power.watts * np.diff(edges))]))
    meter = PowerTrace.from_energy(r, np.asarray(joules, np.float64))
    best = fit_kernel(Updates(np.arange(1, 180), u, shown, 0.1), meter, metered=True, lead_s=1.5, rate_sd=1e-6).best
    assert best.bounded
    assert best.lag_s.low <= 0.02 - 0.028
    assert best.lag_s.high >= 0.02 + 0.028
    assert best.lag_s.half_width < 0.2


def test_a_fit_that_ran_away_is_compared_at_the_cost_of_any_other() -> None:
    # Searches under loads in step end weeks aside now and then; the difference was summed over all of the time between.
    rng = np.random.default_rng(0)
    at = np.arange(0.0, 12.0, 1e-3)
    meter = PowerTrace.from_samples(at, np.asarray(50.0 + 200.0 * (at % 3.0 > 1.5) + rng.normal(0.0, 0.5, len(at))))
    t = np.arange(1.0, 11.0, 0.02)
    problem = problem_of(Updates(np.arange(len(t)), t, np.where(t % 3.0 > 1.5, 250.0, 50.0), 0.02), meter, metered=True)
    even = np.ones(len(problem.y))
    near = evaluate(problem, BOXCAR, np.array([0.0, 0.02, 0.0, 0.0, 1.0, 0.0]), even)
    far = evaluate(problem, BOXCAR, np.array([5e6, 0.02, 0.0, 0.0, 1.0, 0.0]), even)
    tracemalloc.start()
    try:
        told = told_by(problem, near)(far)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(told).all()
    assert peak < 50e6  # bytes; 40 GB over all of the time


def test_noise_of_a_meter_does_not_tell_a_width() -> None:
    # No reading sees an edge of this one block, so that the many between them, among which a wider kernel only lets
    # less of the meter's noise through, are all there is.
    rng = np.random.default_rng(1)
    period, window, on, off = 0.02, 0.005, 2.0, 8.0

    def energy(t: Floats) -> Floats:
        return np.asarray(50.0 * t + 200.0 * np.clip(t - on, 0.0, off - on), np.float64)

    t = np.asarray(0.01 + period * np.arange(600), np.float64)
    shown = (energy(t) - energy(np.asarray(t - window, np.float64))) / window
    watts = np.asarray(0.95 * shown + 3.0 + rng.normal(0.0, 0.3, len(t)), np.float64)
    at = np.arange(-0.5, 13.0, 1e-3)
    means = np.diff(energy(at), prepend=-25.05) / 1e-3
    meter = PowerTrace.from_samples(at, np.asarray(means + rng.normal(0.0, 0.5, len(at)), np.float64))
    fit = fit_kernel(Updates(np.arange(len(t)), t, watts, period), meter, metered=True)
    spans = fit.spans("window_s")
    assert fit.family == AMBIGUOUS
    assert spans is None or spans.contains(window)
    assert fit.best.lag_s.contains(window / 2.0)
    assert fit.best.gain.contains(0.95)
