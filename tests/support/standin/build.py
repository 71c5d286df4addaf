"""Compile a stand-in for a vendor's driver library, or skip with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def shared_object(source: Path, target: Path) -> Path:
    """Compile ``source`` into the shared object ``target``; skip the test where there is no C compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler (cc): the stand-in driver library cannot be built")
    # Without a soname: else the loader would give it to whoever asks for the vendor's library later in this process.
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
    done = subprocess.run(
        [compiler, *flags, str(source), "-o", str(target), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target
