"""A calibration profile of what ``pmtpy characterise`` found in one recording of a device, or in several.

What is found is the JSON that the verb prints, as a mapping. Of several recordings the mean is taken, and how much they
differ tells how well it holds for another session; to the uncertainty of a single one the repeatability is added that
was published for such sensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields

from pmtpy.analysis.uncertainty.budget import COVERAGE_FACTOR, of_another
from pmtpy.core.calibration.curves import Affine, Number
from pmtpy.core.calibration.response import Behaviour
from pmtpy.core.channel import Identity
from pmtpy.errors import CalibrationError

# Standard deviation of energies of one card over repeated measurements by the good practice of Yang, Adamek, Armour
# (arXiv 2312.02741): 0.25 %. Assumed of another session of any card where there is but one recording of it.
REPEATABILITY = 0.0025

Found = Mapping[str, object]


def calibration_line(found: Sequence[Found], percent: float | None) -> tuple[Affine, str]:
    """Return gain and offset with how well they hold for another session, and a text that says where that is from.

    ``percent`` is the repeatability of a single recording, one standard deviation; None: as published.

    Raises
    ------
    CalibrationError
        Something was found of neither gain nor offset, or the repeatability makes no sense.
    """
    gains, offsets = [_estimate(f, "gradient") for f in found], [_estimate(f, "intercept_w") for f in found]
    if len(found) > 1:
        if percent is not None:
            msg = "a repeatability is for a single recording; that of several is found from them"
            raise CalibrationError(msg)
        return Affine(_pooled(gains), _pooled(offsets)), f"found from {len(found)} recordings"
    if percent is not None and not 0.0 <= percent < 100.0:
        msg = f"a repeatability of {percent:g} %: write a share in percent, for example 0.25"
        raise CalibrationError(msg)
    share = REPEATABILITY if percent is None else percent / 100.0
    # One recording says nothing of how the next one differs. What is published is of energies, which contain both.
    gain = Number(gains[0].value, math.hypot(gains[0].u, share * gains[0].value))
    where = "assumed, as published for repeated energies of one card" if percent is None else "as stated"
    return Affine(gain, offsets[0]), f"{share:.3g} of the gain, {where}"


def _pooled(numbers: Sequence[Number]) -> Number:
    return Number(*of_another([n.value for n in numbers], [n.u for n in numbers]))


def behaviour(found: Sequence[Found]) -> Behaviour:
    """Return what the recordings say of how the sensor follows time.

    Raises
    ------
    CalibrationError
        They name different kernels.
    """
    each = [_behaviour(f) for f in found]
    families = list(dict.fromkeys(b.family for b in each))
    if len(each) == 1 or len(families) > 1:
        if len(each) > 1:
            msg = f"the recordings disagree about the kernel: {', '.join(f or 'none' for f in families)}"
            raise CalibrationError(msg)
        return each[0]

    def pooled(numbers: list[Number | None]) -> Number | None:
        known = [n for n in numbers if n is not None]
        return _pooled(known) if len(known) > 1 else (known[0] if known else None)

    return Behaviour(
        families[0],
        pooled([b.refresh_s for b in each]),
        pooled([b.window_s for b in each]),
        pooled([b.tau_s for b in each]),
        pooled([b.delay_s for b in each]),
        pooled([b.noise for b in each]),
    )


def shown_range(found: Sequence[Found]) -> tuple[float, float]:
    """Return the lowest and the highest reading of all recordings, watts.

    Raises
    ------
    CalibrationError
        One of them does not say.
    """
    spans = [f.get("shown_w") for f in found]
    if not all(isinstance(s, list) and len(s) == 2 for s in spans):
        msg = "what was found does not say which watts were shown; state them: --range LOW,HIGH"
        raise CalibrationError(msg)
    ends = [float(x) for s in spans if isinstance(s, list) for x in s]
    return min(ends), max(ends)


def identities(found: Sequence[Found]) -> list[Identity]:
    """Return the devices that the recordings are of, as far as they say."""
    facts = [f.get("identity") for f in found]
    names = [f.name for f in fields(Identity) if f.name != "notes"]
    return [Identity(**{n: f[n] for n in names if n in f}) for f in facts if isinstance(f, Mapping) and "backend" in f]


def _number_of(entry: object, scale: float = 1.0) -> Number | None:
    """Read an estimate, ``{"value", "low", "high"}`` at 95 %, as a value with its standard uncertainty."""
    if not isinstance(entry, Mapping):
        return None
    try:
        value, low, high = (float(entry[key]) * scale for key in ("value", "low", "high"))
    except (KeyError, TypeError, ValueError):
        return None
    return Number(value, abs(high - low) / 2.0 / COVERAGE_FACTOR)


def _estimate(found: Found, key: str) -> Number:
    number = _number_of(found.get(key))
    if number is None:
        declined = found.get("declined")
        why = declined.get(key, "") if isinstance(declined, Mapping) else ""
        msg = f"there is no {key} in what was found{': ' if why else ''}{why}; characterise against a reference meter"
        raise CalibrationError(msg)
    return number


def _behaviour(found: Found) -> Behaviour:
    kernel = found.get("kernel")
    of = kernel if isinstance(kernel, Mapping) else {}
    ms, noise = 1e-3, found.get("noise_w")
    return Behaviour(
        family=str(of.get("family", "")),
        refresh_s=_number_of(found.get("update_period_ms"), ms),
        window_s=_number_of(of.get("window_ms"), ms),
        tau_s=_number_of(of.get("tau_ms"), ms),
        delay_s=_number_of(of.get("offset_ms"), ms),
        noise=Number(float(noise)) if isinstance(noise, float) else None,
    )
