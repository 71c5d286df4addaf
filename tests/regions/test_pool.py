"""Sensors that are opened by name: once, without holding up anybody, and not by half in a child."""

from __future__ import annotations

import os
import threading

import pytest

import pmtpy as pmt
from pmtpy.regions import pool as module
from pmtpy.regions.pool import Pool
from pmtpy.sensor.sensor import Sensor


class SlowOpening:
    """Opens sensors as ``create`` does, but waits until it is let go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.opened: list[Sensor] = []

    def __call__(self, target: str) -> Sensor:
        self.begun.set()
        assert self.go_on.wait(120)
        self.opened.append(pmt.create(target))
        return self.opened[-1]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowOpening:
    opening = SlowOpening()
    monkeypatch.setattr(module, "create", opening)
    return opening


def test_a_sensor_that_is_open_is_found_while_another_is_being_opened(slow: SlowOpening) -> None:
    pool = Pool()
    slow.go_on.set()
    sensor = pool.get("rapl:virtual")
    slow.go_on.clear()
    slow.begun.clear()
    thread = threading.Thread(target=pool.get, args=("nvml:virtual",), name="pmtpy-test-open")
    thread.start()
    assert slow.begun.wait(120)
    assert pool.get("rapl:virtual") is sensor  # would wait for ever if opening held it up
    slow.go_on.set()
    thread.join()
    pool.close()
    assert len(slow.opened) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_is_made_while_a_sensor_is_being_opened_opens_its_own(slow: SlowOpening) -> None:
    pool = Pool()
    thread = threading.Thread(target=pool.get, args=("rapl:virtual",), name="pmtpy-test-open")
    thread.start()
    assert slow.begun.wait(120)
    threading.Timer(0.2, slow.go_on.set).start()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if pool.get("rapl:virtual").read().joules[0] >= 0.0 else 2)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    thread.join()
    pool.close()
    assert os.waitstatus_to_exitcode(status) == 0
