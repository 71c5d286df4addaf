"""What a program pays for its first region."""

from __future__ import annotations

import subprocess
import sys

_HEAVY = ("numpy.ma", "scipy", "pandas", "html", "statistics", "pmtpy.analysis.energy")
_PROGRAM = f"""
import sys, time, pmtpy as pmt
with pmt.create("nvml:virtual") as power, pmt.create("powersensor3:virtual") as stream:
    with pmt.region("first", power, stream) as r:
        time.sleep(0.3)
    assert r[power].uncertainty_joules > 0.0 and r[stream].uncertainty_joules > 0.0
print([m for m in {_HEAVY} if m in sys.modules])
"""


def test_the_first_judged_region_loads_nothing_that_it_does_not_need() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"


_BESIDE = """
import sys, time, pmtpy as pmt
with pmt.create("rapl:virtual") as sensor:
    before = set(sys.modules)
    with pmt.region("first", sensor) as r:
        time.sleep(0.05)
    assert r.total.uncertainty_joules > 0.0
print(sorted(set(sys.modules) - before))
"""


def test_what_a_region_needs_is_loaded_when_a_sensor_is_opened() -> None:
    ran = subprocess.run([sys.executable, "-c", _BESIDE], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
