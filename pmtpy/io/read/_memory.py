"""How much of a recording this machine can hold: asked before it is read, not found out by being killed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from pmtpy.errors import FileFormatError

_SHARE_OF_FREE = 0.7  # of what is free; the rest is for what is done with the table
_HOST = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # version 2, as a container sees its own


def free_bytes(host: Path = _HOST, group: Path = _GROUP) -> int | None:
    """Return the memory that can still be taken: of the machine, or of the container if that is less. None: unknown."""
    known = []
    try:
        facts = dict(line.split(":", 1) for line in host.read_text(encoding="ascii").splitlines())
        known.append(int(facts["MemAvailable"].split()[0]) * 1024)
    except (OSError, LookupError, ValueError):
        if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
            known.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        limit, used = ((group / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        known.append(max(0, int(limit) - int(used)))
    except (OSError, ValueError):  # there is none, or it says "max"
        pass
    return min(known, default=None)


class Budget:
    """What may be taken to read one recording.

    Parameters
    ----------
    path : Path
        For the message.
    free : int or None
        Bytes that are free; None: not known, so nothing is refused.
    """

    def __init__(self, path: Path, free: int | None) -> None:
        self._path = path
        self._limit = None if free is None else int(free * _SHARE_OF_FREE)

    def allow(self, size: float, what: str) -> None:
        """Refuse what takes more bytes than there are.

        Raises FileFormatError: it says how a part can be read.
        """
        if self._limit is not None and size > self._limit:
            thinned = f"{shlex.quote(str(self._path))} {shlex.quote(f'{self._path.stem}-10ms.parquet')}"
            msg = (
                f"{self._path}: {what} would take {size / 1e9:.3g} GB, and {self._limit / 1e9:.3g} GB can be had; "
                "read a part of it: load(path, start=0, stop=60) takes a minute of it, max_rows=1000000 so many rows; "
                "on the command line add --from 0 --to 60s, or take the whole in fewer rows with the same energy: "
                f"pmtpy convert {thinned} --interval 10ms"
            )
            raise FileFormatError(msg)
