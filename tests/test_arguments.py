"""Every public call with a wrong argument: an error of ours, which says what was given; never one of Python's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt

WRONG: list[Any] = [
    None, 5, -1, 1.5, math.nan, math.inf, True, "", "\n", "nonsense", b"x", [], [1], {}, (1, 2), object(), len,
]  # fmt: skip


@dataclass
class Face:
    """What a user has in hands: an open sensor, two states, a region that has ended, a recording, an empty folder."""

    sensor: pmt.Sensor
    states: tuple[pmt.State, pmt.State]
    region: pmt.Region
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "recorded.csv"

    def enter(self, *arguments: Any) -> None:
        with pmt.region(*arguments):
            pass

    def dumped(self, path: Any = None, **options: Any) -> None:
        with self.sensor.dump(self.folder / "new.csv" if path is None else path, overwrite=True, **options):
            pass

    def dump_for(self, columns: Any) -> None:
        self.sensor.start_dump(self.folder / "new.pmt", columns=columns, overwrite=True)
        self.sensor.stop_dump()


@pytest.fixture
def face(tmp_path: Path) -> Iterator[Face]:
    folder = tmp_path / "face"
    folder.mkdir()
    with pmt.create("rapl:virtual") as sensor:
        with sensor.dump(folder / "recorded.csv"), pmt.region("x", sensor) as region:
            a = sensor.read()
        yield Face(sensor, (a, sensor.read()), region, folder)


# Each call, and which of the wrong values are right here.
CALLS: dict[str, tuple[Callable[[Face, Any], object], list[Any]]] = {
    "create": (lambda _, v: pmt.create(v).close(), []),
    "create, device": (lambda _, v: pmt.create("rapl:virtual", v).close(), [None]),
    "create, history_s": (lambda _, v: pmt.create("rapl:virtual", history_s=v).close(), [5, 1.5]),
    "create, interval": (lambda _, v: pmt.create("rapl:virtual", interval=v).close(), [None, 5, 1.5]),
    "create, load": (lambda _, v: pmt.create("rapl:virtual", load=v).close(), [None]),
    "create, calibration": (lambda _, v: pmt.create("rapl:virtual", calibration=v).close(), [None]),
    "create, sysfs_root": (lambda _, v: pmt.create("rapl", sysfs_root=v).close(), []),
    "combine": (lambda _, v: pmt.combine("node", v), []),
    "combine, name": (lambda _, v: pmt.combine(v, ["rapl:virtual"]), []),
    "Sensor.mark": (lambda f, v: f.sensor.mark(v), ["nonsense"]),
    "Sensor.history": (lambda f, v: f.sensor.history(v), [None, 5, 1.5, math.inf]),
    "Sensor.dump": (lambda f, v: f.dumped(f.folder if v is None else v), ["nonsense", "\n"]),
    "Sensor.dump, format": (lambda f, v: f.dumped(format=v), [None]),
    "Sensor.dump, interval": (lambda f, v: f.dumped(interval=v), [None, 5, 1.5]),
    "Sensor.start_dump, columns": (lambda f, v: f.dump_for(v), [None, []]),
    "seconds": (lambda f, v: pmt.seconds(f.states[0], v), []),
    "joules": (lambda f, v: pmt.joules(v, f.states[1]), []),
    "joules, channel": (lambda f, v: pmt.joules(*f.states, v), [None]),
    "watts, channel": (lambda f, v: pmt.watts(*f.states, channel=v), [None]),
    "region, label": (lambda f, v: f.enter(v, f.sensor), ["", "\n", "nonsense"]),
    "region, target": (lambda f, v: f.enter("x", v), []),
    "Region[]": (lambda f, v: f.region[v], []),
    "measure": (lambda _, v: pmt.measure(v), ["", "\n", "nonsense"]),  # opened when it is called
    "measure, called": (lambda _, v: pmt.measure(v)(lambda: 1)(), []),
    "measure, function": (lambda f, v: pmt.measure(f.sensor)(v), [len]),
    "measure, keep": (lambda f, v: pmt.measure(f.sensor, keep=v), [None, 5]),
    "dump": (lambda f, v: pmt.dump(v, filename=f.folder / "d.csv")(lambda: 1)(), []),
    "dump, filename": (lambda f, v: pmt.dump(f.sensor, filename=v), ["\n", "nonsense"]),
    "dump, interval": (lambda f, v: pmt.dump(f.sensor, filename="d.csv", interval=v), [None, 5, 1.5]),
    "load": (lambda _, v: pmt.load(v), []),
    "load, start": (lambda f, v: pmt.load(f.file, start=v), [None, 5, -1, 1.5]),
    "load, stop": (lambda f, v: pmt.load(f.file, stop=v), [None, 5, 1.5, math.inf]),
    "load, max_rows": (lambda f, v: pmt.load(f.file, max_rows=v), [None, 5]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_an_error_of_ours_and_says_what_it_is(
    call: str, face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    action, right = CALLS[call]
    for value in WRONG:
        if any(value is r for r in right):
            action(face, value)
            continue
        with pytest.raises((pmt.PmtError, FileNotFoundError)) as told:
            action(face, value)
        assert str(told.value), value
    assert face.sensor.read().t_ns > 0  # nothing was harmed
