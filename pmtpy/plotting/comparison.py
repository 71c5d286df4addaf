"""A comparison of sensors as a picture: their curves over time, regions shaded, two flanks enlarged, what is left.

In the manner of figure 7a of the PowerSensor3 paper (ISPASS 2025): all sensors in one panel, with insets where they
part. Lines differ in style as well as in colour, so that it can be printed in grey. Needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy._extras import extra
from pmtpy.analysis.comparison.compare import WHOLE
from pmtpy.analysis.comparison.results import Comparison, Trace
from pmtpy.analysis.signal.estimate import written
from pmtpy.analysis.signal.trace import stayed_out
from pmtpy.core.channel import EnergyMethod
from pmtpy.core.rows import Floats
from pmtpy.errors import SinkError
from pmtpy.plotting.decimate import envelope, interrupted
from pmtpy.plotting.style import LIGHT, Theme, drawable, dress, letter_by_letter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SLICES, _DPI = 1600, 150
_MOST_DOTS = 400  # readings of which each can be shown by a dot
_MOST_NAMES = 8
_AS_STEEP = 0.8  # a fall with so much of the steepest one shows the same
_SPARE = 0.01  # of a panel's height, left between a frame and the panel's own
_HEAD = 0.2  # of the curves' height, left above them: a line for names of regions, below it one for letters of frames


def draw(
    found: Comparison,
    traces: Sequence[Trace],
    path: Path,
    true_watts: Callable[[Floats], Floats] | None = None,
    theme: Theme = LIGHT,
) -> None:
    """Draw into a PNG, SVG or PDF file, which is replaced if it exists.

    Raises MissingPackageError: matplotlib is not installed.
    Raises SinkError: the picture cannot be written.
    """
    with extra("matplotlib", "a picture"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(8.0, 7.4), layout="constrained")
    _fill(figure, found, traces, true_watts, theme)
    letter_by_letter(figure)
    try:
        figure.savefig(path, dpi=_DPI, facecolor=theme.ground)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise SinkError(msg) from error


def _fill(
    figure: Figure,
    found: Comparison,
    traces: Sequence[Trace],
    true_watts: Callable[[Floats], Floats] | None,
    theme: Theme,
) -> None:
    rows = figure.subplot_mosaic([["all", "all"], ["rise", "fall"], ["left", "left"]], height_ratios=[1.5, 1.2, 0.7])
    zero = _zero(found)
    start, end = _extent(found, zero)
    rise, fall = _flanks(found, traces, zero, (start, end))
    _panel(rows["all"], found, traces, (start, end), zero, true_watts=true_watts, theme=theme)
    rows["all"].set_xlim(start, end)
    low, high = rows["all"].get_ylim()
    rows["all"].set_ylim(low, high + _HEAD * (high - low))
    _shade(rows["all"], found, zero, theme)
    for letter, name, (at, width) in (("A", "rise", rise), ("B", "fall", fall)):
        ax = rows[name]
        _panel(ax, found, traces, (at - 0.35 * width, at + 0.65 * width), zero, true_watts=true_watts, theme=theme)
        ax.set_xlim(at - 0.35 * width, at + 0.65 * width)
        _fit_height(ax)
        _shade(ax, found, zero, theme, named=False)
        way = "rises" if name == "rise" else "falls"
        ax.set_title(f"{letter}: where power {way} most", loc="left", fontsize=8.5, color=theme.ink)
        if any(line.get_marker() == "o" for line in ax.get_lines()):
            ax.set_title("dots: readings", loc="right", fontsize=7, color=theme.ink)
        _frame(rows["all"], letter, ax.get_xlim(), ax.get_ylim(), theme)
    _residuals(rows["left"], found, zero, theme)
    rows["left"].set_xlim(start, end)
    clock = "on one clock" if found.one_clock else "clocks fitted"
    virtual = ", VIRTUAL: the load is known" if true_watts is not None else ""
    rows["all"].set_title(
        f"against {drawable(found.reference)}, {clock}{virtual}", loc="left", fontsize=9, color=theme.ink
    )
    lines = rows["all"].get_lines()
    legend = figure.legend(
        lines, [" "] * len(lines), loc="outside upper center", fontsize=7.5, frameon=False, handlelength=3.4,
        labelcolor=theme.ink,
    )  # fmt: skip
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set_text(str(line.get_label()))  # afterwards: a legend leaves out what begins with an underscore
    rows["left"].set_xlabel("time (s)" if zero == 0.0 else "time since the first row of the reference (s)", fontsize=9)


def _zero(found: Comparison) -> float:
    """Return where the axis starts: as it is for live sensors, the reference's first row for recordings."""
    first = float(found[found.reference].t_s[0])
    return first if abs(first) > 1e6 else 0.0


def _extent(found: Comparison, zero: float) -> tuple[float, float]:
    reference = found[found.reference].t_s
    known = [s for s in found.sensors if len(s.t_s)]
    start = max(float(reference[0]), min(float(s.t_s[0]) for s in known)) - zero
    end = min(float(reference[-1]), max(float(s.t_s[-1]) for s in known)) - zero
    return start, end


def _flanks(
    found: Comparison, traces: Sequence[Trace], zero: float, extent: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return middle and width of a stretch around the steepest rise and fall of the reference."""
    trace = next(t for t in traces if t.name == found.reference)
    lags = [abs(s.lag_s.value) for s in found.sensors if s.lag_s is not None and found.one_clock]
    periods = [s.period_s.value for s in found.sensors if s.period_s is not None]
    widths = [s.kernel.best.window_s.value for s in found.sensors if s.kernel and s.kernel.best.window_s]
    scale = max([*lags, *periods, *widths, 0.02 * (extent[1] - extent[0])])
    width = min(6.0 * scale, 0.35 * (extent[1] - extent[0]))
    grid = np.linspace(extent[0], extent[1], 2000)
    power = np.interp(grid + zero, trace.t_s, _smooth(trace, scale / 10.0))
    inside = (grid > extent[0] + 0.35 * width) & (grid < extent[1] - 0.65 * width)
    step = max(1, round(scale / 4.0 / (grid[1] - grid[0])))
    jump = np.zeros(len(grid))
    jump[step:-step] = power[2 * step :] - power[: -2 * step]
    jump[~inside] = 0.0
    rise, fall = float(grid[np.argmax(jump)]), int(np.argmin(jump))
    apart = np.where(np.abs(grid - rise) > width, jump, 0.0)  # what is enlarged once need not be enlarged twice
    if float(apart.min()) < _AS_STEEP * float(jump[fall]):
        fall = int(np.argmin(apart))
    return (rise, width), (float(grid[fall]), width)


def _smooth(trace: Trace, seconds: float) -> Floats:
    rows = max(1, round(seconds / float(np.median(np.diff(trace.t_s)))))
    if rows < 3:
        return trace.watts
    return np.convolve(trace.watts, np.ones(rows) / rows, mode="same")


def _panel(
    ax: Axes,
    found: Comparison,
    traces: Sequence[Trace],
    extent: tuple[float, float],
    zero: float,
    *,
    true_watts: Callable[[Floats], Floats] | None,
    theme: Theme,
) -> None:
    if true_watts is not None:
        t = np.linspace(*extent, 4000)
        ax.plot(t, true_watts(t + zero), color=theme.edge, alpha=0.7, linewidth=4.0, label="true power", zorder=1)
    for trace in traces:
        s = found[trace.name]
        colour, style = _style(found, trace.name, theme)
        t = s.t_s - zero
        near = (t >= extent[0] - 1.0) & (t <= extent[1] + 1.0)
        t, watts = t[near], trace.watts[near]
        curve = interrupted(envelope(t, watts, _SLICES), *_not_known(trace, t))
        many = len(t) > _SLICES
        if many:
            ax.fill_between(curve.t, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0, zorder=2)
        shape: dict[str, Any] = {} if many else {"drawstyle": _steps(trace)}
        dots = len(t) <= _MOST_DOTS and (extent[1] - extent[0]) < 0.5 * (float(s.t_s[-1]) - float(s.t_s[0]))
        ax.plot(
            curve.t, curve.mean, color=colour, linestyle=style, linewidth=1.2, label=_label(found, trace),
            zorder=3, marker="o" if dots else None, markersize=2.6, **shape,
        )  # fmt: skip
    ax.set_ylabel("power (W)", fontsize=9)
    dress(ax, theme)


def _not_known(trace: Trace, t_s: Floats) -> tuple[Floats, Floats]:
    """Return where the line is to end since no reading came; a counter's and a value that stood are known there."""
    counter = trace.channel is not None and trace.channel.energy_method is EnergyMethod.COUNTER
    if counter or trace.polling is not None or len(t_s) < 2:
        return np.empty(0), np.empty(0)
    last = t_s[:-1][stayed_out(t_s)]
    return last, last + float(np.median(np.diff(t_s)))


def _style(found: Comparison, name: str, theme: Theme) -> tuple[str, Any]:
    """Return colour and line; the reference has the plainest."""
    names = [found.reference, *(s.name for s in found.sensors if s.name != found.reference)]
    return theme.line(names.index(name))


def _steps(trace: Trace) -> str:
    """A counter's power is the mean since the row before; a register shows its value until the next."""
    counted = trace.channel is not None and trace.channel.energy_method is not EnergyMethod.TRAPEZOID
    return "steps-pre" if counted else "steps-post"


def _label(found: Comparison, trace: Trace) -> str:
    s, name = found[trace.name], drawable(trace.name)
    if trace.virtual and "virtual" not in name:
        name += " [VIRTUAL]"
    if s.name == found.reference:
        return f"{name} (reference)"
    counter = trace.channel is not None and trace.channel.energy_method is EnergyMethod.COUNTER
    parts = [
        "mean since the reading before" if counter else "",
        f"lag {written(s.lag_s, 1e3)} ms" if s.lag_s is not None and found.one_clock else "",
        f"gain {written(s.transfer.gain)}" if s.transfer is not None else "",
        f"offset {written(s.transfer.intercept_w)} W" if s.transfer is not None else "",
    ]
    return f"{name}: {', '.join(filter(None, parts))}".rstrip(": ").replace("+-", "\N{PLUS-MINUS SIGN}")


def _fit_height(ax: Axes) -> None:
    """Show what lies within the stretch, not the curves' extremes elsewhere."""
    left, right = ax.get_xlim()
    inside = [
        y[(x >= left) & (x <= right)]
        for x, y in ((np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in ax.get_lines())
    ]
    values = np.concatenate([v[np.isfinite(v)] for v in inside]) if inside else np.empty(0)
    if len(values):
        room = 0.08 * max(float(np.ptp(values)), 1e-6)
        ax.set_ylim(float(values.min()) - room, float(values.max()) + room)


def _frame(ax: Axes, letter: str, across: tuple[float, float], up: tuple[float, float], theme: Theme) -> None:
    """Draw the frame of what another panel enlarges, as far as that is here."""
    from matplotlib.patches import Rectangle

    low, high = ax.get_ylim()
    spare = _SPARE * (high - low)
    bottom, top = max(up[0], low + spare), min(up[1], high - spare)
    size = (across[1] - across[0], top - bottom)
    ax.add_patch(Rectangle((across[0], bottom), *size, fill=False, edgecolor=theme.ink, linewidth=0.9, zorder=4))
    ax.annotate(
        letter, (across[0], top), xytext=(0, 2), textcoords="offset points", va="bottom",
        fontsize=8.5, weight="bold", color=theme.ink,
    )  # fmt: skip


def _shade(ax: Axes, found: Comparison, zero: float, theme: Theme, *, named: bool = True) -> None:
    left, right = ax.get_xlim()
    regions = [r.region for r in found.regions if r.region.name != WHOLE]
    regions = [r for r in regions if r.end - zero > left and r.start - zero < right]
    for region in regions:
        ax.axvspan(
            region.start - zero, region.end - zero, facecolor=theme.shade, edgecolor=theme.edge, linewidth=0.4, zorder=0
        )
    for region in regions if named and len(regions) <= _MOST_NAMES else []:
        ax.annotate(
            region.name, ((region.start + region.end) / 2.0 - zero, 0.98), xycoords=ax.get_xaxis_transform(),
            ha="center", va="top", fontsize=7.5, annotation_clip=True,
            color=theme.ink,
            bbox={"facecolor": theme.ground, "edgecolor": "none", "pad": 1.0, "alpha": 0.8},
        )  # fmt: skip


def _residuals(ax: Axes, found: Comparison, zero: float, theme: Theme) -> None:
    for s in found.sensors:
        if not len(s.residual_w):
            continue
        colour, style = _style(found, s.name, theme)
        curve = envelope(s.residual_t_s - zero, s.residual_w, _SLICES)
        ax.plot(curve.t, curve.mean, color=colour, linestyle=style, linewidth=0.9, marker=".", markersize=2.0)
    ax.axhline(0.0, color=theme.edge, linewidth=0.6)
    ax.set_ylabel("residual (W)", fontsize=9)
    ax.set_title(
        "residuals: what lag, window, gain and offset do not explain", loc="left", fontsize=8.5, color=theme.ink
    )
    dress(ax, theme)
