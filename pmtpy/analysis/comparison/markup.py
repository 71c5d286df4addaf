"""A comparison as HTML, for notebooks. Names are foreign text. Pure."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pmtpy.analysis.signal.estimate import NOTHING, written

if TYPE_CHECKING:
    from pmtpy.analysis.comparison.results import Compared, Comparison, RegionEnergies


def as_html(found: Comparison) -> str:
    """Return the sensors against the reference, then the energy of each region by every sensor."""
    clock = "on one clock" if found.one_clock else "on clocks that were fitted"
    said = f"<p>against <b>{html.escape(found.reference)}</b>, {clock}; &plusmn; is 95 %</p>"
    heads = ("sensor", "updates (ms)", "lag (ms)", "gain", "offset (W)", "residual (W)")
    parts = [said, _table(heads, [_sensor(s, found.reference) for s in found.sensors])]
    for number, each in enumerate(found.regions):
        truth = f", true energy {each.true_j:.6g} J" if each.true_j is not None else ""
        name = html.escape(each.region.name or f"region {number}")
        heads = ("sensor", "J", "&plusmn; J (1 sd)", "W", "J from the reference", "corrected (J)")
        parts += [f"<p><b>{name}</b>: {each.seconds:.4f} s{truth}</p>", _table(heads, _energies(each, found.reference))]
    notes = dict.fromkeys(
        [f"{s.name}: {note}" for s in found.sensors for note in s.notes]
        + [w for each in found.regions for e in each.energies.values() for w in e.warnings]
    )
    said = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return "".join(parts) + (f"<ul>{said}</ul>" if said else "")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are text, but for the sign that stands before an uncertainty."""
    head = "".join(f"<th>{h}</th>" for h in heads)
    cells = ("".join(f"<td>{html.escape(c).replace('+-', '&plusmn;')}</td>" for c in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{c}</tr>' for c in cells)}</table>"


def _sensor(s: Compared, reference: str) -> list[str]:
    if s.name == reference:
        return [s.name, written(s.period_s, 1e3), "the reference", "", "", ""]
    line = s.transfer
    left = f"{s.residual_rms_w:.3g}" if math.isfinite(s.residual_rms_w) else NOTHING
    gain, offset = (line.gain, line.intercept_w) if line is not None else (None, None)
    return [s.name, written(s.period_s, 1e3), written(s.lag_s, 1e3), written(gain), written(offset), left]


def _energies(each: RegionEnergies, reference: str) -> list[list[str]]:
    return [
        [
            name,
            f"{e.joules:.6g}",
            f"{e.uncertainty_joules:.2g}",
            f"{e.watts:.6g}",
            "" if name == reference else f"{e.difference_j:+.4g}",
            written(e.corrected_j) if e.corrected_j is not None else "",
        ]
        for name, e in each.energies.items()
    ]
