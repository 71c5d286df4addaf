"""Calibration profiles: what one says of a channel, and its text.

A profile is a JSON text (docs/calibrate.md, "Profile files"): whose channel it is, the curve that leads from what the
sensor shows to what a reference meter showed, how well that is known, over which range, and where it came from.
Nothing here fits, reads a file or guesses; whether it belongs to a device is for
:mod:`pmtpy.core.calibration.matching` to say.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.core.calibration.curves import Affine, CalibrationCurve, Lookup, Polynomial
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.nearest import nearest
from pmtpy.core.numbers import real
from pmtpy.core.response import EARLY_S, FAMILIES, UNKNOWN, Number, Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CalibrationError

_FORMAT = "pmtpy-calibration"
RECORDED = "recording"  # the backend of a profile for a device that was not here: no sensor is of it
_POINTS = 257  # of the range, where a curve is looked at
_ROUNDED = 1e-6  # relative, of a covariance that was written as text
_FACTS = ("refresh_s", "window_s", "tau_s", "delay_s", "noise", "state", "state_s")
# The keys of each object of the text. One that is not known was meant to say something, and would go unheard.
_KEYS = {
    "a profile": {
        "format", "version", "backend", "device", "channel", "model", "parameters", "range", "behaviour", "provenance",
    },
    "device": {"model", "serial", "version", "virtual"},
    "affine": {"gain", "offset", "covariance"},
    "polynomial": {"coefficients", "u", "zero_u"},
    "lookup": {"shown", "true", "u", "zero_u"},
    "behaviour": {*_FACTS, "family", "candidates"},
    "candidates": {*_FACTS, "family", "share"},
}  # fmt: skip
_MODELS = {"affine", "polynomial", "lookup"}
_WIDTHS = {"refresh_s", "window_s", "tau_s", "delay_s"}
# What a sensor is off can be four times what is stated of its gain, and hardly more: the worst of 20 published boards
# have gains of 0.87 and 1.18 and offsets of a tenth of the highest power (tables beside Yang, Adamek, Armour, arXiv
# 2312.02741), where 5 % are stated. None is taken to state less than that: a shunt may not be what is thought.
_MOST_STATED_U, _LEAST_GAIN_U = 4.0, 0.05
_MAX_NUMBER = 1e12  # of whatever a profile holds: products of two of them are numbers still
_MAX_WIDTH_S = 3600.0  # of each: the memory that an energy takes grows with it
# How late readings may be: a second, and so many of the times between them, or of those that they show, for what passes
# them on. No earlier than one, beside EARLY_S: else they would know what is to come.
_MAX_DELAY_S, _MAX_DELAY_STEPS = 1.0, 10.0
# how the reference of a channel with a profile begins, if its powers are corrected and if not
_CORRECTED, _AS_SHOWN = "calibration", "powers as shown, kernel of calibration"
_APPLIED = re.compile(rf"({_CORRECTED}|{_AS_SHOWN}) ([0-9a-f]{{16}}) \(")


@dataclass(frozen=True, slots=True)
class Profile:
    """One calibrated channel of one device."""

    device: Identity  # the device it was made on; an empty serial or version is not compared
    channel: str  # name of the channel
    curve: CalibrationCurve  # from shown to true value, in the SI unit of the channel
    # range of shown values over which it was made
    low: float
    high: float
    response: Response = UNKNOWN  # how the sensor follows time, before its curve is applied
    # (key, text): date, data set, reference instrument, residuals: whatever tells where it came from. Not empty.
    provenance: tuple[tuple[str, str], ...] = ()
    # (share, Response): where the kernel was left open: those that it may be, with the share of belief in each, the
    # likeliest first
    candidates: tuple[tuple[float, Response], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a profile that cannot be: an empty range, a curve that does not rise, no provenance."""
        name = f"calibration of {self.device.backend} {self.channel}"
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            msg = f"{name}: the valid range {self.low} to {self.high} is empty"
            raise CalibrationError(msg)
        if not self.provenance:
            msg = f"{name}: it does not say where it came from (provenance)"
            raise CalibrationError(msg)
        if isinstance(self.curve, Affine) and not self.curve.gain.value > self.curve.gain.u:
            msg = f"{name}: the gain must be positive, and known to be: {self.curve.gain}"
            raise CalibrationError(msg)
        with np.errstate(all="ignore"):  # absurd numbers overflow here, and are refused below
            rising = self.curve.true(np.linspace(self.low, self.high, _POINTS))
            falls = not np.all(np.isfinite(rising)) or bool(np.any(np.diff(rising) <= 0))
        if falls:
            msg = f"{name}: its curve does not rise over the valid range {self.low:g} to {self.high:g}"
            raise CalibrationError(msg)
        if self.high > 0.0 >= rising[-1]:
            msg = f"{name}: its curve makes all readings up to {self.high:g} negative, up to {rising[-1]:g}"
            raise CalibrationError(msg)
        for how in (self.response, *(each for _, each in self.candidates)):
            self._refuse_delay(how, name)

    def _refuse_delay(self, how: Response, name: str) -> None:
        """Refuse a kernel that sees what is to come, or what is long over."""
        if not how.shaped:
            return
        step_s = max(self.response.period_s, how.span_s)
        known_to = 2.0 * how.delay_u if math.isfinite(how.delay_u) else 0.0
        earliest, latest = -EARLY_S - step_s, _MAX_DELAY_S + _MAX_DELAY_STEPS * step_s
        if not (how.delay_s + known_to >= earliest and how.delay_s - known_to <= latest):
            msg = (
                f"{name}: delay_s is {how.delay_s:g} s, and readings of a sensor that shows {step_s:g} s at a time are "
                f"{earliest:g} to {latest:g} s late: correct it, or leave it out where it is not known"
            )
            raise CalibrationError(msg)

    def to_json(self) -> str:
        """Write the profile as its JSON text; :func:`parse_profile` reads it back."""
        return json.dumps(_as_document(self), indent=2, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical text, the first 16 digits: the same for the same calibration."""
        canonical = json.dumps(_as_document(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def as_shown(self) -> bool:
        """Whether its curve changes nothing, as where no meter told the gain."""
        curve = self.curve
        return isinstance(curve, Affine) and (curve.gain.value, curve.offset.value) == (1.0, 0.0)

    @property
    def summary(self) -> str:
        """What it knows, in a few words."""
        gain = f"gain {self.curve.gain.value:.4g} +- {self.curve.gain.u:.2g}" if isinstance(self.curve, Affine) else ""
        told = "gain not measured" if self.as_shown else gain or "gain by a curve"
        kernel = self.response.family or "known" if self.response.shaped else "not known"
        return f"{told}, kernel {'left open' if self.candidates else kernel}"

    def doubt(self, channel: Channel | None = None) -> str:
        """What to look at where it moves a reading of its range by more than such a sensor can be off; else nothing.

        That is told by what the channel states of itself; None: of one that is not here.
        """
        if self.high <= 0.0:
            return ""
        gain_u, offset_u = (channel.gain_u, channel.offset_u) if channel is not None else (0.0, 0.0)
        shown = np.linspace(self.low, self.high, _POINTS)
        true = self.curve.true(shown)
        i = int(np.argmax(np.abs(true - shown)))
        if abs(true[i] - shown[i]) <= _MOST_STATED_U * math.hypot(max(gain_u, _LEAST_GAIN_U) * self.high, offset_u):
            return ""
        return (
            f"its profile takes {shown[i]:.4g} as shown for {true[i]:.4g}, and no such sensor is as far off: were "
            "sensor and meter in the same unit, and are the gain (a share: 0.95, not percent) and the offset right?"
        )

    def outside(self, true: Floats) -> int:
        """Return how many of the corrected values lie outside the range over which the profile was made."""
        low, high = self.curve.true(np.array([self.low, self.high]))
        return int(np.count_nonzero((true < low) | (true > high)))

    def calibrated(self, channel: Channel) -> Channel:
        """Return what is known of the channel once the curve is applied to it."""
        gain_u, offset_u, known_at_w = _uncertainties(self)
        how, polled_s = self.response, max(0.0, channel.response.delay_s)  # a register without stamps is as old as that
        if how.shaped:
            how = replace(how, delay_s=how.delay_s + polled_s, delay_u=how.end_u)
            if not how.period_s:
                how = replace(how, period_s=channel.response.period_s, period_u=channel.response.period_u)
        else:
            how = channel.response.but(how.period_s or None, None, None)
        middle = abs(self.curve.slope((self.low + self.high) / 2.0))
        source = "; ".join(f"{key}: {text}" for key, text in self.provenance)
        return replace(
            channel,
            gain_u=gain_u,
            offset_u=offset_u,
            noise=(self.response.noise_w or channel.noise) * middle,
            resolution=channel.smallest_step * middle,
            response=replace(how, state_w=how.state_w * middle, known_at_w=known_at_w),
            reference=f"{_AS_SHOWN if self.as_shown else _CORRECTED} {self.digest} ({source})",
        )


def applied_to(reference: str) -> str | None:
    """Return the digest of the profile by which the powers of a channel with this reference were corrected.

    Empty: its profile leaves them as shown; None: it had no profile.
    """
    found = _APPLIED.match(reference)
    return None if found is None else found.group(2) if found.group(1) == _CORRECTED else ""


def _uncertainties(profile: Profile) -> tuple[float, float, float]:
    """Relative uncertainty of a corrected value, absolute one at zero, and where an error of the gain shows nothing.

    A line ``g P + o`` is off by a variance ``P^2 u_g^2 + 2 P cov + u_o^2``, which is least at ``P = -cov / u_g^2``.
    """
    curve = profile.curve
    if isinstance(curve, Affine):
        known_at_w = -curve.covariance / curve.gain.u**2 if curve.gain.u else 0.0
        return curve.gain.u / curve.gain.value, curve.offset.u / curve.gain.value, known_at_w
    return curve.u, curve.zero_u, 0.0


# --- the text ---


def _as_document(profile: Profile) -> dict[str, object]:
    device, curve = profile.device, profile.curve
    if isinstance(curve, Affine):
        model, parameters = "affine", {
            "gain": _number(curve.gain), "offset": _number(curve.offset), "covariance": curve.covariance,
        }  # fmt: skip
    elif isinstance(curve, Polynomial):
        model = "polynomial"
        parameters = {"coefficients": list(curve.coefficients), "u": curve.u, "zero_u": curve.zero_u}
    else:
        model = "lookup"
        parameters = {"shown": list(curve.shown), "true": list(curve.values), "u": curve.u, "zero_u": curve.zero_u}
    behaviour = _facts(profile.response)
    if profile.candidates:
        behaviour["candidates"] = [{"share": share} | _facts(how) for share, how in profile.candidates]
    return {
        "format": _FORMAT,
        "version": 1,
        "backend": device.backend,
        "device": {
            "model": device.model, "serial": device.serial, "version": device.version, "virtual": device.virtual,
        },
        "channel": profile.channel,
        "model": model,
        "parameters": parameters,
        "range": [profile.low, profile.high],
        "behaviour": behaviour,
        "provenance": dict(profile.provenance),
    }  # fmt: skip


def _facts(how: Response) -> dict[str, object]:
    known = {
        "refresh_s": Number(how.period_s, how.period_u),
        "window_s": Number(how.window_s, how.window_u),
        "tau_s": Number(how.tau_s, how.tau_u),
        "delay_s": Number(how.delay_s, how.delay_u),
        "noise": Number(how.noise_w, 0.0 if how.noise_w else math.inf),
        "state": Number(how.state_w, 0.0 if how.state_w else math.inf),
        "state_s": Number(how.state_s, 0.0 if how.state_w else math.inf),
    }
    if not how.period_s:
        del known["refresh_s"]  # not known
    facts: dict[str, object] = {name: _number(n) for name, n in known.items() if math.isfinite(n.u)}
    return facts | ({"family": how.family} if how.family else {})


def _response(facts: dict[str, object]) -> Response:
    if "state" in facts and "state_s" not in facts:
        msg = "state needs state_s: for how many seconds it lasts"
        raise CalibrationError(msg)
    family = _text(facts, "family") if "family" in facts else ""
    if family not in FAMILIES:  # one of them alone is told by its name, and another would pass for a boxcar
        msg = f"family {family!r} is none of {', '.join(sorted(FAMILIES - {''}))}{nearest(family, FAMILIES)}"
        raise CalibrationError(msg)
    known = {f: _read_number(facts, f) for f in _FACTS if f in facts}
    for name, number in known.items():
        if number.value < 0 and name != "delay_s":
            msg = f"{name} is negative: {number.value:g}"
            raise CalibrationError(msg)
        if name == "refresh_s" and not number.value:
            msg = "refresh_s is 0: write the time between two updates, or leave it out where it is not known"
            raise CalibrationError(msg)
        if name in _WIDTHS and max(abs(number.value), number.u) > _MAX_WIDTH_S:
            msg = f"{name} is {number.value:g} +- {number.u:g} s: no sensor follows the time of an hour"
            raise CalibrationError(msg)
    return Response.stated(family, **known)


def _candidates(behaviour: dict[str, object]) -> tuple[tuple[float, Response], ...]:
    rows = behaviour.get("candidates", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = "candidates must be a row of objects"
        raise CalibrationError(msg)
    for row in rows:
        _of_known_keys(row, "candidates")
    shares = [_real(row["share"], "share") for row in rows]
    if rows and not (min(shares) >= 0.0 and sum(shares) > 0.0):
        msg = "the shares of the candidates must not be negative"
        raise CalibrationError(msg)
    whole = sum(shares)
    if math.isclose(whole, 1.0):  # as pmtpy writes them: read as they stand, and known by one digest
        whole = 1.0
    return tuple((share / whole, _response(row)) for share, row in zip(shares, rows, strict=True))


def _number(number: Number) -> dict[str, float]:
    return {"value": number.value, "u": number.u}


def parse_profile(text: str, where: str = "calibration") -> Profile:
    """Read a profile from its text.

    Raises CalibrationError: not JSON, not a profile, of a later version, or with a field missing or wrong. The message
    names ``where`` and the field.
    """
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        kind = "" if isinstance(error, CalibrationError) else "not a calibration profile, since it is not JSON: "
        msg = f"{where}: {kind}{error}"
        raise CalibrationError(msg) from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        msg = f'{where}: not a calibration profile ("format" must be "{_FORMAT}")'
        raise CalibrationError(msg)
    if real(document.get("version")) != 1:
        msg = f"{where}: a profile of version {reprlib.repr(document.get('version'))}; this program reads version 1"
        raise CalibrationError(msg)
    try:
        return _from_document(document)
    except CalibrationError as error:
        msg = f"{where}: {error}"
        raise CalibrationError(msg) from error
    except KeyError as error:
        msg = f"{where}: the field {error} is missing"
        raise CalibrationError(msg) from error
    except (TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError) as error:
        msg = f"{where}: a field is wrong: {error}"
        raise CalibrationError(msg) from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of its keys; of one that stands twice nothing says which value is meant."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        msg = f"{', '.join(map(repr, doubled))} stands twice in one object; keep one of the two"
        raise CalibrationError(msg)
    return made


def _from_document(document: dict[str, object]) -> Profile:
    device, provenance = _table(document, "device"), _table(document, "provenance")
    behaviour = _table(document, "behaviour") if document.get("behaviour") is not None else {}
    for table, name in ((document, "a profile"), (device, "device"), (behaviour, "behaviour")):
        _of_known_keys(table, name)
    backend, ends = _text(document, "backend"), _reals(document, "range")
    if len(ends) != 2:
        msg = "range must be a row of 2 numbers"
        raise CalibrationError(msg)
    return Profile(
        Identity.read({key: device[key] for key in ("model", "serial", "version", "virtual")} | {"backend": backend}),
        _text(document, "channel"),
        _curve(_text(document, "model"), _table(document, "parameters")),
        *ends,
        _response(behaviour),
        tuple(sorted((str(k), str(v)) for k, v in provenance.items())),
        _candidates(behaviour),
    )


def _of_known_keys(table: dict[str, object], name: str) -> None:
    known = _KEYS[name]
    for key in sorted(table.keys() - known):
        msg = f"{key!r} is no key of {name} (whatever else is to be told goes into provenance){nearest(key, known)}"
        raise CalibrationError(msg)


def _curve(model: str, parameters: dict[str, object]) -> CalibrationCurve:
    if model in _MODELS:
        _of_known_keys(parameters, model)
    if model == "affine":
        gain, offset = _read_number(parameters, "gain"), _read_number(parameters, "offset")
        covariance = _real(parameters.get("covariance", 0.0), "covariance")
        if abs(covariance) > gain.u * offset.u * (1.0 + _ROUNDED):
            msg = f"a covariance of {covariance:g} is more than the uncertainties of gain and offset allow"
            raise CalibrationError(msg)
        return Affine(gain, offset, covariance)
    if model not in _MODELS:
        msg = f"unknown model {model!r}; there are affine, polynomial and lookup"
        raise CalibrationError(msg)
    spread = {k: _uncertainty(parameters, k, f"a {model}") for k in ("u", "zero_u")}
    if model == "polynomial":
        return Polynomial(_reals(parameters, "coefficients"), **spread)
    shown, values = _reals(parameters, "shown"), _reals(parameters, "true")
    if len(shown) < 2 or len(shown) != len(values) or min(np.diff(shown)) <= 0:
        msg = 'a lookup needs rows "shown" and "true" of equal length, at least two, the first one rising'
        raise CalibrationError(msg)
    return Lookup(shown, values, **spread)


def _table(holder: dict[str, object], key: str) -> dict[str, object]:
    value = holder[key]
    if not isinstance(value, dict):
        msg = f"{key} must be an object"
        raise CalibrationError(msg)
    return value


def _text(holder: dict[str, object], key: str) -> str:
    value = holder[key]
    if not isinstance(value, str):
        msg = f"{key} must be a text"
        raise CalibrationError(msg)
    return value


def _real(value: object, key: str) -> float:
    number = real(value)
    if number is None or not abs(number) < _MAX_NUMBER:
        msg = f"{key} must be a number that a measurement can give, not {reprlib.repr(value)}"
        raise CalibrationError(msg)
    return number


def _reals(holder: dict[str, object], key: str) -> tuple[float, ...]:
    value = holder[key]
    if not isinstance(value, list) or not value:
        msg = f"{key} must be a row of numbers"
        raise CalibrationError(msg)
    return tuple(_real(v, key) for v in value)


def _read_number(holder: dict[str, object], key: str) -> Number:
    table = _table(holder, key)
    return Number(_real(table["value"], key), _uncertainty(table, "u", key))


def _uncertainty(holder: dict[str, object], key: str, of: str) -> float:
    """Read one; what is not said is not known, and none is not zero."""
    u = _real(holder[key], key) if key in holder else -1.0
    if u < 0:
        msg = f"the uncertainty of {of} is missing or negative ({key!r}: 0 if it is known exactly)"
        raise CalibrationError(msg)
    return u
