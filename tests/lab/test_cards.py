"""Cards that were never seen, from files to corrected energies; at size in ``benchmarks/bench_cards.py``."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.support.cards.recorder import CARDS, Card, Recording, random_load, record, square_load, step_load
from tests.support.cards.user import characterised, corrected, profiled, run


def _card(name: str) -> Card:
    return next(card for card in CARDS if card.name == name)


@pytest.mark.parametrize(("name", "zone_h"), [("A100", -8.0), ("V100", 5.75), ("3090", 1.0)])
def test_a_card_is_found_and_another_recording_of_it_corrected(tmp_path: Path, name: str, zone_h: float) -> None:
    card, rng = _card(name), np.random.default_rng(7)
    made = record(card, random_load(rng, 7.0), tmp_path / "random", rng, zone_h=zone_h)
    found = characterised(made)
    assert found["update_period_ms"]["value"] == pytest.approx(1e3 * card.period_s, rel=0.001)
    kernel = found["kernel"]
    assert kernel["family"] == card.family
    if card.tau_s:
        assert kernel["tau_ms"]["value"] == pytest.approx(1e3 * card.tau_s, rel=0.08)
    else:
        assert kernel["window_ms"]["value"] == pytest.approx(1e3 * card.window_s, abs=1.0)
    assert found["gradient"]["value"] == pytest.approx(card.gain, abs=0.012)
    assert found["intercept_w"]["value"] == pytest.approx(card.offset_w, abs=2.5)
    another = record(card, step_load(rng), tmp_path / "step", rng, meter=False)
    start, end = another.edges_s
    profile = profiled(found, made)
    for until, demand in ((end, 0.008), (start + 1.0, 0.015)):
        energy, truth = corrected(another, profile, start, until), another.energy(start, until)
        assert energy["joules"] == pytest.approx(truth, rel=demand)
        assert energy["low"] < truth < energy["high"]


def test_a_part_time_sensor_is_corrected_under_a_load_that_beats_with_it(tmp_path: Path) -> None:
    card, rng = _card("A100"), np.random.default_rng(3)
    made = record(card, random_load(rng, 7.0), tmp_path / "random", rng)
    profile = profiled(characterised(made), made)
    beating = record(card, square_load(0.104, 12.0), tmp_path / "beating", rng, meter=False)
    for start in (2.5, 5.2, 7.9):
        energy, truth = corrected(beating, profile, start, start + 4.0), beating.energy(start, start + 4.0)
        assert energy["method"] == "load-informed"
        assert energy["joules"] == pytest.approx(truth, rel=0.008)  # bias 0.5 %, sd 0.3 %
        assert energy["low"] < truth < energy["high"]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    rng = np.random.default_rng(1)
    return record(_card("1080"), step_load(rng), tmp_path_factory.mktemp("step"), rng, zone_h=0.0)


def _lines(made: Recording) -> list[str]:
    with gzip.open(made.log, "rt") as file:
        return file.read().splitlines()


def test_a_log_shorter_than_a_second_is_declined(step: Recording, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("\n".join(_lines(step)[:120]) + "\n")
    code, out, _ = run("characterise", str(tmp_path / "log.csv"), "--load", step.load, "--meter", step.meter)
    assert code == 0
    assert "not determined, update period" in out
    assert "95 %" not in out


def test_a_log_that_ends_before_the_load_begins_gives_no_gradient(step: Recording, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("\n".join(_lines(step)[:210]) + "\n")
    code, out, _ = run("characterise", str(tmp_path / "log.csv"), "--load", step.load, "--meter", step.meter)
    assert code == 0
    assert "not determined, gradient" in out
    assert "not determined, energy" in out


def test_constant_power_is_declined(step: Recording, tmp_path: Path) -> None:
    lines = _lines(step)
    constant = [lines[0], *(line.rsplit(", ", 1)[0] + ", 60.00" for line in lines[1:])]
    (tmp_path / "log.csv").write_text("\n".join(constant) + "\n")
    code, out, _ = run("characterise", str(tmp_path / "log.csv"), "--load", step.load, "--meter", step.meter)
    assert code == 0
    assert "the power is constant" in out
    assert "95 %" not in out


@pytest.mark.parametrize("file", ["gpudata.csv.gz", "PMD_data.bin.gz"])
@pytest.mark.parametrize("left", [0, 2000])
def test_files_that_are_empty_or_cut_are_named(step: Recording, tmp_path: Path, file: str, left: int) -> None:
    for name in ("gpudata.csv.gz", "PMD_data.bin.gz", "PMD_start_ts.txt"):
        content = (step.folder / name).read_bytes()
        (tmp_path / name).write_bytes(content[:left] if name == file else content)
    words = ["--load", step.load, "--meter", str(tmp_path / "PMD_data.bin.gz")]
    code, out, err = run("characterise", str(tmp_path / "gpudata.csv.gz"), *words)
    assert (code, out) == (1, "")
    assert str(tmp_path / file) in err


def test_a_meter_of_another_day_is_declined(step: Recording, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    other = record(_card("1080"), step_load(rng), tmp_path, rng)
    code, out, _ = run("characterise", step.log, "--load", step.load, "--meter", other.meter)
    assert code == 0
    assert "do not overlap" in out
    assert "gradient  " not in out
    assert "not determined, gradient" in out
