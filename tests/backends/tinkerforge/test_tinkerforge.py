"""Bricklets behind a Brick Daemon: truth, the official client, and each fault of the network."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.backends import tinkerforge
from pmtpy.backends.tinkerforge import protocol
from pmtpy.backends.tinkerforge._device import Client, TcpLink
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.core.rails import Rails
from pmtpy.core.source import Source
from pmtpy.emulators.tinkerforge import Bricklet, Daemon, MemoryLink, TcpDaemon, sema_stack
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError, SourceLostError, TargetError
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.daemons import numbers_of_a_socket
from tests.support.many_files import many_files

SECRET = "correct horse"  # noqa: S105  (of a virtual daemon)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:100", clock=clock)


def opened(daemon: Daemon, clock: ManualClock, **options: object) -> Source:
    return tinkerforge.open_source(
        "virtual",
        clock=clock,
        link=lambda: MemoryLink(daemon, clock),
        **options,  # type: ignore[arg-type]
    )


def run(sensor: Sensor, clock: ManualClock, seconds: float) -> None:
    for _ in range(round(seconds / 0.02)):
        clock.advance(0.02)
        acquisition_of(sensor).step()


def shown(sensor: Sensor) -> dict[str, float]:
    state = sensor.read()
    return dict(zip(state.names, state.watts, strict=True))


def test_settings_are_made_shown_and_given_back(clock: ManualClock, world: World) -> None:
    stack = sema_stack()
    source = opened(Daemon(world, stack), clock, averaging=1, conversion_us=1100)
    assert [b.averaging for b in stack] == [(0, 4, 4)] * 5
    assert [b.callbacks.get(0, [0])[0] for b in stack] == [3, 3, 3, 0, 0]  # 2.2 ms, in whole ms; 1.0 is asked
    assert sum("mean of 1 conversions of 1100 us" in note for note in source.identity.notes) == 5
    source.close()
    assert [b.averaging for b in stack] == [(3, 4, 4)] * 5
    assert [b.callbacks.get(0, [0])[0] for b in stack] == [0] * 5


def test_a_missing_rail_is_coverage_and_no_smaller_total(clock: ManualClock, world: World) -> None:
    stack = sema_stack()
    with Sensor(opened(Daemon(world, stack), clock), "tf", clock) as sensor:
        run(sensor, clock, 2.0)
        assert shown(sensor)["total"] == pytest.approx(100, abs=0.1)
        stack[0].unplugged = True
        run(sensor, clock, 2.0)
        seen = shown(sensor)
        assert np.isnan(seen["v1c"])
        assert np.isnan(seen["total"])
        assert seen["v2c"] == pytest.approx(5, abs=0.02)
        frame = sensor.history()
        assert np.isnan(frame.watts[-1, 0])


def test_a_bricklet_that_began_anew_gets_its_settings_again(clock: ManualClock, world: World) -> None:
    stack = sema_stack()
    daemon = Daemon(world, stack)
    with Sensor(opened(daemon, clock), "tf", clock) as sensor:
        run(sensor, clock, 1.0)
        daemon.extra = daemon.restart(stack[0])
        run(sensor, clock, 1.0)
        assert stack[0].averaging == (1, 2, 2)
        assert shown(sensor)["total"] == pytest.approx(100, abs=0.1)
        remarks = acquisition_of(sensor).intake.source.remarks(0, clock.now_ns())
        assert any("restarted" in line for line in remarks.warnings)


def test_a_bricklet_that_is_plugged_in_later_is_in_no_total_and_named(clock: ManualClock, world: World) -> None:
    stack = sema_stack()
    daemon = Daemon(world, stack)
    stack[0].unplugged = True
    with Sensor(opened(daemon, clock), "tf", clock) as sensor:
        run(sensor, clock, 1.0)
        before = pmt.region("before", sensor)
        with before:
            run(sensor, clock, 1.0)
        stack[0].unplugged = False
        daemon.extra = daemon.restart(stack[0])
        run(sensor, clock, 0.1)
        with pmt.region("after", sensor) as after:
            run(sensor, clock, 1.0)
        assert before["tf"].joules == pytest.approx(after["tf"].joules, rel=1e-3)
        named = [
            any("v1C" in text and "not in the total" in text for text in r["tf"].warnings) for r in (before, after)
        ]
        assert named == [False, True]


class _Silenced(MemoryLink):
    """A connection on which nothing comes any more."""

    silent = False

    def receive(self) -> bytes:
        return b"" if self.silent else super().receive()


def test_rows_that_were_due_and_have_not_come_are_told_of(clock: ManualClock) -> None:
    """The daemon falls silent for the last fifth of a region, in which the load is another than ever before."""
    world = make_world("steps:0=30,2.8=90", clock=clock)
    daemon = Daemon(world, sema_stack()[:1])
    link = _Silenced(daemon, clock)
    source = tinkerforge.open_source("virtual", clock=clock, link=lambda: link)
    with Sensor(source, "tf", clock) as sensor:
        run(sensor, clock, 2.0)
        with pmt.region("work", sensor) as r:
            run(sensor, clock, 0.8)
            link.silent = True
            run(sensor, clock, 0.2)
        early = r["tf"]
        link.silent = False
    assert any("rows of the last" in text and "have not come yet" in text for text in early.warnings)


def test_a_daemon_that_is_cut_off_in_a_packet_comes_back_and_the_gap_is_counted(
    clock: ManualClock, world: World
) -> None:
    daemon = Daemon(world, sema_stack())
    with Sensor(opened(daemon, clock), "tf", clock) as sensor:
        run(sensor, clock, 2.0)
        before = sensor.read()
        daemon.half = True
        run(sensor, clock, 0.1)
        daemon.mute = True  # it takes connections and says nothing: 1.4 s
        run(sensor, clock, 1.4)
        daemon.mute = False
        run(sensor, clock, 3.0)
        after = sensor.read()
        joules, seconds = after.joules[0] - before.joules[0], (after.t_ns - before.t_ns) / 1e9
        # What was not heard is not invented, and what is counted is right.
        assert joules < 100 * seconds - 50
        assert shown(sensor)["total"] == pytest.approx(100, abs=0.1)
        remarks = acquisition_of(sensor).intake.source.remarks(before.t_ns, after.t_ns)
        assert any("was away" in line for line in remarks.warnings)


class _Busy(MemoryLink):
    """A connection on which callbacks go on all the time, as of bricklets that were set before."""

    clock: ManualClock
    silent = False  # the daemon answers nothing

    def wait(self, timeout_s: float) -> bool:
        self.clock.advance(0.003)
        return True

    def receive(self) -> bytes:
        found = b"" if self.silent else super().receive()
        return found + protocol.pack(protocol.uid_number("v1C"), 12, struct.pack("<i", 60_000))


def test_callbacks_that_go_on_hold_up_no_answer(clock: ManualClock, world: World) -> None:
    link = _Busy(Daemon(world, sema_stack()), clock)
    link.clock = clock
    client = Client(link, clock)
    start_ns = clock.now_ns()
    assert len(client.enumerate()[0]) == 5
    assert client.call(protocol.uid_number("v1C"), 14, size=3)
    link.silent = True
    with pytest.raises(ReadError, match=r"no answer within 2\.5 s"):
        client.call(protocol.uid_number("v1C"), 14, size=3)
    assert (clock.now_ns() - start_ns) / 1e9 < 10
    kept = [p for p, _ in client.packets() if p.function == 12]
    assert len(kept) > 800, "what came meanwhile is kept"


def test_a_daemon_that_stays_away_is_lost(clock: ManualClock, world: World) -> None:
    daemon = Daemon(world, sema_stack())
    source = opened(daemon, clock)
    daemon.half = True
    clock.advance(0.1)
    source.read()
    daemon.mute = True
    with pytest.raises(SourceLostError, match="start it again"):
        away(source, clock)
    source.close()


def away(source: Source, clock: ManualClock) -> None:
    for _ in range(600):
        clock.advance(0.1)
        source.read()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b"\x01\x02\x03\x04\xff\x0c\x00\x00" + bytes(8), "was away"),  # longer than a packet can be
        (protocol.pack(protocol.uid_number("v1C"), 12, b"\1"), ""),  # a value of one byte
        (protocol.pack(12345, 12, struct.pack("<i", 10**9)), ""),  # of a stranger
        (protocol.pack(protocol.uid_number("v4C"), 3, struct.pack("<i", 10**9), sequence=9, error=1), ""),
    ],
)
def test_what_the_protocol_forbids_becomes_no_number(
    wrong: bytes, message: str, clock: ManualClock, world: World
) -> None:
    daemon = Daemon(world, sema_stack())
    with Sensor(opened(daemon, clock), "tf", clock) as sensor:
        run(sensor, clock, 1.0)
        daemon.extra = wrong
        run(sensor, clock, 4.0)
        assert np.nanmax(sensor.history().watts) < 101
        assert shown(sensor)["total"] == pytest.approx(100, abs=0.1)
        said = " ".join(acquisition_of(sensor).intake.source.remarks(0, clock.now_ns()).warnings)
        assert message in said


def test_a_name_that_is_not_text_is_left_out_with_a_note(clock: ManualClock, world: World) -> None:
    daemon = Daemon(world, sema_stack())
    daemon.odd_names = [b"\xff\xfe\x00", b"0OIl"]
    source = opened(daemon, clock)
    assert sum("no address" in note for note in source.identity.notes) == 2
    source.close()


def test_two_thousand_rails(clock: ManualClock, world: World) -> None:
    letters = "23456789abcdefghijkmnopqrstuvwxyz"
    names = [f"{a}{b}{c}" for a in letters for b in letters for c in letters][:2000]
    daemon = Daemon(world, [Bricklet(name, 2105, (1 / 2000,)) for name in names])
    source = opened(daemon, clock, averaging=64)
    assert len(source.channels) == 2000
    clock.advance(0.2)
    source.read()
    clock.advance(0.2)
    block = source.read()
    assert block.raw[-1].sum() * 1e-3 == pytest.approx(100, rel=0.25)  # 50 mW each, in steps of 12 mW
    source.close()


@pytest.mark.parametrize("kind", [228, 2120, 249, 2121])
def test_an_industrial_input_measures_power_where_its_scale_is_given(
    kind: int, clock: ManualClock, world: World
) -> None:
    daemon = Daemon(world, [Bricklet("t2d", kind, (0.75, 0.25))])
    scale = 1000.0 if kind in {228, 2120} else 100.0
    with Sensor(opened(daemon, clock, full_scale=f"t2d.0={scale}"), "tf", clock) as sensor:
        run(sensor, clock, 2.0)
        assert shown(sensor)["t2d.0"] == pytest.approx(75, abs=0.2)
        assert shown(sensor)["total"] == pytest.approx(75, abs=0.2)
    with pytest.raises(TargetError, match=r"t2d\.0, t2d\.1"):
        opened(daemon, clock, full_scale="t2d.7=1")
    with pytest.raises(TargetError, match="NAME"):
        opened(daemon, clock, full_scale="t2d.0=much")


@pytest.mark.parametrize(("watts", "known"), [(200.0, True), (300.0, False)])
@pytest.mark.parametrize("kind", [227, 2105])
def test_a_current_at_the_end_of_its_range_is_a_bound(
    kind: int,
    watts: float,
    known: bool,  # noqa: FBT001
    clock: ManualClock,
) -> None:
    loaded = make_world(f"constant:{watts:g}", clock=clock)
    daemon = Daemon(loaded, [Bricklet("abc", kind, (1.0,))])
    with Sensor(opened(daemon, clock), "tf", clock) as sensor:
        run(sensor, clock, 1.0)
        with pmt.region("x", sensor) as region:
            run(sensor, clock, 1.0)
        run(sensor, clock, 0.1)
        measured = region["tf"]
    assert measured.coverage == (pytest.approx(1.0) if known else 0.0)  # 25 A at 12 V are shown as 20.48 A
    assert any("at the end of a range" in w for w in measured.warnings) is not known


@pytest.mark.parametrize("kind", [228, 2120])
def test_a_broken_loop_is_no_negative_power(
    kind: int, clock: ManualClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(world, [Bricklet("t2d", kind, (0.75, 0.25))])
    with Sensor(opened(daemon, clock, full_scale="t2d.0=1000"), "tf", clock) as sensor:
        run(sensor, clock, 1.0)
        monkeypatch.setattr(daemon, "count", lambda *_: 0)  # 0 mA
        run(sensor, clock, 0.5)
        with pmt.region("x", sensor) as region:
            run(sensor, clock, 1.0)
        run(sensor, clock, 0.2)
        measured = region["tf"]
    assert measured.coverage == 0.0
    assert measured.joules == 0.0
    assert any("broken loop" in w for w in measured.warnings)


# -- over TCP ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[TcpDaemon, Daemon]]:
    world = make_world("constant:100", clock=HOST_CLOCK)
    daemon = Daemon(world, sema_stack())
    with TcpDaemon(daemon, HOST_CLOCK) as tcp:
        yield tcp, daemon


def test_the_official_client_accepts_the_virtual_daemon(served: tuple[TcpDaemon, Daemon]) -> None:
    ip_connection = pytest.importorskip("tinkerforge.ip_connection")
    from tinkerforge.bricklet_voltage_current import BrickletVoltageCurrent
    from tinkerforge.bricklet_voltage_current_v2 import BrickletVoltageCurrentV2

    tcp, daemon = served
    connection = ip_connection.IPConnection()
    seen: list[str] = []
    five, power = threading.Event(), threading.Event()

    def there(uid: str, *_: object) -> None:
        seen.append(uid)
        if len(seen) == 5:
            five.set()

    connection.register_callback(connection.CALLBACK_ENUMERATE, there)
    daemon.secret = SECRET
    connection.connect("127.0.0.1", tcp.port)
    try:
        connection.authenticate(SECRET)
        connection.enumerate()
        assert five.wait(60)
        assert sorted(seen) == ["v1C", "v2C", "v3C", "v4C", "v5C"]
        new = BrickletVoltageCurrentV2("v1C", connection)
        assert new.get_power() == pytest.approx(30_000, abs=20)
        assert new.get_voltage() == 12_000
        new.set_configuration(0, 4, 4)
        assert tuple(new.get_configuration()) == (0, 4, 4)
        new.register_callback(new.CALLBACK_POWER, lambda _: power.set())
        new.set_power_callback_configuration(2, False, "x", 0, 0)
        assert power.wait(60)
        old = BrickletVoltageCurrent("v4C", connection)
        assert old.get_power() == pytest.approx(25_000, abs=20)
        assert old.get_current() == pytest.approx(2083, abs=2)
    finally:
        connection.disconnect()


def test_a_program_with_thousands_of_files_is_served(served: tuple[TcpDaemon, Daemon]) -> None:
    with many_files():
        source = tinkerforge.open_source(f"127.0.0.1:{served[0].port}", clock=HOST_CLOCK)
        rows = 0
        while rows < 3:
            rows += len(source.read())
        source.close()


def test_the_network_tells_refused_secret_and_restart_apart(
    served: tuple[TcpDaemon, Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tcp, daemon = served
    target = f"127.0.0.1:{tcp.port}"
    daemon.secret = SECRET
    file = tmp_path / "secret"
    file.write_text("wrong\n")
    with pytest.raises(BackendUnavailableError, match="does not accept the secret") as error:
        tinkerforge.open_source(target, clock=HOST_CLOCK, secret_file=str(file))
    assert "wrong" not in str(error.value)
    monkeypatch.setenv("PMT_TINKERFORGE_SECRET", SECRET)
    source = tinkerforge.open_source(target, clock=HOST_CLOCK)
    assert len(source.channels) == 5
    source.close()
    monkeypatch.delenv("PMT_TINKERFORGE_SECRET")
    with pytest.raises(BackendUnavailableError, match="no bricklet answers") as error:
        tinkerforge.open_source(target, clock=HOST_CLOCK)
    assert "secret" in str(error.value)
    tcp.close()
    with pytest.raises(BackendUnavailableError, match="no Brick Daemon"):
        tinkerforge.open_source(target, clock=HOST_CLOCK)
    with pytest.raises(BackendUnavailableError, match="secret file"):
        tinkerforge.open_source(target, clock=HOST_CLOCK, secret_file=str(tmp_path / "none"))


@pytest.mark.parametrize("taken", [False, True])
def test_a_connection_whose_descriptor_the_program_closed_is_gone_and_nothing_of_its_own_is_read(
    served: tuple[TcpDaemon, Daemon], *, taken: bool
) -> None:
    link = TcpLink("127.0.0.1", served[0].port, 60.0)
    number = link._socket.fileno()
    with numbers_of_a_socket([number]) if taken else contextlib.nullcontext():
        if not taken:
            os.close(number)
        with pytest.raises(ConnectionError, match="program has closed"):
            link.receive()
        link.close()
    link = TcpLink("127.0.0.1", served[0].port, 60.0)
    with numbers_of_a_socket([link._socket.fileno()]):
        with pytest.raises(ConnectionError, match="program has closed"):
            link.send(b"x")
        link.close()


def test_without_a_host_nothing_is_asked() -> None:
    with pytest.raises(BackendUnavailableError, match="tinkerforge:localhost"):
        tinkerforge.open_source(None, clock=ManualClock())
    with pytest.raises(TargetError, match="port"):
        tinkerforge.open_source("localhost:power", clock=ManualClock())
    with pytest.raises(TargetError, match="averages"):
        tinkerforge.open_source("localhost", clock=ManualClock(), averaging=5)


# -- pure --------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**32 - 1))
def test_an_address_is_read_as_it_is_written(uid: int) -> None:
    assert protocol.uid_number(protocol.uid_text(uid)) == uid


@given(st.lists(st.binary(max_size=64), max_size=6), st.integers(1, 40))
def test_packets_are_whole_however_the_stream_is_cut(payloads: list[bytes], step: int) -> None:
    stream = b"".join(protocol.pack(7, 9, p, sequence=3) for p in payloads)
    cutter = protocol.Cutter()
    out = [p.payload for i in range(0, len(stream), step) for p in cutter.feed(stream[i : i + step])]
    assert out == payloads


def test_a_packet_of_an_impossible_length_ends_the_stream() -> None:
    with pytest.raises(ProtocolError):
        protocol.Cutter().feed(bytes([1, 0, 0, 0, 7, 0, 0, 0]))


@given(
    st.lists(st.floats(0.001, 0.05), min_size=40, max_size=60),
    st.lists(st.floats(0.001, 0.05), min_size=40, max_size=60),
)
def test_rails_of_any_times_keep_their_energy(one: list[float], two: list[float]) -> None:
    rails = Rails([1, 1], 10**10)
    curves = []
    for i, steps in enumerate((one, two)):
        t_ns = np.cumsum(np.rint(np.array(steps) * 1e9)).astype(np.int64)
        watts = np.where(np.mod(np.arange(len(t_ns)), 2) == 1, 40.0, 10.0)
        joules = np.cumsum(np.asarray(np.diff(t_ns, prepend=0), np.float64) * 1e-9 * watts)
        curves.append((t_ns, joules))
        half = len(t_ns) // 2
        for part in (slice(0, half), slice(half, None)):
            rails.add(i, t_ns[part], joules[part, None], np.zeros((len(t_ns[part]), 1)))
    block = rails.take(int(max(c[0][-1] for c in curves)))
    if block is None:
        return
    start = max(int(c[0][0]) for c in curves)
    spans = np.diff(np.concatenate([[start], block.t_ns])) * 1e-9
    for k, (t_ns, joules) in enumerate(curves):
        true = np.interp(block.t_ns[-1], t_ns, joules) - np.interp(start, t_ns, joules)
        assert float((block.raw[:, k].astype(np.float64) * spans).sum()) == pytest.approx(true, rel=1e-9, abs=1e-9)
