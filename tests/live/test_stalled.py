"""A browser that never reads: its connection is full, and that is all that happens."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="needs the extra live: pip install 'pmtpy[live]'")

from tornado.netutil import bind_sockets

import pmtpy as pmt
from pmtpy.live import server
from pmtpy.live._page import Page, stalls
from pmtpy.live.desk import Desk
from pmtpy.live.sensing import LiveTrack
from pmtpy.plotting.style import Theme

_PATIENCE_S = 120.0
_SMALL = 4096  # bytes that the system holds for a connection, so that it is full soon


def _opened(url: str) -> socket.socket:
    """Open the page's connection as a browser does; read its answer and nothing more."""
    host, port, token = re.match(r"http://(.*):(\d+)/\?token=(.*)", url).groups()  # type: ignore[union-attr]
    asked = http.client.HTTPConnection(host, int(port), timeout=_PATIENCE_S)
    asked.request("GET", f"/?token={token}")
    answer = asked.getresponse()
    answer.read()
    cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
    asked = http.client.HTTPConnection(host, int(port), timeout=_PATIENCE_S)
    asked.request("GET", "/", headers={"Cookie": cookie})
    page = asked.getresponse().read().decode()
    asked.close()
    session = re.search(r'"token":"([^"]+)"', page).group(1)  # type: ignore[union-attr]
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
    line.settimeout(_PATIENCE_S)
    line.connect((host, int(port)))
    line.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: http://{host}:{port}\r\nCookie: {cookie}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: bokeh, {session}\r\n\r\n".encode()
    )
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        said += line.recv(1)
    assert b" 101 " in said.splitlines()[0]
    return line


def test_a_socket_that_is_never_read_costs_no_memory_no_row_and_no_other_viewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents: list[Any] = []
    bind, make = bind_sockets, Page

    def bound(port: int, address: str) -> list[socket.socket]:
        sockets: list[socket.socket] = bind(port, address)
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SMALL)
        return sockets

    def shown(desk: Desk, document: Any, theme: Theme) -> None:
        documents.append(document)
        make(desk, document, theme)

    monkeypatch.setattr(server, "bind_sockets", bound)
    monkeypatch.setattr(server, "Page", shown)
    with pmt.create("powersensor3:virtual", load="square:low=30,high=90,hz=2") as sensor:
        view = server.View(Desk([LiveTrack(sensor)]))
        found: dict[str, object] = {}
        watching = threading.Thread(target=_watch, args=(view, documents, sensor, found), name="browsers")
        try:
            view.run(watching.start)
        finally:
            watching.join(_PATIENCE_S)
    assert found.pop("error", None) is None
    assert found == {"held": True, "grown": 0, "lost": 0, "stopped": True}


def _watch(view: server.View, documents: list[Any], sensor: pmt.Sensor, found: dict[str, object]) -> None:
    """Be two browsers, of which one reads."""
    try:
        with _opened(view.url) as stalled:
            found["stopped"] = _until(lambda: stalls(documents[0]))
            with _opened(view.url) as healthy:
                before = -1
                for _ in range(20):  # until the system has taken all it takes, and a message is not just being put
                    taken = 0
                    while taken < 300_000:  # several drawings
                        taken += len(healthy.recv(1 << 16))
                    before, found["grown"] = _waiting(documents[0]), _waiting(documents[0]) - before
                    if found["grown"] == 0:
                        break
                found["held"] = stalls(documents[0])
            stalled.shutdown(socket.SHUT_RDWR)
        found["lost"] = int(sensor.history().lost.sum())
    except Exception as error:  # noqa: BLE001  (told by the test)
        found["error"] = repr(error)
    finally:
        view.stop()


def _until(true: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(true() or pause.wait(0.05) for _ in range(int(_PATIENCE_S / 0.05)))


def _waiting(document: Any) -> int:
    """Return the bytes that the server holds for the viewer of a document."""
    (line,) = document.session_context.session._subscribed_connections
    return len(line._socket.ws_connection.stream._write_buffer)
