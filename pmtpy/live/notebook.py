"""Power in a notebook: recordings that show their curve, and a figure that follows a sensor while a cell runs.

Pictures of matplotlib, replaced through IPython's own display handles: they work in every notebook, need no server,
and the last one stays in the file.
"""

from __future__ import annotations

import base64
import html
import importlib
import threading
from typing import TYPE_CHECKING, Any

from pmtpy.core.clock import HOST_CLOCK, Clock
from pmtpy.errors import PmtError
from pmtpy.live.sensing import LiveTrack
from pmtpy.plotting.recording import png
from pmtpy.sensor.sensor import Sensor

if TYPE_CHECKING:
    import pandas as pd

_LOOK_NS = 500_000_000


def recording_html(table: pd.DataFrame) -> str:
    """Return a table as a notebook shows it: a recording of power with its curve above the rows, others as they are.

    Parameters
    ----------
    table : DataFrame
        A recording is what :func:`pmtpy.load` made, and has its ``attrs``.
    """
    rows = str(table._repr_html_())  # type: ignore[operator]
    if not {"format", "joules", "virtual", "notes"} <= set(table.attrs) or "total_W" not in table:
        return rows
    try:
        picture = _picture(table, str(table.attrs.get("path", "recording")))
    except PmtError:  # no power in it, or no matplotlib: the rows say what there is
        picture = ""
    notes = "".join(f"<li>{html.escape(str(note))}</li>" for note in table.attrs["notes"])
    return picture + (f"<ul>{notes}</ul>" if notes else "") + rows


def _picture(table: pd.DataFrame, name: str) -> str:
    encoded = base64.b64encode(png({name: table})).decode()
    return f'<img alt="{html.escape(name)}" src="data:image/png;base64,{encoded}">'


def follow(sensor: Sensor, seconds: float = 30.0, *, window_s: float = 10.0, clock: Clock = HOST_CLOCK) -> None:
    """Show what a sensor measures, in a figure that is renewed twice a second; end it early by interrupting the cell.

    Parameters
    ----------
    sensor : Sensor
        Open. Whatever else uses it goes on: this looks at its history.
    seconds : float
        How long.
    window_s : float
        How much of the past is shown.
    """
    display_of: Any = importlib.import_module("IPython.display")
    track, handle, never = LiveTrack(sensor, window_s), None, threading.Event()
    end_ns = clock.now_ns() + round(seconds * 1e9)
    try:
        while True:
            now_ns = clock.now_ns()
            track.take()
            newest = track.span[1]
            table = track.table(newest - window_s, newest + 1.0)
            shows = table.filter(regex="_W$").notna().any(axis=None)  # a counter has no power before it has moved twice
            if len(table) > 1 and (shows or now_ns >= end_ns):
                table.attrs = {"path": track.target, "virtual": track.virtual, "metadata": track.facts}
                shown = display_of.HTML(_picture(table, track.name + (f", {track.note}" if track.note else "")))
                if handle is None:
                    handle = display_of.display(shown, display_id=True)
                else:
                    handle.update(shown)
            if now_ns >= end_ns:
                break
            clock.wait_until(min(end_ns, now_ns + _LOOK_NS), never)
    except KeyboardInterrupt:
        pass  # somebody has seen enough: the last picture stays
