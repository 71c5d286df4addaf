"""The metrics against the real thing: Prometheus scrapes them, promtool judges them and the rules with them."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.cluster.prometheus import Server
from pmtpy.errors import TargetError

WATCHING = Path(__file__).parents[2] / "docs/examples/watching"
_LIMIT_S = 120.0

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus is not installed (Debian: apt install prometheus)",
)


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def fetch(url: str, **headers: str) -> tuple[str, str]:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  (our own server)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.fixture
def sensor() -> Iterator[pmt.Sensor]:
    with pmt.create("rapl:virtual", load="constant:100") as made:
        yield made


def test_the_format_is_what_the_scraper_asks_for(sensor: pmt.Sensor) -> None:
    with Server([sensor], port=0) as server:
        assert server.address == "127.0.0.1"
        kind, text = fetch(server.url)
        assert kind.startswith("text/plain")
        assert "# TYPE pmt_energy_joules_total counter" in text
        accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        kind, text = fetch(server.url, Accept=accept)
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
        assert "# TYPE pmt_energy_joules counter" in text
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(server.url + "x")
        with pytest.raises(TargetError, match="cannot listen"):
            Server([sensor], port=server.port)


def test_clients_that_misbehave_disturb_nobody(sensor: pmt.Sensor, capfd: pytest.CaptureFixture[str]) -> None:
    with Server([sensor], port=0) as server:
        for said in (b"\0\0\r\n\r\n", b"GET " + b"a" * 70_000, b"POST /metrics HTTP/1.1\r\n\r\n", b""):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                client.sendall(said)
                reset = struct.pack("ii", 1, 0)  # its end is a reset, not a farewell
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(20)]
        before = 0.0
        for _ in range(5):
            _, text = fetch(server.url)
            line = next(x for x in text.splitlines() if x.startswith("pmt_energy_joules_total{"))
            assert float(line.split()[-1]) >= before
            before = float(line.split()[-1])
        for client in silent:
            client.close()
    assert "Traceback" not in capfd.readouterr().err


def test_an_address_that_is_not_ours_is_refused(sensor: pmt.Sensor) -> None:
    with pytest.raises(TargetError, match="cannot listen at 192\\.0\\.2\\.1"):
        Server([sensor], "192.0.2.1", 0)  # of a range for documents (RFC 5737)


@needs_prometheus
def test_promtool_finds_nothing_to_mend(sensor: pmt.Sensor) -> None:
    with Server([sensor], port=0) as server:
        for _ in range(3):
            _, text = fetch(server.url)
            time.sleep(0.11)  # until the uncertainty is judged too
    assert "pmt_energy_uncertainty_joules{" in text
    judged = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")


@needs_prometheus
def test_rules_and_configuration_that_come_with_us_are_sound() -> None:
    for words in (
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "prometheus.yml"],
    ):
        done = subprocess.run(
            ["promtool", *words], cwd=WATCHING, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    from pmtpy.cluster._metrics import FAMILIES

    board = json.loads((WATCHING / "grafana-dashboard.json").read_text())
    asked = " ".join(t["expr"] for panel in board["panels"] for t in panel.get("targets", ()))
    names = {f.name + f.suffix for f in FAMILIES}
    used = {w for w in "".join(c if c.isalnum() or c == "_" else " " for c in asked).split() if w.startswith("pmt_")}
    assert used
    assert used <= names


def test_the_units_rights_are_few() -> None:
    unit = (WATCHING / "pmtpy.service").read_text()
    assert "DynamicUser=yes" in unit
    assert "User=root" not in unit
    assert "privileged" not in (WATCHING / "Containerfile").read_text().replace("no privileged mode", "")
    if shutil.which("systemd-analyze") is None:
        return
    place = WATCHING / "pmtpy.service"
    done = subprocess.run(
        ["systemd-analyze", "verify", str(place)], capture_output=True, text=True, check=False, timeout=60
    )
    mine = [line for line in done.stderr.splitlines() if "pmtpy.service" in line and "is not executable" not in line]
    assert not mine, done.stderr


def panels() -> dict[str, str]:
    """What the dashboard asks by title of the panel, with its variables as Grafana fills them in."""
    board = json.loads((WATCHING / "grafana-dashboard.json").read_text())
    found = {p["title"]: t["expr"] for p in board["panels"] for t in p.get("targets", ())}
    for name, value in (("$node", ".*"), ("$__rate_interval", "1m"), ("$__range", "1m")):
        found = {title: query.replace(name, value) for title, query in found.items()}
    assert not any("$" in query for query in found.values())
    return found


class Prometheus:
    """The real one, on a folder of its own."""

    def __init__(self, folder: Path, hosts: dict[str, int]) -> None:
        targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"node": node}} for node, port in hosts.items()]
        every = {"scrape_interval": "250ms", "scrape_timeout": "250ms"}
        config = {"global": every, "scrape_configs": [{"job_name": "pmtpy", "static_configs": targets}]}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self._port = free_port()
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def ask(self, query: str) -> list[Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            answer = json.loads(fetch(url)[1])
        except (OSError, urllib.error.URLError):  # it is still starting
            assert self.process.poll() is None, "Prometheus ended"
            return []
        found: list[Any] = answer["data"]["result"]
        return found

    def wait(self, query: str) -> list[Any]:
        end = time.monotonic() + _LIMIT_S
        while not (found := self.ask(query)):
            assert time.monotonic() < end, f"no answer to {query}"
            time.sleep(0.1)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)
        self.log.close()


@needs_prometheus
def test_prometheus_scrapes_two_hosts_and_sees_a_restart_as_one(sensor: pmt.Sensor, tmp_path: Path) -> None:
    first, second = Server([sensor], port=0), Server([sensor], port=0)
    judge = Prometheus(tmp_path, {"nodea": first.port, "nodeb": second.port})
    energy = 'pmt_energy_joules_total{channel="total"}'
    try:
        judge.wait(f"count(count_over_time({energy}[1m]) >= 8) == 2")
        for found in judge.wait(f"{energy}[1m]"):
            (t0, v0), (t1, v1) = found["values"][0], found["values"][-1]
            # Scrapes are stamped when they begin, and read a little later: by how much differs on a busy machine.
            assert (float(v1) - float(v0)) / (t1 - t0) == pytest.approx(100.0, rel=0.4)
            assert [float(v) for _, v in found["values"]] == sorted(float(v) for _, v in found["values"])
        assert len(judge.wait(f"rate({energy}[1m]) > 0")) == 2
        assert len(judge.wait('pmt_sensor_info{virtual="true"}')) == 2
        assert judge.wait("sum(pmt_power_watts{channel='total'})")
        for title, query in panels().items():
            if title == "Sensors that cannot be read":
                assert judge.ask(query) == []
                assert len(judge.wait(query.replace("== 0", "== 1"))) == 2
            else:
                assert len(judge.wait(query)) >= 2, title

        nodeb = 'pmt_energy_joules_total{channel="total",node="nodeb"}'
        port, before = second.port, float(judge.wait(nodeb)[0]["value"][1])
        second.close()
        second = Server([sensor], port=port)
        judge.wait(f"resets({nodeb}[1m]) == 1")
        grown = float(judge.wait(f"increase({nodeb}[1m]) > 0")[0]["value"][1])
        assert grown > 0.5 * before, "what was used before the restart still counts"
        assert judge.ask('resets(pmt_energy_joules_total{channel="total",node="nodea"}[1m])')[0]["value"][1] == "0"
    finally:
        judge.close()
        first.close()
        second.close()
