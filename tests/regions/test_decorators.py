from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.errors import TargetError
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
        assert "work: test: 10 J" in caplog.text


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


def test_the_decorator_without_its_sensors_is_refused_and_does_not_replace_the_function() -> None:
    with pytest.raises(pmt.TargetError, match="@measure"):
        pmt.measure()
    with pytest.raises(pmt.TargetError, match="@measure"):

        @pmt.measure  # type: ignore[arg-type]
        def work() -> None: ...


def test_what_cannot_be_called_is_refused_where_it_is_decorated() -> None:
    for decorate in (pmt.measure("rapl:virtual"), pmt.dump("rapl:virtual", filename="x.csv")):
        with pytest.raises(TargetError, match="put @classmethod above"):
            decorate(classmethod(lambda cls: cls))  # type: ignore[arg-type]
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
