"""The thread that reads sensors, started and ended by several others."""

from __future__ import annotations

import threading

from pmtpy.core.clock import HOST_CLOCK
from pmtpy.sensor.poller import Pump

_HANG_S = 9.0  # less than the time after which it gives up waiting for a thread


def test_ending_the_last_job_does_not_wait_for_a_thread_that_has_been_given_another() -> None:
    pump = Pump(HOST_CLOCK, "test")
    longest: list[float] = []

    def come_and_go() -> None:
        for _ in range(150):
            job = pump.add(lambda: None, 10.0)
            before = HOST_CLOCK.now_ns()
            pump.remove(job)
            longest.append((HOST_CLOCK.now_ns() - before) / 1e9)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(longest) < _HANG_S
