"""Sensors for Prometheus: a server of ``/metrics``, and a collector for a program that has a registry of its own."""

from __future__ import annotations

import functools
import logging
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pmtpy._extras import extra
from pmtpy.cluster._metrics import ENERGY, FAMILIES, OLDER_TEXT, OPEN_METRICS, Family, Text, labels, samples
from pmtpy.cluster._watched import Watched
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S
from pmtpy.core.closing import Closing
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.regions.pool import watching
from pmtpy.sensor.registry import list_sensors
from pmtpy.sensor.sensor import Sensor

PORT = 10427
"""Where ``pmtpy serve`` listens. The range 9100 to 9999 that exporters share is given away to the last number."""

LOOPBACK = "127.0.0.1"
_log = logging.getLogger("pmtpy")
_CLIENT_TIMEOUT_S = 10.0  # with a client that says nothing


class Collector:
    """What a registry of ``prometheus_client`` asks: ``REGISTRY.register(pmt.prometheus.collector())``.

    Each collection reads every sensor once. Close it to end the watching; sensors that it was given stay open.
    """

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        with extra("prometheus_client", "a collector"):
            from prometheus_client.core import Metric
        self._metric: Any = Metric
        self._watched = Watched(sensors)
        self._created = _now_s()

    def describe(self) -> list[Any]:
        """Return the families without samples, by which a registry finds names that are taken."""
        return [self._family(f) for f in FAMILIES]

    def _family(self, family: Family) -> Any:
        return self._metric(family.name, family.text, family.kind, family.unit)

    def collect(self) -> Iterator[Any]:
        """Read all sensors; return the families that have samples."""
        found = {f.name: self._family(f) for f in FAMILIES}
        for sensor in self._watched.read():
            for family, channel, value in samples(sensor):
                about = labels(family, sensor, channel)
                made = found[family.name]
                made.add_sample(family.name + family.suffix, about, value)
                if family is ENERGY:
                    made.add_sample(f"{family.name}_created", about, self._created)
        return (made for made in found.values() if made.samples)

    def close(self) -> None:
        """End the watching."""
        self._watched.close()


def _now_s() -> float:
    return HOST_CLOCK.anchor().unix_ns / NS_PER_S


def collector(*targets: str | Sensor) -> Collector:
    """Make a collector for the registry of a program that has its own.

    Parameters
    ----------
    *targets : str or Sensor
        As for :func:`pmtpy.region`; without any, every sensor that is available.

    Raises
    ------
    BackendUnavailableError
        ``prometheus_client`` is not installed, or no sensor is available.
    """
    named = targets or tuple(line.target for line in list_sensors() if line.available)
    if not named:
        remedy = "'pmtpy doctor' says what is missing"
        raise BackendUnavailableError("sensors", "none is available on this machine", remedy)
    return Collector(list(watching(named).values()))


class Server(Closing):
    """Serves ``/metrics`` until it is closed; each request in a thread of its own.

    Parameters
    ----------
    sensors : sequence of Sensor
        They stay the caller's.
    address : str
        Where to listen; who can reach it can read everything, so this machine alone unless told otherwise.
    port : int
        0: a free one, which :attr:`port` says.

    Raises
    ------
    TargetError
        The address is not one of this machine, or the port is taken.
    """

    def __init__(self, sensors: Sequence[Sensor], address: str = LOOPBACK, port: int = PORT) -> None:
        self._watched = Watched(sensors)
        self._text = Text(_now_s())
        try:
            self._server = _Threads(address, port, functools.partial(_Request, page=self.page))
        except (OSError, OverflowError, UnicodeError) as error:
            self._watched.close()
            msg = f"cannot listen at {address} port {port}: {error}; choose another port or address"
            raise TargetError(msg) from error
        self.address, self.port = address, int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="pmtpy-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What Prometheus is to scrape."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def page(self, *, open_metrics: bool) -> bytes:
        """Read all sensors; return what they show."""
        return self._text.write(self._watched.read(), open_metrics=open_metrics)

    def close(self) -> None:
        """End serving and watching."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._watched.close()


class _Threads(ThreadingHTTPServer):
    """Answers each client in a thread."""

    daemon_threads = True

    def __init__(self, address: str, port: int, handler: Any) -> None:
        self.address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((address, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (as the library calls it)
        """Say nothing of a client that has gone; anything else is logged."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            _log.exception("a request for metrics failed")


class _Request(BaseHTTPRequestHandler):
    """Answers one client."""

    protocol_version = "HTTP/1.1"  # Prometheus keeps its connection
    server_version, sys_version = "pmtpy", ""
    timeout = _CLIENT_TIMEOUT_S
    wbufsize = -1  # head and body leave together, and a kept connection need not wait for the client's answer between

    def __init__(self, *args: Any, page: Any) -> None:
        self._page = page
        super().__init__(*args)

    def do_GET(self) -> None:
        """Send the metrics, in the format that the client prefers."""
        path = self.path.partition("?")[0]
        if path != "/metrics":
            self._send(404 if path != "/" else 200, "text/plain; charset=utf-8", b"the metrics are at /metrics\n")
            return
        new = "application/openmetrics-text" in self.headers.get("Accept", "")
        self._send(200, OPEN_METRICS if new else OLDER_TEXT, self._page(open_metrics=new))

    do_HEAD = do_GET  # noqa: N815

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: a scrape each second is no news."""
