"""Service processors: what they say is believed only where it can be true, and each fault has its cure."""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pmtpy.backends import ipmi, redfish
from pmtpy.backends.machine import Machine
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.core.rows import Layout
from pmtpy.emulators.ipmi import ServiceProcessor
from pmtpy.emulators.redfish import Service
from pmtpy.emulators.redfish import open_virtual as open_redfish
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, ReadError, SourceLostError
from pmtpy.sensor.sensor import Sensor, acquisition_of
from pmtpy.testing import check_source
from tests.support.daemons import numbers_of_a_socket

# Made for these tests: of "localhost", and of no use elsewhere.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUQSdLN2jylXarc4jmQpNs/VXHoKAwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjE3Mjc0OVoYDzIxMjYxMDI5
MTcyNzQ5WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARzMCUel4elgKpCbb34YuJ/CL+S/w/tJm4hL7eFSqly0RD/9MtKJPcm
znsQb/V1b66+w+zR6ivx3sZvGvasewAIo28wbTAdBgNVHQ4EFgQUlqTMqlirgnwZ
EyMyy/j09gvk+9swHwYDVR0jBBgwFoAUlqTMqlirgnwZEyMyy/j09gvk+9swDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgQXQ/gsWtgi8eUaHWFp5fQC6899KkvIXwQYUsKW0dDnkCIFAd
6zOuqfIqHPRrNvJmakb1+24QKXE8HQyCLXdYLNXi
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgj056fCpe9rvaGDhY
fN2opXDpkhswofu/k/+UkuNlzaChRANCAARzMCUel4elgKpCbb34YuJ/CL+S/w/t
Jm4hL7eFSqly0RD/9MtKJPcmznsQb/V1b66+w+zR6ivx3sZvGvasewAI
-----END PRIVATE KEY-----
"""
LOAD = "square:low=40,high=100,hz=0.05"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:400", clock=clock)


# -- ipmi --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [0, 6000, 65535])
def test_absurd_watts_are_lost_rows_and_no_readings(shown: int, clock: ManualClock, world: World) -> None:
    far = ServiceProcessor(world)
    with Sensor(ipmi.open_source(None, clock=clock, run=far.run), "ipmi", clock) as sensor:
        for i in range(20):
            far.shown_w = shown if 5 <= i < 10 else -1
            clock.advance(1.0)
            acquisition_of(sensor).step()
        state = sensor.read()
        assert state.lost == 5
        # 19 s of 400 W but for the five rows and the interval at their end.
        assert state.joules[0] == pytest.approx(400 * 14, rel=0.08)


@pytest.mark.parametrize(
    ("text", "why"), [(b"", "no power reading"), (b" dc 2c", "no power reading"), (b"\xff\xfe", "no power reading")]
)
def test_half_an_answer_says_so(text: bytes, why: str, clock: ManualClock, world: World) -> None:
    far = ServiceProcessor(world)
    far.text = text
    with pytest.raises(BackendUnavailableError, match=why):
        ipmi.open_source(None, clock=clock, run=far.run)


def test_a_measurement_that_is_switched_off_says_so(clock: ManualClock, world: World) -> None:
    far = ServiceProcessor(world)
    far.active = False
    with pytest.raises(BackendUnavailableError, match="not active"):
        ipmi.open_source(None, clock=clock, run=far.run)


def test_a_stamp_that_does_not_move_is_no_new_reading(clock: ManualClock, world: World) -> None:
    far = ServiceProcessor(world)
    source = ipmi.open_source(None, clock=clock, run=far.run)
    assert [len(source.read()) for _ in range(3)] == [1, 0, 0]  # of one second
    clock.advance(1.0)
    assert len(source.read()) == 1
    far.text = far.run(())  # from now on it says the same again and again
    for _ in range(60):
        clock.advance(1.0)
        assert len(source.read()) == 0
    clock.advance(1.0)
    with pytest.raises(SourceLostError, match="has not changed for 60 s"):
        source.read()
    far.text = None
    answer = bytearray(bytes.fromhex(far.run(()).decode()))
    answer[9:13] = bytes(4)  # a processor that does not say when: nothing can be told from it
    far.text = answer.hex(" ").encode()
    source = ipmi.open_source(None, clock=clock, run=far.run)
    assert any("bear no time" in note for note in source.identity.notes)
    for _ in range(90):
        clock.advance(1.0)
        assert source.read().raw.tolist() == [[400.0]]


def _tool(folder: Path, script: str) -> str:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_password_is_never_an_argument_and_the_least_privilege_is_asked_for(tmp_path: Path) -> None:
    seen, secret = tmp_path / "seen", tmp_path / "password"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    answer = "dc 90 01 64 00 20 03 90 01 00 00 00 00 e8 03 00 00 40"
    tool = _tool(tmp_path, f'echo "$@ / $IPMI_PASSWORD" > {seen}; echo " {answer}"')
    source = ipmi.open_source("bmc7", clock=HOST_CLOCK, user="meter", password_file=str(secret), tool=tool)
    assert source.read().raw[0].tolist() == [400]
    arguments, _, given = seen.read_text().strip().partition(" / ")
    assert given == "hunter2"
    assert "hunter2" not in arguments
    assert "-L USER" in arguments
    source.close()
    secret.chmod(0o644)
    with pytest.raises(BackendUnavailableError, match="others may read"):
        ipmi.open_source("bmc7", clock=HOST_CLOCK, password_file=str(secret), tool=tool)


def test_time_outs_failures_and_absence_of_the_tool_have_their_messages(tmp_path: Path) -> None:
    slow = _tool(tmp_path, "exec sleep 600")
    with pytest.raises(BackendUnavailableError, match="has not answered within"):
        ipmi.open_source(None, clock=HOST_CLOCK, tool=slow, timeout_s=0.05)
    bad = _tool(tmp_path, "echo 'Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1")
    with pytest.raises(BackendUnavailableError, match="Unable to establish"):
        ipmi.open_source("bmc7", clock=HOST_CLOCK, tool=bad)
    with pytest.raises(BackendUnavailableError, match="cannot be run"):
        ipmi.open_source(None, clock=HOST_CLOCK, tool=str(tmp_path / "none"))


def test_doctor_tells_tool_driver_and_permission_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, tmp_path / "sys")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not installed" in ipmi.discover(machine=machine).findings[0].found
    (tmp_path / "ipmitool").touch(mode=0o755)
    assert "modprobe ipmi_devintf" in " ".join(ipmi.discover(machine=machine).findings[0].cure)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ipmi0").touch()
    assert ipmi.discover(machine=machine).findings[0].usable


# -- redfish -----------------------------------------------------------------------------------------------------------


def test_a_newer_service_tells_the_truth() -> None:
    # A reading held for a second: 60 W for up to a second at each of two edges and at either end, of 1400 J.
    check_source(lambda clock: open_redfish(clock=clock, load=LOAD, newer=True), LOAD, relative=0.1)


def test_several_chassis_make_no_total_unless_one_is_named(clock: ManualClock, world: World) -> None:
    far = Service(world, chassis=("Enclosure", "Blade1"))
    source = redfish.open_source("bmc", clock=clock, get=far.get)
    assert not Layout(source.channels).has_total
    assert any("chassis=" in note for note in source.identity.notes)
    source = redfish.open_source("bmc", clock=clock, get=far.get, chassis="Blade1")
    assert [c.name for c in source.channels] == ["blade1"]
    with pytest.raises(BackendUnavailableError, match="Enclosure"):
        redfish.open_source("bmc", clock=clock, get=far.get, chassis="Blade9")


def control(watts: float, context: str | None = None) -> dict[str, object]:
    """A power as a service shows it."""
    return {"Name": f"power {watts}", "PowerConsumedWatts": watts} | ({"PhysicalContext": context} if context else {})


@pytest.mark.parametrize(
    "controls",
    [
        [control(250)],
        [control(77, "CPU"), control(250)],
        [control(250, "Chassis"), control(77, "CPU"), control(30, "Memory")],
        [{"Name": "no reading", "PowerConsumedWatts": None}, control(250)],
    ],
)
def test_of_several_powers_that_of_the_chassis_is_taken(controls: list[dict[str, object]]) -> None:
    assert redfish.power({"PowerControl": controls}, "here") == 250.0


@pytest.mark.parametrize(
    "controls",
    [
        [control(77, "CPU")],
        [control(250), control(260)],
        [control(1, "Memory"), control(77, "CPU")],
        [control(20), control(300, "Intake")],
    ],
)
def test_powers_of_parts_alone_or_of_several_wholes_are_refused(controls: list[dict[str, object]]) -> None:
    with pytest.raises(ReadError, match=r"not clear which .* 'power"):
        redfish.power({"PowerControl": controls}, "here")


@pytest.mark.parametrize(
    ("sensor", "watts"),
    [({}, 250.0), ({"ReadingUnits": "W", "ReadingType": "Power"}, 250.0), ({"ReadingUnits": "mW"}, 0.25)],
)
def test_a_sensor_says_its_unit(sensor: dict[str, object], watts: float) -> None:
    assert redfish.power({"PowerWatts": {"Reading": 250, **sensor}}, "here") == pytest.approx(watts)
    assert redfish.power({"PowerWatts": {"Reading": 0.25, "ReadingUnits": "kW"}}, "here") == pytest.approx(250.0)


@pytest.mark.parametrize(
    "sensor",
    [{"ReadingUnits": "%"}, {"ReadingUnits": "Percent"}, {"ReadingType": "EnergykWh"}, {"ReadingUnits": ["W"]}],
)
def test_a_sensor_of_something_else_is_no_power_and_not_cured_by_another_password(
    sensor: dict[str, object], clock: ManualClock, world: World
) -> None:
    far = Service(world, newer=True, says=sensor)
    with pytest.raises(BackendUnavailableError, match="which is no power in watts") as refused:
        redfish.open_source("bmc", clock=clock, get=far.get)
    assert "https://bmc/redfish/v1/Chassis/Self/EnvironmentMetrics" in refused.value.remedy


@pytest.mark.parametrize("shown", [-1, 0, 1e9, float("nan"), "400", True, [400]])
def test_what_is_no_power_is_a_failed_reading(shown: object, clock: ManualClock, world: World) -> None:
    far = Service(world)
    source = redfish.open_source("bmc", clock=clock, get=far.get)
    far.shown_w = shown
    clock.advance(1.0)
    assert len(source.read()) == 0
    assert source.last_read_failed
    far.shown_w = None
    clock.advance(1.0)
    assert source.read().raw[0].tolist() == [400]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hang = threading.Event()
    slow = cut = False
    meanwhile: Callable[[], None] | None = None  # what passes before the first byte of an answer, the others hang

    def do_GET(self) -> None:
        if self.slow:
            self.hang.wait(60)
        status = 200
        body: dict[str, object] = {}
        if self.headers.get("Authorization") != "Basic bWV0ZXI6aHVudGVyMg==":  # meter:hunter2
            status = 401
        elif self.path == redfish.ROOT:
            body = {"Members": [{"@odata.id": f"{redfish.ROOT}/1"}]}
        elif self.path.endswith("/Power"):
            body = {"PowerControl": [{"PowerConsumedWatts": 412}]}
        else:
            status = 404
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.meanwhile is not None:
            self.meanwhile()
            self.wfile.write(data[:1])
            self.hang.wait(60)
            return
        self.wfile.write(data[:7] if self.cut else data)
        self.close_connection = self.cut

    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that distrusts it hangs up."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    for name, text in (("cert.pem", CERTIFICATE), ("key.pem", KEY)):
        (tmp_path / name).write_text(text)
    server = _Server(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    _Handler.slow = _Handler.cut = False
    _Handler.hang.clear()
    yield f"localhost:{server.server_address[1]}"
    _Handler.hang.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_trusted_by_its_certificate_alone(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_REDFISH_PASSWORD", "hunter2")
    with pytest.raises(BackendUnavailableError, match="not trusted") as error:
        redfish.open_source(service, clock=HOST_CLOCK, user="meter")
    assert "fingerprint" in str(error.value)
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).hexdigest()
    with pytest.raises(BackendUnavailableError, match="not the one given"):
        redfish.open_source(service, clock=HOST_CLOCK, user="meter", fingerprint="00" * 32)
    for trust in ({"fingerprint": pin.upper()}, {"ca_file": str(tmp_path / "cert.pem")}):
        source = redfish.open_source(service, clock=HOST_CLOCK, user="meter", **trust)  # type: ignore[arg-type]
        assert source.read().raw[0].tolist() == [412]
        source.close()
    monkeypatch.setenv("PMT_REDFISH_PASSWORD", "wrong")
    with pytest.raises(BackendUnavailableError, match="user or password is wrong") as error:
        redfish.open_source(service, clock=HOST_CLOCK, user="meter", fingerprint=pin)
    assert "wrong is" not in str(error.value).replace("password is wrong", "")


def test_a_service_that_does_not_answer_in_time_is_a_failed_reading(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_REDFISH_PASSWORD", "hunter2")
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).hexdigest()
    source = redfish.open_source(service, clock=HOST_CLOCK, user="meter", fingerprint=pin, timeout_s=60)
    source._get._connection.sock.settimeout(0.05)  # type: ignore[attr-defined]
    _Handler.slow = True
    begin = time.monotonic()
    with pytest.raises(ReadError, match="no answer in time"):
        source.poll()  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 60
    source.close()
    with pytest.raises(BackendUnavailableError, match="redfish:virtual"):
        redfish.open_source(None, clock=HOST_CLOCK)


def test_an_answer_that_comes_byte_by_byte_is_waited_for_no_longer_than_any_other(
    service: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte came in time, and the opening waited for ever."""
    monkeypatch.setenv("PMT_REDFISH_PASSWORD", "hunter2")
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).hexdigest()
    source = redfish.open_source(service, clock=clock, user="meter", fingerprint=pin, timeout_s=60)
    monkeypatch.setattr(_Handler, "meanwhile", staticmethod(lambda: clock.advance(61.0)))
    with pytest.raises(ReadError, match="no answer in time"):
        source.poll()  # type: ignore[attr-defined]
    monkeypatch.setattr(_Handler, "meanwhile", None)
    assert source.read().raw[0].tolist() == [412]  # over a new connection
    source.close()


def test_an_answer_that_is_cut_off_is_a_failed_reading_and_a_service_that_is_gone_says_so(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_REDFISH_PASSWORD", "hunter2")
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).hexdigest()
    source = redfish.open_source(service, clock=HOST_CLOCK, user="meter", fingerprint=pin, timeout_s=60)
    _Handler.cut = True
    assert len(source.read()) == 0
    _Handler.cut = False
    assert source.read().raw[0].tolist() == [412]  # over a new connection
    source.close()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        with pytest.raises(BackendUnavailableError, match="refused"):
            redfish.open_source(f"localhost:{unused.getsockname()[1]}", clock=HOST_CLOCK)


def test_a_program_that_closes_all_descriptors_asks_over_a_new_connection(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_REDFISH_PASSWORD", "hunter2")
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).hexdigest()
    source = redfish.open_source(service, clock=HOST_CLOCK, user="meter", fingerprint=pin, timeout_s=60)
    connection = source._get._connection  # type: ignore[attr-defined]
    with numbers_of_a_socket([connection.sock.fileno()]):
        assert source.read().raw[0].tolist() == [412]
    with numbers_of_a_socket([connection.sock.fileno()]):
        source.close()
