"""A stretch of what a page shows, as a recording: with what is known of the sensor, and not only its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtpy.errors import TargetError
from pmtpy.io.convert import Converted, convert_table
from pmtpy.live.tracks import Track

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("csv", "parquet", "jls")
_OF_THE_WHOLE = {"rows", "lost", "dropped", "error", "converted_from"}  # what metadata say of all rows, or of the file


def write_part(track: Track, table: pd.DataFrame, path: Path) -> Converted:
    """Write rows of a track; the format is told by the suffix.

    Raises
    ------
    TargetError
        There are none.
    SinkError
        The format cannot hold them, or its library is missing.
    """
    if not len(table):
        msg = f"no rows of {track.name} are kept there"
        raise TargetError(msg)
    facts: dict[str, Any] | None = None
    if track.facts is not None:
        facts = {k: v for k, v in track.facts.items() if k not in _OF_THE_WHOLE} | {"complete": True}
    attrs = {"path": track.name, "format": f"pmtpy part of {track.name}", "metadata": facts, "joules": "recorded"}
    return convert_table(table, attrs, path)
