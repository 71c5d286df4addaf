"""pmtpy: measure energy with every sensor a machine has, and know how far each number can be trusted.

>>> import pmtpy as pmt
>>> with pmt.create("rapl:virtual") as sensor:
...     a = sensor.read()
...     b = sensor.read()
>>> pmt.seconds(a, b) > 0
True
"""

from __future__ import annotations

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
from pmtpy.model import State, joules, seconds, watts
from pmtpy.region import Measurement, Region, measure, region
from pmtpy.registry import Listing, create, list_sensors
from pmtpy.sensor import Sensor

__version__ = "0.1.0"

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
    "create",
    "joules",
    "list_sensors",
    "measure",
    "region",
    "seconds",
    "watts",
]
