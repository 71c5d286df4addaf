"""What the page says, as text and as HTML. Names are foreign text. Pure."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from datetime import datetime, timezone

from pmtpy.core.presentation import in_same_digits
from pmtpy.live.lines import duration
from pmtpy.live.tracks import Selection, Track

_NOTE_LETTERS = 80  # of a note above a curve; all of it stands in the state of its track
HINT = "<p>Drag over a curve, or type two instants: joules, watts, uncertainty and coverage between them.</p>"


def utc(unix_s: float) -> str:
    """Return an instant as people write it."""
    return datetime.fromtimestamp(unix_s, timezone.utc).isoformat(" ", "milliseconds").removesuffix("+00:00") + " UTC"


def title(track: Track, zero_unix_s: float | None = None) -> str:
    """Return what stands above a track; ``zero_unix_s``: what 0 s is of it, where tracks are of different times."""
    virtual = "  [VIRTUAL]" if track.virtual else ""
    named = track.name if track.name == track.target or not track.target else f"{track.name}  ({track.target})"
    said = (
        named
        + virtual
        + (f"  [{textwrap.shorten(track.note, _NOTE_LETTERS, placeholder=' ...')}]" if track.note else "")
    )
    if zero_unix_s is None:
        return said
    zero = f"{utc(zero_unix_s)}" if math.isfinite(zero_unix_s) else "its first row, of which no time is known"
    return f"{said}  [another time than the others: 0 s is {zero}]"


def state(track: Track) -> str:
    """Return how long a track is, and what is wrong with it."""
    first, last = track.span
    said = f"{track.name}: {duration(last - first)}" + (f", {track.note}" if track.note else "")
    if track.rows_from > first:
        said += (
            f"; single rows of the last {duration(last - track.rows_from)}, of what is older means of 10 ms, or of 1 s"
        )
    return said


def selection_html(found: Sequence[tuple[Track, Selection]], seconds: float, links: Sequence[str] = ()) -> str:
    """Return what a stretch cost as a table; names are foreign text."""
    heads = ("", "J", "+- J", "mean W", "min W", "max W", "covered", "lost")
    head = "<tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>"
    lines = []
    for track, selection in found:
        # A track may reach over a part of the stretch alone: of the rest it knows nothing.
        reached = selection.seconds / seconds if seconds > 0 else math.nan
        for power in selection.powers:
            name = html.escape(f"{track.name} {power.name}")
            joules, u = in_same_digits(power.joules, power.uncertainty_joules)
            mean_w, _ = in_same_digits(power.watts, power.uncertainty_joules / (seconds or math.nan))
            # Where the energy at one end is not known, nobody can tell how much of the stretch is.
            told = math.isfinite(power.joules) or power.coverage == 0
            share = 100 * power.coverage * reached if told else math.nan
            known = ("not known" if text in {"nan", "inf", "?"} else text for text in (joules, u, mean_w))
            covered = f"{share:.4g} %" if math.isfinite(share) else "not known"
            cells = [
                *known,
                *(f"{x:.5g}" if math.isfinite(x) else "-" for x in (power.low, power.high)),
                covered,
                str(selection.lost),
            ]
            lines.append(
                f"<tr><th style='text-align:left'>{name}</th>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"
            )
    export = f"<p>export {'; '.join(links)}</p>" if links else ""
    return (
        f"<p><b>{seconds:.9g} s</b> between the cursors; +- is one standard uncertainty</p>"
        f"<table cellpadding='4' style='text-align:right'>{head}{''.join(lines)}</table>{export}"
    )
