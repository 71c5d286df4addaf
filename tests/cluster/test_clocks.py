from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmtpy.cluster.clocks import Clocks, NodeClock, Offset, best_of
from pmtpy.core.clock import Anchor
from pmtpy.errors import CoverageError, FileFormatError, SinkError, TargetError

S = 10**9
AHEAD_NS, DRIFT = 5 * S, 20e-6  # of a node's clock: five seconds, and 20 us each second


def stamp(t_ns: float) -> int:
    """What the node's clock shows at an instant of the reference."""
    return round(AHEAD_NS + t_ns * (1 + DRIFT))


def exchanges(at_ns: int, seed: int) -> list[tuple[int, int, int]]:
    """Twenty, there and back in 20 us and more, not equally long."""
    random = np.random.default_rng(seed)
    found = []
    for i in range(20):
        sent = at_ns + i * 10**6
        there, back = 10_000 + random.exponential(50_000), 10_000 + random.exponential(50_000)
        found.append((sent, stamp(sent + there), round(sent + there + back)))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_true_offset_lies_within_what_is_stated(seed: int) -> None:
    begin, end = best_of(exchanges(0, seed)), best_of(exchanges(600 * S, seed + 100))
    clock = NodeClock("n", (begin, end))
    for t_ns in (0, 1 * S, 300 * S, 600 * S, 700 * S):
        ahead, error = clock.at(stamp(t_ns))
        assert abs(ahead - (stamp(t_ns) - t_ns)) <= error
    assert clock.at(stamp(300 * S))[1] < 1e6
    assert begin.error_ns == min(e[2] - e[0] for e in exchanges(0, seed)) / 2


def test_of_one_exchange_the_drift_is_not_known_and_that_is_said() -> None:
    clock = NodeClock("n", (best_of(exchanges(0, 1)),))
    ahead, error = clock.at(stamp(600 * S))
    assert abs(ahead - (stamp(600 * S) - 600 * S)) <= error
    assert error > 0.05 * S


def recording(node: str, start: Anchor, own_s: Any) -> Any:
    pd = pytest.importorskip("pandas", reason="pandas is not installed (extra analysis)")
    table = pd.DataFrame({"time": own_s + (start.unix_ns - start.monotonic_ns) / S, "total_W": 1.0})
    facts = {"unix_ns": start.unix_ns, "monotonic_ns": start.monotonic_ns}
    table.attrs = {"metadata": {"machine": {"host": node, "node": node}, "anchors": {"start": facts}}}
    return table


def clocks() -> Clocks:
    here = NodeClock("a", (Offset(0, 0.0, 0.0), Offset(600 * S, 0.0, 0.0)))
    there = NodeClock("b", (best_of(exchanges(0, 1)), best_of(exchanges(600 * S, 2))))
    return Clocks(Anchor(0, 1_800_000_000 * S), {"a": here, "b": there})


def test_recordings_of_two_nodes_lie_on_one_axis_whatever_their_wall_clocks_say(tmp_path: Path) -> None:
    path = tmp_path / "clocks.json"
    clocks().write(path)
    known = Clocks.read(path)
    t = np.arange(100.0, 200.0)
    a, _ = known.place(recording("a", Anchor(0, 1_800_000_000 * S), t), "a.csv")
    wrong_wall = Anchor(stamp(0), (1_800_000_000 + 3600) * S)  # an hour off
    own = np.array([stamp(x * S) / S for x in t])
    b, said = known.place(recording("b", wrong_wall, own), "b.csv")
    assert np.abs(a["time"] - b["time"]).max() < 1e-4
    assert "moved by -3600" in said
    u_s = b.attrs["metadata"]["time_u_s"]  # so that lags and energies have it
    assert f"within {u_s * 3.0**0.5:.2g} s" in said
    facts = recording("b", wrong_wall, own).attrs["metadata"]
    began, said = known.start(facts, "b.csv", float(recording("b", wrong_wall, own)["time"].iloc[0]), 99.0)
    assert began == pytest.approx(a["time"].iloc[0], abs=1e-4)
    assert "within" in said


def test_a_recording_of_another_node_or_without_one_is_not_placed() -> None:
    with pytest.raises(CoverageError, match=r"x\.csv does not say .* known: a, b"):
        clocks().place(recording("c", Anchor(0, 0), np.arange(3.0)), "x.csv")
    pd = pytest.importorskip("pandas", reason="pandas is not installed (extra analysis)")
    bare = pd.DataFrame({"time": [1.0], "total_W": [1.0]})
    with pytest.raises(CoverageError):
        clocks().place(bare, "x.csv")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pmtpy_clocks": 2}', '{"pmtpy_clocks": 1, "reference": 3}'])
def test_a_file_that_holds_no_clocks_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(FileFormatError):
        Clocks.read(tmp_path / "c")
    with pytest.raises(SinkError):
        clocks().write(tmp_path / "none" / "c")


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts | {"pmtpy_clocks": True},
        lambda facts: facts["nodes"]["b"]["offsets"][0].update(ahead_ns=True),
        lambda facts: facts["nodes"]["b"]["offsets"][0].update(at_ns="0"),
        lambda facts: facts["reference"].update(unix_ns=True),
    ],
)
def test_true_and_texts_are_no_times(change: Callable[[dict[str, Any]], dict[str, Any] | None], tmp_path: Path) -> None:
    path = tmp_path / "c"
    clocks().write(path)
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(change(facts) or facts))
    with pytest.raises(FileFormatError):
        Clocks.read(path)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    clocks().write(path)
    facts = json.loads(path.read_text())
    facts["nodes"]["b"]["offsets"] = []
    path.write_text(json.dumps(facts))
    with pytest.raises(FileFormatError, match="no offset"):
        Clocks.read(path)


def test_dumps_know_their_node_and_are_compared_and_viewed_on_one_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed (extra analysis)")
    pytest.importorskip("scipy", reason="scipy is not installed (extra analysis)")
    from pmtpy.cli import main

    monkeypatch.chdir(tmp_path)
    for node, suffix in (("a", "csv"), ("b", "csv"), ("c", "jls")):
        if suffix == "jls":
            pytest.importorskip("pyjls", reason="pyjls is not installed (extra jls)")
        monkeypatch.setenv("PMT_NODE", node)
        words = ["dump", "rapl:virtual", "-o", "load=square:low=30,high=90,hz=4", "--interval", "10ms"]
        assert main([*words, "--duration", "0.6s", "-f", f"{node}.{suffix}", "-q"]) == 0
    facts = json.loads((tmp_path / "b.csv.json").read_text())
    assert facts["machine"] == {"host": "b", "node": "b"}
    anchor = Anchor(**facts["anchors"]["start"])
    # All were made by one clock; those of b and c are said to be ahead by 2 s and 7 s.
    ahead = {"a": 0, "b": 2, "c": 7}
    nodes = {n: NodeClock(n, (Offset(anchor.monotonic_ns, s * S, 2000.0),)) for n, s in ahead.items()}
    Clocks(anchor, nodes).write(tmp_path / "clocks.json")
    assert main(["compare", "a.csv", "b.csv", "--clocks", "clocks.json"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "a.csv: its times were moved by" in told
    assert "onto the reference's clock, within" in told

    pytest.importorskip("bokeh", reason="bokeh is not installed (extra live)")
    shown = []

    class Page:
        """In the place of the page: it shows nothing and ends at once."""

        url = ""

        def __init__(self, desk: Any, *_: object) -> None:
            shown.append(desk)

        def run(self, ready: Any) -> None:
            """End."""

    files = ["a.csv", "b.csv", "c.jls"]
    monkeypatch.setattr("pmtpy.live.server.View", Page)
    assert main(["view", *files]) == main(["view", *files, "--clocks", "clocks.json", "--no-browser"]) == 0
    moved = {
        name: placed.start_unix_s - plain.start_unix_s
        for name, plain, placed in zip(files, shown[0].tracks, shown[1].tracks, strict=True)
    }
    assert moved["a.csv"] - moved["b.csv"] == pytest.approx(2.0, abs=1e-3)
    assert moved["a.csv"] - moved["c.jls"] == pytest.approx(7.0, abs=1e-3)
    assert abs(moved["a.csv"]) < 1.0
    for plain, placed in zip(shown[0].tracks, shown[1].tracks, strict=True):  # what is saved of it is placed anew
        times = [track.table(*track.span)["time"].iloc[0] for track in (plain, placed)]
        assert times[0] == times[1]
    assert capsys.readouterr().err.count("onto the reference's clock, within") == 3


def test_clocks_that_are_not_there_are_a_mistake_of_usage(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"cannot read .*none\.json: No such file"):
        Clocks.read(tmp_path / "none.json")
