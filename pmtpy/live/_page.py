"""The page of one viewer, made of Bokeh's models. Everything that is shown comes from the :class:`Desk`.

A viewer that stalls or is slow costs nobody else anything, and does not fall behind: its figures are filled again when
it has said that it has taken them.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bokeh.events import DocumentReady, RangesUpdate, Reset, SelectionGeometry
from bokeh.layouts import column, row
from bokeh.models import (
    BoxAnnotation,
    Button,
    ColumnDataSource,
    Div,
    HoverTool,
    LabelSet,
    NumericInput,
    Range1d,
    RangeTool,
    Select,
    SetValue,
    Span,
    TextInput,
    Toggle,
    Widget,
)
from bokeh.plotting import figure

from pmtpy.core.markers import paired
from pmtpy.live._export import KINDS
from pmtpy.live._trigger import Condition, window
from pmtpy.live._wording import HINT, selection_html, state, title, utc
from pmtpy.live.desk import Desk
from pmtpy.live.tracks import Track
from pmtpy.plotting.decimate import Envelope, held, interrupted
from pmtpy.plotting.page_style import control_sheet, dress_figure, ground_sheet
from pmtpy.plotting.style import AXES, LIGHT, Theme

if TYPE_CHECKING:
    from bokeh.document import Document

_SLICES = 900
_OVERVIEW = 400
_MOST_MARKS = 200
_FOLLOWED_S = 10.0
_PERIOD_MS = 200
_numbers = itertools.count()


@dataclass(slots=True)
class _Panel:
    """One pair of axes: a unit of a track."""

    track: Track
    lines: Sequence[int]
    bands: list[ColumnDataSource]
    figure: Any


class Page:
    """One viewer's page."""

    def __init__(self, desk: Desk, document: Document, theme: Theme = LIGHT) -> None:
        self._desk, self._document, self._theme = desk, document, theme
        self._number = next(_numbers)
        self._showing = False  # an event of a trigger, whose rows have not come yet
        start, stop = desk.span
        if desk.live:
            start = max(start, stop - _FOLLOWED_S)
        stop = stop if stop > start else start + 1.0
        self._range = Range1d(start, stop, min_interval=2e-6)
        self._drawn: tuple[float, float, float] | None = None
        self._moving = False  # whether the range is moved by us
        # Behind each drawing a number is sent; the viewer writes it into the other model when it comes to it.
        self._ready, self._taken = False, Range1d(start=0)
        self._answer = SetValue(obj=self._taken, attr="start", value=0)
        self._sent = Range1d(start=0, js_property_callbacks={"change:start": [self._answer]})
        self._cursors = [Span(dimension="height", line_color="#888888", line_dash="4 2", visible=False) for _ in "ab"]
        self._chosen = BoxAnnotation(fill_alpha=0.12, fill_color="#E69F00", visible=False)
        self._panels = [p for track in desk.tracks for p in self._panels_of(track)]
        self._marks = [
            (t, ColumnDataSource({"x": [], "text": []}), ColumnDataSource({"left": [], "right": [], "text": []}))
            for t in desk.tracks
        ]
        self._decorate()
        self._controls()
        document.title = "pmtpy view"
        document.add_root(self._layout())
        self.draw(force=True)
        if desk.live:
            document.on_event(DocumentReady, lambda _event: self._begin())
            document.add_periodic_callback(self._tick, _PERIOD_MS)
        document.on_session_destroyed(lambda _context: desk.disarm(self._number))

    # -- figures ---------------------------------------------------------------------------------------------------

    def _panels_of(self, track: Track) -> list[_Panel]:
        return [self._panel(track, unit) for unit in AXES if any(x.unit == unit for x in track.lines)]

    def _panel(self, track: Track, unit: str) -> _Panel:
        lines = [i for i, x in enumerate(track.lines) if x.unit == unit]
        drawn = figure(
            x_range=self._range,
            height=260 if unit == "W" else 150,
            sizing_mode="stretch_width",
            tools="xpan,xwheel_zoom,xbox_zoom,xbox_select,reset,save",
            active_scroll="xwheel_zoom",
            active_drag="xbox_select",
            title=title(track, None if self._desk.one_clock else self._desk.zero(track)) if unit == "W" else None,
            name=f"{track.name} {unit}",
        )
        drawn.yaxis.axis_label = AXES[unit].label
        sources, powers = [], [x.name for x in track.lines if x.unit == "W"]
        for n, i in enumerate(lines):
            source = ColumnDataSource({"t": [], "low": [], "mean": [], "high": []})
            stem = track.lines[i].name  # volts and amperes have the colour of their power
            colour, _ = self._theme.line(powers.index(stem) if stem in powers else n)
            drawn.varea("t", "low", "high", source=source, fill_color=colour, fill_alpha=0.25)
            drawn.line("t", "mean", source=source, line_color=colour, line_width=1.3, legend_label=track.lines[i].name)
            sources.append(source)
        dress_figure(drawn, self._theme)
        drawn.add_tools(
            HoverTool(
                tooltips=[("t", "@t{0.000000} s"), ("mean", f"@mean{{%.5g}} {AXES[unit].unit}"), ("low", "@low{%.5g}"),
                          ("high", "@high{%.5g}")],
                formatters=dict.fromkeys(("@mean", "@low", "@high"), "printf"),
                mode="vline", renderers=drawn.renderers[1:2],
            )
        )  # fmt: skip
        for part in (*self._cursors, self._chosen):
            drawn.add_layout(part)
        drawn.on_event(RangesUpdate, self._zoomed)
        drawn.on_event(Reset, self._whole)
        drawn.on_event(SelectionGeometry, self._dragged)
        return _Panel(track, lines, sources, drawn)

    def _decorate(self) -> None:
        """Add marks and regions to each track's powers, and a name to the lowest axis."""
        for track, source, regions in self._marks:
            panel = next(p for p in self._panels if p.track is track)
            panel.figure.y_range.renderers = list(panel.figure.renderers)  # its height is that of the curves alone
            panel.figure.vspan("x", source=source, line_color="#555555", line_dash="2 3")
            panel.figure.vstrip("left", "right", source=regions, fill_color="#999999", fill_alpha=0.15, line_alpha=0)
            for labelled, at in ((source, "x"), (regions, "left")):
                panel.figure.add_layout(
                    LabelSet(
                        x=at,
                        y=4,
                        y_units="screen",
                        text="text",
                        source=labelled,
                        text_font_size="9pt",
                        x_offset=3,
                        text_color=self._theme.ink,
                    )
                )
        origin = self._desk.zero(self._desk.tracks[0]) if self._desk.one_clock else math.nan
        self._panels[-1].figure.xaxis.axis_label = (
            "seconds since the first row" if math.isnan(origin) else f"seconds since {utc(origin)}"
        )

    def _controls(self) -> None:
        first = figure(
            height=70, sizing_mode="stretch_width", tools="", toolbar_location=None, name="minimap", y_axis_type=None,
            x_range=Range1d(*self._desk.span),
        )  # fmt: skip
        first.add_tools(RangeTool(x_range=self._range))
        self._overview = ColumnDataSource({"t": [], "low": [], "high": [], "mean": []})
        first.varea("t", "low", "high", source=self._overview, fill_color="#0072B2", fill_alpha=0.35)
        first.line("t", "mean", source=self._overview, line_color="#0072B2")
        dress_figure(first, self._theme)
        self._minimap = first
        self._from = NumericInput(title="cursor A (s)", mode="float", width=130, name="cursor-a")
        self._to = NumericInput(title="cursor B (s)", mode="float", width=130, name="cursor-b")
        for entered in (self._from, self._to):
            entered.on_change("value", lambda _a, _o, _n: self._entered())
        self._result = Div(text=HINT, name="result", sizing_mode="stretch_width")
        self._state = Div(text="", name="state", sizing_mode="stretch_width")
        self._follow = Toggle(label="follow newest", active=bool(self._desk.live), button_type="success", width=120)
        self._follow.on_change("active", lambda _a, _o, _n: self._tick())
        self._all = Button(label="show all", width=80)
        self._all.on_event("button_click", lambda _event=None: self._whole())
        self._visible = Button(label="select visible", width=110)
        self._visible.on_event("button_click", lambda _event=None: self._choose(*self._shown_part()))
        self._label = TextInput(placeholder="label of a mark", width=150)
        self._mark = Button(label="mark now", width=90)
        self._mark.on_event("button_click", lambda _event=None: self._marked())
        self._source = Select(title="trigger", options=["off", "rising", "falling", "marker"], value="off", width=90)
        self._level = NumericInput(title="level (W)", value=50.0, mode="float", width=90)
        self._hysteresis = NumericInput(title="hysteresis (W)", value=1.0, mode="float", width=90)
        self._text = TextInput(title="marker has", width=100)
        self._before = NumericInput(title="before (s)", value=0.05, mode="float", width=80)
        self._length = NumericInput(title="length (s)", value=0.5, mode="float", width=80)
        self._times = Select(title="and then", options=["stop", "again"], value="stop", width=80)
        for one in (self._source, self._level, self._hysteresis, self._text, self._times):
            one.on_change("value", lambda _a, _o, _n: self._arm())

    def _layout(self) -> Any:
        shown: list[Any] = [self._minimap, *(p.figure for p in self._panels)]
        tools: list[Any] = [self._from, self._to, self._visible, self._all]
        if self._desk.live:
            tools += [self._follow, self._label, self._mark]
        rows: list[Any] = [row(*tools), self._result, *shown, self._state]
        if self._desk.live:
            rows.insert(
                1, row(self._source, self._level, self._hysteresis, self._text, self._before, self._length, self._times)
            )
        sheets = [ground_sheet(self._theme)]
        whole = column(*rows, sizing_mode="stretch_width", stylesheets=sheets, tags=[self._sent])
        for widget in whole.select({"type": Widget}):
            widget.stylesheets = [control_sheet(self._theme)]
        return whole

    # -- drawing ---------------------------------------------------------------------------------------------------

    def draw(self, *, force: bool = False) -> None:
        """Fill the figures for the visible stretch, if it or what is in it has changed."""
        start, stop = float(self._range.start), float(self._range.end)
        newest = self._desk.span[1]
        fresh = newest if self._desk.live else 0.0
        if not force and self._drawn is not None:
            same = self._drawn[:2] == (start, stop)
            if same and (self._drawn[2] == fresh or self._drawn[2] > stop):
                return
        self._drawn = (start, stop, fresh)
        for panel in self._panels:
            for i, source in zip(panel.lines, panel.bands, strict=True):
                track = panel.track
                drawn = self._desk.draw(track, i, start, stop, _SLICES)
                drawn = held(drawn, track.lines[i].name, track.facts or {}) if track.lines[i].unit == "W" else drawn
                source.data = _columns(self._gapped(track, drawn), AXES[track.lines[i].unit].factor)
        crowded = list[str]()
        for track, source, regions in self._marks:
            paired_marks, single = paired(self._desk.marks(track, start, stop))
            spans = [*paired_marks, *self._desk.regions(track, start, stop)]
            for what, number in (("regions", len(spans)), ("marks", len(single))):
                if number > _MOST_MARKS:
                    crowded.append(f"{track.target}: the first {_MOST_MARKS} of {number:,} {what} in sight: zoom in")
            spans, single = spans[:_MOST_MARKS], single[:_MOST_MARKS]
            source.data = {"x": [t for t, _ in single], "text": [text for _, text in single]}
            regions.data = {
                "left": [r.start for r in spans],
                "right": [r.end for r in spans],
                "text": [r.name for r in spans],
            }
        whole = self._desk.span
        if force or self._desk.live:
            self._minimap.x_range.update(start=whole[0], end=max(whole[1], whole[0] + 1e-6))
            first = self._desk.tracks[0]
            self._overview.data = _columns(self._gapped(first, self._desk.draw(first, 0, *whole, _OVERVIEW)))
        self._state.text = "<br>".join(map(html.escape, [*map(state, self._desk.tracks), *crowded]))

    def _gapped(self, track: Track, curve: Envelope) -> Envelope:
        """Interrupt a curve where rows were lost."""
        if not len(curve):
            return curve
        gaps = self._desk.gaps(track, float(curve.t[0]), float(curve.t[-1]))
        if not gaps:
            return curve
        import numpy as np

        return interrupted(curve, np.array([a for a, _, _ in gaps]), np.array([b for _, b, _ in gaps]))

    def _begin(self) -> None:
        """Send what comes from now on: the viewer has all that was there before, and answers."""
        self._ready = True

    @property
    def waits(self) -> bool:
        """Whether the viewer has not taken what was sent before: then nothing more is, until it has."""
        return not self._ready or self._taken.start != self._sent.start

    def _tick(self) -> None:
        """Follow the newest rows, if that is wanted, and draw."""
        if self.waits:
            return
        if self._follow.active and self._desk.live:
            stop = self._desk.span[1]
            length = float(self._range.end) - float(self._range.start)
            self._show(stop - length, stop)
        self.draw()
        self._answer.value = self._sent.start + 1
        self._sent.start = self._answer.value

    def _show(self, start: float, stop: float) -> None:
        self._moving = True
        try:
            self._range.update(start=start, end=stop)
        finally:
            self._moving = False

    def _zoomed(self, event: RangesUpdate) -> None:
        """Draw for another stretch: the user has zoomed, and nothing is followed any more."""
        if self._follow.active and abs(float(event.x1 or 0.0) - float(self._range.end)) < 1e-9 and self._moving:
            return
        self._follow.active = False
        self.draw()

    def _whole(self, _event: object = None) -> None:
        self._follow.active = False
        start, stop = self._desk.span
        self._show(start, stop)
        self.draw(force=True)

    def _shown_part(self) -> tuple[float, float]:
        """Return the part of the recording that is visible."""
        first, last = self._desk.span
        return max(float(self._range.start), first), min(float(self._range.end), last)

    # -- the selection ---------------------------------------------------------------------------------------------

    def _dragged(self, event: SelectionGeometry) -> None:
        if event.final and event.geometry.get("type") == "rect":
            self._choose(float(event.geometry["x0"]), float(event.geometry["x1"]))

    def _entered(self) -> None:
        entered = [float(cursor.value) for cursor in (self._from, self._to) if cursor.value is not None]
        if not all(map(math.isfinite, entered)) or len(entered) < len(self._cursors):
            for shown in (*self._cursors, self._chosen):
                shown.visible = False
            self._result.text = "<p>Each of the two cursors stands at a number of seconds, such as 1.5.</p>"
        else:
            self._evaluate(*entered)

    def _choose(self, start: float, stop: float) -> None:
        self._from.value, self._to.value = round(start, 9), round(stop, 9)

    def _evaluate(self, start: float, stop: float) -> None:
        start, stop = min(start, stop), max(start, stop)
        for cursor, at in zip(self._cursors, (start, stop), strict=True):
            cursor.update(location=at, visible=True)
        self._chosen.update(left=start, right=stop, visible=True)
        found = [(t, self._desk.select(t, start, stop)) for t in self._desk.tracks]
        links = [
            f"{html.escape(track.name)}: " + " ".join(_link(i, start, stop, kind) for kind in KINDS)
            for i, (track, selection) in enumerate(found)
            if any(math.isfinite(p.low) for p in selection.powers)  # else it has no row there
        ]
        self._result.text = selection_html(found, stop - start, links)

    # -- live ------------------------------------------------------------------------------------------------------

    def _marked(self) -> None:
        problem = self._desk.mark(self._label.value or "mark")
        self._label.value = ""
        if problem:
            self._state.text = html.escape(problem)

    def _arm(self) -> None:
        kind = self._source.value
        if kind == "off":
            self._desk.disarm(self._number)
            return
        condition = Condition(
            float(self._level.value or 0.0),
            float(self._hysteresis.value or 0.0),
            kind == "falling",
            (self._text.value or "mark") if kind == "marker" else "",
        )

        def tell(at: float) -> None:
            self._document.add_next_tick_callback(lambda: self._hit(at))

        self._desk.arm(self._number, condition, tell)

    def _hit(self, at: float) -> None:
        """Show an event, once the rows behind it have come; what comes meanwhile is passed over, as with a meter."""
        if self._showing or self._source.value == "off":
            return
        self._showing = True
        start, stop = window(at, float(self._before.value or 0.0), float(self._length.value or 1.0))
        self._follow.active = False
        self._show(start, stop)
        self._choose(at, stop)
        if self._times.value == "stop":
            self._source.value = "off"

        def settled() -> None:
            self._showing = False
            self.draw(force=True)
            self._entered()

        self._document.add_timeout_callback(settled, round(1e3 * max(0.0, stop - self._desk.span[1])) + 2 * _PERIOD_MS)


def _link(track: int, start: float, stop: float, kind: str) -> str:
    query = html.escape(urlencode({"track": track, "from": start, "to": stop, "as": kind}))
    return f'<a download href="/export?{query}" style="color: inherit">{kind}</a>'


def _columns(curve: Envelope, factor: float = 1.0) -> dict[str, Any]:
    return {"t": curve.t, "low": curve.low * factor, "mean": curve.mean * factor, "high": curve.high * factor}
