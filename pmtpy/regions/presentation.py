"""Measurements as people read them: one line of text, a table in a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmtpy.regions.measurement import Measurement


_MOST_PLACES = 6  # a microjoule: nobody reads more


def in_same_digits(value: float, uncertainty: float) -> tuple[str, str]:
    """Return a value and its uncertainty, both to the second digit of the uncertainty: ``45.5`` and ``4.3``.

    Where that is not known, or nothing, six digits of the value.
    """
    if not (math.isfinite(value) and math.isfinite(uncertainty) and uncertainty > 0.0):
        return f"{value:.6g}", f"{uncertainty:.2g}"
    places = max(0, 1 - math.floor(math.log10(uncertainty)))
    if places > _MOST_PLACES:
        return f"{value:.{_MOST_PLACES}f}", f"{uncertainty:.2g}"
    return f"{value:.{places}f}", f"{uncertainty:.{places}f}"


def _with_uncertainty(joules: float, uncertainty: float) -> str:
    """Return an energy with as many digits as its uncertainty lets count: ``45.5 J +- 4.3 J``."""
    if not math.isfinite(joules) or not math.isfinite(uncertainty):
        return f"{joules:.6g} J, uncertainty not known" if math.isfinite(joules) else "energy not known"
    if uncertainty <= 0.0:
        return f"{joules:.6g} J"
    return "{} J +- {} J".format(*in_same_digits(joules, uncertainty))


def as_text(shown: Measurement) -> str:
    """Return a measurement in one line."""
    covered = "" if shown.coverage >= 1.0 else f", {shown.coverage:.1%} covered"
    number = len(shown.warnings)
    warned = f", {number} warning{'s' if number > 1 else ''}" if number else ""
    energy = _with_uncertainty(shown.joules, shown.uncertainty_joules)
    power = f" ({shown.watts:.4g} W)" if math.isfinite(shown.watts) else ""
    name = shown.target if shown.name == "total" else f"{shown.target} {shown.name}"
    return f"{name}: {energy} in {shown.seconds:.4g} s{power}, {shown.method}{covered}{warned}"


def as_html(shown: Sequence[Measurement]) -> str:
    """Return measurements as a table, one line each, with the warnings of all below it, each once."""
    lines = [
        f"<tr><td>{html.escape(m.target)}</td><td>{html.escape(m.name)}</td>"
        f"<td>{_with_uncertainty(m.joules, m.uncertainty_joules).replace('+-', '&plusmn;')}</td>"
        f"<td>{m.watts:.4g}</td><td>{m.seconds:.4g}</td><td>{m.coverage:.1%}</td><td>{html.escape(m.method)}</td></tr>"
        for m in shown
    ]
    heads = "".join(f"<th>{h}</th>" for h in ("sensor", "channel", "energy", "W", "s", "covered", "method"))
    warnings = dict.fromkeys(w for m in shown for w in m.warnings)
    said = "".join(f"<li>{html.escape(w)}</li>" for w in warnings)
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>" + (f"<ul>{said}</ul>" if said else "")
