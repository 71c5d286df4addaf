"""Step response, stability over hours, and work joined with energy, against truth in closed form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from pmtpy.analysis.procedures.stability import stability_of
from pmtpy.analysis.procedures.steps import steps_of
from pmtpy.cli import main
from pmtpy.errors import DeclinedError, FileFormatError, TargetError
from pmtpy.lab.stability import measure_stability
from pmtpy.lab.work_log import read_work_log

HZ = 20_000.0


def recording(path: Path, t: Any, watts: Any, *, marks: dict[int, str] | None = None, lost: int = -1) -> Path:
    joules = np.concatenate([[0.0], np.cumsum(watts[1:] * np.diff(t))])
    rows = ["time,elapsed,marker,lost,total_W,total_J"]
    rows += [
        f"{1.7e9 + at:.6f},{at - t[0]:.6f},{(marks or {}).get(i, '')},{int(i == lost)},{w:.9g},{j:.9g}"
        for i, (at, w, j) in enumerate(zip(t.tolist(), watts.tolist(), joules.tolist(), strict=True))
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def document(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert main(["characterise", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_log_that_is_not_there_is_a_mistake_of_usage(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"cannot read .*none\.log: No such file"):
        read_work_log(tmp_path / "none.log")


def test_a_square_of_100_hz_comes_back_with_edges_inside_one_frame() -> None:
    t = np.arange(4000) / HZ
    watts = np.where((t * 100.0) % 1.0 < 0.5, 3.3, 8.0) * 12.0 + np.random.default_rng(1).normal(0, 0.7, len(t))
    found = steps_of(t, watts)
    assert found.low_w == pytest.approx(39.6, abs=0.1)
    assert found.high_w == pytest.approx(96.0, abs=0.1)
    assert found.rising + found.falling == 39  # of twenty periods
    assert found.period_s == pytest.approx(0.01, rel=1e-6)
    assert found.rise_s.max() == pytest.approx(1 / HZ)
    assert not found.resolved
    assert found.noise_w == pytest.approx(0.7, rel=0.1)


def test_rows_of_one_instant_are_one_reading() -> None:
    t = np.arange(0.0, 4.0, 0.01)
    watts = np.where(t % 1.0 < 0.5, 30.0, 90.0)
    once, twice = steps_of(t, watts), steps_of(np.repeat(t, 2), np.repeat(watts, 2))
    assert (twice.interval_s, twice.resolved) == (once.interval_s, False)


def test_a_slow_step_is_resolved() -> None:
    t = np.arange(0.0, 10.0, 0.01)
    ramp = np.clip(((t % 2.0) - 0.5) / 0.2, 0.0, 1.0) - np.clip(((t % 2.0) - 1.5) / 0.2, 0.0, 1.0)
    found = steps_of(t, 50.0 + 100.0 * ramp)
    # 80 % of a ramp of 0.2 s, to one reading at either end.
    assert np.median(found.rise_s) == pytest.approx(0.16, abs=0.021)
    assert found.resolved


def test_a_register_resolves_no_more_than_its_renewals_however_often_it_is_polled() -> None:
    """A one-pole of 0.3 s takes 659 ms from 10 to 90 %; its register is renewed every 100 ms and polled every 20."""
    t = np.arange(0.0, 60.0, 0.001)
    watts, _ = lfilter([0.001 / 0.3], [1.0, 0.001 / 0.3 - 1.0], np.where(t // 2.0 % 2.0 < 1.0, 60.0, 180.0), zi=[60.0])
    polls = np.arange(0.1, 59.9, 0.02)
    found = steps_of(polls, watts[np.floor(polls / 0.1 + 1e-9).astype(int) * 100])
    assert found.interval_s == pytest.approx(0.1, abs=0.011)
    assert found.resolved
    assert float(np.median(found.rise_s)) == pytest.approx(0.3 * math.log(9.0), abs=found.interval_s)


def test_a_step_of_two_renewals_is_not_resolved_however_often_the_register_is_polled() -> None:
    """A one-pole of 70 ms takes 154 ms from 10 to 90 %; its register is renewed every 100 ms and polled every 20."""
    t, polls = np.arange(0.0, 60.0, 0.001), np.arange(0.1, 59.9, 0.02)
    watts, _ = lfilter([1 / 70], [1.0, 1 / 70 - 1.0], np.where(t // 1.037 % 2.0 < 1.0, 60.0, 180.0), zi=[60.0])
    renewed = watts[::100] + np.random.default_rng(1).normal(0.0, 0.3, 600)
    found = steps_of(polls, renewed[np.floor(polls / 0.1).astype(int)])
    assert float(np.median(found.rise_s)) > 2.0 * found.interval_s
    assert not found.resolved


@pytest.mark.parametrize("rest_tau", [2.5, 3.5])
def test_a_sensor_that_is_on_its_way_when_the_load_switches_is_not_called_noisy(rest_tau: float) -> None:
    """A low-pass: how much it lacks at the ends of plateaus is ``exp(-rest_tau)`` of what it began with."""
    t = np.arange(0.0, 16.0 * rest_tau, 0.02)
    since, up = t % rest_tau, (t // rest_tau).astype(int) % 2 == 0
    off = 1.0 / (1.0 + np.exp(-rest_tau))  # of a load that has switched for ever
    share = np.where(up, 1.0 - off * np.exp(-since), off * np.exp(-since))
    noise = np.random.default_rng(1).normal(0.0, 0.2, len(t))
    with pytest.raises(DeclinedError, match=r"on its way to one when it switches again; let it rest longer"):
        steps_of(t, np.asarray(60.0 + 150.0 * share + noise, np.float64))


@pytest.mark.parametrize(("tau_s", "half_s"), [(0.3, 2.0), (0.02, 0.2), (0.02, 0.1), (0.02, 0.08)])
def test_the_levels_of_a_low_pass_are_what_its_plateaus_tend_to(tau_s: float, half_s: float) -> None:
    """Between 60 and 150 W; from 10 to 90 % a one-pole takes ``tau ln 9``."""
    step_s = half_s / 200.0
    t = np.arange(0.0, 40.0 * half_s, step_s)
    rest = np.exp(-np.mod(t, half_s) / tau_s) / (1.0 + np.exp(-half_s / tau_s))  # of a square that has always been
    watts = np.where(np.floor(t / half_s) % 2 == 0, 150.0 - 90.0 * rest, 60.0 + 90.0 * rest)
    found = steps_of(t, watts + np.random.default_rng(1).normal(0.0, 0.3, len(t)))
    assert found.low_w == pytest.approx(60.0, abs=0.2)
    assert found.high_w == pytest.approx(150.0, abs=0.2)
    assert np.median(found.rise_s) == pytest.approx(tau_s * np.log(9.0), rel=0.01, abs=2.0 * step_s)
    ends = 90.0 * np.exp(-half_s / tau_s)
    assert ends / 2.0 - 0.1 < found.rest_w < 3.0 * ends + 0.1  # the mean of a part lacks more than its end


def test_plateaus_that_drift_on_say_so() -> None:
    t = np.arange(0.0, 40.0, 0.005)
    within = np.mod(t, 1.0)
    watts = np.where(np.floor(t) % 2 == 0, 150.0 + 8.0 * within, 60.0 + 8.0 * within)
    assert np.isnan(steps_of(t, watts + np.random.default_rng(1).normal(0.0, 0.3, len(t))).rest_w)


@pytest.mark.parametrize(
    "watts", [np.full(1000, 50.0), np.random.default_rng(1).normal(50, 1, 1000), np.full(1000, np.nan)]
)
def test_without_levels_there_are_no_steps(watts: Any) -> None:
    with pytest.raises(DeclinedError):
        steps_of(np.arange(1000.0), watts)


def test_fifty_hours_of_a_powersensor3_pass_in_simulated_time() -> None:
    blocks = measure_stability(
        "powersensor3:virtual", {"load": "constant:90", "pairs": "1"}, total_s=50 * 3600.0, every_s=2.5 * 3600.0,
        length_s=0.2, channel=None,
    )  # fmt: skip
    found = stability_of(*blocks)
    assert found.hours == pytest.approx(50.0)
    assert found.blocks == 21
    assert found.mean_w == pytest.approx(90.0, abs=0.5)
    # Blocks of 4,000 frames of 0.72 W and more of noise: 0.01 W, so that none is off by the study's 0.09 W.
    assert found.worst_w < 0.09
    assert found.sd_w == pytest.approx(found.noise_w, rel=0.6)
    assert found.drift_w_per_h.contains(0.0)


@pytest.mark.parametrize("set_s", [0.0, 3600.0, -3600.0])
def test_a_drift_is_told_from_noise_also_where_the_wall_clock_was_set(
    set_s: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = np.arange(0.0, 7200.0, 2.0)
    watts = 100.0 + 0.5 * t / 3600.0 + np.random.default_rng(2).normal(0, 0.2, len(t))
    path = Path(recording(tmp_path / "run.csv", t, watts))
    table = pd.read_csv(path)
    table["time"] += np.where(t > 3000.0, set_s, 0.0)
    table.to_csv(path, index=False)
    found = document(capsys, path, "--stability", "--window", "60s")
    drift = found["drift_w_per_h"]
    assert abs(drift["value"] - 0.5) < drift["high"] - drift["low"]  # twice what 95 of 100 cases hold
    assert drift["low"] > 0.4
    assert found["blocks"] == 119
    assert found["worst_w"] == pytest.approx(0.5, abs=0.1)


def test_the_rounding_of_unix_seconds_is_no_drift() -> None:
    at_s, lengths = np.linspace(1.7e9, 1.7e9 + 19.0, 20), np.linspace(0.0, 2e-7, 20)  # which end in another bit
    found = stability_of(at_s, np.full(20, 50.0) * (1.0 + lengths), np.zeros(20), np.full(20, 100.0))
    assert found.drift_w_per_h.contains(0.0)


@pytest.mark.parametrize("memory_s", [120.0, 1200.0])
def test_a_wander_is_no_drift(memory_s: float) -> None:
    """Five hours of blocks of five minutes, of a board whose temperature wanders."""
    rng, t, held = np.random.default_rng(4), np.arange(0.0, 18_000.0, 300.0), 0
    keep = np.exp(-300.0 / memory_s)
    for _ in range(12):
        steps = rng.normal(0.0, 0.2, 60) * np.where(t > 0, np.sqrt(1.0 - keep**2), 1.0)
        wander = [0.0]
        for step in steps:
            wander.append(keep * wander[-1] + step)
        means = 100.0 + np.array(wander[1:]) + rng.normal(0.0, 0.02, 60)
        drift = stability_of(t, means, np.full(60, 0.3), np.full(60, 200.0)).drift_w_per_h
        held += drift.contains(0.0)
        assert drift.half_width < 0.5
    assert held >= 10


@pytest.mark.parametrize("blocks", [6, 12, 48, 200])
def test_a_level_that_walks_is_no_drift(blocks: int) -> None:
    rng, t, held = np.random.default_rng(6), np.arange(0.0, 900.0 * blocks, 900.0), 0
    for _ in range(40):
        walk = np.cumsum(rng.normal(0.0, 0.03, blocks))
        means = np.asarray(100.0 + rng.normal(0.0, 0.02, blocks) + walk, np.float64)
        few = np.full(blocks, 0.2), np.full(blocks, 100.0)
        held += stability_of(t, means, *few).drift_w_per_h.contains(0.0)
    assert held >= 35  # of a wander that is forgotten within the recording 22 to 35


def test_a_load_of_three_levels_is_declined_and_a_rest_on_the_way_down_is_told() -> None:
    t = np.arange(0.0, 60.0, 0.005)
    for levels in ([50.0, 100.0, 150.0], [50.0, 100.0, 150.0, 100.0]):
        with pytest.raises(DeclinedError, match="two levels"):
            steps_of(t, np.array(levels)[(t // 2.0).astype(int) % len(levels)])
    falling = steps_of(t, np.where(t % 2.0 < 1.0, 90.0, np.where(t % 2.0 < 1.2, 45.0, 30.0)))
    assert falling.resting == falling.falling


@pytest.mark.parametrize("window_s", [0.1, 0.2])
def test_a_register_that_is_read_ten_times_for_each_renewal_rests_at_no_level_on_the_way(window_s: float) -> None:
    """Each renewal shows the mean of its window, so one or two lie between the levels, and are read ten times each."""
    renewed = np.arange(0.0, 60.0, 0.1) + 0.037
    on_s = np.interp(
        np.stack([renewed, renewed - window_s]), np.arange(-2.0, 62.0, 2.0), np.repeat(np.arange(16.0), 2) * 2
    )
    shown = 50.0 + 100.0 * (on_s[0] - on_s[1]) / window_s + np.random.default_rng(3).normal(0.0, 0.5, len(renewed))
    t = np.arange(0.1, 60.0, 0.01)
    found = steps_of(t, shown[np.searchsorted(renewed, t, "right") - 1])
    assert found.resting == 0
    assert [found.low_w, found.high_w] == pytest.approx([50.0, 150.0], abs=0.3)
    assert found.interval_s == pytest.approx(0.1)


@pytest.mark.parametrize(("half_s", "poll_s"), [(1.037, 0.01), (0.5, 0.01), (0.5, 0.013), (0.5, 0.03), (1.0, 0.02)])
def test_of_a_register_without_noise_one_renewal_between_the_levels_is_no_level(half_s: float, poll_s: float) -> None:
    """Whole watts, and the mean of each 0.1 s: what a step of the load at once shows on the way is one renewal."""
    renewed = np.arange(0.0, 60.0, 0.1) + 0.037
    edges = np.arange(0.0, 63.0, half_s)
    on_s = np.interp(np.stack([renewed, renewed - 0.1]), edges, (np.arange(len(edges)) + 1) // 2 * half_s)
    shown = np.round(50.0 + 1000.0 * (on_s[0] - on_s[1]))
    t = np.arange(0.2, 60.0, poll_s)
    found = steps_of(t, shown[np.searchsorted(renewed, t, "right") - 1])
    assert (found.low_w, found.high_w, found.noise_w) == (50.0, 150.0, 0.0)
    assert found.rising + found.falling == len(edges[(edges > 0.2) & (edges < 59.9)])
    assert found.interval_s == pytest.approx(0.1, abs=poll_s)
    assert float(np.median(found.rise_s)) < 0.1 + 2 * poll_s
    assert not found.resolved


GIBI = 1024**3 / 1e9
# With log_avg_msec: KiB/s, and no sizes.
AVERAGED = (
    "1000, 1048576, 0, 0, 0\n2000, 1048576, 0, 0, 0\n3000, 2097152, 1, 0, 0\n4000, 2097152, 1, 0, 0\n5000, 0, 1, 0, 0\n"
)


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A recording of a job that begins at 5 s, by its marker, and takes 30 W for two seconds and 40 W for two more."""
    t = np.arange(0.0, 20.0, 0.1)
    watts = np.where((t > 5.0) & (t <= 7.0), 30.0, np.where((t > 7.0) & (t <= 9.0), 40.0, 20.0))
    return recording(tmp_path / "run.csv", t, watts, marks={50: "fio"})


def test_the_energy_of_a_gigabyte_is_told_by_direction(busy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = busy.with_name("job_bw.1.log")
    log.write_text(AVERAGED)
    found = document(capsys, busy, "--work", log, "--begin", "fio")
    read, written = found["work"]
    assert (read["kind"], written["kind"]) == ("read", "write")
    assert read["per_unit"] == pytest.approx(30.0 / GIBI, rel=1e-6)
    assert written["per_unit"] == pytest.approx(20.0 / GIBI, rel=1e-6)
    assert (found["idle"], found["notes"]) == (1, [])
    assert main(["characterise", str(busy), "--work", str(log), "--begin", "nothing"]) == 2
    assert "no marker" in capsys.readouterr().err
    assert "--begin" in document(capsys, busy, "--work", log)["notes"][0]


@pytest.mark.parametrize(("turn_s", "period_s", "window_s", "aged_s", "sure"), [
    (0.5, 0.1, 1.0, 0.02, 0.5),  # as long as half the window: nothing tells the two apart
    (0.5, 0.1, 0.1, 0.1, 0.12),
    (4.0, 0.1, 1.0, 0.02, 0.25),
    (4.0, 0.1, 0.025, 0.02, 0.03),
    (4.0, 0.001, 0.001, 0.0, 0.003),
])  # fmt: skip
def test_kinds_that_take_turns_are_as_uncertain_as_the_sensor_is_about_their_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
    *, turn_s: float, period_s: float, window_s: float, aged_s: float, sure: float,
) -> None:  # fmt: skip
    """100 W while small requests are served, 300 W while large ones are, shown as the mean of a window, and late."""
    t = np.arange(0.0, 40.0, period_s)
    polled = t + 0.37 * aged_s
    over = np.arange(-2.0, 40.0, 1e-3) + 5e-4
    used = np.append(0.0, np.cumsum(np.where(over % (2.0 * turn_s) < turn_s, 100.0, 300.0) * 1e-3))
    ends = np.append(over - 5e-4, 40.0)
    watts = (np.interp(t, ends, used) - np.interp(t - window_s, ends, used)) / window_s
    run = recording(tmp_path / "run.csv", polled, watts)
    channel = {
        "name": "total", "quantity": "power", "form": "direct", "unit": "W", "rule": "integrated", "in_total": True,
        "refresh_s": period_s, "window_s": window_s, "lag_s": window_s / 2.0, "resolution": 0.001,
    }  # fmt: skip
    facts = {"target": "made", "channels": [channel], "aged_s": aged_s, "polled_s": aged_s or None}
    run.with_name("run.csv.json").write_text(json.dumps(facts))
    (tmp_path / "app.csv").write_text("elapsed,items,kind\n" + "".join(
        f"{at:.3f},1,{'small' if at % (2.0 * turn_s) < turn_s else 'large'}\n" for at in
        (np.arange(1, 140) * 0.25 - 1e-6 - polled[0]).tolist()
    ))  # fmt: skip
    costs = {c["kind"]: c for c in document(capsys, run, "--work", tmp_path / "app.csv")["work"]}
    for kind, truth in (("small", 25.0), ("large", 75.0)):
        cost = costs[kind]
        assert abs(cost["per_unit"] - truth) <= 2.0 * cost["u"]
        assert cost["sensor_u"] <= sure * 50.0
        assert bool(cost["warnings"]) == (window_s > 0.01)


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("late_ms", [0, 3, 400])
def test_reads_and_writes_at_once_are_told_by_lines_of_their_own(
    late_ms: int, *, unix: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 4 to 8 s both go on, before reads alone, then neither, then writes alone.

    Where reads or writes are alone for 3 ms, the rows of 10 ms do not show it: a thousandth of the work.
    """
    t, start_ms = np.arange(0.0, 30.0, 0.01), 1_700_000_000_000 if unix else 0
    watts = 20.0 + 10.0 * (t <= 8.0) + 20.0 * ((t > 4.0) & (t <= 8.0)) + 20.0 * ((t > 12.0) & (t <= 16.0))
    run, log = recording(tmp_path / "run.csv", t, watts), tmp_path / "job_bw.1.log"
    lines = [(1000 * i, 1, 0) for i in range(1, 9)] + [(1000 * i + late_ms, 2, 1) for i in (5, 6, 7, 8, 13, 14, 15, 16)]
    log.write_text("".join(f"{start_ms + at}, {1048576 * n}, {d}, 0, 0\n" for at, n, d in sorted(lines)))
    costs = {c["kind"]: c for c in document(capsys, run, "--work", log)["work"]}
    assert sum(c["amount"] for c in costs.values()) == pytest.approx(24 * GIBI)
    assert sum(c["seconds"] for c in costs.values()) == pytest.approx(12.0 + late_ms / 1e3)
    assert costs["mixed"]["amount"] == pytest.approx((12.0 - 3 * late_ms / 1e3) * GIBI, rel=1e-3)
    alone = (120.0 + 50.0 * late_ms / 1e3) / (4.0 + late_ms / 1e3)
    assert costs["read"]["per_unit"] == pytest.approx(alone / GIBI, rel=1e-3)


def test_jobs_side_by_side_in_one_averaged_log_add_up(tmp_path: Path) -> None:
    log = tmp_path / "job_bw.log"
    rows = [(1000 * i + late, 1048576) for i in range(1, 9) for late in (0, 0, 1, 2)]
    log.write_text("".join(f"{at}, {rate}, 1, 0, 0\n" for at, rate in rows))
    found = read_work_log(log)
    assert found.amounts.sum() == pytest.approx(32 * GIBI, rel=0.002)  # lines are some thousandths off their seconds
    assert set(found.kinds) == {"write"}


@pytest.mark.parametrize("name", ["job_bw.1.log", "job_iops.1.log", "job_clat.1.log"])
def test_single_requests_are_counted_by_their_sizes_whatever_their_values_are(
    name: str, busy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = busy.with_name(name)
    small = [f"{2 * i}, {10**6 * (i % 7)}, 0, 4096, 0" for i in range(1, 1001)]
    large = [f"{2000 + 20 * i}, {10**6 * (i % 7)}, 0, 65536, 0" for i in range(1, 101)]
    log.write_text("\n".join(small + large) + "\n")
    found = document(capsys, busy, "--work", log, "--begin", "fio")
    costs = {c["kind"]: c for c in found["work"]}
    assert costs["read 4 KiB"]["per_unit"] == pytest.approx(60.0 / (4.096e-3), rel=1e-6)
    assert costs["read 64 KiB"]["per_unit"] == pytest.approx(80.0 / (6.5536e-3), rel=1e-6)
    assert costs["read 4 KiB"]["windows"] == 20  # of a tenth of a second
    assert "one request" in found["notes"][0]


@pytest.mark.parametrize("kind", ["iops", "lat", "clat", "slat"])
def test_of_averaged_logs_that_of_bandwidth_alone_is_taken(kind: str, tmp_path: Path) -> None:
    log = tmp_path / f"job_{kind}.1.log"
    log.write_text(AVERAGED)
    with pytest.raises(FileFormatError, match=f"log of {kind}"):
        read_work_log(log)


def test_work_where_the_recording_has_a_hole_or_few_rows_is_left_out_or_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = np.arange(0.0, 20.0, 0.1)
    kept = t[(t < 5.0) | (t > 12.05)]
    run = recording(tmp_path / "run.csv", kept, np.where((kept >= 5.0) & (kept < 13.0), 150.0, 50.0))
    log = tmp_path / "app.csv"
    log.write_text("elapsed,items,kind\n" + "".join(f"{i / 2},1,{'ab'[i % 2]}\n" for i in range(1, 38)) + "19,1")
    found = document(capsys, run, "--work", log)
    assert found["outside"] == 16  # those that begin or end between 5 s and 12 s
    assert "left out" in found["notes"][0]
    slow = recording(tmp_path / "slow.csv", t[2::10], np.full(20, 50.0))  # a second apart, between the work's ends
    (cost,) = document(capsys, slow, "--work", log)["work"]
    assert (cost["kind"], cost["per_unit"]) == ("mixed", pytest.approx(25.0))


@pytest.mark.parametrize("unix", [False, True])
def test_work_is_joined_with_a_recording_of_powers_alone(
    *, unix: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = np.arange(0.0, 20.0, 0.1)
    run, log = tmp_path / "run.csv", tmp_path / "app.csv"
    start = 1.7e9 if unix else 0.0
    log.write_text(("time" if unix else "elapsed") + ",items\n" + "".join(f"{start + i},4\n" for i in range(1, 20)))
    rows = "".join(f"{1.7e9 + at:.6f},{at:.6f},,0,{50 + at}\n" for at in t.tolist())
    run.write_text("time,elapsed,marker,lost,total_W\n" + rows)
    (cost,) = document(capsys, run, "--work", log)["work"]
    seconds = 18.0 if unix else 19.0  # of Unix times the first says when the work began
    assert cost["joules"] == pytest.approx(50.0 * seconds + (19.0**2 - (19.0 - seconds) ** 2) / 2.0)
    assert cost["amount"] == 4 * seconds


def test_work_over_lost_rows_alone_is_not_laid_to_the_clocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = np.arange(0.0, 20.0, 0.1)
    t = t[(t < 5.0) | (t > 12.0)]
    (tmp_path / "app.csv").write_text("elapsed,items\n6,0\n8,1\n10,1\n")
    run = recording(tmp_path / "run.csv", t, np.full(len(t), 50.0))
    assert main(["characterise", str(run), "--work", str(tmp_path / "app.csv")]) != 0
    assert "lacks rows" in capsys.readouterr().err


def test_fio_tells_priorities_in_hexadecimal(tmp_path: Path) -> None:
    (tmp_path / "job_bw.1.log").write_text("1000, 5, 0, 0, 0, 0x0004\n2000, 5, 0, 0, 0, 0x0004\n")
    assert read_work_log(tmp_path / "job_bw.1.log").unit == "GB"


def test_copies_and_totals_are_told(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("\ufefftime,bytes\n" + "".join(2 * f"{i},100\n" for i in range(20)), encoding="utf-8")
    assert "(20)" in read_work_log(log).notes[0]
    log.write_text("time,bytes\n" + "".join(f"{i},{100 * i}\n" for i in range(20)))
    assert "since the one before" in read_work_log(log).notes[0]


def test_any_csv_with_unix_times_is_joined_and_what_is_not_covered_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = np.arange(0.0, 10.0, 0.1)
    rows = [f"{1.7e9 + at},{10 if i % 2 else 20},{'odd' if i % 2 else 'even'}" for i, at in enumerate(range(16))]
    (tmp_path / "app.csv").write_text("time,items,kind\n" + "\n".join(rows) + "\n")
    run = recording(tmp_path / "run.csv", t, np.full(len(t), 50.0), lost=25)
    found = document(capsys, run, "--work", tmp_path / "app.csv")
    costs = {c["kind"]: c for c in found["work"]}
    assert costs["odd"]["per_unit"] == pytest.approx(5.0, rel=1e-6)
    assert costs["even"]["per_unit"] == pytest.approx(2.5, rel=1e-6)
    assert found["outside"] == 7  # six after the recording, and the one in which a row was lost
    assert found["unit"] == "item"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "too few"),
        ("1000, 5, 0, 4096\n2000, x, 0, 4096\n", "line 2"),
        ("1000, 5, 7, 4096\n2000, 5, 0, 4096\n", "line 1"),
        ("2000, 5, 0, 4096\n1000, 5, 0, 4096\n", "goes back"),
        ("a,b\n1,2\n", "column"),
        ("1000, 5, 0, 4096\n2000, 5, 0, 0\n", "not both"),
        ("time,bytes\n1,x\n2,3\n", "line 2"),
        ("time,bytes\n1,3\n2,1e400\n", "line 3"),
        ("time,bytes\n1,3\nnan,3\n", "line 3"),
        ("time,bytes\n1,3\n2,-1\n", "line 3"),
    ],
)
def test_what_is_no_log_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_work_log(tmp_path / "x.log")


@pytest.mark.parametrize(("at_level", "settled"), [(1, False), (2, False), (12, True)])
def test_a_plateau_whose_last_renewal_is_on_its_way_does_not_pass_for_settled(at_level: int, *, settled: bool) -> None:
    """Renewals of 0.1 s, in step with a load between 100 and 300 W: the last of each plateau holds 15 W of the next."""
    high, low = [300.0] * at_level + [285.0], [100.0] * at_level + [115.0]
    shown = np.repeat([*high, *low] * 20, 10)
    found = steps_of(np.asarray(0.01 * np.arange(len(shown)), np.float64), shown)
    assert found.settled == settled
    if settled:
        assert (found.low_w, found.high_w) == (100.0, 300.0)
