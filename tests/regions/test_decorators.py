from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import types
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.errors import TargetError
from pmtpy.regions import decorators
from tests.support.worlds import counter_sensor


def test_a_measured_function_returns_what_it_returned_and_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.measure(sensor)
    def work(a: int, *, b: int = 2) -> int:
        """Add."""
        clock.advance(a)
        return a + b

    with sensor, caplog.at_level(logging.INFO, "pmtpy"):
        assert work(1) == 3
        assert work(2, b=5) == 7
        assert work.__name__ == "work"
        assert work.__doc__ == "Add."
        joules = [m["test"].joules for m in work.measurements]
        assert joules == pytest.approx([10, 20], abs=1e-5)
        assert "work: test: 10.0000 J +- 0.0068 J in 1 s (10 W), counter" in caplog.text


def test_coroutines_and_generators_are_measured_to_their_end() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.measure(sensor)
    async def coroutine(n: int) -> int:
        clock.advance(n)
        await asyncio.sleep(0)
        clock.advance(n)
        return n

    @pmt.measure(sensor)
    def generator(n: int) -> Generator[int, str, str]:
        heard = ""
        for i in range(n):
            clock.advance(1)
            heard = yield i
        return heard

    @pmt.measure(sensor)
    async def stream(n: int) -> AsyncIterator[int]:
        for i in range(n):
            clock.advance(1)
            yield i

    async def drain() -> list[int]:
        return [i async for i in stream(3)]

    def energies(f: object) -> list[float]:
        return [m["test"].joules for m in f.measurements]  # type: ignore[attr-defined]

    with sensor:
        assert inspect.iscoroutinefunction(coroutine)
        assert asyncio.run(coroutine(2)) == 2
        assert energies(coroutine) == pytest.approx([40], abs=1e-5)
        assert inspect.isgeneratorfunction(generator)
        steps = generator(2)
        assert next(steps) == 0
        assert steps.send("first") == 1
        with pytest.raises(StopIteration) as stop:
            steps.send("second")
        assert stop.value.value == "second"
        assert energies(generator) == pytest.approx([20], abs=1e-5)
        assert asyncio.run(drain()) == [0, 1, 2]
        assert energies(stream) == pytest.approx([30], abs=1e-5)
        for _ in generator(5):
            break  # left early: closing the generator ends its region
        assert len(energies(generator)) == 2


def test_static_tools_know_the_measurements_of_a_decorated_function() -> None:
    clock, _, sensor = counter_sensor("constant:50")

    @pmt.measure(sensor)
    def work(n: int) -> str:
        clock.advance(n)
        return str(n)

    with sensor:
        text: str = work(3)
        joules: float = work.measurements[-1]["test"].joules  # mypy runs over the tests: no ignore is needed here
        assert text == "3"
        assert joules == pytest.approx(150)


def test_each_call_of_a_dumped_function_has_a_file_of_its_own(tmp_path: Path) -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.dump(sensor, filename=tmp_path / "run.csv")
    def work(seconds: float) -> float:
        clock.advance(seconds)
        return seconds

    with sensor:
        assert [work(1.0), work(2.0)] == [1.0, 2.0]
    assert {p.name for p in tmp_path.glob("*.csv")} == {"run.csv", "run-2.csv"}


def test_a_call_within_a_dump_of_its_sensor_runs_without_a_file_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.dump(sensor, filename=tmp_path / "run.csv")
    def factorial(n: int) -> int:
        clock.advance(1.0)
        return n * factorial(n - 1) if n > 1 else 1

    with sensor:
        assert factorial(4) == 24
        assert factorial(1) == 1
        with sensor.dump(tmp_path / "own.csv"):
            assert factorial(3) == 6
    assert {p.name for p in tmp_path.glob("*.csv")} == {"run.csv", "run-2.csv", "own.csv"}
    assert sum("dumped already" in r.getMessage() for r in caplog.records) == 1


def test_the_decorator_without_its_sensors_is_refused_and_does_not_replace_the_function() -> None:
    with pytest.raises(pmt.TargetError, match="@measure"):
        pmt.measure()
    with pytest.raises(pmt.TargetError, match="@measure"):

        @pmt.measure  # type: ignore[arg-type]
        def work() -> None: ...


def test_what_cannot_be_called_is_refused_where_it_is_decorated() -> None:
    for decorate in (pmt.measure("rapl:virtual"), pmt.dump("rapl:virtual", filename="x.csv")):
        with pytest.raises(TargetError, match="put @property above"):
            decorate(property(lambda cls: cls))  # type: ignore[arg-type]
        with pytest.raises(TargetError, match="not a int"):
            decorate(5)  # type: ignore[arg-type]


def test_methods_of_every_kind_are_measured() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    class Tool:
        @pmt.measure(sensor)
        def plain(self, n: int) -> int:
            clock.advance(n)
            return n

        @staticmethod
        @pmt.measure(sensor)
        def static(n: int) -> int:
            clock.advance(n)
            return n

        @classmethod
        def of_class(cls, n: int) -> str:
            clock.advance(n)
            return cls.__name__

    of_class = pmt.measure(sensor)(Tool.of_class)
    with sensor:
        assert (Tool().plain(1), Tool.static(2), of_class(3)) == (1, 2, "Tool")
        measured = [*Tool.plain.measurements, *Tool.static.measurements, *of_class.measurements]
        assert [m["test"].joules for m in measured] == pytest.approx([10, 20, 30], abs=1e-5)


def test_what_is_thrown_into_an_asynchronous_generator_reaches_it() -> None:
    clock, _, sensor = counter_sensor("constant:10")
    heard: list[str] = []

    @pmt.measure(sensor)
    async def stream() -> AsyncGenerator[int, None]:
        try:
            yield 1
        except KeyError:
            heard.append("thrown in")
            clock.advance(2)
            yield 2
        finally:
            heard.append("closed")

    async def use() -> int:
        generator = stream()
        await anext(generator)
        shown = await generator.athrow(KeyError())
        await generator.aclose()
        return shown

    with sensor:
        assert asyncio.run(use()) == 2
        assert heard == ["thrown in", "closed"]
        assert [m["test"].joules for m in stream.measurements] == pytest.approx([20], abs=1e-5)


def test_a_generator_that_can_be_awaited_still_can() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.measure(sensor)
    @types.coroutine
    def work() -> Generator[None, None, int]:
        clock.advance(1)
        yield
        clock.advance(2)
        return 7

    async def use() -> int:
        return await work()

    with sensor:
        assert asyncio.run(use()) == 7
        assert [m["test"].joules for m in work.measurements] == pytest.approx([30], abs=1e-5)


def test_a_function_that_returns_a_coroutine_or_a_future_is_measured_to_their_results() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    async def work() -> int:
        clock.advance(1)
        await asyncio.sleep(0)
        clock.advance(2)
        return 7

    @pmt.measure(sensor)
    def coroutine() -> Coroutine[None, None, int]:
        return work()

    @pmt.measure(sensor)
    def task() -> asyncio.Task[int]:
        return asyncio.get_running_loop().create_task(work())

    async def use() -> list[int]:
        started = task()
        assert isinstance(started, asyncio.Task)
        return [await started, await coroutine()]

    with sensor:
        assert asyncio.run(use()) == [7, 7]
        for function in (coroutine, task):
            assert [m["test"].joules for m in function.measurements] == pytest.approx([30], abs=1e-5)


def test_static_and_class_methods_are_measured_wherever_the_decorator_stands() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    class Work:
        @pmt.measure(sensor)
        @staticmethod
        def inside(seconds: float) -> float:
            clock.advance(seconds)
            return seconds

        @staticmethod
        @pmt.measure(sensor)
        def outside(seconds: float) -> float:
            clock.advance(seconds)
            return seconds

        @pmt.measure(sensor)
        @classmethod
        def of_class(cls, seconds: float) -> str:
            clock.advance(seconds)
            return cls.__name__

    with sensor:
        assert (Work.inside(1.0), Work().inside(2.0), Work().outside(1.0)) == (1.0, 2.0, 1.0)
        assert Work.of_class(3.0) == "Work"  # type: ignore[call-arg, arg-type]
        assert [m["test"].joules for m in Work.inside.measurements] == pytest.approx([10, 20], abs=1e-5)
        assert [m["test"].joules for m in Work.of_class.measurements] == pytest.approx([30], abs=1e-5)


def test_as_many_measurements_are_kept_as_asked_for() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.measure(sensor, keep=2)
    def work(seconds: float) -> None:
        clock.advance(seconds)

    with sensor:
        for seconds in (1.0, 2.0, 3.0):
            work(seconds)
        assert [m["test"].joules for m in work.measurements] == pytest.approx([20, 30], abs=1e-5)


def test_very_many_measurements_are_kept_and_what_they_hold_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decorators, "_MANY_CALLS", 3)
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.measure(sensor)
    def work() -> None:
        clock.advance(1.0)

    with sensor:
        for _ in range(5):
            work()
    assert len(work.measurements) == 5
    assert [r.message.count("keep=N") for r in caplog.records if r.levelname == "WARNING"] == [1]


def test_a_context_manager_is_measured_from_the_entry_of_its_with_statement_to_the_end() -> None:
    clock, _, sensor = counter_sensor("constant:10")

    @pmt.measure(sensor)
    @contextlib.contextmanager
    def job(n: int) -> Iterator[int]:
        """Set up, and clean up."""
        clock.advance(n)
        try:
            yield n
        finally:
            clock.advance(n)

    @pmt.measure(sensor)
    @contextlib.asynccontextmanager
    async def later(n: int) -> AsyncIterator[int]:
        clock.advance(n)
        yield n

    @job(1)
    def wrapped() -> None:
        clock.advance(5)

    async def enter() -> None:
        async with later(2) as n:
            clock.advance(n)

    with sensor:
        with job(1) as n:
            clock.advance(3)
        assert n == 1
        with pytest.raises(KeyError), job(1):
            raise KeyError
        wrapped()
        asyncio.run(enter())
        assert [m["test"].joules for m in job.measurements] == pytest.approx([50, 20, 70], abs=1e-5)
        assert [m["test"].joules for m in later.measurements] == pytest.approx([40], abs=1e-5)
        assert (job.__name__, job.__doc__) == ("job", "Set up, and clean up.")
