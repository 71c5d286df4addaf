"""The server of ``pmtpy view``: Bokeh's, behind a :class:`~pmtpy.live._guard.Guard`."""

from __future__ import annotations

import asyncio
import io
import math
import signal
import tempfile
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bokeh.document import Document
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.web import HTTPError, RequestHandler

from pmtpy.core.clock import HOST_CLOCK
from pmtpy.errors import PmtError, SinkError
from pmtpy.live._export import KINDS, write_part
from pmtpy.live._guard import Door, Guard
from pmtpy.live._page import Page
from pmtpy.live.desk import Desk
from pmtpy.plotting.style import LIGHT, Theme

_TAKEN_NS = 100_000_000
_LOCAL = ("127.0.0.1", "localhost", "::1")


class View:
    """A server that shows a desk to whoever has its address.

    Parameters
    ----------
    desk : Desk
        Used by the loop's thread alone from now on.
    address : str
        Where to listen.
    port : int
        0: a free one.

    Attributes
    ----------
    url : str
        What to open; it holds the key to the page.
    """

    def __init__(self, desk: Desk, address: str = "127.0.0.1", port: int = 0, theme: Theme = LIGHT) -> None:
        self._desk = desk
        try:
            sockets = bind_sockets(port, address)
        except OSError as error:
            msg = f"cannot listen at {address}:{port}: {error.strerror}; --port names another port, 0 takes a free one"
            raise SinkError(msg) from error
        self.port: int = sockets[0].getsockname()[1]
        hosts = _LOCAL if address in _LOCAL else (*_LOCAL, address)
        self._door = Door(hosts, self.port)
        asyncio.set_event_loop(asyncio.new_event_loop())  # newer Pythons make none by themselves
        self._loop = IOLoop.current()
        shown = f"[{address}]" if ":" in address else address
        self.url = f"http://{shown}:{self.port}/?token={self._door.token}"
        origins = [f"[{h}]:{self.port}" if ":" in h else f"{h}:{self.port}" for h in hosts]
        application = BokehTornado(
            {"/": partial(_show, desk, theme)},
            extra_websocket_origins=origins,
            extra_patterns=[(r"/export", _Export, {"desk": desk})],
        )
        server = HTTPServer(Guard(application, self._door.judge))
        server.add_sockets(sockets)
        self._server = BaseServer(self._loop, application, server)
        self._over = threading.Event()
        # A thread of its own: what it takes must not wait for a page that is being made or drawn.
        self._taking = threading.Thread(target=self._take, name="pmtpy-view", daemon=True)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until :meth:`stop`, or until an exception ends the loop."""
        self._server.start()
        if self._desk.live:
            self._taking.start()
        self._loop.add_callback(ready)
        for number in (signal.SIGINT, signal.SIGTERM):
            # An exception in the midst of a drawing would be the drawing's; the loop ends between two of its tasks.
            signal.signal(number, lambda *_: self._loop.add_callback_from_signal(self._loop.stop))
        try:
            self._loop.start()
        finally:
            self._over.set()
            self._server.stop()
            self._loop.close()

    def _take(self) -> None:
        while not HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + _TAKEN_NS, self._over):
            self._desk.take()

    def stop(self) -> None:
        """End the loop; may be called from any thread."""
        self._loop.add_callback(self._loop.stop)


def _show(desk: Desk, theme: Theme, document: Document) -> None:
    Page(desk, document, theme)


class _Export(RequestHandler):
    """Gives the rows of a stretch as a file."""

    def initialize(self, desk: Desk) -> None:
        """Keep the desk."""
        self._desk = desk

    async def get(self) -> None:
        """Write the file, in a thread of its own: pages go on."""
        try:
            track = self._desk.tracks[abs(int(self.get_query_argument("track")))]
            start, stop = (float(self.get_query_argument(k)) for k in ("from", "to"))
        except (ValueError, IndexError):
            raise HTTPError(400) from None
        kind = self.get_query_argument("as")
        if kind not in KINDS or not math.isfinite(start + stop):
            raise HTTPError(400)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"selection{'-virtual' * track.virtual}.{kind}"

            def work() -> tuple[str, bytes]:
                write_part(track, self._desk.table(track, start, stop), path)
                return _one_file(path)

            try:
                name, content = await IOLoop.current().run_in_executor(None, work)
            except PmtError as error:
                self.set_status(422)
                self.set_header("Content-Type", "text/plain; charset=utf-8")
                self.write(f"{error}\n")
                return
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.write(content)


def _one_file(path: Path) -> tuple[str, bytes]:
    """Return name and bytes of a recording: of one in two files (CSV, whose metadata are beside it) as an archive."""
    files = sorted(path.parent.iterdir())
    if len(files) == 1:
        return path.name, path.read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return f"{path.stem}.zip", packed.getvalue()
