"""A fork waits for what other threads load, so that no child waits for ever for a module that nobody loads."""

from __future__ import annotations

import os
import threading

import pytest

from pmtpy._loading import LOADING

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


def test_a_fork_waits_for_another_thread_that_loads() -> None:
    begun, done = threading.Event(), []

    def load() -> None:
        with LOADING, LOADING:
            begun.set()
            for _ in range(100_000):
                pass
            done.append(True)

    with LOADING:  # whoever forks may itself be loading
        thread = threading.Thread(target=load)
        thread.start()
        assert begun.wait(60.0)
        child = os.fork()
        if not child:
            os._exit(0 if done else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        thread.join()
    assert not LOADING._threads


def test_a_child_loads_whatever_its_parent_did() -> None:
    child = os.fork()
    if not child:
        with LOADING:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
