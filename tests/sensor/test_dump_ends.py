"""A dump shows all that was there from its start to its end, of registers that are renewed now and then as well.

The load is a pulse of 1 kW that lasts half a refresh and touches an end: what a register showed when it was renewed
before knows nothing of it, so an end that is cut off loses it whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Timestamps, Traits
from pmtpy.errors import ReadError
from pmtpy.io.write import Ending, Writer
from pmtpy.sensor.sensor import Sensor, acquisition_of, stop_dumps

REFRESH_S = 0.1
PULSE_W, PULSE_S = 1000.0, 0.05
FAR = 1e6  # s: nobody but the dump reads


class TickingClock(ManualClock):
    """A clock that goes on by a millisecond whenever it is looked at."""

    def now_ns(self) -> int:
        self.advance(1e-3)
        return super().now_ns()


class Register(PolledSource):
    """A counter that is renewed now and then, of a pulse that begins when the test says."""

    def __init__(self, clock: ManualClock, kind: Timestamps, refresh_s: float = REFRESH_S, *, slow: bool) -> None:
        super().__init__(clock)
        self.traits = Traits(interval_s=FAR, timestamps=kind, blocking=slow)
        self.identity = Identity("test", "register", virtual=True)
        self.channels = (
            Channel("node", Quantity.ENERGY, scale=1e-6, domain="host/node", refresh_s=refresh_s, max_watts=1e6),
        )
        self.refresh_ns = round(refresh_s * 1e9)
        self.pulse_ns = math.inf
        self.fails = False
        self._renewed_ns = 0

    def poll(self) -> Sequence[float] | Block | None:
        if self.fails:
            raise ReadError("it does not answer")
        # Renewed off the instants at which the tests begin, by a third of the period.
        third = self.refresh_ns // 3
        renewed_ns = (self._clock.now_ns() - third) // self.refresh_ns * self.refresh_ns + third
        joules = PULSE_W * min(max((renewed_ns - self.pulse_ns) / 1e9, 0.0), PULSE_S)
        if self.traits.timestamps is not Timestamps.DEVICE_UPDATE:
            return (1e6 * joules,)
        if renewed_ns == self._renewed_ns:
            return None
        self._renewed_ns = renewed_ns
        return Block.row(renewed_ns, (1e6 * joules,))


each = pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
kinds = pytest.mark.parametrize("kind", list(Timestamps))


@kinds
@each
@pytest.mark.parametrize("end", ["stop", "close"])
def test_a_dump_shows_what_was_there_until_its_end(tmp_path: Path, kind: Timestamps, end: str, *, slow: bool) -> None:
    clock = TickingClock()
    source = Register(clock, kind, slow=slow)
    sensor = Sensor(source, "test", clock, interval_s=FAR)
    sensor.start_dump(tmp_path / "rows.csv")
    clock.advance(0.75)
    source.pulse_ns = clock.now_ns()
    clock.advance(PULSE_S)
    (sensor.stop_dump if end == "stop" else sensor.close)()
    sensor.close()
    table = pmt.load(tmp_path / "rows.csv")
    assert table["total_J"].iloc[-1] == pytest.approx(PULSE_W * PULSE_S)
    assert (table.attrs["complete"], table.attrs["notes"]) == (True, [])


@kinds
@each
def test_a_dump_shows_what_was_there_from_its_start(tmp_path: Path, kind: Timestamps, *, slow: bool) -> None:
    clock = TickingClock()
    source = Register(clock, kind, slow=slow)
    with Sensor(source, "test", clock, interval_s=FAR) as sensor:
        clock.advance(0.05)
        sensor.start_dump(tmp_path / "rows.csv")
        source.pulse_ns = clock.now_ns()
        clock.advance(0.75)
        sensor.stop_dump()
    assert pmt.load(tmp_path / "rows.csv")["total_J"].iloc[-1] == pytest.approx(PULSE_W * PULSE_S)


def test_a_row_that_is_too_old_to_tell_of_the_start_is_not_taken_for_it(tmp_path: Path) -> None:
    clock = TickingClock()
    source = Register(clock, Timestamps.HOST_READ, slow=True)
    with Sensor(source, "test", clock, interval_s=FAR) as sensor:
        source.pulse_ns = clock.now_ns()
        clock.advance(2.0 * acquisition_of(sensor).carry_s)
        sensor.start_dump(tmp_path / "rows.csv")
        clock.advance(0.5)
        sensor.stop_dump()
    table = pmt.load(tmp_path / "rows.csv")
    assert len(table) == 1
    assert table["total_J"].iloc[-1] == 0.0


@kinds
def test_a_register_that_is_renewed_seldom_is_not_waited_for_and_what_lacks_is_said(
    tmp_path: Path, kind: Timestamps
) -> None:
    clock = TickingClock()
    source = Register(clock, kind, refresh_s=30.0, slow=False)
    with Sensor(source, "test", clock, interval_s=FAR) as sensor:
        sensor.start_dump(tmp_path / "rows.csv")
        clock.advance(15.0)
        asked_ns = clock.now_ns()
        ending = sensor.stop_dump()
        waited_s = (clock.now_ns() - asked_ns) / 1e9
    assert waited_s < 5.0
    assert ending.short_s == pytest.approx(15.0, abs=0.2)
    assert ending.uncovered_s == pytest.approx(15.0, abs=0.2)
    table = pmt.load(tmp_path / "rows.csv")
    assert any("its rows may lack the last 15" in note for note in table.attrs["notes"])


def test_a_register_that_does_not_answer_is_not_waited_for_and_what_lacks_is_said(tmp_path: Path) -> None:
    clock = TickingClock()
    source = Register(clock, Timestamps.HOST_READ, slow=False)
    source.gone_after_s = FAR
    with Sensor(source, "test", clock, interval_s=FAR) as sensor:
        sensor.start_dump(tmp_path / "rows.csv")
        clock.advance(0.5)
        source.fails = True
        asked_ns = clock.now_ns()
        ending = sensor.stop_dump()
        assert clock.now_ns() - asked_ns < 1_000_000_000
    assert ending.short_s == pytest.approx(0.5, abs=0.05)
    assert "its rows may lack the last 50" in ending.remarks[0]


def test_dumps_of_several_sensors_end_at_one_instant(tmp_path: Path) -> None:
    clock = TickingClock()
    sensors = [
        Sensor(Register(clock, Timestamps.HOST_READ, slow=False), f"test:{i}", clock, interval_s=FAR) for i in range(8)
    ]
    for i, sensor in enumerate(sensors):
        sensor.start_dump(tmp_path / f"{i}.csv")
    clock.advance(0.5)
    asked_ns = clock.now_ns()
    endings = list(stop_dumps(sensors))
    assert clock.now_ns() - asked_ns < 2 * 100_000_000 + 8 * 30_000_000  # not eight refreshes
    assert all(not isinstance(e, pmt.PmtError) and e.short_s == 0.0 for e in endings)
    for sensor in sensors:
        sensor.close()


def _ends_s(paths: list[Path], clock: ManualClock, asked_ns: int) -> list[float]:
    """Return how long after an instant the last row of each file is."""
    began_s = clock.anchor().unix_ns / 1e9 - clock.anchor().monotonic_ns / 1e9
    return [float(pmt.load(path)["time"].iloc[-1]) - began_s - asked_ns / 1e9 for path in paths]


def test_a_dump_takes_no_rows_while_the_file_of_another_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TickingClock()
    sensors = [
        Sensor(Register(clock, Timestamps.HOST_READ, slow=False), f"test:{i}", clock, interval_s=FAR) for i in range(3)
    ]
    paths = [tmp_path / f"{i}.csv" for i in range(3)]
    for sensor, path in zip(sensors, paths, strict=True):
        sensor.start_dump(path)
    clock.advance(0.5)
    finish = Writer.wait

    def slowly(writer: Writer) -> Ending:
        clock.advance(7.0)  # a disk that is busy, a file system far away
        return finish(writer)

    monkeypatch.setattr(Writer, "wait", slowly)
    asked_ns = clock.now_ns()
    endings = list(stop_dumps(sensors))
    assert all(not isinstance(ending, pmt.PmtError) and ending.short_s == 0.0 for ending in endings)
    for end_s in _ends_s(paths, clock, asked_ns):
        assert REFRESH_S <= end_s < 2 * REFRESH_S  # seven and fourteen seconds later, but for the first
    for sensor in sensors:
        sensor.close()


def test_a_dump_takes_no_rows_while_a_slower_sensor_is_waited_for(tmp_path: Path) -> None:
    clock = TickingClock()
    refreshes_s = [1.9, 0.1, 0.01]
    sensors = [
        Sensor(Register(clock, Timestamps.HOST_READ, r, slow=False), f"test:{r}", clock, interval_s=FAR)
        for r in refreshes_s
    ]
    paths = [tmp_path / f"{r}.csv" for r in refreshes_s]
    for sensor, path in zip(sensors, paths, strict=True):
        sensor.start_dump(path)
    clock.advance(4.0)
    asked_ns = clock.now_ns()
    endings = list(stop_dumps(sensors))
    targets = [sensor.target for sensor in sensors]
    assert [ending.rows > 0 for ending in endings if not isinstance(ending, pmt.PmtError)] == [True] * len(targets)
    for r, end_s in zip(refreshes_s, _ends_s(paths, clock, asked_ns), strict=True):
        assert r <= end_s < r + REFRESH_S
    for sensor in sensors:
        sensor.close()


def test_of_dumps_that_end_together_one_that_is_none_does_not_keep_the_others_from_ending(tmp_path: Path) -> None:
    clock = TickingClock()
    sensors = [
        Sensor(Register(clock, Timestamps.HOST_READ, slow=False), f"test:{i}", clock, interval_s=FAR) for i in range(3)
    ]
    for i in (0, 2):
        sensors[i].start_dump(tmp_path / f"{i}.csv")
    first, none, last = stop_dumps(sensors)
    assert isinstance(first, Ending)
    assert str(none) == "test:1 is not being dumped"
    assert isinstance(last, Ending)
    for sensor in sensors:
        sensor.close()
