"""Recordings as one HTML file that opens anywhere, without a server: zoom, hover, and sums of what is chosen.

Everything is in the file, the library too, and nothing is loaded from elsewhere. A long recording is there in slices,
and the page says how long they are: the band is the least and greatest value of each, the line its mean. What is chosen
by dragging is summed from energies, slice by slice; no script of ours does it, but tables of Bokeh. Needs bokeh, which
is imported when it is used.
"""

from __future__ import annotations

import html
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy._extras import extra
from pmtpy.core.markers import paired
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import SinkError
from pmtpy.plotting._saying import common_origin, drawn_powers, has_power, noted, overviews, shift, title
from pmtpy.plotting.overview import UNITS, Overview
from pmtpy.plotting.page_style import dress_figure, ground_sheet
from pmtpy.plotting.style import AXES, LIGHT, Theme

if TYPE_CHECKING:
    import pandas as pd

SUFFIX = ".html"
MAX_DRAWN_ROWS = 1 << 16
"""Rows that are drawn one by one where there are few lines."""
_NUMBERS = 1 << 17  # of means on a page: some megabytes, which a browser draws in a tenth of a second
_SLICES = 8192  # of each line in any case
_MOST_LABELS = 200  # each is laid out anew when the page is moved
# Bokeh shows the titles of a table as HTML up to 3.9 and as text from 3.10 on: without these they look alike in both.
_PLAIN = str.maketrans("<>", "()")


def write_html(
    recordings: Mapping[str, Overview | pd.DataFrame],
    out: str | os.PathLike[str],
    *,
    channels: Sequence[str] | None = None,
    theme: Theme = LIGHT,
) -> None:
    """Draw recordings into an HTML file, which is replaced if it exists. Arguments as for a picture.

    Raises MissingPackageError: bokeh is not installed.
    Raises TargetError: there is no such channel, or no power.
    Raises SinkError: the file cannot be written.
    """
    path = Path(out)
    text = page(recordings, channels=channels, theme=theme)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise SinkError(msg) from error


def page(
    recordings: Mapping[str, Overview | pd.DataFrame], *, channels: Sequence[str] | None = None, theme: Theme = LIGHT
) -> str:
    """Return recordings as the text of an HTML page. Arguments and errors as :func:`write_html` has them."""
    with extra("bokeh", "an HTML page"):
        from bokeh.embed import file_html
        from bokeh.layouts import column
        from bokeh.models import Div
        from bokeh.resources import INLINE
    shown = overviews(recordings, channels)
    origin = common_origin(shown)
    parts: list[Any] = []
    axis: Any = None
    for name, each in shown.items():
        if not has_power(each) and not channels:
            continue
        made = _Drawing(name, each, shift(each, origin), channels=channels, theme=theme, axis=axis)
        axis = made.axis if origin is not None else None
        parts += made.parts
    for name, each in shown.items():
        if each.facts.get("notes"):
            said = "; ".join(map(str, each.facts["notes"]))
            parts.append(Div(text=html.escape(f"{name}: {said}"), styles={"color": theme.ink}))
    whole = column(*parts, sizing_mode="stretch_width", stylesheets=[ground_sheet(theme)])
    return str(file_html(whole, INLINE, title=", ".join(shown)))


class _Drawing:
    """The parts of the page that show one recording.

    Attributes
    ----------
    axis : Range1d
        The axis of time, which others may share.
    parts : list
        What is drawn, from above.
    """

    def __init__(
        self,
        name: str,
        shown: Overview,
        by: float,
        *,
        channels: Sequence[str] | None,
        theme: Theme,
        axis: Any,
    ) -> None:
        from bokeh.models import ColumnDataSource, Range1d

        self._name, self._shown, self._by, self._theme = name, shown, by, theme
        self._powers = drawn_powers(shown, channels)
        lines = sum(len(self._lines(unit)) for unit in UNITS)
        self._slices = shown.slices.thinned(min(MAX_DRAWN_ROWS, max(_SLICES, _NUMBERS // max(lines, 1))))
        self.axis = axis or Range1d(shown.first + by, max(shown.last, shown.first + 1e-6) + by, min_interval=2e-6)
        self._source = ColumnDataSource(self._columns())
        drawn = [self._figure(unit) for unit in UNITS if self._lines(unit)]
        for figure in drawn:
            figure.y_range.renderers = [r for r in figure.renderers if r.name != "beside"]
        drawn[-1].xaxis.axis_label = f"seconds since {'the earliest' if by or axis else 'the first'} row"
        self.parts = [self._heading(), self._sums(), *drawn]

    def _lines(self, unit: str) -> list[str]:
        if unit == "W":
            return [f"{p}_W" for p in self._powers]
        columns = [c for c in self._shown.columns if c.endswith(f"_{unit}")]
        return [c for c in columns if math.isfinite(self._shown.mean(c))]

    def _columns(self) -> dict[str, Any]:
        """Return the slices, broken where rows were lost, by the names that the page uses for them."""
        slices, shown = self._slices, self._shown
        count = len(slices)
        start = np.concatenate([[shown.first], slices.last[:-1]])
        columns: dict[str, Any] = {"t": slices.t / slices.rows + self._by, "s": slices.last - start}
        for unit in UNITS:
            for line in self._lines(unit):
                i = shown.columns.index(line)
                known = slices.known[:, i] > 0
                with np.errstate(invalid="ignore", divide="ignore"):
                    columns[line] = np.where(known, slices.total[:, i] / slices.known[:, i], np.nan)
                columns[f"{line} low"], columns[f"{line} high"] = slices.low[:, i], slices.high[:, i]
        for power in self._powers:
            joules = slices.joules[:, shown.energies.index(power)]
            # Where a slice ends with no energy, that of the next one that has one includes it.
            known = np.maximum.accumulate(np.where(np.isfinite(joules), np.arange(count), -1))
            begin = shown.first_joules[shown.energies.index(power)]
            columns[f"{power}_J"] = np.diff(np.where(known >= 0, joules[known], begin), prepend=begin)
        columns["lost"] = slices.lost
        columns["of"] = np.full(count, "chosen", object)
        return columns

    def _heading(self) -> Any:
        from bokeh.models import Div

        slices, shown = self._slices, self._shown
        if len(slices) == shown.rows:
            drawn = "Every row is drawn"
        else:
            length = (shown.last - shown.first) / max(len(slices), 1)
            drawn = (
                f"{shown.rows:,} rows are drawn as {len(slices):,} slices of about {length:.3g} s:"
                " the band is the least and greatest value in each, the line the mean, and zooming in shows no more."
                " Single rows are drawn of a shorter part (pmtpy plot --from TIME --to TIME), or by pmtpy view"
            )
        who, _, what = title(self._name, shown).partition("\n")
        lost = f", {amount(shown.lost, 'row')} lost" if shown.lost else ""
        regions, single = paired(shown.marks)
        beside = {"regions": len(regions) + len(shown.regions), "marks": len(single), "losses": len(shown.gaps)}
        unnamed = [f"{number:,} {what}" for what, number in beside.items() if number > _MOST_LABELS]
        drawn += f". Without their names, which are too many: {', '.join(unnamed)}" if unnamed else ""
        text = (
            f"<b>{html.escape(who)}</b><br>{html.escape(what)}{lost}<br>"
            f"{''.join(f'{html.escape(each)}<br>' for each in noted(shown))}"
            f"<small>{drawn}. Wheel zooms; drag chooses a stretch, whose energies are summed below"
            f"{' to whole slices' if len(slices) < shown.rows else ''}; a click on a name hides its line.</small>"
        )
        return Div(text=text, sizing_mode="stretch_width", styles={"color": self._theme.ink})

    def _sums(self) -> Any:
        """Return a table of one row: what the chosen slices sum up to, at first all."""
        from bokeh.models import (
            CDSView,
            ColumnDataSource,
            DataCube,
            GroupingInfo,
            IndexFilter,
            MaxAggregator,
            MinAggregator,
            NumberFormatter,
            SumAggregator,
            TableColumn,
        )
        from bokeh.util.warnings import BokehDeprecationWarning

        energies = [f"{p}_J" for p in self._powers]
        first, data = f"{self._powers[0]}_W", self._source.data
        extremes = _numeral(_largest(data[f"{first} high"]))
        wanted = [
            ("s", "s", "0.000000"),
            *((e, f"{e[:-2].translate(_PLAIN)} J", _numeral(float(np.nansum(data[e])))) for e in energies),
            ("lost", "rows lost", "0"),
            (f"{first} low", f"min {first[:-2].translate(_PLAIN)} W", extremes),
            (f"{first} high", f"max {first[:-2].translate(_PLAIN)} W", extremes),
        ]
        rows = ColumnDataSource({key: self._source.data[key] for key, _, _ in wanted} | {"of": self._source.data["of"]})
        chosen = IndexFilter()
        sums = [SumAggregator(field_=key) for key, _, _ in wanted[:-2]]
        grouped = GroupingInfo(
            getter="of", collapsed=True,
            aggregators=[*sums, MinAggregator(field_=wanted[-2][0]), MaxAggregator(field_=wanted[-1][0])],
        )  # fmt: skip
        with warnings.catch_warnings():
            # Bokeh 3.10 takes it out of use from Bokeh 4 on and has no successor: the extra asks for an older one.
            warnings.simplefilter("ignore", BokehDeprecationWarning)
            cube = DataCube(
                source=rows,
                view=CDSView(filter=chosen),
                columns=[
                    TableColumn(field="of", title="stretch"),
                    *(TableColumn(field=k, title=t, formatter=NumberFormatter(format=f)) for k, t, f in wanted),
                ],
                grouping=[grouped],
                target=ColumnDataSource({"row_indices": [], "labels": []}),
                selectable=False, sortable=False, reorderable=False, index_position=None,
                height=62, sizing_mode="stretch_width", name="sums", stylesheets=[self._table_style()],
            )  # fmt: skip
        self._source.selected.js_link("indices", chosen, "indices")
        self._source.selected.js_link("indices", cube, "tags")  # whose change makes the table draw itself again
        return cube

    def _table_style(self) -> Any:
        from bokeh.models import InlineStyleSheet

        theme = self._theme
        row = f".slick-row, .slick-cell, .slick-header-column {{ background: {theme.ground}; color: {theme.ink} }}"
        return InlineStyleSheet(css=row + " .slick-group-toggle { display: none !important }")

    def _figure(self, unit: str) -> Any:
        from bokeh.models import BoxSelectTool, HoverTool
        from bokeh.plotting import figure

        lines, theme = self._lines(unit), self._theme
        drawn = figure(
            x_range=self.axis, height=360 if unit == "W" else 190, sizing_mode="stretch_width", title=None,
            tools="xpan,xwheel_zoom,xbox_zoom,reset,save", active_scroll="xwheel_zoom",
        )  # fmt: skip
        choose = BoxSelectTool(dimensions="width", persistent=True)
        choose.overlay.update(fill_alpha=0.2, fill_color="#E69F00", line_color="#E69F00")
        drawn.add_tools(choose)
        drawn.toolbar.active_drag = choose
        hovered = [("t", "@t{0.000000} s")]
        for number, line in enumerate(lines):
            stem = line.rpartition("_")[0]
            colour, _ = theme.line(self._powers.index(stem) if stem in self._powers else number)  # as its power has it
            self._curve(drawn, line, colour)
            numeral = _numeral(_largest(self._source.data[line]))
            hovered.append((line.rpartition("_")[0], f"@{{{line}}}{{{numeral}}} {unit}"))
        # What is dragged over is found by its points; they are not seen.
        kinds = ("", "nonselection_", "selection_")
        unseen = {f"{kind}{part}_alpha": 0 for kind in kinds for part in ("fill", "line")}
        drawn.scatter("t", lines[0], source=self._source, size=1, **unseen)
        nearest = drawn.line("t", lines[0], source=self._source, line_alpha=0, nonselection_line_alpha=0)
        drawn.add_tools(HoverTool(tooltips=hovered, mode="vline", line_policy="nearest", renderers=[nearest]))
        drawn.yaxis.axis_label = AXES[unit].label
        dress_figure(drawn, theme)
        self._beside(drawn, labelled=unit == "W")
        return drawn

    def _curve(self, drawn: Any, line: str, colour: str) -> None:
        """Add a band and a line, interrupted where rows were lost, or nothing is known of the power."""
        from bokeh.models import ColumnDataSource

        data = self._source.data
        spans = [(a, b) for a, b, _ in self._shown.gaps]
        spans += zip(*self._shown.unknown.get(line.removesuffix("_W"), ((), ())), strict=True)
        values = [np.asarray(data[k]) for k in (line, f"{line} low", f"{line} high")]
        curve = self._broken(spans, np.asarray(data["t"]), *values)
        source = ColumnDataSource(dict(zip(("t", "mean", "low", "high"), curve, strict=True)))
        if len(self._slices) < self._shown.rows:
            drawn.varea("t", "low", "high", source=source, fill_color=colour, fill_alpha=0.25)
        drawn.line("t", "mean", source=source, line_color=colour, line_width=1.3, legend_label=line.rpartition("_")[0])

    def _broken(self, spans: Sequence[tuple[float, float]], t: Floats, *values: Floats) -> list[Floats]:
        middle = [(a + b) / 2 + self._by for a, b in spans]
        at = np.searchsorted(t, middle)
        inside = [(i, m) for i, m in zip(at.tolist(), middle, strict=True) if 0 < i < len(t)]
        where = [i for i, _ in inside]
        return [np.insert(t, where, [m for _, m in inside]), *(np.insert(v, where, np.nan) for v in values)]

    def _beside(self, drawn: Any, *, labelled: bool) -> None:
        """Add marks, regions and losses."""
        from bokeh.models import ColumnDataSource, LabelSet

        theme, by = self._theme, self._by
        regions, single = paired(self._shown.marks)
        regions += self._shown.regions
        spans: dict[str, list[Any]] = {"x": [r.start + by for r in regions], "end": [r.end + by for r in regions]}
        spans["text"] = [r.name for r in regions]
        marks: dict[str, list[Any]] = {"x": [t + by for t, _ in single], "text": [text for _, text in single]}
        gaps: dict[str, list[Any]] = {
            "x": [a + by for a, _, _ in self._shown.gaps],
            "end": [b + by for _, b, _ in self._shown.gaps],
        }
        gaps["text"] = [f"{n} lost" for _, _, n in self._shown.gaps]
        sources = [ColumnDataSource(d) for d in (spans, marks, gaps)]
        drawn.vstrip("x", "end", source=sources[0], fill_color=theme.edge, fill_alpha=0.2, line_alpha=0, name="beside")
        drawn.vspan("x", source=sources[1], line_color=theme.edge, line_dash="2 3", name="beside")
        drawn.vstrip("x", "end", source=sources[2], fill_color=theme.shade, hatch_pattern="x", hatch_color=theme.edge,
                     line_color=theme.edge, name="beside")  # fmt: skip
        for source in [s for s in sources if len(s.data["x"]) <= _MOST_LABELS] if labelled else ():
            drawn.add_layout(LabelSet(x="x", y=4, y_units="screen", text="text", source=source, x_offset=3,
                                      text_font_size="9pt", text_color=theme.ink))  # fmt: skip


def _largest(values: Sequence[float]) -> float:
    """Return the largest size of a column; 0 where it has no value."""
    sizes = np.abs(np.asarray(values, np.float64))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def _numeral(size: float) -> str:
    """Return how Bokeh shall write numbers up to a size: five digits that matter, and three decimals at least."""
    places = 4 - math.floor(math.log10(size)) if size > 0.0 and math.isfinite(size) else 0
    return "0." + "0" * min(max(3, places), 12)
