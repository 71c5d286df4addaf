"""The sensor configuration that a board keeps in its flash memory: what it means, its bytes, and its JSON. Pure.

Facts: PowerSensor3 1.6.1, ``device/PowerSensor/eeprom.h`` and ``host/src/sensors.cc`` (record), ``psconfig.cc``
(types and their sensitivities).
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from pmtpy.backends.powersensor3._codec import SENSORS
from pmtpy.errors import CalibrationError, FileFormatError, TargetError

PAIRS = SENSORS // 2
FULL_SCALE_V = 3.3
MAX_LEVEL = 1023  # the divisor of the firmware and of its host library; not 1024
_NAME_BYTES = 15  # and a NUL
INVALID = "INVALID"  # shown for a text that is corrupt, as the public tools do

# Little-endian, packed: type, pair name, vref in V, sensitivity in V/A or gain, in use. Before 1.3.0 without the name.
RECORD = struct.Struct("<16s16sffB")
OLD_RECORD = struct.Struct("<16sffB")

# Default sensitivity of the known current sensors (Melexis MLX91221, named by their range in ampere), V/A.
SENSITIVITY_V_PER_A = {"MLX10": 0.12, "MLX20": 0.0625, "MLX50": 0.025, "MLX75": 0.01667}


_MIN_FLOAT32, _MAX_FLOAT32 = 1.1754943508222875e-38, 3.4028234663852886e38  # of normal numbers in IEEE single precision
# Noise is 2 to 6 levels; what is not connected, or carries a load that changes, scatters by tens to hundreds.
_STEADY_LEVELS = 16.0
_ZERO_MOVES_V, _GAIN_MOVES = 0.12, 0.2  # a tenth of the range of a current; the paper's supply, 20 % off


@dataclass(frozen=True, slots=True)
class SensorRecord:
    """Stored configuration of one sensor. Even sensors measure current, odd ones voltage."""

    type: str  # Module type, e.g. ``MLX10``; free text, at most 15 characters.
    name: str  # name of the pair; both sensors of a pair should hold the same
    vref: float  # pin voltage at zero, volts
    sensitivity: float  # volts per ampere (current) or gain (voltage); negative where the polarity is inverted
    in_use: bool  # whether the sensor is connected

    @property
    def polarity(self) -> int:
        """1, or -1 where the sensor is mounted the other way round."""
        return -1 if self.sensitivity < 0 else 1

    @property
    def usable(self) -> bool:
        """Whether the numbers can be computed with."""
        return math.isfinite(self.vref) and math.isfinite(self.sensitivity) and self.sensitivity != 0

    @property
    def erased(self) -> bool:
        """Whether it was read from memory that was never written, or was erased: all bits set."""
        return self.type == INVALID and math.isnan(self.vref) and math.isnan(self.sensitivity)


Records = tuple[SensorRecord, ...]


def _text(raw: bytes) -> tuple[str, bool]:
    """Text up to the first NUL, and whether it was whole: without a NUL the memory was damaged or never written."""
    head, nul, _ = raw.partition(b"\0")
    try:
        text = head.decode()  # the public tools store what a terminal sends
    except UnicodeDecodeError:
        text = head.decode("latin-1")
    if nul and text.isprintable():
        return text, True
    return INVALID, False


def unpack_record(raw: bytes, sensor: int) -> tuple[SensorRecord, tuple[str, ...]]:
    """Read a stored record of either length; never fails on its content.

    Returns the record and a plain warning for each thing that was wrong with it.
    """
    if raw == b"\xff" * len(raw):
        record = SensorRecord(INVALID, INVALID, math.nan, math.nan, in_use=True)
        return record, (f"sensor {sensor}: its memory is erased; configure it with `pmtpy config powersensor3`",)
    if len(raw) == RECORD.size:
        kind, name, vref, sensitivity, in_use = RECORD.unpack(raw)
    else:
        kind, vref, sensitivity, in_use = OLD_RECORD.unpack(raw)
        name = b"\0" * 16
    warnings = []
    type_text, whole = _text(kind)
    if not whole:
        warnings.append(f"sensor {sensor}: the stored type is corrupt ({kind!r}); shown as INVALID")
    name_text, whole = _text(name)
    if not whole:
        warnings.append(f"sensor {sensor}: the stored pair name is corrupt ({name!r}); shown as INVALID")
    record = SensorRecord(type_text, name_text, vref, sensitivity, bool(in_use))
    if record.in_use and not record.usable:
        warnings.append(
            f"sensor {sensor}: stored vref {vref:g} V and sensitivity {sensitivity:g} are not usable; set them "
            f"(pmtpy config powersensor3 --sensor {sensor} --vref VOLTS --sensitivity X), or take it out (--in-use off)"
        )
    return record, tuple(warnings)


def pack_record(record: SensorRecord, size: int = RECORD.size) -> bytes:
    """Make the bytes that the board stores; strings are padded with NULs.

    Raises TargetError: a number is beyond single precision.
    """
    for what, value in (("vref", record.vref), ("sensitivity", record.sensitivity)):
        _single(value, what)
    kind, name = (text.encode(errors="replace")[:_NAME_BYTES] for text in (record.type, record.name))
    if size == OLD_RECORD.size:
        return OLD_RECORD.pack(kind, record.vref, record.sensitivity, record.in_use)
    return RECORD.pack(kind, name, record.vref, record.sensitivity, record.in_use)


def stored(record: SensorRecord, size: int = RECORD.size) -> SensorRecord:
    """Return the record as it comes back from a board: text cut to its field, numbers in single precision."""
    return unpack_record(pack_record(record, size), 0)[0]


def pair_of(sensor: int) -> int:
    """Return the pair of a sensor.

    Raises TargetError: there is no such sensor.
    """
    if not 0 <= sensor < SENSORS:
        msg = f"there is no sensor {sensor}: sensors are 0 to {SENSORS - 1}, even ones current, odd ones voltage"
        raise TargetError(msg)
    return sensor // 2


def set_fields(
    records: Records,
    sensor: int,
    *,
    type: str | None = None,  # noqa: A002  (the name of the field)
    name: str | None = None,
    vref: float | None = None,
    sensitivity: float | None = None,
    polarity: int | None = None,
    in_use: bool | None = None,
) -> Records:
    """Change fields of one sensor; the pair name goes to both sensors of its pair.

    A new type of current sensor brings its default sensitivity, as upstream's psconfig does; that of a voltage sensor
    is a label, and leaves the gain (1 where there was none). A ``sensitivity`` given besides wins. Type and sensitivity
    set normal polarity unless ``polarity`` says otherwise.

    Raises TargetError: no such sensor, a text of more than 15 bytes in UTF-8, a number that is not finite or not
    possible, a type of current sensor for a voltage, or one that is not known and comes without its sensitivity.
    """
    pair = pair_of(sensor)
    changed = list(records)
    record = changed[sensor]
    if type is not None:
        default = _default(sensor, type, record) if sensitivity is None else sensitivity
        record = replace(record, type=_fitting(type, "type"), sensitivity=default)
    if vref is not None:
        record = replace(record, vref=_finite(vref, "vref"))
    if sensitivity is not None:
        if _finite(sensitivity, "sensitivity") == 0:
            raise TargetError("a sensitivity of 0 makes every reading infinite; give volts per ampere, or the gain")
        record = replace(record, sensitivity=sensitivity)
    if polarity is not None:
        if polarity not in {1, -1}:
            msg = f"polarity is 1 or -1, not {polarity}"
            raise TargetError(msg)
        record = replace(record, sensitivity=math.copysign(record.sensitivity, polarity))
    if in_use is not None:
        record = replace(record, in_use=in_use)
    changed[sensor] = record
    if name is not None:
        for i in (2 * pair, 2 * pair + 1):
            changed[i] = replace(changed[i], name=_fitting(name, "name"))
    return tuple(changed)


def _default(sensor: int, kind: str, record: SensorRecord) -> float:
    """Return the sensitivity that a type brings; the gain of a voltage sensor is its own."""
    known = ", ".join(SENSITIVITY_V_PER_A)
    if sensor % 2:
        if kind in SENSITIVITY_V_PER_A:
            msg = f"sensor {sensor} is a voltage, and {kind} measures a current: it is for sensor {sensor - 1}"
            raise TargetError(msg)
        return abs(record.sensitivity) if record.usable else 1.0
    if kind not in SENSITIVITY_V_PER_A:
        msg = f"type {kind!r} is not known; known are {known}. Give the sensitivity of another one in V/A with it"
        raise TargetError(msg)
    return SENSITIVITY_V_PER_A[kind]


def _fitting(text: str, what: str) -> str:
    size = len(text.encode(errors="replace"))
    if size > _NAME_BYTES or not text.isprintable() or text == INVALID:
        msg = f"{what} {text!r} cannot be stored: it needs {size} bytes of {_NAME_BYTES}, all printable, in UTF-8"
        raise TargetError(msg)
    return text


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        msg = f"{what} {value} is not a finite number"
        raise TargetError(msg)
    return _single(value, what)


def _single(value: float, what: str) -> float:
    """Return a number that the board's single precision can hold: not too large, and not so small that it becomes 0."""
    if math.isfinite(value) and value and not _MIN_FLOAT32 <= abs(value) <= _MAX_FLOAT32:
        msg = f"{what} {value:g} does not fit into single precision ({_MIN_FLOAT32:.3g} to {_MAX_FLOAT32:.3g})"
        raise TargetError(msg)
    return value


def _pin_volts(level: float) -> float:
    """Voltage at the input of the converter for a level or a mean of levels, volts."""
    return FULL_SCALE_V * level / MAX_LEVEL


def calibrated_zero(records: Records, sensor: int, mean_level: float) -> Records:
    """Make the mean level of a sensor whose true input is zero its new zero.

    ``vref + sensitivity * mean reading``, with both signs, is the mean pin voltage: right for either polarity.
    """
    return set_fields(records, sensor, vref=_pin_volts(mean_level))


def calibrated_gain(records: Records, sensor: int, mean_level: float, true_value: float) -> Records:
    """Make the mean level of a sensor whose true input is ``true_value`` (A or V) its new sensitivity.

    Raises CalibrationError: no zero is stored; or the input is too close to it: less than 16 levels, so that rounding
    alone would make more than 3 %.
    """
    pair_of(sensor)
    if not math.isfinite(records[sensor].vref):
        msg = (
            f"sensor {sensor} has no zero yet, from which its gain counts: with nothing applied, --calibrate-zero; or "
            "--vref with the voltage at the pin for zero input (a current module has 1.65, a voltage input 0)"
        )
        raise CalibrationError(msg)
    span_v = _pin_volts(mean_level) - records[sensor].vref
    if abs(span_v) < _pin_volts(16) or not true_value:
        msg = f"sensor {sensor}: the pin moved by {span_v:.4f} V for an input of {true_value:g}; apply a larger input"
        raise CalibrationError(msg)
    return set_fields(records, sensor, sensitivity=span_v / true_value)


def refuse_unlikely(sensor: int, before: SensorRecord, after: SensorRecord) -> None:
    """Refuse a calibration that a wrong input explains better than the sensor does.

    Raises CalibrationError: the zero moved by more than a tenth of the pin's range either side (1 A of an MLX10, as
    :func:`calibration.meter.zero_vref` allows), or the sensitivity by more than a fifth. A sensor that was never
    configured is taken for one of its kind: zero at 1.65 V for a current and 0 V for a voltage, any sensitivity.
    """
    current = sensor % 2 == 0
    unset = not math.isfinite(before.vref) or (current and before.vref == 0)
    middle = (FULL_SCALE_V / 2 if current else 0.0) if unset else before.vref
    moved = after.vref - middle
    if after.vref != before.vref and abs(moved) > _ZERO_MOVES_V:
        msg = (
            f"sensor {sensor}: its zero would move by {moved:+.3f} V at the pin, from {middle:.3f} V, so something "
            f"flows through it or is connected; nothing was stored. If it is right, write it: --vref {after.vref:.5f}"
        )
        raise CalibrationError(msg)
    known = math.isfinite(before.sensitivity) and abs(before.sensitivity) not in {0.0, 1.0}
    if known and abs(after.sensitivity / before.sensitivity - 1.0) > _GAIN_MOVES:
        msg = (
            f"sensor {sensor}: its sensitivity would change from {before.sensitivity:.5g} to {after.sensitivity:.5g}: "
            "the value given is not what is applied, or it is another module; nothing was stored. If it is right, "
            f"write it: --sensitivity {after.sensitivity:.6g}"
        )
        raise CalibrationError(msg)


def refuse_unsteady(sensor: int, deviation: float) -> None:
    """Refuse a calibration while the input moves.

    Raises CalibrationError: the standard deviation of the levels is more than any noise.
    """
    if deviation > _STEADY_LEVELS:
        msg = (
            f"sensor {sensor}: its levels scatter by {deviation:.0f} (a module has noise of 2 to 6): nothing is "
            "connected to the input, or what flows through it changes; nothing was stored"
        )
        raise CalibrationError(msg)


def to_json(records: Records, firmware: str) -> str:
    """Text of a configuration file."""
    return (
        json.dumps({"powersensor3": 1, "firmware": firmware, "sensors": [asdict(r) for r in records]}, indent=2) + "\n"
    )


def from_json(text: str) -> Records:
    """Read a configuration file.

    Raises FileFormatError: not such a file; the message says what is wrong with it.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        msg = f"not a configuration file: {error}"
        raise FileFormatError(msg) from error
    entries = content.get("sensors") if isinstance(content, dict) else None
    if not isinstance(entries, list) or len(entries) != SENSORS:
        msg = f'not a configuration file: it needs a list "sensors" of {SENSORS} entries'
        raise FileFormatError(msg)
    return tuple(_from_entry(i, entry) for i, entry in enumerate(entries))


_TYPES: dict[str, tuple[type, ...]] = {
    "type": (str,),
    "name": (str,),
    "vref": (int, float),
    "sensitivity": (int, float),
    "in_use": (bool,),
}


def _from_entry(sensor: int, entry: Any) -> SensorRecord:
    names = [f.name for f in fields(SensorRecord)]
    if not isinstance(entry, dict) or sorted(entry) != sorted(names):
        msg = f"sensor {sensor}: needs exactly the fields {', '.join(names)}"
        raise FileFormatError(msg)
    for name in names:
        numeric_bool = isinstance(entry[name], bool) and name != "in_use"
        if not isinstance(entry[name], _TYPES[name]) or numeric_bool:
            msg = f"sensor {sensor}: {name} is {entry[name]!r}"
            raise FileFormatError(msg)
    try:
        for name in ("type", "name"):
            _fitting(entry[name], f"sensor {sensor}: {name}")
        numbers = {name: _finite(float(entry[name]), f"sensor {sensor}: {name}") for name in ("vref", "sensitivity")}
    except (TargetError, OverflowError) as error:
        raise FileFormatError(str(error)) from error
    if entry["in_use"] and not numbers["sensitivity"]:
        msg = f"sensor {sensor}: is in use with a sensitivity of 0, which makes every reading infinite"
        raise FileFormatError(msg)
    return SensorRecord(**{**entry, **numbers})
