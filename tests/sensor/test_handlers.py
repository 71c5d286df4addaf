"""What a signal's handler of the program raises comes out as itself, wherever pmtpy was when the signal came."""

from __future__ import annotations

import functools
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

import pmtpy as pmt
from pmtpy._handlers import of_a_handler
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Row
from pmtpy.core.source import PolledSource
from pmtpy.emulators import Tree, World, cray, hwmon, iio, jetson, occ, rapl
from pmtpy.emulators.nvml import VirtualDriver, make_gpu, private_pynvml
from pmtpy.emulators.world import make_world
from pmtpy.errors import BackendUnavailableError, PmtError, ReadError, SourceLostError
from pmtpy.sensor import registry

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs a signal of the program's own")


class TimeIsUpError(Exception):
    """Of a program."""


class Limit:
    """A handler that is an object."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def __call__(self, *_: object) -> None:
        raise self.kind("time is up")

    def stop(self, number: int, frame: FrameType | None) -> None:
        raise self.kind(f"time is up: {number} {frame is not None}")


def stop(kind: type[Exception], number: int, frame: FrameType | None) -> None:
    raise kind(f"time is up: {number} {frame is not None}")


@pytest.fixture
def handle() -> Iterator[Callable[[Any], None]]:
    """Set a handler of SIGUSR1 for the test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: (signal.signal(signal.SIGUSR1, handler), None)[1]
    signal.signal(signal.SIGUSR1, before)


def interrupted(*_: object) -> object:
    signal.raise_signal(signal.SIGUSR1)
    return None


@pytest.mark.parametrize("kind", [TimeIsUpError, TimeoutError, ValueError, KeyError, TypeError])
@pytest.mark.parametrize(
    "handler_of",
    [lambda kind: functools.partial(stop, kind), Limit, lambda kind: Limit(kind).stop],
    ids=["function", "object", "method"],
)
def test_it_comes_out_of_the_opening_and_the_reading_of_a_gpu(
    kind: type[Exception], handler_of: Callable[[type[Exception]], Any], handle: Callable[[Any], None]
) -> None:
    handle(handler_of(kind))
    clock = ManualClock()
    pynvml = private_pynvml(VirtualDriver(make_world("constant:100", clock=clock), (make_gpu("h100"),), "570.86.15"))
    ask = pynvml.nvmlDeviceGetName
    pynvml.nvmlDeviceGetName = interrupted  # type: ignore[attr-defined]
    with pytest.raises(kind, match="time is up"):
        pmt.create("nvml:0", clock=clock, library=pynvml)
    pynvml.nvmlDeviceGetName = ask  # type: ignore[attr-defined]
    fields = pynvml.nvmlDeviceGetFieldValues
    with pmt.create("nvml:0", clock=clock, interval=1e6, library=pynvml) as sensor:
        clock.advance(1.0)
        pynvml.nvmlDeviceGetFieldValues = interrupted  # type: ignore[attr-defined]
        with pytest.raises(kind, match="time is up"):
            sensor.read()
        pynvml.nvmlDeviceGetFieldValues = fields  # type: ignore[attr-defined]
        clock.advance(1.0)
        assert sensor.read().joules[0] > 0.0


@pytest.mark.parametrize("kind", [TimeIsUpError, TimeoutError, ValueError])
def test_it_comes_out_of_a_reading_of_files(
    kind: type[Exception], handle: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pmtpy.backends import _sysfs

    (tmp_path / "energy_uj").write_text("1\n")
    files = _sysfs.Registers(lambda: [tmp_path / "energy_uj"])
    handle(functools.partial(stop, kind))
    with monkeypatch.context() as patch:
        patch.setattr("os.pread", interrupted)
        with pytest.raises(kind, match="time is up"):
            files.numbers()
    assert files.numbers() == [1]
    with monkeypatch.context() as patch:
        patch.setattr("os.pread", interrupted)
        for read in (_sysfs.optional_number, _sysfs.optional_text):
            with pytest.raises(kind, match="time is up"):
                read(tmp_path / "energy_uj")
    files.close()


@pytest.mark.parametrize("kind", [TimeIsUpError, TimeoutError])
def test_it_comes_out_of_a_reading_of_perf_events(
    kind: type[Exception], handle: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tree = ManualClock(), Tree()
    events = rapl.PerfEvents(make_world("constant:100", clock=clock))
    events.describe(tree)
    handle(functools.partial(stop, kind))
    with pmt.create("rapl", clock=clock, interval=1e6, sysfs_root=tree.root, via="perf", perf=events) as sensor:
        clock.advance(1.0)
        with monkeypatch.context() as patch:
            patch.setattr(events, "read", interrupted)
            with pytest.raises(kind, match="time is up"):
                sensor.read()
        clock.advance(1.0)
        assert sensor.read().joules[0] > 0.0
    tree.close()


def _places(far: World) -> Iterator[Tree]:
    yield rapl.Processors(far, "server").tree
    yield hwmon.Board(far).tree
    yield jetson.Monitors(far, "agx-orin").tree
    yield cray.NodeController(far).tree
    yield iio.Chip(far).tree
    processors, tree = occ.Machine(far, 1), Tree()
    processors.advance(far.clock.now_ns())
    tree.write_bytes(occ.FILE, processors.image)
    yield tree


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has everything that is found by files of the kernel, at once."""
    for tree in _places(make_world("constant:100", clock=ManualClock())):
        shutil.rmtree(tree.root / "dev", ignore_errors=True)  # a node that nobody opens
        shutil.copytree(tree.root, tmp_path, symlinks=True, dirs_exist_ok=True)
        tree.close()
    monkeypatch.setenv("PMT_SYSFS_ROOT", str(tmp_path))
    monkeypatch.delenv("PMT_OCC_FILE", raising=False)
    return tmp_path


def _asks_the_kernel(frame: FrameType, function: object) -> tuple[str, int] | None:
    """The line of pmtpy that asks, by itself or by a Path; other modules may take what comes for an answer."""
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals["__name__"].startswith("pathlib"):
        caller = caller.f_back
    ours = caller is not None and caller.f_globals["__name__"].startswith("pmtpy.")
    if not ours or getattr(function, "__module__", "") != "posix" or caller is None:
        return None
    return caller.f_code.co_filename, caller.f_lineno


def _watched(watch: Callable[[tuple[str, int]], object]) -> list[pmt.Listing]:
    """List the sensors; ``watch`` is told each line before it asks the kernel."""

    def told(frame: FrameType, event: str, function: object) -> None:
        line = _asks_the_kernel(frame, function) if event == "c_call" else None
        if line is not None:
            watch(line)

    before = sys.getprofile()
    sys.setprofile(told)
    try:
        return pmt.list_sensors()
    finally:
        sys.setprofile(before)


def _interrupted_at(line: tuple[str, int], now: tuple[str, int]) -> None:
    if now == line:
        interrupted()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", ["cray", "hwmon", "iio", "jetson", "occ", "rapl"])
def test_it_comes_out_of_the_list_of_sensors_wherever_the_kernel_is_asked(
    name: str, handle: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle(functools.partial(stop, TimeoutError))
    monkeypatch.setattr(registry, "all_backends", lambda: (registry.BACKENDS[name],))
    lines: list[tuple[str, int]] = []
    assert all(found.available for found in _watched(lines.append))
    assert lines
    for line in dict.fromkeys(lines):
        with pytest.raises(TimeoutError, match="time is up"):
            _watched(functools.partial(_interrupted_at, line))


class Meter(PolledSource):
    """As an author of a backend writes it by the guide: whatever the system says becomes an error of pmtpy."""

    identity, channels = Identity("nvml", "meter"), (Channel("gpu", Quantity.POWER, domain="gpu/0"),)
    ask: Callable[[], object] = staticmethod(lambda: None)  # what a reading waits for
    lasts: type[PmtError] = ReadError

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock

    def poll(self) -> Sequence[float]:
        try:
            self.ask()
        except (OSError, ValueError) as error:
            raise self.lasts(f"the meter: {error}") from error
        return [5.0]


@pytest.mark.parametrize("kind", [TimeoutError, ValueError])
@pytest.mark.parametrize("lasts", [ReadError, SourceLostError])
def test_it_comes_out_of_a_backend_that_takes_it_for_a_failure_of_its_device(
    kind: type[Exception], lasts: type[PmtError], handle: Callable[[Any], None]
) -> None:
    handle(functools.partial(stop, kind))
    source = Meter(ManualClock())
    source.lasts, source.ask = lasts, interrupted
    with pytest.raises(kind, match="time is up") as raised:
        source.read_row()
    seen, one = set[int](), cast("BaseException | None", raised.value)
    while one is not None:  # whoever asks where it came from comes to an end
        assert id(one) not in seen
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    source.ask = lambda: None
    row = source.read_row()
    assert isinstance(row, Row)
    assert (row.counts, row.lost) == ((5.0,), 0)


def test_it_comes_out_of_a_reading_that_is_made_again_because_the_first_was_held_up(
    handle: Callable[[Any], None],
) -> None:
    handle(functools.partial(stop, TimeoutError))
    source = Meter(ManualClock())
    source.read_row()
    calls: list[int] = []

    def held_up() -> None:
        calls.append(1)
        source.clock.advance(1.0)
        if len(calls) > 1:
            interrupted()

    source.ask = held_up
    with pytest.raises(TimeoutError, match="time is up"):
        source.read_row()


def test_it_comes_out_of_the_opening_by_such_a_backend(
    handle: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(device: str | None, *, clock: ManualClock) -> Meter:
        try:
            interrupted()
        except OSError as error:
            raise BackendUnavailableError("nvml", str(error)) from error
        return Meter(clock)

    handle(functools.partial(stop, TimeoutError))
    monkeypatch.setattr("pmtpy.backends.nvml.open_source", opened)
    with pytest.raises(TimeoutError, match="time is up"):
        pmt.create("nvml:0", clock=ManualClock())


def test_a_failure_that_the_program_handles_while_it_reads_is_none_of_this_reading(
    handle: Callable[[Any], None],
) -> None:
    handle(functools.partial(stop, TimeoutError))
    source = Meter(ManualClock())

    def broken() -> None:
        raise OSError("no answer")

    source.ask = broken
    try:
        interrupted()
    except TimeoutError:
        assert len(source.read()) == 0
    assert "no answer" in source.last_failure


def test_what_a_library_raises_by_itself_is_none_of_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError(given)

    with pytest.raises(RuntimeError) as raised:
        broken(1, (2, None))
    assert not of_a_handler(raised.value)
    monkeypatch.setattr("pmtpy.backends.nvml.open_source", lambda device, *, clock: broken(device, clock))
    with pytest.raises(BackendUnavailableError, match="did not foresee"):
        pmt.create("nvml:0")
