"""Dumps of several nodes in one folder, added up as their results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.cluster.gather import gather
from pmtpy.cluster.job import JobEnergy
from pmtpy.core.clock import ManualClock
from pmtpy.errors import TargetError


def log(folder: Path, host: str, monkeypatch: pytest.MonkeyPatch, *, watts: float = 80.0, name: str = "") -> Path:
    """Record ten seconds of a virtual node in no time."""
    monkeypatch.setenv("PMT_NODE", host)
    for key, text in (("JOB_ID", "7"), ("STEP_ID", "0"), ("STEP_NUM_NODES", "2"), ("STEP_NODELIST", "n[0-1]")):
        monkeypatch.setenv(f"SLURM_{key}", text)
    clock, path = ManualClock(), folder / f"{name or host}.csv"
    folder.mkdir(exist_ok=True)
    with pmt.create("rapl:virtual", clock=clock, load=f"constant:{watts:g}") as sensor:
        sensor.start_dump(path)
        for _ in range(100):
            clock.advance(0.1)
            sensor.read()
        sensor.stop_dump()
    return path


def test_the_logs_of_nodes_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, "n0", monkeypatch)
    log(tmp_path, "n1", monkeypatch, watts=120.0)
    job = gather(tmp_path)
    assert job.complete
    assert {name: job[name].joules for name in job} == pytest.approx({"n0": 800.0, "n1": 1200.0}, rel=1e-3)
    assert job.total.joules == pytest.approx(2000.0, rel=1e-3)
    assert all(0.0 < job[name].uncertainty_joules < 50.0 for name in job)
    # The gain of both is off the same way, if it is.
    apart = sum(job[name].uncertainty_joules ** 2 for name in job) ** 0.5
    assert job.total.uncertainty_joules > 1.2 * apart
    assert job.total.virtual


def test_what_keeps_logs_from_being_the_jobs_energy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, "n0", monkeypatch)
    assert "n1" in missing(gather(tmp_path))
    log(tmp_path, "n0", monkeypatch, name="again")
    assert "would count twice" in missing(gather(tmp_path))
    (tmp_path / "again.csv").unlink()
    log(tmp_path, "n1", monkeypatch)
    (tmp_path / "n1.csv.json").unlink()  # as where the dump was killed before it wrote anything of itself
    assert "on which machine" in "; ".join(gather(tmp_path).problems)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TargetError, match="no result and no log"):
        gather(empty)


def test_a_log_that_was_not_ended_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = log(tmp_path / "whole", "n0", monkeypatch)
    cut = tmp_path / "cut"
    cut.mkdir()
    rows = whole.read_text().splitlines(keepends=True)
    (cut / "n0.csv").write_text("".join(rows[:50]))
    described = whole.with_name("n0.csv.json").read_text().replace('"complete": true', '"complete": false')
    (cut / "n0.csv.json").write_text(described)
    job = gather(cut)
    assert job["n0"].joules is None
    assert "has no end" in job["n0"].why


def missing(job: JobEnergy) -> str:
    assert not job.complete
    return "; ".join(f"{host}: {why}" for host, why in job.missing.items())


def test_a_log_beside_a_result_is_counted_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, "n0", monkeypatch)
    shutil.copy(tmp_path / "n0.csv", tmp_path / "other.csv")
    (tmp_path / "n0.node.json").write_text("{}")
    with pytest.raises(TargetError, match="not the whole file of a node"):
        gather(tmp_path)
