"""The processes of a job on one node find each other, begin together, and are known while they run."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from pmtpy.cli._beside import Gone, _name, begun_with, others_of
from pmtpy.io.origin import Launch, Machine

HERE = Machine("here", "here", 4)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs sockets without a file")


class Process(threading.Thread):
    """One that does not measure, as far as it is asked for: it begins, and runs until it is let go."""

    def __init__(self, job: Launch, say: str = "", status: int | None = 0) -> None:
        super().__init__(daemon=True)
        self.say, self.status = say, status
        self.job, self.begun, self.go, self.measured = job, threading.Event(), threading.Event(), False
        self.start()

    def run(self) -> None:
        with begun_with(self.job, HERE, time.sleep, self.say) as begun:
            self.measured = begun.measured
            self.begun.set()
            assert self.go.wait(60)
            if self.status is not None:
                begun.ended(self.status)

    def end(self) -> None:
        self.go.set()
        self.join()


@pytest.fixture
def job(tmp_path: Path) -> Launch:
    return Launch("test", str(tmp_path))


def test_all_begin_when_they_are_let_and_run_until_their_ends(job: Launch) -> None:
    early = Process(job)  # before anybody measures
    with others_of(job, HERE, 2) as others:
        late = Process(job)
        others.come(time.sleep)
        assert not others.lacking
        assert not any(p.begun.is_set() for p in (early, late))
        others.begin()
        assert early.begun.wait(60)
        assert late.begun.wait(60)
        assert early.measured
        assert others.run()
        early.end()
        assert others.run()
        late.end()
        while others.run():
            time.sleep(0.01)


def test_one_that_comes_when_the_others_have_begun_begins_at_once_and_is_known(job: Launch) -> None:
    with others_of(job, HERE, 1) as others:
        others.begin()
        assert not others.run()
        process = Process(job)
        assert process.begun.wait(60)
        assert process.measured
        while others.lacking:
            time.sleep(0.01)
        assert others.run()
        process.end()


def test_what_one_says_when_it_comes_is_heard_whole(job: Launch) -> None:
    with others_of(job, HERE, 2) as others:
        others.begin()
        for said in ("", "GPU " * 5000):
            with begun_with(job, HERE, time.sleep, said) as begun:
                assert begun.measured
        assert others.told == ["", "GPU " * 5000]
        while others.run():
            time.sleep(0.01)


def test_how_each_has_ended_is_known_and_who_closes_without_a_word_too(job: Launch) -> None:
    with others_of(job, HERE, 3) as others:
        others.begin()
        assert others.gone() == []
        for said, status in (("well", 0), ("failed", 5), ("killed", None)):
            process = Process(job, said, status)
            assert process.begun.wait(60)
            process.end()
        while len(others.gone()) < 3:
            time.sleep(0.01)
        assert others.gone() == [Gone("well", 0), Gone("failed", 5), Gone("killed", None)]


def test_one_that_has_not_waited_is_heard_in_full(job: Launch) -> None:
    with others_of(job, HERE, 1) as others:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hasty:
            hasty.connect(_name(job, HERE))
            hasty.sendall(b"7\n3\n")  # it gave up waiting, and its command is over: both at once
        while not others.gone():
            time.sleep(0.01)
        assert others.gone() == [Gone("7", 3)]


def test_many_are_accepted_while_nobody_looks(job: Launch) -> None:
    with others_of(job, HERE, 150) as others:
        processes = [Process(job) for _ in range(150)]
        others.begin()
        assert all(p.begun.wait(60) for p in processes)
        for p in processes:
            p.end()
    assert all(p.measured for p in processes)


def test_who_waits_begins_when_the_one_that_measures_is_gone(job: Launch) -> None:
    with others_of(job, HERE, 1) as others:
        process = Process(job)
        while others.lacking:
            time.sleep(0.01)
    assert process.begun.wait(60)
    process.end()


def test_nobody_waits_in_a_job_without_a_name() -> None:
    process = Process(Launch())
    assert process.begun.wait(60)
    process.end()
    with others_of(Launch(), HERE, 3) as others:
        assert not others.lacking
        others.come(time.sleep)
        others.begin()
        assert not others.run()


def test_one_node_is_measured_once(job: Launch) -> None:
    with others_of(job, HERE, 1), others_of(job, HERE, 1) as second:
        assert not second.lacking
