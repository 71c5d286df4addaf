"""Pure mathematics on recorded curves: arrays in, results with intervals out. No files, no devices, no time.

``compare`` holds sensors that watched the same power against each other. Names are imported when they are used. Where
to look, from what is asked to what it stands on:

* how does a sensor behave (docs/characterise.md): ``characterise`` and its record ``characterised``; ``polls``,
  ``update`` with ``track``, ``step``, ``kernel`` with ``search``, ``choice``, ``shapes`` and ``spread``, ``unmetered``,
  ``transfer``;
* what is the energy, corrected (docs/corrections.md): ``correct``, on ``response``, ``bins``, ``levels``, ``starts``,
  ``gaps``, ``ends``, ``reconstruct`` and ``window``; ``live`` with ``renewed`` for regions; ``alternatives``;
  ``energy`` holds it beside a meter's;
* do two sensors agree (docs/compare.md): ``comparison`` and its records ``compared``, ``against``, ``align``;
* on which clock was it: ``clocks``, on ``correlogram``;
* what does it cost at another clock (docs/frequency.md): ``frequency``;
* how good is a sampling meter: ``meter``;
* to be looked at: ``smooth``, ``decimate``;
* common ground: ``series``, ``curve``, ``estimate``, ``marks``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmtpy.analysis.align import Alignment
    from pmtpy.analysis.compared import Compared, Comparison, Energy, RegionEnergies, Trace
    from pmtpy.analysis.comparison import compare
    from pmtpy.analysis.marks import Region

__all__ = ["Alignment", "Compared", "Comparison", "Energy", "Region", "RegionEnergies", "Trace", "compare"]

_HOMES = {
    "Alignment": "align",
    "Compared": "compared",
    "Comparison": "compared",
    "Energy": "compared",
    "Region": "marks",
    "RegionEnergies": "compared",
    "Trace": "compared",
    "compare": "comparison",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
