"""The magics in a real IPython, and the tutorial notebook as a reader runs it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason="IPython is not installed")
from pmtpy.errors import SourceLostError
from pmtpy.regions.region import region

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks.ipynb"
RAPL = "-s rapl:virtual"


@pytest.fixture
def shell() -> Iterator[Any]:
    """An IPython with the extension; what it displays is in ``shown``."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    from pmtpy.regions.pool import _pool

    InteractiveShell.clear_instance()
    made: Any = InteractiveShell.instance()
    made.history_manager.enabled = False
    with capture_output() as captured:
        made.run_line_magic("load_ext", "pmtpy")
        made.captured = captured
        yield made
    made.history_manager.end_session()
    InteractiveShell.clear_instance()
    _pool.close()


def test_a_cell_is_measured_in_the_users_own_names(shell: Any) -> None:
    shell.user_ns["n"] = 1000
    shell.run_cell(f"%%energy {RAPL} -o cost\ntotal = sum(range(n))\n")
    assert shell.user_ns["total"] == sum(range(1000))
    cost = shell.user_ns["cost"]
    assert cost["rapl:virtual"].virtual
    assert cost["rapl:virtual"].seconds > 0
    assert cost.ended == ""
    assert "<table>" in cost._repr_html_()
    assert "rapl:virtual" in repr(cost)


def test_a_line_is_measured_and_its_options_are_not_those_of_the_statement(shell: Any) -> None:
    shell.run_cell(f"%energy {RAPL} -q -r 3 -o cost words = '-o x -r 9'.split()")
    assert shell.user_ns["words"] == ["-o", "x", "-r", "9"]
    assert len(shell.user_ns["cost"].regions) == 3
    assert len(shell.user_ns["cost"].joules["rapl:virtual"]) == 3
    assert "3 runs" in repr(shell.user_ns["cost"])


def test_a_cell_that_fails_is_reported_until_then(shell: Any) -> None:
    shell.run_cell(f"%%energy {RAPL} -o cost\nbefore = 1\nraise ValueError('<no>')\n")
    cost = shell.user_ns["cost"]
    assert shell.user_ns["before"] == 1
    assert cost.ended == "ValueError: <no>"
    assert cost["rapl:virtual"].seconds > 0
    assert "&lt;no&gt;" in cost._repr_html_()


def test_a_cell_that_is_interrupted_is_reported_until_then(shell: Any) -> None:
    shell.user_ns.update(os=os, signal=signal)
    shell.run_cell(f"%%energy {RAPL} -o cost\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n")
    assert shell.user_ns["cost"].ended == "it was interrupted"
    assert shell.user_ns["cost"]["rapl:virtual"].joules >= 0


def test_an_interrupt_or_a_lost_sensor_leaves_the_runs_before_it(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.user_ns.update(os=os, signal=signal, runs=[])
    shell.run_cell(
        f"%%energy {RAPL} -r 5 -o cost\nruns.append(1)\nif len(runs) == 3: os.kill(os.getpid(), signal.SIGINT)\n"
        "for _ in range(10**9 if len(runs) == 3 else 0): pass\n"
    )
    cost = shell.user_ns["cost"]
    assert len(cost.regions) == 3
    assert cost.ended == "it was interrupted"
    assert len(cost.joules["rapl:virtual"]) == 3
    opened, made = region, iter(range(2))

    def lost(*words: Any) -> Any:
        if next(made, None) is None:
            raise SourceLostError("rapl: the files are gone")
        return opened(*words)

    monkeypatch.setattr("pmtpy.integrations.ipython.region", lost)
    shell.run_cell(f"%energy {RAPL} -r 5 -o cost pass")
    cost = shell.user_ns["cost"]
    assert len(cost.regions) == 2
    assert "the files are gone" in repr(cost)


def test_an_awaited_cell_is_measured_to_its_end(shell: Any) -> None:
    shell.run_cell(f"%%energy {RAPL} -o cost\nimport asyncio\nawait asyncio.sleep(0.05)\ndone = True\n")
    assert shell.user_ns["done"]
    assert shell.user_ns["cost"]["rapl:virtual"].seconds >= 0.05


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-s nothing pass", "nothing"),
        ("-s rapl:virtual -r 0 pass", "from 1 on"),
        ("-s rapl:virtual -o 1x pass", "variable"),
        ('-s "rapl:virtual pass', "cannot be read"),
        ("", "nothing to measure"),
        ("-s rapl:virtual", "nothing to measure"),
        ("-s rapl:virtual # later", "nothing to measure"),
    ],
)
def test_what_cannot_be_done_is_a_message_and_no_traceback(shell: Any, line: str, said: str) -> None:
    result = shell.run_cell(f"%energy {line}")
    assert type(result.error_in_exec).__name__ == "UsageError"
    assert said in str(result.error_in_exec)


def test_the_tutorial_notebook_runs_from_its_first_cell_to_its_last() -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True).execute()
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    errors = [o for o in outputs if o.output_type == "error"]
    assert [e.ename for e in errors] == ["ZeroDivisionError"]  # the one that it shows on purpose
    tables = [o for o in outputs if "<table>" in str(o.get("data", {}).get("text/html", ""))]
    assert len(tables) >= 4


def test_a_notebook_in_which_a_loop_runs_awaits_a_cell_to_its_end() -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    cells = [
        "%load_ext pmtpy\nimport asyncio",
        f"%%energy {RAPL} -q -o cost -r 2\nawait asyncio.sleep(0.05)\ndone = True",
        "print(done, cost.ended, [r['rapl:virtual'].seconds >= 0.05 for r in cost.regions])",
        f"%%energy {RAPL} -q -o broken\nawait asyncio.sleep(0)\n1 / 0",
        "print(broken.ended)",
        f"%energy {RAPL} await asyncio.sleep(0)",
    ]
    made = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=made)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True).execute()
    said = ["".join(str(o.get("text", o.get("ename"))) for o in cell.outputs) for cell in made]
    assert said[2] == "True  [True, True]\n"
    assert said[3:5] == ["ZeroDivisionError", "ZeroDivisionError: division by zero\n"]
    assert "write %%energy as the first line" in said[5]
