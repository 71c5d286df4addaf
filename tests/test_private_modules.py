"""What is public: a module without an underscore is for everybody, ``_name.py`` and ``_name/`` for their own folder."""

from __future__ import annotations

import re
from pathlib import Path

import grimp
import pytest

from pmtpy.integrations.old_names import MOVED
from pmtpy.sensor.registry import BACKENDS

ROOT = Path(__file__).parents[1]
# The verbs: nobody may import that room (the floors of pyproject.toml), so nothing in it is public but `main`.
VERBS = "pmtpy.cli"


def named(text: str) -> set[str]:
    """Return what a text names of pmtpy."""
    return set(re.findall(r"pmtpy(?:\.\w+)+", text))


@pytest.fixture(scope="module")
def importers() -> dict[str, set[str]]:
    """Who imports each module of pmtpy, or loads it by name."""
    graph = grimp.build_graph("pmtpy", "calibration", cache_dir=None)
    found = {m: set(graph.find_modules_that_directly_import(m)) for m in graph.modules if m.startswith("pmtpy.")}
    for path in (ROOT / "pmtpy").rglob("*.py"):
        importer = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for string in re.findall(r'"(pmtpy\.[\w.]+)', path.read_text(encoding="utf-8")):
            if string in found:
                found[string].add(importer)
    for backend in BACKENDS.values():
        found[backend.virtual].add("pmtpy.sensor.registry")
    return found


def private_to(module: str) -> str | None:
    """Return the folder that a private module is for; None for a public one."""
    parts = module.split(".")
    return next((".".join(parts[:i]) for i, part in enumerate(parts) if re.match("_[^_]", part)), None)


def inside(module: str, folder: str) -> bool:
    return f"{module}.".startswith(f"{folder}.")


def test_the_map_shows_the_floors_of_the_contract() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where things are")[2].split("```")[1]
    shown = [set(line.partition("   ")[0].split()) for line in page.splitlines()[1:]]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = project.partition("layers = [")[2].partition("]")[0]
    floors = [
        {room for room in re.findall(r"\w+", floor) if (ROOT / "pmtpy" / room).is_dir()}
        for floor in layers.splitlines()
    ]
    assert shown == [floor for floor in floors if floor], "CONTRIBUTING.md shows other floors than pyproject.toml"


def test_a_private_module_is_imported_in_its_own_folder_alone(importers: dict[str, set[str]]) -> None:
    private = {module: folder for module in importers if (folder := private_to(module))}
    assert len(private) > 50
    wrong = [f"{i} imports {m}" for m, folder in private.items() for i in importers[m] if not inside(i, folder)]
    assert not wrong, "what another folder needs has no underscore: rename the module, or import what is public"


def test_a_module_that_nobody_outside_its_folder_needs_is_private(importers: dict[str, set[str]]) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/api").glob("*.md")]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[tool.importlinter]")[0]
    shown = named(project + "".join(page.read_text(encoding="utf-8") for page in pages))
    shown |= {f"pmtpy.{home}" for homes in MOVED.values() for home in homes}
    public = {
        module: module.rpartition(".")[0]
        for module in importers
        if not private_to(module)
        and not inside(module, VERBS)
        and not (module.endswith("__main__") or (ROOT / module.replace(".", "/")).is_dir())
    }
    idle = [
        module
        for module, folder in public.items()
        if folder != "pmtpy" and module not in shown and all(inside(i, folder) for i in importers[module])
    ]
    assert not idle, "name each of them _NAME.py, or let somebody need it"
