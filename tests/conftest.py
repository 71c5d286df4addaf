"""What every test shares: the place of the real recordings, and the check that nothing is left running."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

# The tests of several workers share the cores; numpy's own threads would only wait for each other. Said before numpy
# is imported, and to the programs that are started here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests.support.prepared import Prepared

# No test depends on how fast the machine is. And `make test` tries the same examples each time, so that no change is
# refused for a find that has nothing to do with it. They are few; `make search` looks for new ones. No test says how
# many examples it needs: that would hold for the search too.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _ANY_SPEED, derandomize=True, max_examples=30)
settings.register_profile("search", _ANY_SPEED, max_examples=1000)
settings.load_profile("same")

SHARED = Path(os.environ.get("PMTPY_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """Let programs that are started here obey signals: in the background or under nohup we inherit that we do not."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of real GPU recordings, or a skip that says why."""
    path = SHARED / "data" / "gpu-traces"
    if not path.is_dir():
        pytest.skip(f"the real recordings are not at {path}; set PMTPY_SHARED to the folder that holds them")
    return path


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Begin the command line in processes that have imported already."""
    interpreter = Prepared(tmp_path_factory.mktemp("prepared"))
    yield interpreter
    interpreter.close()


# Tests that take more than a few seconds, by file and function: simulations of many regions, verbs that record for
# seconds, wheels that are installed. `-m "not slow"` leaves them out.
SLOW = frozenset(
    {
        ("cli/test_characterise_verb.py", "test_a_counter_is_characterised_by_its_moves"),
        ("cli/test_characterise_verb.py", "test_a_virtual_gpu_is_found_to_be_what_it_is"),
        ("cli/test_compare_verb.py", "test_recordings_are_compared_on_clocks_that_are_fitted"),
        ("cli/test_compare_verb.py", "test_virtual_sensors_are_compared_with_each_other_and_with_the_truth"),
        ("packaging/test_wheel.py", "test_the_wheel_lists_reads_and_measures"),
        ("regions/test_uncertainty_live.py", "test_a_profile_with_a_kernel_corrects_live_regions_of_a_slow_sensor"),
        ("regions/test_uncertainty_live.py", "test_stated_intervals_of_live_regions_hold_the_truth"),
        ("regions/test_uncertainty_stamped.py", "test_a_profile_whose_window_is_off_by_what_it_states_holds_the_truth"),
        ("regions/test_uncertainty_stamped.py", "test_intervals_of_stamped_regions_hold_over_loads_and_lengths"),
    }
)


# Files whose tests share what is costly to make: a wheel, a site, a recording. With `--dist loadgroup`, as `make unit`
# has it, one process runs all of each, and makes it once.
TOGETHER = frozenset(
    {
        *("analysis/characterisation/test_characterise.py", "analysis/comparison/test_compare.py"),
        "cluster/test_mpi.py",
        *("calibration/test_device_session.py", "cli/test_examples.py", "docs/test_example_backend.py"),
        *("docs/test_site.py", "integrations/test_kernel_tuner.py", "lab/test_cards.py", "packaging/test_wheel.py"),
        *("live/test_view.py", "plotting/test_interactive.py"),
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and those that belong together."""
    folder = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(folder):
            continue
        file = item.path.relative_to(folder).as_posix()
        if (file, getattr(item, "originalname", item.name)) in SLOW:
            item.add_marker(pytest.mark.slow)
        if file in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(file))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file, take what is left out of later searches for garbage.

    Else each of them takes a second in the end: ctypes keeps the structures of every private copy of pynvml for good.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _no_thread_left_behind() -> Iterator[None]:
    """Fail a test that leaves one of our threads running."""
    before = set(threading.enumerate())
    yield
    left = [t.name for t in threading.enumerate() if t not in before and t.name.startswith("pmtpy")]
    assert not left, f"threads left running: {left}"
