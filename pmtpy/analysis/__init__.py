"""Pure mathematics on recorded curves: arrays in, results with intervals out. No files, no devices, no time.

Where to look, by what is asked:

* how does a sensor behave: ``characterisation``;
* what is the energy, corrected: ``correction``;
* do two sensors agree: ``comparison``;
* what does it cost at another clock: ``frequency``;
* on which clock was it: ``clocks``, on ``correlogram``;
* how good is a sampling meter: ``meter``;
* to be looked at: ``smooth``, ``decimate``;
* common ground: ``series``, ``curve``, ``estimate``, ``marks``.

The names below are imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmtpy.analysis.comparison.align import Alignment
    from pmtpy.analysis.comparison.compare import compare
    from pmtpy.analysis.comparison.compared import Compared, Comparison, Energy, RegionEnergies, Trace
    from pmtpy.analysis.marks import Region

__all__ = ["Alignment", "Compared", "Comparison", "Energy", "Region", "RegionEnergies", "Trace", "compare"]

_HOMES = {
    "Alignment": "comparison.align",
    "Compared": "comparison.compared",
    "Comparison": "comparison.compared",
    "Energy": "comparison.compared",
    "Region": "marks",
    "RegionEnergies": "comparison.compared",
    "Trace": "comparison.compared",
    "compare": "comparison.compare",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
