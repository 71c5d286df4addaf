"""What a verb does not need it does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_VERBS = """
import contextlib, importlib, io, pkgutil, sys
import pmtpy.cli
for module in pkgutil.iter_modules(pmtpy.cli.__path__):
    importlib.import_module(f"pmtpy.cli.{module.name}")
out = sys.argv[1]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for words in (["list"], ["read", "rapl:virtual"],
                  ["dump", "rapl:virtual", "--duration", "0.2s", "-f", out + ".csv"],
                  ["plot", out + ".csv", "-o", out + ".png"], ["convert", out + ".csv", out + ".pmt"]):
        assert pmtpy.cli.main(words) == 0, words
print(*sorted({"bokeh", "textual", "tornado"} & set(sys.modules)))
"""


def test_no_verb_but_top_and_view_loads_textual_or_bokeh(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _VERBS, str(tmp_path / "run")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == ""
