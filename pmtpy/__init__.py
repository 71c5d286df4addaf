"""pmtpy: measure energy with every sensor a machine has, and know how far each number can be trusted.

>>> import pmtpy as pmt
>>> with pmt.create("rapl:virtual") as sensor:
...     a = sensor.read()
...     b = sensor.read()
>>> pmt.seconds(a, b) > 0
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pmtpy.version import __version__

if TYPE_CHECKING:
    from pmtpy.combining import combine
    from pmtpy.compat import install_as_pmt, install_as_powersensor
    from pmtpy.decorators import dump, measure
    from pmtpy.errors import (
        BackendUnavailableError,
        CalibrationError,
        CoverageError,
        FileFormatError,
        PmtError,
        ProtocolError,
        ReadError,
        SensorClosedError,
        SinkError,
        SourceLostError,
        TargetError,
    )
    from pmtpy.measurement import Measurement
    from pmtpy.recordings import load
    from pmtpy.regions import Region, region
    from pmtpy.registry import Listing, create, list_sensors
    from pmtpy.sensor import Sensor
    from pmtpy.state import State, joules, seconds, watts

# Public names and the modules they come from. A name is imported when it is first used, so that `import pmtpy` costs a
# program nothing that it does not use.
_HOME = {
    "combine": "pmtpy.combining",
    "install_as_pmt": "pmtpy.compat",
    "install_as_powersensor": "pmtpy.compat",
    "BackendUnavailableError": "pmtpy.errors",
    "CalibrationError": "pmtpy.errors",
    "CoverageError": "pmtpy.errors",
    "FileFormatError": "pmtpy.errors",
    "PmtError": "pmtpy.errors",
    "ProtocolError": "pmtpy.errors",
    "ReadError": "pmtpy.errors",
    "SensorClosedError": "pmtpy.errors",
    "SinkError": "pmtpy.errors",
    "SourceLostError": "pmtpy.errors",
    "TargetError": "pmtpy.errors",
    "State": "pmtpy.state",
    "joules": "pmtpy.state",
    "seconds": "pmtpy.state",
    "watts": "pmtpy.state",
    "load": "pmtpy.recordings",
    "Measurement": "pmtpy.measurement",
    "Region": "pmtpy.regions",
    "dump": "pmtpy.decorators",
    "measure": "pmtpy.decorators",
    "region": "pmtpy.regions",
    "Listing": "pmtpy.registry",
    "create": "pmtpy.registry",
    "list_sensors": "pmtpy.registry",
    "Sensor": "pmtpy.sensor",
}

__all__ = [
    "BackendUnavailableError",
    "CalibrationError",
    "CoverageError",
    "FileFormatError",
    "Listing",
    "Measurement",
    "PmtError",
    "ProtocolError",
    "ReadError",
    "Region",
    "Sensor",
    "SensorClosedError",
    "SinkError",
    "SourceLostError",
    "State",
    "TargetError",
    "__version__",
    "combine",
    "create",
    "dump",
    "install_as_pmt",
    "install_as_powersensor",
    "joules",
    "list_sensors",
    "load",
    "measure",
    "region",
    "seconds",
    "watts",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        msg = f"module 'pmtpy' has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
