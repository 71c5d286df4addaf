"""How far cards of one model were off when somebody measured them: what is known of a card that nobody has calibrated.

``published.csv`` holds, for each card, driver and register that a meter was beside, the straight line from metered to
shown power and the steady error. Source: the workbook ``Overall_Results.xlsx`` in the repository
JimZeyuYang/GPU_Power_Benchmark (MIT licence, (c) 2023 Zeyu Yang; DOI 10.5281/zenodo.13313030), which belongs to Yang,
Adamek and Armour, arXiv 2312.02741. Gain and offset differ from card to card of one model (3090: 0.94 to 1.02), so they
never correct another card: they say how far it may be off.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from pmtpy.backends._assumed_gain import GPU_U
from pmtpy.backends.nvml import facts
from pmtpy.backends.nvml.facts import Kind

_FILE = Path(__file__).with_name("published.csv")
_OF_NO_MODEL = re.compile(r"nvidia|geforce|\(maxwell\)|[^a-z0-9]")  # what NVML and the workbook write differently


@dataclass(frozen=True, slots=True)
class Spread:
    """Steady errors of the cards of one model that were measured, relative; and what follows for another card."""

    errors: tuple[float, ...]

    @property
    def gain_u(self) -> float:
        """Standard uncertainty of another card's gain: theirs, with all models together as one card more."""
        squares = GPU_U**2 + sum(e * e for e in self.errors)
        return math.sqrt(squares / (1 + len(self.errors)))

    def note(self, channel: str) -> str:
        """Say so; the beginning is what a calibration of the channel takes back."""
        low, high = 100.0 * min(self.errors), 100.0 * max(self.errors)
        cards = f"one card of this model was off by {low:+.1f} %"
        if len(self.errors) > 1:
            cards = f"{len(self.errors)} cards of this model were off by {low:+.1f} to {high:+.1f} %"
        return (
            f"{channel}: not calibrated; {cards} ({facts.MEASURED}), so {100.0 * self.gain_u:.1f} % is taken as the "
            "uncertainty of its gain; to calibrate it: pmtpy certify"
        )


def unmeasured(channel: str) -> str:
    """Say that nothing was published of a model; it begins as the notes of those of which something was."""
    return (
        f"{channel}: not calibrated, and no figures are known of cards of this model; {100.0 * GPU_U:.0f} %, as of all "
        "models together, is taken as the uncertainty of its gain; to calibrate it: pmtpy certify"
    )


def spread(model: str, driver: str, kind: Kind) -> Spread | None:
    """Return what was published of a model, of drivers of the same era if there are any; None if nothing was."""
    wanted, era = _bare(model), facts.era(driver)
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if _bare(row["model"]) == wanted and row["kind"] == kind.value]
    rows = [row for row in rows if facts.era(row["driver"]) is era] or rows
    by_card: dict[str, list[float]] = {}
    for row in rows:
        by_card.setdefault(row["unit"], []).append(float(row["steady_error_percent"]) / 100.0)
    return Spread(tuple(sum(errors) / len(errors) for errors in by_card.values())) if by_card else None


def _bare(model: str) -> str:
    return _OF_NO_MODEL.sub("", model.lower())
