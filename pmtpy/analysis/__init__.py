"""Pure mathematics on recorded curves: arrays in, results with intervals out. No files, no devices, no time.

Where to look, by what is asked:

* how does a sensor behave: ``characterisation``;
* when were its values renewed: ``clocking``;
* what is the energy, corrected, of a recording and of a live region: ``energy``;
* how far can it be trusted: ``uncertainty``;
* do two sensors agree: ``comparison``;
* what the published evaluations of sensors ask, and ``pmtpy certify``: ``procedures``;
* how often must a run be repeated: ``repetition``;
* what does it cost at another clock: ``transfer``;
* common ground: ``signal``.

The names below are imported when they are used. The folders bear nouns, because a module and a function cannot share a
name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmtpy.analysis.characterisation.align import Alignment
    from pmtpy.analysis.characterisation.characterise import characterise
    from pmtpy.analysis.characterisation.results import Characterisation, Series
    from pmtpy.analysis.comparison.compare import compare
    from pmtpy.analysis.comparison.results import Compared, Comparison, Energy, RegionEnergies, Trace
    from pmtpy.analysis.energy.estimate import region_energy

__all__ = [
    "Alignment",
    "Characterisation",
    "Compared",
    "Comparison",
    "Energy",
    "RegionEnergies",
    "Series",
    "Trace",
    "characterise",
    "compare",
    "region_energy",
]

_HOMES = {
    "Alignment": "characterisation.align",
    "Characterisation": "characterisation.results",
    "Compared": "comparison.results",
    "Comparison": "comparison.results",
    "Energy": "comparison.results",
    "RegionEnergies": "comparison.results",
    "Series": "characterisation.results",
    "Trace": "comparison.results",
    "characterise": "characterisation.characterise",
    "compare": "comparison.compare",
    "region_energy": "energy.estimate",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
