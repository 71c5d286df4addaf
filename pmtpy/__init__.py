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

from pmtpy._loading import LOADING
from pmtpy.integrations import old_names

if TYPE_CHECKING:
    from pmtpy._version import __version__
    from pmtpy.cluster import mpi, prometheus
    from pmtpy.cluster.dataset import dataset
    from pmtpy.core.state import State, joules, seconds, watts
    from pmtpy.errors import (
        BackendUnavailableError,
        BenchStoppedError,
        CalibrationError,
        CoverageError,
        FileFormatError,
        MissingPackageError,
        PmtError,
        ProtocolError,
        ReadError,
        SensorClosedError,
        SinkError,
        SourceLostError,
        TargetError,
        WorkFailedError,
    )
    from pmtpy.integrations.drop_ins import install_as_pmt, install_as_powersensor
    from pmtpy.io.read import load
    from pmtpy.lab.bench import bench
    from pmtpy.lab.bench_result import BenchResult
    from pmtpy.regions.decorators import dump, measure
    from pmtpy.regions.measurement import Measurement
    from pmtpy.regions.region import Region, region
    from pmtpy.sensor.combine import combine
    from pmtpy.sensor.registry import Listing, create, list_sensors
    from pmtpy.sensor.sensor import Sensor

old_names.install()

# Public names and the modules they come from. A name is imported when it is first used, so that `import pmtpy` costs a
# program nothing that it does not use.
_HOME = {
    "__version__": "pmtpy._version",
    "bench": "pmtpy.lab.bench",
    "BenchResult": "pmtpy.lab.bench_result",
    "combine": "pmtpy.sensor.combine",
    "install_as_pmt": "pmtpy.integrations.drop_ins",
    "install_as_powersensor": "pmtpy.integrations.drop_ins",
    "BackendUnavailableError": "pmtpy.errors",
    "BenchStoppedError": "pmtpy.errors",
    "CalibrationError": "pmtpy.errors",
    "CoverageError": "pmtpy.errors",
    "FileFormatError": "pmtpy.errors",
    "MissingPackageError": "pmtpy.errors",
    "PmtError": "pmtpy.errors",
    "ProtocolError": "pmtpy.errors",
    "ReadError": "pmtpy.errors",
    "SensorClosedError": "pmtpy.errors",
    "SinkError": "pmtpy.errors",
    "SourceLostError": "pmtpy.errors",
    "TargetError": "pmtpy.errors",
    "WorkFailedError": "pmtpy.errors",
    "State": "pmtpy.core.state",
    "joules": "pmtpy.core.state",
    "seconds": "pmtpy.core.state",
    "watts": "pmtpy.core.state",
    "load": "pmtpy.io.read",
    "dataset": "pmtpy.cluster.dataset",
    "mpi": "pmtpy.cluster",
    "prometheus": "pmtpy.cluster",
    "Measurement": "pmtpy.regions.measurement",
    "Region": "pmtpy.regions.region",
    "dump": "pmtpy.regions.decorators",
    "measure": "pmtpy.regions.decorators",
    "region": "pmtpy.regions.region",
    "Listing": "pmtpy.sensor.registry",
    "create": "pmtpy.sensor.registry",
    "list_sensors": "pmtpy.sensor.registry",
    "Sensor": "pmtpy.sensor.sensor",
}

# Loaded with a name, for whoever uses that will use these too: a sensor is opened before a program works, and its first
# region begins in the midst of it.
_ALONG = {"create": "pmtpy.regions.region", "combine": "pmtpy.regions.region"}

__all__ = [
    "BackendUnavailableError",
    "BenchResult",
    "BenchStoppedError",
    "CalibrationError",
    "CoverageError",
    "FileFormatError",
    "Listing",
    "Measurement",
    "MissingPackageError",
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
    "WorkFailedError",
    "__version__",
    "bench",
    "combine",
    "create",
    "dataset",
    "dump",
    "install_as_pmt",
    "install_as_powersensor",
    "joules",
    "list_sensors",
    "load",
    "measure",
    "mpi",
    "prometheus",
    "region",
    "seconds",
    "watts",
]


def load_ipython_extension(shell: object) -> None:
    """Give a notebook ``%energy`` and ``%%energy``; called by ``%load_ext pmtpy``."""
    importlib.import_module("pmtpy.integrations.ipython").load_ipython_extension(shell)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        msg = f"module 'pmtpy' has no attribute {name!r}"
        raise AttributeError(msg)
    with LOADING:
        home = importlib.import_module(_HOME[name])
        if name in _ALONG:
            importlib.import_module(_ALONG[name])
        found = vars(home)[name] if name in vars(home) else importlib.import_module(f"{_HOME[name]}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
