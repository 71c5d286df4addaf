import copy
import re
import sys
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy._extras import EXTRAS, FIRST_PYTHON, extra, installation, require
from pmtpy.errors import BackendUnavailableError, MissingPackageError, SinkError

PACKAGE = Path(pmt.__file__).parent


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingPackageError) as caught, extra("pynvml", "nvml"):
        import pynvml  # noqa: F401
    assert str(caught.value) == (
        "nvml: the Python package nvidia-ml-py is not installed\n  remedy: pip install 'pmtpy[nvml]'"
    )
    assert isinstance(caught.value, BackendUnavailableError)  # as a sensor, a reader or a picture is asked for
    assert isinstance(caught.value, SinkError)  # as a file is asked for
    assert str(copy.copy(caught.value)) == str(caught.value)


def test_a_package_that_is_there_and_broken_is_not_called_missing() -> None:
    with (
        pytest.raises(MissingPackageError, match="polars cannot be imported: no AVX") as caught,
        extra("polars", "polars()"),
    ):
        raise ImportError("no AVX")
    assert caught.value.remedy == "pip install polars"


def test_a_package_within_it_that_is_missing_is_not_taken_for_it() -> None:
    why = "pandas cannot be imported: No module named 'nosuch'"
    with pytest.raises(MissingPackageError, match=why), extra("pandas", "reading"):
        import nosuch  # type: ignore[import-not-found]  # noqa: F401


def test_tables_for_pandas_raise_what_an_import_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pmt.create("rapl:virtual") as sensor, pmt.region("all", sensor) as region:
        pass
    with pytest.raises(ImportError, match=r"pip install 'pmtpy\[analysis\]'"):
        region.to_frame()


def test_what_is_needed_later_can_be_required_before() -> None:
    require("numpy", "anything")
    with pytest.raises(MissingPackageError, match="pip install nosuch"):
        require("nosuch", "anything")


def test_a_package_that_this_python_has_no_release_of_is_not_said_to_come_with_the_extra() -> None:
    assert installation("pyjls", (3, 11)) == "$ pip install 'pmtpy[jls]'"
    assert installation("pyjls", (3, 10)) == (
        "pyjls has no release for Python 3.10; with 3.11 or newer: pip install 'pmtpy[jls]'"
    )
    assert installation("pandas", (3, 10)) == "$ pip install 'pmtpy[analysis]'"


def test_which_python_a_package_needs_is_as_in_pyproject() -> None:
    text = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    extras = text.partition("[project.optional-dependencies]")[2].partition("\ndev = [")[0]
    marked = re.findall(r"""^(\w+) = \["([\w-]+)[^"]*; python_version >= '(\d+)\.(\d+)'"\]""", extras, re.MULTILINE)
    assert extras.count("python_version") == len(marked)
    assert {name: (int(a), int(b)) for _, name, a, b in marked} == dict(FIRST_PYTHON)
    assert {name: of for of, name, *_ in marked}.items() <= EXTRAS.items()


def test_what_helps_besides_is_told_too() -> None:
    with pytest.raises(MissingPackageError, match="remedy: pip install nosuch; or go without it"):
        require("nosuch", "anything", "or go without it")


def test_no_other_place_says_how_an_extra_is_installed() -> None:
    told = {p.name for p in PACKAGE.rglob("*.py") if re.search(r"pip install '?pmtpy\[", p.read_text(encoding="utf-8"))}
    assert told == {"_extras.py", "mpi.py"}  # that one says what a program must import, too
