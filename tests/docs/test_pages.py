"""Every page of the docs is followed literally: its Python blocks are run in order, its shell lines too.

A block that cannot run here stands after a comment ``<!-- not run: reason -->``.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pmtpy.regions.pool import _pool
from tests.support.prepared import Prepared

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(
    r"(<!-- not run: (?P<why>[^>]+) -->\s*)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Fence:
    kind: str
    body: str
    line: int
    skipped: bool


def blocks(page: Path) -> list[Fence]:
    text = page.read_text(encoding="utf-8")
    return [
        Fence(m["kind"], m["body"], text[: m.start("body")].count("\n") + 1, m["why"] is not None)
        for m in _BLOCK.finditer(text)
    ]


def run_shell(line: str, folder: Path, prepared: Prepared) -> None:
    line = line.replace("pmt-dump", "pmtpy dump")
    words = shlex.split(line, comments=True)
    ours = re.match(r"(\w+=\S* +)*(?=pmtpy\b)", line)  # perhaps after variables, as in PMT_NAME=rapl pmtpy read
    if ours:
        line = f"{ours[0]}{shlex.join(prepared.command)}{line[ours.end() :].removeprefix('pmtpy')}"
    elif words and words[0] in {"python", "python3"}:
        line = line.replace(words[0], shlex.quote(sys.executable), 1)
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def can_run(block: Fence) -> bool:
    return not block.skipped and block.kind in {"python", "console"}


@pytest.fixture
def _close_named_sensors() -> Iterator[None]:
    """Close what a page opened by name, as the end of a program would; and its virtual world with it."""
    yield
    _pool.close()
    gc.collect()


@pytest.mark.usefixtures("_close_named_sensors")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(map(can_run, blocks(p)))], ids=lambda p: str(p.relative_to(ROOT))
)
def test_a_page_can_be_followed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Prepared
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in filter(can_run, blocks(page)):
        if block.kind == "python":
            code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                exec(code, names)  # noqa: S102  (the docs are ours)
        else:
            for line in block.body.splitlines():
                if line.startswith("$ "):
                    run_shell(line[2:], tmp_path, prepared)


def test_the_stamps_of_calibrate_md_tell_the_energy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    (block,) = (b for b in blocks(ROOT / "docs/calibrate.md") if b.kind == "python" and "r.load()" in b.body)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(block.body, names)  # noqa: S102  (as above)
    found = names["r"]["nvml:virtual"]  # type: ignore[index]
    assert found.method.endswith("load-informed")
    assert found.uncertainty_joules < 0.05 * found.joules


def test_files_that_pages_name_are_there() -> None:
    path = re.compile(r"`((?:pmtpy|tests|docs|benchmarks|calibration)/[\w/.-]+)`")
    gone = [
        f"{page.relative_to(ROOT)} names {name}"
        for page in PAGES
        for name in path.findall(page.read_text(encoding="utf-8"))
        if "NAME" not in name and not (ROOT / name).exists()
    ]
    assert not gone


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not target.startswith(("http://", "https://")) and not (page.parent / target).exists()
    ]
    assert not broken
