"""Dumps of several nodes in one folder, added up as their results."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.cluster.gather import gather
from pmtpy.cluster.job import JobEnergy
from pmtpy.core.clock import ManualClock
from pmtpy.errors import TargetError
from pmtpy.io.convert import convert
from pmtpy.io.origin import Launch
from tests.cluster.test_gather import node, write


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


def test_packed_logs_are_added_up_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("n0", "n1"):
        plain = log(tmp_path, host, monkeypatch)
        plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()  # as gzip does; the metadata stay
    job = gather(tmp_path)
    assert job.complete
    assert job.total.joules == pytest.approx(1600.0, rel=1e-3)
    write(tmp_path, node(0), Launch())
    assert "n1.csv.gz is a log of n1" in "; ".join(gather(tmp_path).problems)


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


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jls"])
def test_a_converted_log_still_tells_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    if suffix == "jls":
        pytest.importorskip("pyjls", reason="pyjls is not installed (extra jls)")
    for host in ("n0", "n1"):
        source = log(tmp_path / "as recorded", host, monkeypatch)
        (tmp_path / "converted").mkdir(exist_ok=True)
        convert(source, tmp_path / "converted" / f"{host}.{suffix}")
    before, after = gather(tmp_path / "as recorded"), gather(tmp_path / "converted")
    assert after.complete
    assert after.total.joules == pytest.approx(before.total.joules)
    assert after.total.uncertainty_joules == pytest.approx(before.total.uncertainty_joules, rel=0.01)


def test_a_log_of_a_node_that_has_no_result_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, node(0), Launch())
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")  # a result of the program that was measured
    assert gather(tmp_path).complete
    own = log(tmp_path, "own", monkeypatch)
    own.with_name("own.csv.json").write_text(own.with_name("own.csv.json").read_text().replace('"own"', '"boot0"'))
    assert gather(tmp_path).complete  # the result has counted its sensors
    log(tmp_path, "n1", monkeypatch)
    job = gather(tmp_path)
    assert not job.complete
    assert any("n1.csv is a log of n1, of which no result is here" in said for said in job.problems)


def test_a_log_beside_a_result_is_counted_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, "n0", monkeypatch)
    shutil.copy(tmp_path / "n0.csv", tmp_path / "other.csv")
    (tmp_path / "n0.node.json").write_text("{}")
    with pytest.raises(TargetError, match="not the whole file of a node"):
        gather(tmp_path)
