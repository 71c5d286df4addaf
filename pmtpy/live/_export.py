"""A stretch of what a page shows, as a recording: with what is known of the sensor, and not only its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtpy.errors import TargetError
from pmtpy.io.convert import Converted, convert_table
from pmtpy.io.recorded import of_part
from pmtpy.live.tracks import Track

if TYPE_CHECKING:
    import pandas as pd

_MEANS = (
    "this stretch reaches further back than a live view keeps single rows, or is longer than it exports of them: its"
    " rows are means of {:g} ms"
)
KINDS = ("csv", "parquet", "jls")


def write_part(track: Track, table: pd.DataFrame, path: Path) -> Converted:
    """Write rows of a track; the format is told by the suffix.

    Raises TargetError: there are none.
    Raises SinkError: the format cannot hold them, or its library is missing.
    """
    if not len(table):
        msg = f"no rows of {track.name} are kept of this stretch: select another"
        raise TargetError(msg)
    attrs: dict[str, Any] = {"path": track.name, "format": f"pmtpy part of {track.name}", "joules": "recorded"}
    facts, interval_s = of_part(track.facts), table.attrs.get("interval_s")
    if facts is not None and interval_s is not None:
        facts |= {"interval_s": interval_s, "polled_s": None}  # each row is a mean, as of a thinned recording
        facts["remarks"] = [*facts.get("remarks", ()), _MEANS.format(1e3 * interval_s)]
    attrs["metadata"] = facts
    return convert_table(table, attrs, path)
