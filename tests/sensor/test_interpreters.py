"""A sub-interpreter of Python: no sensor is opened in it, and the program that has it ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

# The module was renamed in 3.13, with how it is told that the new interpreter shares the lock of the main one: numpy
# does not load in one that has a lock of its own, nor in a second one of a process.
_NEW = importlib.util.find_spec("_interpreters") is not None
_IN_ANOTHER = """
import {module} as interpreters
one = interpreters.create({shared})
interpreters.{run}(one, '''
import pmtpy as pmt
for target in ("rapl:virtual", "nvml:virtual"):
    try:
        kept = pmt.create(target)
    except pmt.PmtError as error:
        print(error)
''')
print("the end")
"""


@pytest.mark.skipif(
    not _NEW and importlib.util.find_spec("_xxsubinterpreters") is None, reason="this Python has no sub-interpreters"
)
def test_a_sub_interpreter_opens_no_sensor_and_keeps_no_program_from_ending() -> None:
    code = (
        _IN_ANOTHER.format(module="_interpreters", shared="'legacy'", run="exec")
        if _NEW
        else _IN_ANOTHER.format(module="_xxsubinterpreters", shared="isolated=False", run="run_string")
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in said if "sub-interpreter" in line] == ["rapl", "nvml"]
    assert sum("main interpreter" in line for line in said) == 2
    assert "the end" in said  # each has a buffer of its own
