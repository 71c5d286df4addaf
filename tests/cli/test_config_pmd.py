"""``pmtpy config pmd`` and ``pmtpy sim pmd``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import pmtpy as pmt
from pmtpy.cli import main
from pmtpy.sensor.sensor import acquisition_of


def test_the_configuration_is_shown_and_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "pmd:virtual", "--offset", "eps1.current=-2", "--averaging", "0", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["offsets"] == [0, 0, 0, 0, 0, -2, 0, 0]
    assert shown["averaging"] == 0
    assert main(["config", "pmd:virtual"]) == 0
    assert "means over 4096 samples" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--offset", "eps1=-2"], ["--offset", "eps1.current=200"], ["--averaging", "4"]])
def test_what_does_not_fit_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "pmd:virtual", *wrong]) == 2
    assert "averaging is" in (said := capsys.readouterr().err) or "offset" in said


@pytest.mark.parametrize("name", ["pmd", "powersensor2"])
def test_a_virtual_meter_serves_until_it_is_told_to_end(name: str) -> None:
    command = [sys.executable, "-m", "pmtpy", "sim", name, "--load", "constant:50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        assert os.path.exists(path)  # noqa: PTH110  (a device path)
        with pmt.create(f"{name}:{path}") as sensor:
            a = sensor.read()
            clock = acquisition_of(sensor).clock
            while (b := sensor.read()).t_ns - a.t_ns < 200_000_000:
                clock.wait_until(clock.now_ns() + 20_000_000, threading.Event())
            assert pmt.watts(a, b) == pytest.approx(50, rel=0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not os.path.exists(path)  # noqa: PTH110
