"""Files without a name for what memory is too small for: gone when their owner is, however it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_ROOMY = Path("/var/tmp")  # noqa: S108  (on a disk where /tmp may be memory; files there have no name)


def _place() -> str:
    """Return where temporary files may be large: ``TMPDIR``, else ``/var/tmp``."""
    roomy = "TMPDIR" not in os.environ and os.access(_ROOMY, os.W_OK)
    return str(_ROOMY) if roomy else tempfile.gettempdir()


def roomy_file(buffering: int = -1) -> IO[bytes]:
    """Open a new one."""
    return tempfile.TemporaryFile(buffering=buffering, dir=_place())


def free_bytes() -> int:
    """Return how much room there is."""
    return shutil.disk_usage(_place()).free
