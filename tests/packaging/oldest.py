"""The oldest versions that pyproject.toml admits, as constraints for pip."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYTHON = "3.10"
_OF_THE_MACHINE = {"amdsmi"}  # it is that of a machine's ROCm, and the virtual library is of a newer one
_FACTS = Path(__file__).parents[2] / "pyproject.toml"


def oldest(project: Mapping[str, Any], extra: str = "all") -> list[str]:
    """Return ``name==version.*`` of each package that the oldest Python installs for an extra, or always.

    Raises ValueError: a requirement names no version that it begins with.
    """
    asked = [*project["dependencies"], f"{project['name']}[{extra}]"]
    needed = {r.name: _floor(r) for r in _requirements(project, asked) if r.name not in _OF_THE_MACHINE}
    return [f"{name}=={floor}.*" for name, floor in sorted(needed.items())]


def _requirements(project: Mapping[str, Any], texts: Sequence[str]) -> Iterator[Requirement]:
    """Yield requirements; those of the project's own extras in the place of these."""
    for requirement in map(Requirement, texts):
        if requirement.marker is not None and not requirement.marker.evaluate({"python_version": PYTHON}):
            continue
        if requirement.name != project["name"]:
            yield requirement
        for extra in sorted(requirement.extras) if requirement.name == project["name"] else ():
            yield from _requirements(project, project["optional-dependencies"][extra])


def _floor(requirement: Requirement) -> str:
    """Return the series that a requirement begins with, of two numbers at least."""
    floors = [s.version for s in requirement.specifier if s.operator in {">=", "~=", "=="}]
    if len(floors) != 1:
        msg = f"{requirement}: it does not say which version is the oldest"
        raise ValueError(msg)
    return floors[0] if "." in floors[0] else f"{floors[0]}.0"


if __name__ == "__main__":
    print(*oldest(tomllib.loads(_FACTS.read_text(encoding="utf-8"))["project"]), sep="\n")
