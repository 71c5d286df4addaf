"""A browser that takes nothing: it is sent no more, and that is all that happens."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="needs the extra live: pip install 'pmtpy[live]'")

import pmtpy as pmt
from pmtpy.live import server
from pmtpy.live._page import Page
from pmtpy.live.desk import Desk
from pmtpy.live.sensing import LiveTrack
from pmtpy.plotting.style import Theme

_PATIENCE_S = 120.0


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


def test_a_viewer_that_takes_nothing_is_sent_one_drawing_and_costs_no_row_and_no_other_viewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages: list[Page] = []

    def shown(desk: Desk, document: Any, theme: Theme) -> None:
        pages.append(Page(desk, document, theme))

    monkeypatch.setattr(server, "Page", shown)
    with pmt.create("powersensor3:virtual", load="square:low=30,high=90,hz=2") as sensor:
        view = server.View(Desk([LiveTrack(sensor)]))
        found: dict[str, object] = {}
        watching = threading.Thread(target=_watch, args=(view, pages, sensor, found), name="browsers")
        try:
            view.run(watching.start)
        finally:
            watching.join(_PATIENCE_S)
    assert found.pop("error", None) is None
    assert found == {"silent": 0, "stalled": 1, "healthy": 5, "lost": 0}


def _watch(view: server.View, pages: list[Page], sensor: pmt.Sensor, found: dict[str, object]) -> None:
    """Be three browsers: one has not even shown the page, one has and takes nothing more, one takes what it is sent."""
    try:
        with _opened(view.url), _opened(view.url), _opened(view.url) as healthy:
            silent, stalled, taking = pages
            stalled._begin()
            taking._begin()
            taken = 0
            while taken < 5:
                assert _until(lambda: taking.waits)
                healthy.recv(1 << 16)
                taken = int(taking._sent.start)
                taking._document.add_next_tick_callback(lambda: taking._taken.update(start=taking._sent.start))
                assert _until(lambda taken=taken: not taking.waits or taking._sent.start > taken)  # type: ignore[misc]
            found |= {"silent": silent._sent.start, "stalled": stalled._sent.start, "healthy": taken}
        found["lost"] = int(sensor.history().lost.sum())
    except Exception as error:  # noqa: BLE001  (told by the test)
        found["error"] = repr(error)
    finally:
        view.stop()


def _until(true: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(true() or pause.wait(0.05) for _ in range(int(_PATIENCE_S / 0.05)))
