"""The Pythons of this machine that pmtpy supports: on the path, or among those of pyenv."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


def interpreters() -> dict[str, str]:
    """Return the version and path of each, this one among them."""
    found = {version: path for version in SUPPORTED if (path := _find(version))}
    return {**found, THIS: sys.executable}


def _find(version: str) -> str | None:
    roots = [os.environ.get("PYENV_ROOT"), str(Path.home() / ".pyenv")]
    for root in filter(None, roots):
        for place in sorted((Path(root) / "versions").glob(f"{version}.*/bin/python"), reverse=True):
            return str(place)
    return shutil.which(f"python{version}")


if __name__ == "__main__":  # of the versions that are named, or of all
    found = interpreters()
    print(*(path for version, path in found.items() if version in (sys.argv[1:] or found)))
