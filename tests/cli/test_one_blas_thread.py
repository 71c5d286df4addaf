"""Verbs that analyse recordings multiply small matrices: by one thread, which commands that they start do not see."""

from __future__ import annotations

import os
import sys

import pytest

from pmtpy.cli._one_blas_thread import one_blas_thread

pytest.importorskip("scipy.linalg", reason="it comes with the extra analysis")
threadpoolctl = pytest.importorskip("threadpoolctl", reason="it comes with the extra analysis")


def threads() -> set[int]:
    """Return how many threads each library of linear algebra uses."""
    return {library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}


def test_one_thread_multiplies_within_and_as_many_as_before_behind() -> None:
    before = dict(os.environ)
    with threadpoolctl.threadpool_limits(2, "blas"):
        with one_blas_thread():
            assert threads() == {1}
            assert dict(os.environ) == before  # what a command is started with
        assert threads() == {2}


def test_without_the_package_all_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with threadpoolctl.threadpool_limits(2, "blas"), one_blas_thread():
        assert threads() == {2}
