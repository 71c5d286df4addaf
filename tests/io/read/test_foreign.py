"""Recordings of other tools: as our sinks imitate them, as written by hand, as recorded, and as noise."""

from __future__ import annotations

import contextlib
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pmtpy.backends.pmd._tick_clock import TickClock
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import FileFormatError
from pmtpy.io.convert import convert
from pmtpy.io.read import load
from pmtpy.io.write import Ending, Header, open_sink
from pmtpy.lab.recorded import late_marks, marked

SMI = """timestamp, pstate, temperature.gpu, clocks.current.sm [MHz], power.draw [W], power.draw.instant [W]
2023/07/13 18:15:32.351, P0, 34, 745, 60.00, 50.00
2023/07/13 18:15:32.361, P0, 34, 745, 60.00, [N/A]
2023/07/13 18:15:32.371, P0, 35, 1410, 62.00, 54.00
2023/07/13 18:15:32.381, P0, 35, 1410, 62.00, 54.00
"""
SMI_UNIX = 1689268532.351  # 17:15:32 UTC: the zone of this log is one hour ahead


def _save(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.txt"
    path.write_text(text)
    return path


def _board(n: int, t_us: list[int] | None = None) -> tuple[Header, Frame]:
    """Rows of a board with pairs 0 and 2, 60 W in total, with a mark on row 3."""
    channels = tuple(
        c
        for i in (0, 2)
        for c in (
            Channel(f"pair{i}.current", Quantity.CURRENT, scale=0.01, refresh_s=50e-6),
            Channel(f"pair{i}.voltage", Quantity.VOLTAGE, scale=0.005, refresh_s=50e-6),
            Channel(
                f"pair{i}",
                Quantity.POWER,
                derivation=Derivation.PRODUCT,
                operands=(f"pair{i}.voltage", f"pair{i}.current"),
                domain=f"r{i}",
            ),
        )
    )
    header = Header(
        "board", Identity("powersensor3", virtual=True), Layout(channels), Anchor(0, 1_700_000_000_000_000_000)
    )
    t_ns = 1000 * (np.arange(n) * 50 if t_us is None else np.array(t_us))
    joules = np.outer(t_ns / 1e9, [60.0, 24.0, 36.0])
    frame = Frame(
        t_ns.astype(np.int64),
        np.tile([60.0, 24.0, 36.0], (n, 1)),
        joules,
        np.tile([2.0, 12.0, 3.0, 12.0], (n, 1)),
        np.zeros(n, np.int64),
        np.zeros((n, 3), np.int64),
        ((3, "x"),),
    )
    return header, frame


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("kind", ["pmt", "powersensor3"])
def test_the_dumps_that_we_imitate_are_read_back(tmp_path: Path, kind: str, absolute: bool) -> None:  # noqa: FBT001
    header, frame = _board(1000)
    sink = open_sink(tmp_path / "dump", header, format=kind, absolute=absolute)
    sink.write(frame)
    sink.close(Ending(Anchor(0, 0), rows=1000, lost=0, dropped=0, complete=True))
    table = load(tmp_path / "dump")
    np.testing.assert_allclose(table["elapsed"], frame.t_ns / 1e9, atol=1.1e-6)
    np.testing.assert_allclose(table["total_J"], table["elapsed"] * 60.0, atol=1e-9)
    assert table["pair2_W"].eq(36.0).all()
    assert table.index[table["marker"] == "x"].tolist() == [3]
    assert (table.attrs["virtual"], table.attrs["complete"]) == (True, True)
    assert bool(table["time"].isna().all()) is not absolute
    assert ("when that was is not in the file" in table.attrs["clock"]) is not absolute
    if kind == "powersensor3":
        assert table["pair0_V"].eq(12.0).all()
        assert table["pair2_A"].eq(3.0).all()


@pytest.mark.parametrize("line", ["2 12 24 3 12 36 6", "2 12 24 3 36 12 60", "2 12 2.4 3 12 36 60"])
def test_a_total_that_is_not_the_sum_of_the_pairs_is_told(tmp_path: Path, line: str) -> None:
    rows = ["marker time dt_micro device_timestamp current0 voltage0 power0 current1 voltage1 power1 power_total"]
    rows += [f"S {k * 50e-6:.6f} 50 {k * 50 % 1024} 2 12 24 3 12 36 60" for k in range(20)]
    assert load(_save(tmp_path, "\n".join(rows) + "\n")).attrs["notes"] == []
    rows[10] = f"S {9 * 50e-6:.6f} 50 {9 * 50} {line}"
    (note,) = load(_save(tmp_path, "\n".join(rows) + "\n")).attrs["notes"]
    assert note.startswith("line 11: power_total is ")
    assert "add up to" in note


def test_the_boards_time_stamps_order_frames_that_arrived_in_bursts(tmp_path: Path) -> None:
    rows = ["marker time dt_micro device_timestamp current0 voltage0 power0 power_total"]
    for k in range(2000):
        arrival = (k // 100 + 1) * 0.005  # a burst of 100 frames every 5 ms
        rows.append(f"S {arrival:.6g} 0 {k * 50 % 1024} 2 12 24 24")
    table = load(_save(tmp_path, "\n".join(rows) + "\n"))
    np.testing.assert_allclose(np.diff(table["elapsed"]), 50e-6, atol=1e-9)
    assert table["lost"].sum() == 0


def test_lost_frames_are_counted_and_their_energy_is_not_invented(tmp_path: Path) -> None:
    rows = ["marker time dt_micro device_timestamp current0 voltage0 power0 power_total"]
    rows += [f"S {k * 50e-6:.6f} 50 {k * 50 % 1024} 2 12 24 24" for k in range(40) if not 10 <= k < 14]
    table = load(_save(tmp_path, "\n".join(rows) + "\n"))
    assert table["lost"][10] == 4
    assert table.attrs["uncovered_s"] == pytest.approx(250e-6)
    assert table["total_J"].iloc[-1] == pytest.approx(24 * (39 - 5) * 50e-6)


def test_turns_of_the_boards_time_that_went_by_unseen_are_made_good_by_arrival(tmp_path: Path) -> None:
    rows = ["marker time dt_micro device_timestamp current0 voltage0 power0 power_total"]
    for k in range(100_000):  # five seconds; three turns are lost in the middle
        us = k * 50 + (3 * 1024 if k >= 50_000 else 0)
        rows.append(f"S {us / 1e6:.6f} 50 {us % 1024} 2 12 24 24")
    table = load(_save(tmp_path, "\n".join(rows) + "\n"))
    assert table["elapsed"].iloc[-1] == pytest.approx(4.99995 + 3 * 1024e-6, abs=1e-4)


@pytest.mark.parametrize("start_s", [0, 250, 1_700_000_000])
def test_gaps_of_any_length_keep_their_time_and_are_counted(tmp_path: Path, start_s: int) -> None:
    missing = [10, 30, 40, 60, 2040, 6000]  # rows of 50 us: 0.5, 1.5, 2, 3, 102 and 300 ms; 6000 ends on a turn
    steps = np.full(7000, 50)
    places = 1000 * np.arange(1, 7)
    steps[places] += 50 * np.array(missing)
    t_us = np.cumsum(steps) - 50
    written = "{:.6f}" if start_s > 1000 else "{:.6g}"
    rows = ["marker time dt_micro device_timestamp current0 voltage0 power0 power_total"]
    rows += [
        f"S {written.format(start_s + t / 1e6)} {step} {t % 1024} 2 12 24 24"
        for t, step in zip(t_us.tolist(), steps.tolist(), strict=True)
    ]
    path = _save(tmp_path, "\n".join(rows) + "\n")
    table = load(path)
    np.testing.assert_allclose(table["elapsed"], t_us / 1e6, atol=1e-9)
    assert table["lost"].to_numpy()[places].tolist() == missing
    assert table["lost"].sum() == sum(missing)
    uncovered_s = sum(m + 1 for m in missing) * 50e-6
    assert table.attrs["uncovered_s"] == pytest.approx(uncovered_s)
    assert table["total_J"].iloc[-1] == pytest.approx(24 * (t_us[-1] / 1e6 - uncovered_s))
    notes = table.attrs["notes"]
    assert len(notes) == (start_s == 250)
    assert all("steps of 0.001 s" in n and "dt_micro alone" in n for n in notes)


def test_losses_of_the_metadata_that_the_times_do_not_show_are_told(tmp_path: Path) -> None:
    header, frame = _board(1000)
    sink = open_sink(tmp_path / "dump", header, format="powersensor3")
    sink.write(frame)
    sink.close(Ending(Anchor(0, 0), rows=1000, lost=7, dropped=0, complete=True))
    (note,) = load(tmp_path / "dump").attrs["notes"]
    assert note.startswith("7 rows were lost by its metadata, 0 by the times of its rows")


def test_turns_lost_between_bursts_are_told(tmp_path: Path) -> None:
    rows = ["marker time dt_micro device_timestamp current0 voltage0 power0 power_total"]
    for k in range(2000):
        gap_us = 100 * 1024 if k >= 1000 else 0
        arrival = (k // 100 + 1) * 0.005 + gap_us / 1e6
        rows.append(f"S {arrival:.6g} 0 {(k * 50 + gap_us) % 1024} 2 12 24 24")
    (note,) = load(_save(tmp_path, "\n".join(rows) + "\n")).attrs["notes"]
    assert "0.1024 s longer" in note


def test_old_marker_lines_of_powersensor3_go_to_the_next_frame(tmp_path: Path) -> None:
    text = (
        "marker time dt_micro device_timestamp current0 voltage0 power0 power_total\n"
        "S 0 0 0 2 12 24 24\nM A\nS 5e-05 50 50 2 12 24 24\n"
        'M 0.1 0.2 7 "two words"\nS 0.0001 50 100 2 12 24 24\nM 0.00015 50 150 2 12 24 24\n'
    )
    assert load(_save(tmp_path, text))["marker"].tolist() == ["", "A", "two words", "M"]


@pytest.mark.parametrize("mark", ['M 0.115 7 "go"', 'M 0.115 "go"'])
def test_both_generations_of_pmt_are_read(tmp_path: Path, mark: str) -> None:
    table = load(_save(tmp_path, f"timestamp total core\n0.100 10.0 4.0\n{mark}\n0.200 20.0 8.0\n0.300 20.0 8.0\n"))
    assert table["elapsed"].tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert table["marker"].tolist() == ["", "go", ""]
    assert table["total_J"].tolist() == pytest.approx([0.0, 1.5, 3.5])
    assert list(table.columns[6:]) == ["core_W", "core_J"]
    assert "1.3" in table.attrs["format"]


def test_a_marker_of_newer_pmt_tells_when_it_was_set(tmp_path: Path) -> None:
    rows = [f"{1733935225 + 0.1 * i:.3f} 100.0" for i in range(40)]
    rows.insert(30, 'M 1733935227.950 "solve end"')
    rows.insert(10, 'M 1733935225.930 "solve start"')
    (tmp_path / "log.pmt").write_text("\n".join(["timestamp total", *rows]) + "\n")
    table = load(tmp_path / "log.pmt")
    elapsed = table["elapsed"].to_numpy()
    assert elapsed[table["marker"].to_numpy() != ""] == pytest.approx([1.0, 3.0])  # the rows behind them
    (span,) = marked(table, elapsed)
    assert (span.start, span.end) == pytest.approx((0.93, 2.95), abs=1e-6)
    assert not late_marks(table)
    convert(tmp_path / "log.pmt", tmp_path / "log.csv")
    copied = load(tmp_path / "log.csv")
    (span,) = marked(copied, copied["elapsed"].to_numpy())
    assert (span.start, span.end) == pytest.approx((0.93, 2.95), abs=1e-5)
    assert not late_marks(copied)


def test_a_marker_with_the_time_of_its_row_does_not_tell_when_it_was_set(tmp_path: Path) -> None:
    rows = [f"{1733935225 + 0.1 * i:.3f} 100.0" for i in range(40)]
    rows.insert(30, 'M 1733935228.000 "solve end"')
    rows.insert(10, 'M 1733935226.000 "solve start"')
    table = load(_save(tmp_path, "\n".join(["timestamp total", *rows]) + "\n"))
    assert "up to 100 ms earlier" in late_marks(table)


def test_a_pmt_dump_without_its_header_is_read(tmp_path: Path) -> None:
    table = load(_save(tmp_path, "1733935225.009 28.873 23.595\n1733935225.069 28.789 28.553\n"))
    assert table["channel1_W"].tolist() == [23.595, 28.553]
    assert table.attrs["total"] == "channel0"


def test_rows_without_a_value_are_noted(tmp_path: Path) -> None:
    rows = [f"{0.1 * i:.3f} {100 if i < 6 else 'nan'} 40 {'nan' if i == 3 else 1}" for i in range(10)]
    table = load(_save(tmp_path, "\n".join(["timestamp a b c", *rows]) + "\n"))
    assert table["total_J"].iloc[-1] == pytest.approx(50.0)
    noted = [n for n in table.attrs["notes"] if "no value" in n]
    assert noted == [
        "line 8 (and 3 more): no value of a; the time about it has no energy",
        "line 5: no value of c; the time about it has no energy",
    ]


def test_losses_that_a_format_has_no_place_for_are_noted(tmp_path: Path) -> None:
    rows = [f"{1e9 + 0.1 * i:.6f},{0.1 * i:.9f},,{5 if i == 7 else 0},60,{6 * i:.6f}" for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows]) + "\n")
    convert(tmp_path / "a.csv", tmp_path / "a.pmt")
    (said,) = [n for n in load(tmp_path / "a.pmt").attrs["notes"] if "5 rows were lost" in n]
    assert "does not tell where" in said


def test_broken_lines_of_a_pmt_dump_are_named(tmp_path: Path) -> None:
    path = _save(tmp_path, "timestamp a b\n0.1 1 2\n0.2 1\n0.3 1 x\n0.4 1 2\n")
    with pytest.raises(FileFormatError, match="line 3: 2 fields where there should be 3; line 4: not all are numbers"):
        load(path)
    table = load(path, skip_broken=True)
    assert table["b_W"].tolist() == [2.0, 2.0]
    assert table.attrs["broken_lines"] == [3, 4]


@pytest.mark.parametrize("units", [False, True])
def test_nvidia_smi_logs_are_read_with_and_without_units(tmp_path: Path, units: bool) -> None:  # noqa: FBT001
    text = SMI
    if units:
        head, _, rows = SMI.partition("\n")
        text = head + "\n" + rows.replace("0.00", "0.00 W").replace(".00\n", ".00 W\n").replace("745", "745 MHz")
    table = load(_save(tmp_path, text), utc_offset_s=3600)
    assert table["time"][0] == pytest.approx(SMI_UNIX, abs=1e-6)
    np.testing.assert_allclose(np.diff(table["elapsed"]), 0.01, atol=1e-6)
    assert table["power.draw_W"].tolist() == [60.0, 60.0, 62.0, 62.0]
    assert table["total_W"].tolist()[::2] == [50.0, 54.0]
    assert np.isnan(table["total_W"][1])
    assert table["clocks.current.sm_Hz"].tolist() == [745e6, 745e6, 1410e6, 1410e6]
    assert table["temperature.gpu_C"].tolist() == [34, 34, 35, 35]
    assert table["pstate"].tolist() == ["P0"] * 4
    assert table.attrs["total"] == "power.draw.instant"
    # Two of three intervals of the instant power touch the missing value.
    assert table.attrs["uncovered_s"] == pytest.approx(0.02, abs=1e-6)
    assert table["total_J"].iloc[-1] == pytest.approx(0.54, abs=1e-4)


def test_a_header_without_units_still_means_watts(tmp_path: Path) -> None:
    table = load(_save(tmp_path, SMI.replace(" [W]", "")), utc_offset_s=3600)
    assert table["power.draw_W"].tolist() == [60.0, 60.0, 62.0, 62.0]
    assert table.attrs["total"] == "power.draw.instant"
    with pytest.raises(FileFormatError, match="line 4: a field is neither"):
        load(_save(tmp_path, SMI.replace(" [W]", "").replace("62.00, 54", "6x.00, 54", 1)))


def test_an_nvidia_smi_log_says_which_zone_it_was_taken_for(tmp_path: Path) -> None:
    assert "this machine's zone" in load(_save(tmp_path, SMI)).attrs["clock"]


def test_several_gpus_in_one_log_become_columns_and_add_up(tmp_path: Path) -> None:
    rows = [
        f"{gpu}, 2023/07/13 18:15:{second:02d}.{ms}, {watts}"
        for second in range(3)
        for gpu, ms, watts in ((0, "000", 100 + second), (1, "005", 200))
    ]
    text = "index, timestamp, power.draw [W]\n" + "\n".join(rows[:-1]) + "\n"  # the last round is cut short
    table = load(_save(tmp_path, text))
    assert table["gpu0.power.draw_W"].tolist() == [100.0, 101.0, 102.0]
    np.testing.assert_array_equal(table["total_W"], [300.0, 301.0, np.nan])
    assert table["total_J"].iloc[-1] == pytest.approx(300.5)
    assert any("line 6: not every GPU has a row" in note for note in table.attrs["notes"])
    assert table.attrs["total"] == "gpu0.power.draw + gpu1.power.draw"


def test_a_gpu_that_is_numbered_anew_keeps_its_column(tmp_path: Path) -> None:
    # Two cards of 100 and 300 W, ten rounds; after the fifth, a start of the machine lists the second one first.
    lines = ["timestamp, index, uuid, power.draw [W]"]
    for second in range(10):
        cards = [("GPU-a", 100), ("GPU-b", 300)]
        for index, (uuid, watts) in enumerate(cards if second < 5 else cards[::-1]):
            lines.append(f"2026/03/05 12:00:0{second}.00{index}, {index}, {uuid}, {watts}.00 W")
    table = load(_save(tmp_path, "\n".join(lines) + "\n"), utc_offset_s=0)
    np.testing.assert_array_equal(table["gpu0.power.draw_W"], np.full(10, 100.0))
    np.testing.assert_array_equal(table["gpu1.power.draw_W"], np.full(10, 300.0))
    assert table["total_J"].iloc[-1] == pytest.approx(400.0 * 9)
    assert [note for note in table.attrs["notes"] if "line 12: GPU-b, until then listed as 1, is listed as 0" in note]


def test_a_power_that_no_row_has_stays_unknown(tmp_path: Path) -> None:
    text = "timestamp, power.draw [W]\n2023/07/13 18:15:32.351, [N/A]\n2023/07/13 18:15:32.361, [N/A]\n"
    table = load(_save(tmp_path, text))
    assert table["total_J"].isna().all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("34, 745, 60.00, 50", "34, 745, 50", "line 2: 5 fields where there should be 6"),
        ("62.00, 54", "6x.00, 54", "line 4: a field is neither"),
        ("2023/07/13 18:15:32.361", "2023/07/13", "line 3: a field is neither"),
        ("\n2023/07/13 18:15:32.381, P0, 35, 1410, 62.00, 54.00\n", "\n2023/07/13 18:15:32.381, P0, 35, 14", "no end"),
        ("timestamp, ", "when, ", "no timestamp field"),
    ],
)
def test_broken_nvidia_smi_logs_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        load(_save(tmp_path, SMI.replace(old, new, 1)))


def _smi_log(times: list[str]) -> str:
    return "".join(["timestamp, power.draw [W]\n", *(f"{t}, 60.00 W\n" for t in times)])


@pytest.mark.parametrize("later_s", [600, -600])
@pytest.mark.parametrize("apart_s", [1, 5])
def test_an_nvidia_smi_log_of_two_runs_has_no_energy_between_them(tmp_path: Path, later_s: int, apart_s: int) -> None:
    begin = datetime(2026, 3, 5, 12, tzinfo=timezone.utc)
    runs = [
        [f"{begin + timedelta(seconds=at + apart_s * i):%Y/%m/%d %H:%M:%S}.000" for i in range(20)]
        for at in (0, later_s)
    ]
    table = load(_save(tmp_path, "".join(map(_smi_log, runs))), utc_offset_s=0)
    assert len(table) == 40
    assert table["total_J"].iloc[-1] == pytest.approx(2 * 19 * apart_s * 60.0)
    assert any("line 22: the header again: another run begins" in note for note in table.attrs["notes"])


def test_a_run_that_follows_at_once_has_no_energy_between_either(tmp_path: Path) -> None:
    runs = [[f"2026/03/05 12:00:{10 * run + i:02d}.000" for i in range(10)] for run in (0, 1)]
    table = load(_save(tmp_path, "".join(map(_smi_log, runs))), utc_offset_s=0)
    assert table["total_J"].iloc[-1] == pytest.approx(18 * 60.0)
    assert table.attrs["uncovered_s"] == pytest.approx(1.0)


def test_a_log_with_other_fields_behind_another_is_told_where_to_take_it_apart(tmp_path: Path) -> None:
    other = "timestamp, pstate, power.draw [W]\n2026/03/05 13:00:00.000, P0, 60.00 W\n"
    first = _smi_log([f"2026/03/05 12:00:0{i}.000" for i in range(5)])
    with pytest.raises(FileFormatError, match=r"line 7 is another header.*head -n 6, tail -n \+7"):
        load(_save(tmp_path, first + other))


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f"])
def test_times_of_iso_8601_are_times(tmp_path: Path, form: str) -> None:
    times = [datetime(2026, 3, 5, 12, 0, i, 250_000, timezone.utc).strftime(form) for i in range(5)]
    table = load(_save(tmp_path, _smi_log(times)), utc_offset_s=0)
    assert table["time"][0] == datetime(2026, 3, 5, 12, 0, 0, 250_000, timezone.utc).timestamp()
    assert table["total_J"].iloc[-1] == pytest.approx(240.0)


@pytest.mark.parametrize(
    ("form", "cure"),
    [
        ("%Y/%m/%d %H:%M:%S", "put .500 behind each time"),
        ("%m/%d/%Y %I:%M:%S %p", "nothing tells 3/5 from 5/3"),
        ("%d/%m/%Y %H:%M:%S", "nothing tells 3/5 from 5/3"),
    ],
)
def test_times_that_another_program_has_written_anew_are_named(tmp_path: Path, form: str, cure: str) -> None:
    times = [datetime(2026, 3, 5, 12, 0, i, tzinfo=timezone.utc).strftime(form) for i in range(5)]
    with pytest.raises(FileFormatError, match="take the log as it was recorded") as refused:
        load(_save(tmp_path, _smi_log(times)))
    assert cure in str(refused.value)


def test_pmd_recordings_are_integrated_over_their_ticks(tmp_path: Path) -> None:
    ticks = np.cumsum([60000, 602, 602, 1010, 602, 602 * 4, 602])  # a stretched gap, then three lost samples
    words = np.zeros((7, 9), "<u2")
    words[:, 0] = ticks % 2**16
    words[:, 1:] = np.array([1600, 100, 1600, 0, 0, 0, 1600, 0xFFF]) << 4  # the last current is a small negative
    path = tmp_path / "PMD_data.bin"
    path.write_bytes(words.tobytes())
    table = load(path)
    watts = 1600 * 0.007568 * 99 * 0.0488  # with the negative one, which is kept
    assert table["total_W"].to_numpy() == pytest.approx(watts)
    assert table["elapsed"].iloc[-1] == pytest.approx((ticks[-1] - ticks[0]) / 2934.5e3)
    assert table["lost"].tolist() == [0, 0, 0, 0, 0, 3, 0]
    assert table["total_J"].iloc[-1] == pytest.approx(watts * (ticks[-1] - ticks[0] - 602 * 4) / 2934.5e3)
    assert table["time"].isna().all()
    (tmp_path / "PMD_start_ts.txt").write_text("1688840856595391")
    assert load(path)["time"][0] == pytest.approx(1688840856.545391, abs=1e-6)
    assert TickClock(1 << 16).rate_hz == 2934.5e3  # a live meter begins with the same
    assert load(path, ticks_per_ms=3000)["elapsed"].iloc[1] == pytest.approx(602 / 3e6)


def test_a_pmd_recording_that_was_cut_is_named(tmp_path: Path) -> None:
    words = np.zeros((5, 9), "<u2")
    words[:, 0] = np.arange(5) * 602
    path = tmp_path / "PMD_data.bin"
    path.write_bytes(words.tobytes()[: 18 * 4 + 5])
    with pytest.raises(FileFormatError, match="a record that is cut: 5 of 18 bytes"):
        load(path)
    assert len(load(path, skip_broken=True)) == 4


def test_load_time_stamps_become_marks(tmp_path: Path) -> None:
    stamps = [1_689_268_533_578_702, 1_689_268_539_549_513, 1_689_268_545_549_631]
    table = load(_save(tmp_path, "timestamp\n" + "".join(f"{s}\n{s}\n" for s in stamps)))
    assert table["marker"].tolist() == ["on", "off", "end"]
    assert table["time"][1] == pytest.approx(1_689_268_539.549513, abs=1e-6)
    assert table["total_J"].isna().all()


_SPREADSHEET = "time,elapsed,marker,lost,total_W\n1700000000.5,0.0,,0,60.25\n1700000001.5,1.0,,0,60.25\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (_SPREADSHEET.replace(",", ";").replace(".", ",").encode(), "semicolons are in its header"),
        (_SPREADSHEET.replace(",", "\t").encode(), "tabs are in its header"),
        (_SPREADSHEET.replace("time", '"time"', 1).encode(), "quotation marks are in its header"),
        (_SPREADSHEET.encode("utf-16"), "is UTF-16"),
        (b"timestamp;power.draw [W]\n2026/01/31 12:00:00.000;60,25 W\n", "semicolons are in its header"),
    ],
)
def test_a_recording_that_a_spreadsheet_saved_is_named_as_that(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=f"{why}.*take the file as it was recorded"):
        load(path)


def test_an_archive_of_a_recording_is_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", _SPREADSHEET)
    with pytest.raises(FileFormatError, match=r"a\.zip is an archive: unpack it"):
        load(tmp_path / "a.zip")


def test_load_time_stamps_need_not_all_be_written_twice(tmp_path: Path) -> None:
    once, twice = "timestamp\n100\n200\n300\n", "timestamp\n100\n100\n200\n200\n300\n"  # a logger that was ended
    assert load(_save(tmp_path, once))["marker"].tolist() == ["on", "off", "end"]
    assert load(_save(tmp_path, twice))["marker"].tolist() == ["on", "off", "end"]


def test_a_load_time_stamp_that_was_cut_is_no_time(tmp_path: Path) -> None:
    path = _save(tmp_path, "timestamp\n1000\n1000\n2000\n2000\n3000\n300")
    with pytest.raises(FileFormatError, match="line 7: it is earlier than the one before"):
        load(path)
    assert load(path, skip_broken=True)["marker"].tolist() == ["on", "off", "end"]


def test_a_table_without_power_over_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="not a recording of power"):
        load(_save(tmp_path, "config,power_w\n1,2\n"))


def test_the_real_recordings_are_read(recordings: Path) -> None:
    smi = load(recordings / "rtx3090-step" / "gpudata.csv.gz", utc_offset_s=3600)
    pmd = load(recordings / "rtx3090-step" / "PMD_data.bin.gz", ticks_per_ms=2936.06)
    stamps = load(recordings / "rtx3090-step" / "timestamps.csv")
    on, off, _ = stamps["time"]
    joules = np.interp([on, off], pmd["time"], pmd["total_J"])
    # The publishers' load of 6 s took 2580.5 J by the meter (README of the recordings).
    assert joules[1] - joules[0] == pytest.approx(2580.5, rel=0.01)
    assert smi["time"].iloc[0] < on < smi["time"].iloc[-1]
    pmt = load(recordings / "rtx4000ada-pmt" / "pmt-nvml.log")
    marks = pmt[pmt["marker"] != ""]
    assert marks["marker"].tolist() == ["start", "end", "start", "end"]
    # The markers' own clock is 0.15 +/- 0.03 s behind that of the rows, which are 60 ms apart.
    assert marks["elapsed"].to_numpy() == pytest.approx(np.array([10.098, 12.031, 17.019, 18.882]) + 0.15, abs=0.09)


_TEXTS = {
    "smi": SMI,
    "pmt": 'timestamp a b\n0.1 1 2\nM 0.15 "x"\n0.2 1 2\n',
    "ps3": "marker time dt_micro device_timestamp current0 voltage0 power0 power_total\nS 0 0 0 2 12 24 24\n",
    "own": "time,elapsed,marker,lost,total_W,total_J\n1.0,0.0,,0,5.0,0.0\n2.0,1.0,a,0,5.0,5.0\n",
    "stamps": "timestamp\n1\n1\n2\n2\n",
}


@given(
    text=st.sampled_from(sorted(_TEXTS)),
    cut=st.integers(0, 400),
    drop=st.integers(0, 3),
    put=st.binary(max_size=6),
    skip=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_spoilt_files_are_read_or_refused_and_nothing_else(
    tmp_path: Path, text: str, cut: int, drop: int, put: bytes, *, skip: bool
) -> None:
    whole = _TEXTS[text].encode()
    path = tmp_path / "spoilt"
    path.write_bytes(whole[:cut] + put + whole[cut + drop :])
    with contextlib.suppress(FileFormatError):
        assert list(load(path, skip_broken=skip).columns[:4]) == ["time", "elapsed", "marker", "lost"]


def test_a_recording_of_a_single_row_says_that_it_tells_no_energy(tmp_path: Path) -> None:
    (tmp_path / "one.pmt").write_text("1733935225.060 28.873 23.595\n")
    (said,) = [n for n in load(tmp_path / "one.pmt").attrs["notes"] if "single row" in n]
    assert "its energy is not known" in said


def test_a_sidecar_names_its_recording(tmp_path: Path) -> None:
    """As `pmtpy plot run*` gives both."""
    (tmp_path / "run.csv").write_text("time,elapsed,marker,lost,total_W\n1,0,,0,1\n")
    (tmp_path / "run.csv.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"run\.csv\.json holds the metadata of run\.csv: name that"):
        load(tmp_path / "run.csv.json")
