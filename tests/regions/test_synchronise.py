"""Regions that wait for work elsewhere: by stand-ins with the calls of PyTorch and CuPy, and by the real JAX."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.regions._synchronise import device_of
from pmtpy.regions.pool import _pool


@pytest.fixture(autouse=True)
def _closed() -> object:
    yield
    _pool.close()


class Gpu:
    """A stand-in that notes what is called; its events say that it worked for 30 ms."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.initialised = True
        self.failure: Exception | None = None
        self.elapsed_ms: Callable[[], float] = lambda: 30.0

    def synchronize(self) -> None:
        self.said.append("wait")
        if self.failure is not None and self.said.count("wait") > 1:
            raise self.failure

    def event(self, **_options: bool) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            record=lambda: self.said.append("event"),
            synchronize=lambda: self.said.append("passed"),
            elapsed_time=lambda _other: self.elapsed_ms(),
        )

    def torch(self) -> types.ModuleType:
        made = types.ModuleType("torch")
        made.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
            is_available=lambda: True,
            is_initialized=lambda: self.initialised,
            synchronize=self.synchronize,
            Event=self.event,
        )
        return made

    def cupy(self) -> types.ModuleType:
        made = types.ModuleType("cupy")
        made.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
            Device=lambda: self, Event=self.event, get_elapsed_time=lambda _a, _b: self.elapsed_ms()
        )
        return made


def worked_s(region: pmt.Region) -> float:
    """For how long the load was on, the first time."""
    assert region._stamps is not None
    on_ns, off_ns, *_ = region._stamps.told(None, 0, 1 << 62)[0]
    return (off_ns - on_ns) / 1e9


def test_what_is_to_be_awaited_has_not_waited_and_is_refused() -> None:
    async def wait() -> None:
        pass

    with pytest.raises(TargetError, match="awaits nothing"), pmt.region("x", "rapl:virtual", sync=wait):
        raise AssertionError


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_it_waits_at_both_ends_and_its_events_stamp_the_load(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    monkeypatch.setitem(sys.modules, name, getattr(gpu, name)())
    with pmt.region("step", "rapl:virtual", sync=name) as r:  # type: ignore[arg-type]
        assert gpu.said == ["wait", "event"]
        gpu.said.append("work")
    assert gpu.said == ["wait", "event", "work", "event", "passed", "wait"]
    assert r["rapl:virtual"].joules >= 0
    assert worked_s(r) == pytest.approx(0.03, abs=1e-9)


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_work_of_another_stream_is_in_the_stamp(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of one stream has passed at once, and the device is done when the wait for it has ended."""
    gpu, clock = Gpu(), ManualClock()
    gpu.elapsed_ms = lambda: 0.01
    monkeypatch.setattr(gpu, "synchronize", lambda: clock.advance(0.5))
    monkeypatch.setitem(sys.modules, name, getattr(gpu, name)())
    device = device_of(name)  # type: ignore[arg-type]
    start_ns = clock.now_ns()
    device.begin(clock.now_ns)
    assert device.end() == (start_ns, start_ns + 500_000_000)
    assert device.end() is None


def test_a_program_that_goes_to_another_device_meanwhile_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()

    def elapsed() -> float:
        raise ValueError("Both events must be on the same device")

    gpu.elapsed_ms = elapsed
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    with pmt.region("step", "rapl:virtual", sync="torch") as r:
        pass
    assert r["rapl:virtual"].joules >= 0
    assert r._stamps is None


def test_a_load_that_was_stamped_by_hand_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Gpu().torch())
    with pmt.region("step", "rapl:virtual", sync="torch") as r, r.load():
        pass
    assert worked_s(r) < 0.03


def test_a_device_that_was_never_used_is_not_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    gpu.initialised = False
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    with pmt.region("step", "rapl:virtual", sync="torch") as r:
        pass
    assert gpu.said == []
    with pmt.region("first use", "rapl:virtual", sync="torch") as r:
        gpu.initialised = True
    assert gpu.said == ["wait"]
    assert r._stamps is None  # when the work began is not known


def test_work_that_fails_ends_the_region_and_is_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = Gpu()
    gpu.failure = RuntimeError("CUDA error: an illegal memory access")
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    r = pmt.region("step", "rapl:virtual", sync="torch")
    with pytest.raises(RuntimeError, match="illegal"), r:
        pass
    assert r["rapl:virtual"].seconds > 0
    other = Gpu()
    other.failure = RuntimeError("too")
    monkeypatch.setitem(sys.modules, "torch", other.torch())
    with pytest.raises(ValueError, match="mine"), pmt.region("step", "rapl:virtual", sync="torch"):
        raise ValueError("mine")
    assert "region 'step': its device failed, too: RuntimeError: too" in caplog.text


@pytest.mark.parametrize("wait", [lambda: None])
def test_a_callable_waits(wait: Callable[[], None]) -> None:
    calls: list[int] = []
    with pmt.region("step", "rapl:virtual", sync=lambda: calls.append(1)):
        assert len(calls) == 1
    assert len(calls) == 2


def test_what_cannot_be_waited_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("cuda", ["torch"]):
        with pytest.raises(TargetError, match="torch, cupy, jax"):
            pmt.region("step", "rapl:virtual", sync=wrong)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailableError, match="pip install cupy"):
        pmt.region("step", "rapl:virtual", sync="cupy")


def test_nothing_is_imported_that_is_not_named() -> None:
    code = (
        "import sys, pmtpy\nwith pmtpy.region('a', 'rapl:virtual', sync=lambda: None): pass\n"
        "assert not {'torch', 'cupy', 'jax', 'IPython', 'perfetto', 'otf2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_the_real_jax_is_waited_for_and_the_recipe_trains_with_it() -> None:
    """In a process of its own: its threads outlive a test."""
    code = (
        "import os; os.environ['JAX_PLATFORMS'] = 'cpu'\n"
        "import jax, jax.numpy as jnp, pmtpy\nx = jnp.ones((300, 300))\n"
        "with pmtpy.region('matmul', 'rapl:virtual', sync='jax') as r:\n    y = x @ x\n"
        "assert y.is_ready() and r['rapl:virtual'].seconds > 0\n"
        "from joules_per_step import Steps\n"
        "loss = lambda w: ((x @ w - 1.0) ** 2).mean()\n"
        "train, w = jax.jit(lambda w: w - 1e-6 * jax.grad(loss)(w)), jnp.zeros((300, 1))\n"
        "with pmtpy.create('rapl:virtual') as sensor:\n"
        "    steps = Steps(sensor, warm_up=2, wait=lambda: w.block_until_ready(), shared='nobody else')\n"
        "    for batch in range(40):\n        w = train(w); steps.done(units=300)\n"
        "    assert len(steps.joules) == 38 and steps.epoch() == sum(steps.joules) > 0 and steps.per_unit() > 0\n"
        "    assert '38 steady steps' in steps.report()"
    )
    examples = Path(__file__).parents[2] / "docs" / "examples"
    paths = os.pathsep.join([str(examples), str(examples.parents[1])])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600, env={**os.environ, "PYTHONPATH": paths})
