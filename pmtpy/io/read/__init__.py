"""Read any recording of power into one table: our own files, those of PMT and PowerSensor3, of nvidia-smi and the PMD.

What a file does not say stays unknown: a relative log has no Unix time, an interval with lost samples has no energy.
Broken lines are named, and left out only if that is asked for. Needs pandas, which is imported when it is used.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy.errors import BackendUnavailableError, FileFormatError
from pmtpy.io.read import _own, _pmd, _pmt, _powersensor3, _smi
from pmtpy.io.read._lines import Recording, read_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load"]

_KNOWN = "pmtpy CSV or Parquet, PMT or PowerSensor3 dump, nvidia-smi log with a header, PMD binary, load time stamps"


def load(
    path: str | os.PathLike[str],
    *,
    skip_broken: bool = False,
    utc_offset_s: float | None = None,
    ticks_per_ms: float | None = None,
) -> pd.DataFrame:
    """Read a recording; the format is told from its content, and gzip is undone.

    Parameters
    ----------
    path : path
    skip_broken : bool
        Leave out lines that cannot be read, and list their numbers in ``attrs["broken_lines"]``.
    utc_offset_s : float, optional
        For wall times without a zone (nvidia-smi): seconds that they are ahead of UTC. None: as on this machine.
    ticks_per_ms : float, optional
        For PMD recordings: the rate of the device's clock. None: 2933.5, its nominal rate.

    Returns
    -------
    pandas.DataFrame
        Columns ``time`` (Unix seconds; NaN where the file does not tell), ``elapsed`` (seconds since the first row),
        ``marker``, ``lost``, ``total_W``, ``total_J``, then ``NAME_V``, ``NAME_A``, ``NAME_W``, ``NAME_J`` and others.
        ``attrs`` holds ``path``, ``format``, ``clock``, ``total`` (what it is made of), ``joules`` (recorded or
        integrated), ``uncovered_s``, ``virtual``, ``complete`` (None: the file does not say), ``metadata``,
        ``broken_lines`` and ``notes``.

    Raises
    ------
    FileFormatError
        The file is of no known kind, or has broken lines: their numbers and what is wrong with them.
    BackendUnavailableError
        pandas (or, for Parquet, pyarrow) is not installed.
    OSError
        The file cannot be opened.
    """
    try:
        import pandas  # noqa: F401, ICN001  (only to see that it is there)
    except ImportError as error:
        raise BackendUnavailableError("load", "reading files needs pandas", "pip install 'pmtpy[analysis]'") from error
    place = Path(path)
    with place.open("rb") as file:
        start = file.read(4096)
    if start.startswith(b"PAR1"):
        return _own.parquet(place)
    if _own.is_csv(start):
        return _own.csv(place, skip_broken=skip_broken)
    recording = Recording(place, read_bytes(place), skip_broken=skip_broken)
    if _own.is_csv(recording.content[:4096]):  # it was compressed
        return _own.csv(place, skip_broken=skip_broken, content=recording.content)
    for recognises, read in (
        (_powersensor3.recognises, _powersensor3.read),
        (_smi.recognises, partial(_smi.read, utc_offset_s=utc_offset_s)),
        (_pmd.is_load_stamps, _pmd.read_load_stamps),
        (_pmt.recognises, _pmt.read),
        (_pmd.recognises, partial(_pmd.read, ticks_per_ms=ticks_per_ms)),
    ):
        if recognises(recording):
            return _own.with_sidecar(read(recording), place)  # our own dumps for PMT and PowerSensor3 have one
    msg = f"{place} is no recording of power that is known here; known are: {_KNOWN}"
    raise FileFormatError(msg)
