from __future__ import annotations

import errno
import os
import re
import sys
import types
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.backends.machine import Machine
from pmtpy.cli.doctor import examine
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Discovery, Source
from pmtpy.emulators.world import make_world
from pmtpy.errors import Verdict
from pmtpy.sensor import registry
from pmtpy.sensor.registry import Backend, canonical, options_from_text, split_target
from tests.support.worlds import Gauge


def test_a_target_is_split_at_the_first_colon() -> None:
    assert split_target("powersensor3:/dev/tty:ACM0") == ("powersensor3", "/dev/tty:ACM0")
    assert split_target("rapl") == ("rapl", None)
    assert split_target("nvml:") == ("nvml", None)


@pytest.mark.parametrize(
    ("alias", "own"), [("ps3:x", "powersensor3:x"), ("nvidia", "nvml"), ("rocm:0", "amdsmi:0"), ("tegra", "jetson")]
)
def test_aliases_are_the_backends_own_names(alias: str, own: str) -> None:
    assert canonical(alias) == own


@pytest.mark.parametrize("name", ["nosuch", "", None, 3])
def test_an_unknown_name_is_answered_with_the_known_ones(name: object) -> None:
    with pytest.raises(pmt.TargetError, match="powersensor3") as error:
        pmt.create(name)  # type: ignore[arg-type]
    assert isinstance(error.value, ValueError)


def test_the_device_may_be_in_the_target_or_beside_it_but_not_both() -> None:
    clock = ManualClock()
    for sensor in (pmt.create("rapl:virtual", clock=clock), pmt.create("rapl", "virtual", clock=clock)):
        assert sensor.target == "rapl:virtual"
        sensor.close()
    with pytest.raises(pmt.TargetError, match="two devices"):
        pmt.create("rapl:virtual", 0, clock=clock)


def test_options_written_as_text_get_the_types_that_the_backend_expects() -> None:
    given = {"load": "constant:5", "noise": "off", "seed": "7", "drift_ppm": "2.5", "history_s": "3"}
    found = options_from_text("powersensor3:virtual", given)
    assert found == {"load": "constant:5", "noise": False, "seed": 7, "drift_ppm": 2.5, "history_s": 3.0}
    with pytest.raises(pmt.TargetError, match="option seed takes a whole number, not 'many'"):
        options_from_text("powersensor3:virtual", {"seed": "many"})
    with pytest.raises(pmt.TargetError, match="its options"):
        options_from_text("rapl:virtual", {"nosuch": "1"})


def test_a_broken_calibration_is_named() -> None:
    with pytest.raises(pmt.CalibrationError, match=r"/nowhere\.json"):
        pmt.create("rapl:virtual", calibration="/nowhere.json", clock=ManualClock())


def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str = "stranger") -> None:
    """Install a distribution that offers a backend, as pip would."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pmtpy.backends]\n{name} = stranger_backend\n")
    module = types.ModuleType("stranger_backend")

    def open_source(device: str | None, *, clock: ManualClock, colour: str = "red") -> Source:
        return Gauge(make_world("constant:5", clock=clock))

    module.open_source = open_source  # type: ignore[attr-defined]
    module.discover = lambda: Discovery(("front", "back"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stranger_backend", module)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_backend_from_outside_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _outside(monkeypatch, tmp_path)
    with pmt.create("stranger:front", clock=ManualClock(), colour="blue") as sensor:
        assert sensor.target == "stranger:front"
    lines = [line for line in pmt.list_sensors() if line.backend == "stranger"]
    assert [line.target for line in lines] == ["stranger:front", "stranger:back"]
    assert all(line.available for line in lines)


@pytest.mark.parametrize(
    ("lacks", "returned", "said"),
    [
        ("open_source", Discovery(("",)), None),
        ("discover", None, "the module stranger_backend has no function discover"),
        ("", None, "returned None, which is no Discovery"),
        ("", ["front"], r"returned \['front'\], which is no Discovery"),
    ],
)
def test_of_a_stranger_that_is_no_backend_is_said_what_it_lacks(
    lacks: str, returned: object, said: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _outside(monkeypatch, tmp_path)
    module = sys.modules["stranger_backend"]
    module.discover = lambda: returned  # type: ignore[attr-defined]
    if lacks:
        delattr(module, lacks)
    (line,) = [line for line in pmt.list_sensors() if line.backend == "stranger"]
    (found,) = examine(["stranger"], Machine(tmp_path, tmp_path / "sys"), opening=True)
    if said is not None:
        assert re.search(said, line.reason)
        assert "write-a-backend" in line.remedy
        assert re.search(said, found.finding.found)
    else:
        assert "has no function open_source" in found.finding.found
        with pytest.raises(pmt.BackendUnavailableError, match="has no function open_source"):
            pmt.create("stranger", clock=ManualClock())


def test_a_stranger_is_given_the_machine_whether_its_arguments_have_types_or_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _outside(monkeypatch, tmp_path)
    given: list[object] = []

    def look(device=None, *, machine=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        given.append(machine)
        return Discovery((device or "",))

    sys.modules["stranger_backend"].discover = look  # type: ignore[attr-defined]
    machine = Machine(tmp_path, tmp_path / "sys")
    assert [r.finding.verdict for r in examine(["stranger"], machine, opening=False)] == [Verdict.WORKS]
    assert given == [machine]


def test_a_stranger_may_not_take_a_built_in_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _outside(monkeypatch, tmp_path, name="rapl")
    with pytest.raises(pmt.TargetError, match=r"two backends are called 'rapl'.*uninstall stranger"):
        pmt.list_sensors()


def test_a_backend_that_cannot_be_imported_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Backend("broken", "pmtpy.backends.nosuch", "")
    monkeypatch.setattr(registry, "backend_of", lambda _: row)
    with pytest.raises(pmt.BackendUnavailableError, match="cannot be imported"):
        pmt.create("broken")


@pytest.mark.parametrize("options", [{"interval": 0}, {"interval": -0.1}, {"history_s": -1.0}, {"load": 3}])
def test_options_that_cannot_be_are_refused_by_their_value(options: dict[str, float]) -> None:
    with pytest.raises(pmt.TargetError, match=str(next(iter(options.values())))):
        pmt.create("rapl:virtual", **options)  # type: ignore[arg-type]


def test_too_few_descriptors_are_named_with_their_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def crowded(_device: str | None, **_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(registry, "opener", lambda *_: crowded)
    with pytest.raises(pmt.BackendUnavailableError, match=r"cannot be opened: Too many open files") as caught:
        pmt.create("rapl:virtual")
    assert "ulimit -n" in caught.value.remedy


@pytest.mark.parametrize(("target", "names"), [("rapl", ["rapl"]), ("hwmon:ina226", ["hwmon", "hwmon:ina226"])])
def test_an_error_that_no_backend_foresaw_names_the_target_once(
    target: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprised(_device: str | None, **_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(registry, "opener", lambda *_: surprised)
    with pytest.raises(pmt.BackendUnavailableError, match="cannot be opened, for a reason") as caught:
        pmt.create(target)
    told, _, _ = str(caught.value).partition(" cannot be opened")
    assert [word for word in told.replace(": ", " ").split() if word != "it"] == names
