"""How pictures look: colours for light and dark ground, plain axes, and names that stand beside their curves.

Colours differ for all kinds of colour vision, and each has a line style of its own, for print without colour.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (9, 2)),
)
_EARLY = 0.2  # of the axis: a curve that ends so long before it is not beside a name at its right
_LABEL_POINTS = 8.0  # size of the names at the ends of curves


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a picture."""

    # of the paper, of text and axes, of the grid, of marked regions, and of their edges
    ground: str
    ink: str
    faint: str
    shade: str
    edge: str
    colours: tuple[str, ...]  # of the curves, the plainest first

    def line(self, number: int) -> tuple[str, Any]:
        """Return colour and line style of a curve."""
        return self.colours[number % len(self.colours)], _DASHES[number % len(_DASHES)]


# The curves' colours: Okabe and Ito, "Color universal design" (2008); on dark ground the lighter ones of them.
LIGHT = Theme(
    "#ffffff", "#202020", "#e4e4e4", "#ededed", "#b0b0b0",
    ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"),
)  # fmt: skip
DARK = Theme(
    "#131416", "#dcdcdc", "#33363a", "#24272b", "#5a5f66",
    ("#ffffff", "#56B4E9", "#E69F00", "#2fbf8f", "#CC79A7", "#F0E442"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """How the values of one unit are shown."""

    label: str
    unit: str
    factor: float = 1.0  # from the unit of the columns to the one that is shown


AXES: Mapping[str, Axis] = MappingProxyType(
    {
        "W": Axis("power (W)", "W"),
        "V": Axis("volts (V)", "V"),
        "A": Axis("amperes (A)", "A"),
        "C": Axis("temperature (°C)", "°C"),
        "Hz": Axis("frequency (MHz)", "MHz", 1e-6),
    }
)


def drawable(name: str) -> str:
    """Return the name of a file as text that every picture can hold: bytes that are no UTF-8 are written as such."""
    return os.fsencode(name).decode(errors="backslashreplace")


def letter_by_letter(figure: Figure) -> None:
    """Have the texts of a finished figure drawn as they are: between two dollar signs matplotlib reads a formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def theme_of(name: str) -> Theme:
    """Return a theme by its name, ``light`` or ``dark``."""
    return {"light": LIGHT, "dark": DARK}[name]


def dress(ax: Axes, theme: Theme) -> None:
    """Give axes their colours: lines at the left and below, a faint grid behind the curves."""
    ax.set_facecolor(theme.ground)
    for side, spine in ax.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(theme.ink)
        spine.set_linewidth(0.7)
    ax.grid(visible=True, color=theme.faint, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8, colors=theme.ink, width=0.7, length=3)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set_color(theme.ink)


@dataclass(frozen=True, slots=True)
class EndLabel:
    """The name of a curve, to stand beside its end."""

    text: str
    colour: str
    # where the curve ends, in the axes' own units; NaN for a text that belongs to none, which stands below
    y: float
    x: float = math.nan


def label_ends(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Write names to the right of the axes, each as near to the end of its curve as its neighbours let it.

    The name of a curve that ends well before the others stands at its end, within the axes.

    Call it when the limits of the axes are final.
    """
    if not labels:
        return
    left, right = ax.get_xlim()
    for each in labels:
        if right - each.x > _EARLY * (right - left):
            ax.annotate(
                each.text, (each.x, each.y), xytext=(4, 0), textcoords="offset points", ha="left", va="center",
                fontsize=_LABEL_POINTS, color=each.colour, zorder=5,
                bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
            )  # fmt: skip
    labels = [each for each in labels if not right - each.x > _EARLY * (right - left)]
    if not labels:
        return
    low, high = ax.get_ylim()
    figure = ax.figure
    height_in = ax.get_position().height * float(figure.get_figheight())  # type: ignore[union-attr]
    gap = 1.45 * _LABEL_POINTS / 72.0 / max(height_in, 0.5)
    wanted = np.array([(each.y - low) / (high - low) if np.isfinite(each.y) else -1.0 for each in labels])
    order = np.argsort(-wanted, kind="stable")
    places = np.clip(wanted[order], 0.0, 1.0)
    for i in range(1, len(places)):  # from above, each below the one before
        places[i] = min(places[i], places[i - 1] - gap)
    lift = max(0.0, -float(places[-1]))
    for i in reversed(range(len(places))):  # what fell off the bottom lifts those above it as far as it must
        least = 0.0 if i == len(places) - 1 else float(places[i + 1]) + gap
        places[i] = max(places[i], least) if lift else places[i]
    for place, number in zip(places, order, strict=True):
        each = labels[int(number)]
        ax.annotate(
            each.text, (1.0, float(place)), xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
            ha="left", va="center", fontsize=_LABEL_POINTS, color=each.colour, annotation_clip=False,
        )  # fmt: skip
