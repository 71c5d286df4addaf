from __future__ import annotations

import itertools
import math
import re
import time
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest

import pmtpy
from pmtpy.errors import BackendUnavailableError, TargetError

NAP_S = 0.3


def test_a_program_written_for_the_binding_reads_marks_and_sums_up(powersensor: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    opened = datetime.now()  # noqa: DTZ005  (as the binding)
    ps = powersensor.PowerSensor("virtual", load="constant:60")
    ps.dump(str(path))
    begin = ps.read()
    ps.mark("Q")
    time.sleep(NAP_S)
    end = ps.read()
    ps.dump("", False)
    seconds = powersensor.seconds(begin, end)
    assert powersensor.Joules(begin, end, -1) == pytest.approx(60 * seconds, rel=0.02)
    assert powersensor.Watt(first_state=begin, second_state=end, sensor_pair=-1) == pytest.approx(60, rel=0.02)
    pairs = [powersensor.Joules(begin, end, p) for p in range(powersensor.MAX_PAIRS)]
    assert sum(pairs) == pytest.approx(powersensor.Joules(begin, end))
    assert pairs[2:] == [0, 0]
    assert powersensor.Watt(begin, end, 3) == 0
    gained = [b - a for a, b in zip(begin.consumed_energy, end.consumed_energy, strict=True)]
    assert gained == pytest.approx(pairs)
    power = [a * v for a, v in zip(end.current, end.voltage, strict=True)]
    assert sum(power) == pytest.approx(60, rel=0.1)
    assert end.voltage[0] == pytest.approx(12, rel=0.02)
    assert [type(x) for x in (end.current, end.voltage, end.consumed_energy)] == [list] * 3
    assert [len(x) for x in (end.current, end.voltage, end.consumed_energy)] == [4] * 3
    elapsed = end.time_at_read - begin.time_at_read
    assert elapsed.total_seconds() == pytest.approx(seconds, abs=2e-6)
    assert end.time_at_read.tzinfo is None
    assert opened <= begin.time_at_read <= end.time_at_read <= datetime.now()  # noqa: DTZ005
    marked = [line for line in path.read_text().splitlines() if line.startswith("Q ")]
    assert len(marked) == 1


HEADER = "marker time dt_micro device_timestamp current0 voltage0 power0 current1 voltage1 power1 power_total"
RELATIVE = re.compile(r"\S (\d|\.|e-\d\d)+ \d+ \d{1,4}( -?[\d.]+(e-\d\d)?){7}")
ABSOLUTE = re.compile(r"\S \d{10}\.\d{6} \d+ \d{1,4}( -?\d+\.\d{6}){7}")


@pytest.mark.parametrize(("absolute", "line"), [(False, RELATIVE), (True, ABSOLUTE)])
def test_a_dump_is_the_binding_s_text(
    powersensor: ModuleType,
    tmp_path: Path,
    absolute: bool,  # noqa: FBT001
    line: re.Pattern[str],
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("an older file, which is replaced\n")
    ps = powersensor.PowerSensor("virtual")
    ps.dump(str(path), use_absolute_timestamp=absolute)
    time.sleep(0.1)
    ps.dump(str(tmp_path / "next.txt"))  # which ends the first
    ps.dump("")
    ps.dump("")
    header, *rows = path.read_text().splitlines()
    assert header == HEADER
    assert len(rows) > 500
    assert all(line.fullmatch(row) for row in rows), rows[:2]
    assert (tmp_path / "next.txt").read_text().startswith(HEADER)
    assert len(pmtpy.load(path)) == len(rows)


def test_states_are_later_than_those_before_so_that_power_is_a_number(powersensor: ModuleType) -> None:
    ps = powersensor.PowerSensor("virtual", load="constant:60")
    states = [ps.read() for _ in range(10)]
    for a, b in itertools.pairwise(states):
        assert (b.time_at_read - a.time_at_read).microseconds > 0
        assert powersensor.Watt(a, b) == pytest.approx(60, rel=0.3)
    assert powersensor.Watt(states[0], states[0]) == pytest.approx(60, rel=0.3)


def test_names_of_pairs_are_the_stored_ones(powersensor: ModuleType) -> None:
    ps = powersensor.PowerSensor(device="virtual")
    assert [ps.get_name(pair_id=p) for p in range(4)] == ["slot", "ext12v", "", ""]


def test_faults_raise_where_the_binding_ends_the_program(powersensor: ModuleType) -> None:
    with pytest.raises(BackendUnavailableError):
        powersensor.PowerSensor("/dev/does-not-exist")
    ps = powersensor.PowerSensor("virtual")
    state = ps.read()
    for wrong in (4, 99):
        for ask in (powersensor.Joules, powersensor.Watt):
            with pytest.raises(TargetError, match="pairs 0 to 3"):
                ask(state, state, wrong)
    for wrong in (-1, 4):
        with pytest.raises(TargetError, match="pairs 0 to 3"):
            ps.get_name(wrong)
    for wrong_mark in ("", "two"):
        with pytest.raises(ValueError, match="one character"):
            ps.mark(wrong_mark)


def test_a_pair_of_which_one_sensor_is_off_warns_and_is_not_a_zero(powersensor: ModuleType) -> None:
    with pytest.warns(UserWarning, match="pair 1 is not measured"):
        ps = powersensor.PowerSensor("virtual", stored="half")
    a, b = ps.read(), ps.read()
    assert math.isnan(b.consumed_energy[1])
    assert math.isnan(b.current[1])
    assert math.isnan(powersensor.Joules(a, b, 1))
    assert math.isfinite(powersensor.Joules(a, b, 0))


def test_the_environment_rehearses_a_board_wherever_a_port_is_named(
    powersensor: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_DEVICE", "virtual")
    ps = powersensor.PowerSensor("/dev/ttyACM0")
    assert ps.read().consumed_energy[0] >= 0
    assert powersensor.powersensor.__version__ == "1.6.1"
    ps.close()
