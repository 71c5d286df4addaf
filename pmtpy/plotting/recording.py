"""Pictures of recorded power over time, one panel for each recording or all in one.

Made for looking at long recordings and for print: ten million rows become the least, mean and greatest power of each
slice of time; lines differ in style and not only in colour; what was lost, what is virtual and what is incomplete is
said. Takes tables as :func:`pmtpy.load` makes them. Needs matplotlib, which is imported when it is used.
"""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pmtpy._extras import extra
from pmtpy.core.channel import TOTAL, kind_of, sum_of_kinds
from pmtpy.core.markers import Span, paired
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import SinkError, TargetError
from pmtpy.plotting._saying import common_origin, drawn_powers, has_power, noted, overviews, shift, title
from pmtpy.plotting._smooth import smoothed
from pmtpy.plotting.decimate import Envelope, are_means, interrupted, joined_spans, widened
from pmtpy.plotting.overview import Overview
from pmtpy.plotting.style import LIGHT, EndLabel, Theme, dress, label_ends, letter_by_letter

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_WIDTH_IN, _PANEL_IN, _DPI = 8.0, 2.9, 150
_SLICES = 1600  # about two for each dot of the axis
_MOST_LABELS = 14
_END = 400  # the last of so many parts of a curve are its end: more would take in its last edge
_NOTES, _NOTE_LETTERS = 2, 110  # as many as a panel has room for; all of them are in an HTML page, and on stderr
_BESIDE_LETTERS = (
    45  # of a line of the title beside which there is room for a word on bands, names at the right included
)
_SHOWN_BAND = 0.01  # part of the height below which an uncertainty is thinner than its line


@dataclass(frozen=True, slots=True)
class _Line:
    """A curve."""

    label: str
    curve: Envelope
    rows: bool  # each point is a row, and not a slice
    means: bool = False  # each value is the mean since the row before, and not that of an instant
    # standard uncertainty of gain (relative) and zero (W), where the file says so
    gain_u: float = 0.0
    offset_u: float = 0.0


@dataclass(frozen=True, slots=True)
class _Panel:
    """What one pair of axes shows, times in seconds. Among others it is called ``short``, or where two are ``name``."""

    title: str
    short: str
    name: str
    lines: Sequence[_Line]
    regions: Sequence[Span]
    marks: Sequence[tuple[float, str]]
    lost: int
    gaps: tuple[Floats, Floats]
    notes: Sequence[str]


def plot(
    recordings: Mapping[str, Overview | pd.DataFrame],
    out: str | os.PathLike[str],
    *,
    overlay: bool = False,
    channels: Sequence[str] | None = None,
    smooth: bool = False,
    theme: Theme = LIGHT,
) -> None:
    """Draw recordings into a PNG, SVG or PDF file, which is replaced if it exists.

    Recordings that overlap in Unix time are drawn on that common clock, others each from their own start. A table
    without power gives its marks to the others.

    Parameters
    ----------
    recordings : mapping of str to Overview or DataFrame
        By the name to show. A table is as :func:`pmtpy.load` makes it.
    overlay : bool
        All totals in one panel, instead of one panel for each recording.
    channels : sequence of str, optional
        Powers to draw, as in the columns without ``_W``; None: the total, and the largest others.
    smooth : bool
        Smooth the lines for the eye (:mod:`pmtpy.plotting._smooth`), and say so.
    Raises TargetError: the suffix of ``out`` is unknown, no table has power, or there is no such channel.
    Raises SinkError: the picture cannot be written.
    """
    path = Path(out)
    if path.suffix.lower() not in SUFFIXES:
        msg = f"a picture is written to a file that ends in {', '.join(SUFFIXES)}, not {path.name}"
        raise TargetError(msg)
    figure = _figure(recordings, overlay=overlay, channels=channels, smooth=smooth, theme=theme)
    try:
        figure.savefig(path, dpi=_DPI, facecolor=theme.ground)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise SinkError(msg) from error


def png(recordings: Mapping[str, Overview | pd.DataFrame]) -> bytes:
    """Return recordings, each in a panel, as the content of a PNG file. Errors as for :func:`plot`."""
    into = io.BytesIO()
    figure = _figure(recordings, overlay=False, channels=None)
    figure.savefig(into, format="png", dpi=_DPI * 2 // 3, facecolor=LIGHT.ground)
    return into.getvalue()


def _figure(
    recordings: Mapping[str, Overview | pd.DataFrame],
    *,
    overlay: bool,
    channels: Sequence[str] | None,
    smooth: bool = False,
    theme: Theme = LIGHT,
) -> Figure:
    with extra("matplotlib", "a picture"):
        from matplotlib.figure import Figure
    shown = overviews(recordings, channels)
    powered = {name: o for name, o in shown.items() if has_power(o) or channels}
    origin = common_origin(shown)
    marks = [mark for name, o in shown.items() if name not in powered for mark in _moved(o.marks, o, origin)]
    panels = [_panel(name, o, origin, channels, marks if origin is not None else []) for name, o in powered.items()]
    if smooth:
        panels = [replace(p, lines=[_eased(line) for line in p.lines]) for p in panels]
    if overlay:
        panels = [_overlaid(panels)]
    figure = Figure(figsize=(_WIDTH_IN, _PANEL_IN * len(panels) + 0.3), layout="constrained")
    axes: list[Axes] = list(figure.subplots(len(panels), sharex=origin is not None, squeeze=False)[:, 0])
    for ax, panel in zip(axes, panels, strict=True):
        _draw(ax, panel, theme)
    _limit(axes, panels, shared=origin is not None)
    eased = "; smoothed for the eye" if smooth else ""
    axes[-1].set_xlabel(f"time since {_zero(origin)} (s){eased}", fontsize=9)
    for ax, panel in zip(axes, panels, strict=True):
        dress(ax, theme)
        label_ends(ax, _end_labels(panel, theme))
    letter_by_letter(figure)
    return figure


# -- what to show ------------------------------------------------------------------------------------------------------


def _moved(marks: Sequence[tuple[float, str]], shown: Overview, origin: float | None) -> list[tuple[float, str]]:
    by = shift(shown, origin)
    return [(t + by, text) for t, text in marks]


def _panel(
    name: str, shown: Overview, origin: float | None, channels: Sequence[str] | None, extra: list[tuple[float, str]]
) -> _Panel:
    by = shift(shown, origin)
    said = {c["name"]: c for c in (shown.facts.get("metadata") or {}).get("channels", ())}
    lines = [_line(label, shown, by, said) for label in drawn_powers(shown, channels)]
    whole = shown.facts.get("total")
    lines = [replace(each, label=f"{each.label} (total)") if each.label == whole else each for each in lines]
    found, single = paired(sorted(_moved(shown.marks, shown, origin) + extra, key=itemgetter(0)))
    found += [Span(r.start + by, r.end + by, r.name) for r in shown.regions]
    starts, ends = (np.array([g[i] for g in shown.gaps], np.float64) + by for i in (0, 1))
    return _Panel(
        title(name, shown, lines[0].label if len(lines) == 1 else ""),
        _short(name, shown),
        name,
        lines,
        found,
        single,
        shown.lost,
        joined_spans(starts, ends),
        noted(shown),
    )


def _line(label: str, shown: Overview, by: float, said: Mapping[str, Mapping[str, Any]]) -> _Line:
    """Return a curve, and what the file says of its channel; of a total what its parts make, by their mean powers."""
    parts = [c for c in said.values() if c.get("in_total")] if label == TOTAL else [said.get(label, {})]
    curve = shown.slices.curve(shown.columns.index(f"{label}_W"), _SLICES)
    if label in shown.unknown:
        curve = interrupted(curve, *shown.unknown[label])
    curve = Envelope(curve.t + by, curve.low, curve.mean, curve.high)
    means = are_means(label, shown.facts.get("metadata") or {})
    kinds = [kind_of(str(c.get("name")), product=bool(c.get("of"))) for c in parts]
    gains = [float(c.get("gain_u") or 0.0) for c in parts]
    offset_u = sum_of_kinds(zip(kinds, [float(c.get("offset_u") or 0.0) for c in parts], strict=True))
    gain_u = max(gains, default=0.0)
    if len(parts) > 1:
        powers = [_mean_power(shown, str(c.get("name"))) for c in parts]
        if math.isfinite(sum(powers)) and sum(powers) != 0.0:
            of_each = [g * abs(p) for g, p in zip(gains, powers, strict=True)]
            gain_u = sum_of_kinds(zip(kinds, of_each, strict=True)) / abs(sum(powers))
    return _Line(label, curve, shown.rows <= _SLICES, means, gain_u, offset_u)


def _mean_power(shown: Overview, label: str) -> float:
    """Return the mean power of a channel, W; NaN where none is known."""
    if (column := f"{label}_W") not in shown.columns:
        return math.nan
    means = shown.slices.curve(shown.columns.index(column), _SLICES).mean
    known = means[np.isfinite(means)]
    return float(known.mean()) if len(known) else math.nan


def _eased(line: _Line) -> _Line:
    curve = line.curve
    return replace(line, curve=Envelope(curve.t, curve.low, smoothed(curve.t, curve.mean), curve.high))


def _short(name: str, shown: Overview) -> str:
    """What a recording is called among others: the sensor's target where it is known."""
    called = str((shown.facts.get("metadata") or {}).get("target") or name)
    if shown.facts.get("virtual") and "virtual" not in called:
        called += " [VIRTUAL]"
    return called + (" [incomplete]" if shown.facts.get("complete") is False else "")


def _overlaid(panels: Sequence[_Panel]) -> _Panel:
    """Put the first line of each panel into one."""
    called = [p.short for p in panels]
    names = called if len(set(called)) == len(called) else [p.name for p in panels]
    lines = [replace(p.lines[0], label=name) for p, name in zip(panels, names, strict=True)]
    starts, ends = (np.concatenate([p.gaps[i] for p in panels]) for i in (0, 1))
    order = np.argsort(starts)
    return _Panel(
        "",
        "",
        "",
        lines,
        list(dict.fromkeys(r for p in panels for r in p.regions)),
        list(dict.fromkeys(m for p in panels for m in p.marks)),
        sum(p.lost for p in panels),
        (starts[order], ends[order]),
        [f"{p.name}: {each}" for p in panels for each in p.notes],
    )


# -- how to show it ----------------------------------------------------------------------------------------------------


def _draw(ax: Axes, panel: _Panel, theme: Theme) -> None:
    start, end = _span([panel])
    length = max(end - start, 1e-9)
    height = max(max((float(np.nanmax(line.curve.high, initial=0.0)) for line in panel.lines), default=0.0), 1e-9)
    said = ""
    for number, line in enumerate(panel.lines):
        colour, style = theme.line(number)
        curve = interrupted(line.curve, *panel.gaps)
        many = not line.rows
        steps: Literal["pre"] | None = "pre" if line.means and not many else None
        u = 2.0 * np.hypot(line.gain_u * curve.mean, line.offset_u)
        if np.nanmax(u, initial=0.0) > _SHOWN_BAND * height:
            least = np.maximum(curve.mean - u, np.minimum(curve.mean, 0.0))  # a power that is not negative
            ax.fill_between(
                curve.t, least, curve.mean + u, step=steps, color=colour, alpha=0.13, linewidth=0, zorder=1.8
            )
            spread = "dark band: least to greatest sample\n" if many else ""
            said = f"{spread}pale band: 95 %, by gain and zero"
        if many:
            ax.fill_between(curve.t, curve.low, curve.high, color=colour, alpha=0.22, linewidth=0, zorder=2)
        ax.plot(
            curve.t, curve.mean, color=colour, linestyle=style, linewidth=1.1, label=line.label, zorder=3,
            drawstyle="steps-pre" if steps else "default",
        )  # fmt: skip
        if (alone := _alone(curve.mean)).any():  # no line goes through them
            ax.plot(curve.t[alone], curve.mean[alone], ".", color=colour, markersize=4, zorder=3)
    for a, b in zip(*widened(*panel.gaps, length / 400), strict=True) if panel.lost else ():
        ax.axvspan(a, b, facecolor=theme.shade, edgecolor=theme.edge, hatch="xxx", linewidth=0.6, zorder=1.5)
    _scale(ax)
    _draw_marks(ax, panel, length, theme)
    ax.set_ylabel("power (W)", fontsize=9)
    _headline(ax, panel, said, theme)


def _headline(ax: Axes, panel: _Panel, said: str, theme: Theme) -> None:
    """Write the title and what a reader must know; what bands are stands at its right, or below where that is long."""
    head = "\n".join(filter(None, (panel.title, *_few(panel.notes))))
    rows = len(said.splitlines())
    if any(len(line) > _BESIDE_LETTERS for line in head.splitlines()[-rows:] if rows):
        head += rows * "\n"
    ax.set_title(head, loc="left", fontsize=9, color=theme.ink)
    ax.set_title(said, loc="right", fontsize=7, color=theme.ink)


def _few(notes: Sequence[str]) -> list[str]:
    """Return the first notes, each in one line of a picture, and how many there are besides."""
    said = [textwrap.shorten(each, _NOTE_LETTERS, placeholder=" ...") for each in notes[:_NOTES]]
    return [*said, *([f"and {amount(len(notes) - _NOTES, 'more note')}"] if len(notes) > _NOTES else [])]


def _alone(values: Floats) -> npt.NDArray[np.bool_]:
    """Which values have none beside them."""
    known: npt.NDArray[np.bool_] = np.pad(np.isfinite(values), 1)
    alone: npt.NDArray[np.bool_] = known[1:-1] & ~known[:-2] & ~known[2:]
    return alone


def _end_labels(panel: _Panel, theme: Theme) -> list[EndLabel]:
    """Return the names of the curves where there are several, and how much was lost."""
    labels = []
    for number, line in enumerate(panel.lines if len(panel.lines) > 1 or not panel.title else ()):
        known = np.flatnonzero(np.isfinite(line.curve.mean))
        last = known[-max(len(known) // _END, 1) :]  # a single noisy value tells no place
        y = float(np.median(line.curve.mean[last])) if len(known) else math.nan
        end = float(line.curve.t[known[-1]]) if len(known) else math.nan
        labels.append(EndLabel(line.label, theme.line(number)[0], y, end))
    if panel.lost:
        labels.append(EndLabel(f"{panel.lost} sample{'s' * (panel.lost != 1)} lost", theme.ink, math.nan))
    return labels


def _span(panels: Sequence[_Panel]) -> tuple[float, float]:
    lines = [line for panel in panels for line in panel.lines]
    known = [line.curve.t for line in lines if len(line.curve)]
    return min((float(t[0]) for t in known), default=0.0), max((float(t[-1]) for t in known), default=1.0)


def _limit(axes: Sequence[Axes], panels: Sequence[_Panel], *, shared: bool) -> None:
    """Show all of each recording, or on a common clock all of all."""
    for ax, panel in zip(axes, panels, strict=True):
        start, end = _span(panels if shared else [panel])
        margin = 0.01 * max(end - start, 1e-9)
        ax.set_xlim(start - margin, end + margin)


def _zero(origin: float | None) -> str:
    if origin is None:
        return "the first row"
    return datetime.fromtimestamp(origin, timezone.utc).isoformat(" ", "milliseconds").removesuffix("+00:00") + " UTC"


def _scale(ax: Axes) -> None:
    """Start at zero, unless the power hardly varies; leave room for labels at the top."""
    low, high = ax.dataLim.y0, ax.dataLim.y1
    room = 0.12 * max(high - low, 0.02 * abs(high), 1e-6)
    ax.set_ylim(0.0 if 0 <= low < 0.7 * high else low - room, high + 1.5 * room)


def _draw_marks(ax: Axes, panel: _Panel, length: float, theme: Theme) -> None:
    from matplotlib.patheffects import withStroke

    across = ax.get_xaxis_transform()
    outline = [withStroke(linewidth=2.5, foreground=theme.ground)]  # text is read on any ground, and hides little of it
    # All in one: there may be a hundred thousand, and one artist for each takes a minute and a gigabyte.
    stretches = [(region.start, region.end - region.start) for region in panel.regions]
    look: dict[str, Any] = {"facecolor": theme.shade, "edgecolor": theme.edge, "linewidth": 0.4, "zorder": 0}
    ax.broken_barh(stretches, (0.0, 1.0), transform=across, **look)
    named = [r for r in panel.regions if r.name and r.end - r.start > 0.04 * length]
    for region in named if len(panel.regions) <= _MOST_LABELS else []:
        middle = (region.start + region.end) / 2
        ax.text(
            middle,
            0.98,
            region.name,
            transform=across,
            ha="center",
            va="top",
            fontsize=7.5,
            color=theme.ink,
            clip_on=True,
            path_effects=outline,
        )
    lines: dict[str, Any] = {"colors": theme.edge, "linewidth": 0.8, "linestyle": (0, (2, 2)), "zorder": 2.5}
    ax.vlines([t for t, _ in panel.marks], 0.0, 1.0, transform=across, **lines)
    for t, label in panel.marks if len(panel.marks) <= _MOST_LABELS else []:
        ax.annotate(
            label,
            (t, 0.98),
            xycoords=across,
            xytext=(3, 0),
            textcoords="offset points",
            rotation=90,
            ha="left",
            va="top",
            fontsize=7,
            color=theme.ink,
            annotation_clip=True,
            path_effects=outline,
        )
