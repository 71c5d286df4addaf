"""Read any recording of power into one table: our own files, those of PMT and PowerSensor3, of nvidia-smi and the PMD.

What a file does not say stays unknown: a relative log has no Unix time, an interval with lost samples has no energy.
Every reader holds its rows against the same rules (:mod:`pmtpy.io.read._check`). Broken lines are named, and left out
only if that is asked for. Needs pandas, which is imported when it is used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy._extras import extra
from pmtpy.core import arguments
from pmtpy.errors import FileFormatError, PmtError
from pmtpy.io.columns import FIXED
from pmtpy.io.read import _jls, _own, _parquet, _pmd, _pmt, _powersensor3, _sidecar, _smi, device_trace
from pmtpy.io.read._parts import Part
from pmtpy.io.read._pmd import METER, STAMPS
from pmtpy.io.read._recording import Recording, check_opens
from pmtpy.io.read._smi import LOG
from pmtpy.io.read.device_trace import TRACE
from pmtpy.io.recorded import marks_in

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LOG", "METER", "READERS", "STAMPS", "TRACE", "Reader", "load"]


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of recording that can be read."""

    name: str  # as messages list it
    recognises: Callable[[Recording], bool]
    read: Callable[[Recording, Part], pd.DataFrame]
    written: str = ""  # the format of :data:`pmtpy.io.write.FILE_FORMATS` whose files it reads; empty: of other tools


def _whole(read: Callable[[Recording], pd.DataFrame]) -> Callable[[Recording, Part], pd.DataFrame]:
    """Return a reader of parts of what can only be read as a whole."""

    def read_part(recording: Recording, part: Part) -> pd.DataFrame:
        table = read(recording)
        _sidecar.into_attrs(table, recording.facts)  # our own dumps for PMT and PowerSensor3 have metadata beside them
        table.attrs["notes"] += [recording.no_facts] if recording.spoilt else []
        return part.of_table(table)

    return read_part


# The first that recognises a file reads it.
READERS = (
    Reader(_parquet.KIND, _parquet.recognises, _parquet.read, "parquet"),
    Reader(_jls.KIND, _jls.recognises, _jls.read, "jls"),
    Reader(_own.KIND, _own.recognises, _own.read, "csv"),
    Reader("PowerSensor3 dump", _powersensor3.recognises, _whole(_powersensor3.read), "powersensor3"),
    Reader(f"{LOG} with a header", _smi.recognises, _whole(_smi.read)),
    Reader(STAMPS, _pmd.are_load_stamps, _whole(_pmd.read_load_stamps)),
    Reader(TRACE, device_trace.recognises, _whole(device_trace.read)),
    Reader("PMT dump", _pmt.recognises, _whole(_pmt.read), "pmt"),
    Reader("PMD binary", _pmd.recognises, _whole(_pmd.read)),
)


def load(
    path: str | os.PathLike[str],
    start: float | None = None,
    stop: float | None = None,
    max_rows: int | None = None,
    *,
    skip_broken: bool = False,
    utc_offset_s: float | None = None,
    ticks_per_ms: float | None = None,
    only: str | None = None,
) -> pd.DataFrame:
    """Read a recording, or a part of it; the format is told from its content, and gzip is undone.

    Parameters
    ----------
    path : path
    start, stop : float, optional
        Only the rows from ``start`` (included) to ``stop`` (not included), in seconds since the first row of the
        recording. ``elapsed`` and the joules of a part still count from that row.
    max_rows : int, optional
        Only so many rows, from ``start`` on. Of our own files only the part is read and held in memory.
    skip_broken : bool
        Leave out lines that cannot be read, and list their numbers in ``attrs["broken_lines"]``.
    utc_offset_s : float, optional
        For wall times without a zone (nvidia-smi): seconds that they are ahead of UTC. None: as on this machine.
    ticks_per_ms : float, optional
        For PMD recordings: the rate of the device's clock. None: 2934.5, which is right to 0.1 %.
    only : str, optional
        The one power that is asked for, such as ``total``: columns of others are checked, and may be left out of the
        table, of which a long recording has less memory than all of them take.

    Returns
    -------
    pandas.DataFrame
        Columns ``time`` (Unix seconds; NaN where the file does not tell), ``elapsed`` (seconds since the first row),
        ``marker``, ``lost``, ``total_W``, ``total_J``, then ``NAME_V``, ``NAME_A``, ``NAME_W``, ``NAME_J`` and others.
        ``attrs`` holds ``path``, ``format``, ``clock``, ``total`` (what it is made of), ``joules`` (recorded or
        integrated), ``uncovered_s``, ``virtual``, ``complete`` (None: the file does not say), ``metadata``,
        ``broken_lines``, ``notes``, ``began`` (Unix seconds at which ``elapsed`` is zero; NaN: it is not told) and
        ``marks``: (elapsed seconds, label) of those that the host set while it was recorded, which stand on the next
        row.

    Raises
    ------
    FileFormatError
        The file is of no known kind, or has broken lines (their numbers and what is wrong with them), or would take
        more memory than there is.
    TargetError
        ``start``, ``stop`` and ``max_rows`` are no part of anything.
    MissingPackageError
        pandas (or pyarrow for Parquet, pyjls for JLS) is not installed.
    OSError
        The file cannot be opened.
    """
    with extra("pandas", "reading files"):
        import pandas  # noqa: F401, ICN001  (only to see that it is there)
    place, part = Path(arguments.path(path, "a recording")), Part.of(start, stop, max_rows)
    check_opens(place)
    try:
        recording = Recording(
            place, skip_broken=skip_broken, utc_offset_s=utc_offset_s, ticks_per_ms=ticks_per_ms, only=only
        )
        table = _reader_of(recording).read(recording, part)
    except PmtError:
        raise
    except Exception as error:  # whatever a reader did not foresee, of the file or of itself
        if isinstance(error, OSError) and error.errno:  # of the disk; what libraries find in a file has no number
            raise
        msg = (
            f"{place} cannot be read ({type(error).__name__}: {error}): it is damaged, or pmtpy is at fault. Copy it"
            " again from its source; if that does not help, report it with the file"
        )
        raise FileFormatError(msg) from error
    zero_s = float(table["time"].iloc[0] - table["elapsed"].iloc[0]) if len(table) else math.nan
    table.attrs["began"] = zero_s
    table.attrs["marks"] = marks_in(table.attrs["metadata"], zero_s) or table.attrs.get("marks", [])
    if len(table) == 1 and part.whole:
        table.attrs["notes"].append("it holds a single row: no time passes in it, and its energy is not known")
    return table


def _reader_of(recording: Recording) -> Reader:
    found = next((r for r in READERS if r.recognises(recording)), None)
    if found is not None:
        return found
    if not recording.head:
        msg = "is empty: its writer was stopped, or found no room, before the first row; measure again"
    else:
        known = f"it knows: {', '.join(r.name for r in READERS)}"
        msg = (
            _beside(recording.path)
            or _saved_anew(recording.head, recording.first_line())
            or f"is not a recording of power that pmtpy knows; {known}. Of another tool's, make a CSV with the columns "
            f"{', '.join(FIXED)}, total_W (time in Unix seconds, elapsed in seconds, marker empty, lost 0)"
        )
    msg = f"{recording.path} {msg}"
    raise FileFormatError(msg)


def _beside(path: Path) -> str:
    """Say of which recording it is the sidecar; empty: of none."""
    of = path.with_suffix("")
    return (
        f"holds the metadata of {of.name}: name that, they go along" if path.suffix == ".json" and of.exists() else ""
    )


def _saved_anew(head: bytes, first_line: str) -> str:
    """Say what another program, or an export, made of a recording in a text of commas; empty: it is none."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "is UTF-16; save it as UTF-8, or take the file as it was recorded"
    if head.startswith(b"PK\x03\x04"):
        return "is an archive: unpack it, and load the recording in it (the .json beside it goes with it)"
    for mark, name, instead in ((";", "semicolons", ","), ("\t", "tabs", ","), ('"', "quotation marks", "")):
        fields = {f.strip() for f in first_line.replace(mark, instead).split(",")}
        if mark in first_line and ({"time", "elapsed"} <= fields or any("power.draw" in f for f in fields)):
            return (
                f"was saved by another program: {name} are in its header. Save it with commas between fields, points in"
                " numbers and no quotation marks, or take the file as it was recorded"
            )
    return ""
