"""A calibration profile of what ``pmtpy characterise`` found in one recording of a device, or in several.

What is found is the JSON that the verb prints, as a mapping. Of several recordings the mean is taken, and how much they
differ tells how well it holds for another session; to the uncertainty of a single one the repeatability is added that
was published for such sensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.signal.estimate import Z95
from pmtpy.analysis.uncertainty.budget import of_another
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import RECORDED, Profile
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.numbers import stated
from pmtpy.core.response import TRIANGULAR, Number, Response
from pmtpy.errors import CalibrationError

# Standard deviation of energies of one card over repeated measurements by the good practice of Yang, Adamek, Armour
# (arXiv 2312.02741): 0.25 %. Assumed of another session of any card where there is but one recording of it.
REPEATABILITY = 0.0025
_LEAST_BELIEF = 0.01  # share of belief in a kernel below which its energies count for nothing

Document = Mapping[str, object]
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _reads(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a function refuse what was found (CalibrationError) where a field of it is missing or wrong."""

    @functools.wraps(function)
    def read(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except CalibrationError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            msg = (
                "what was found is not as `pmtpy characterise --json` prints it: a field is missing or wrong: "
                f"{type(error).__name__}: {error}"
            )
            raise CalibrationError(msg) from error

    return read


@_reads
def calibration_line(found: Sequence[Document], percent: float | None) -> tuple[Affine, str]:
    """Return gain and offset with how well they hold for another session, and a text that says where that is from.

    ``percent`` is the repeatability of a single recording, one standard deviation; None: as published.

    Raises CalibrationError: something was found of neither gain nor offset, or the repeatability makes no sense.
    """
    gains, offsets = [_estimate(f, "gradient") for f in found], [_estimate(f, "intercept_w") for f in found]
    at_w, levels = _levels(found, gains, offsets)
    if len(found) > 1:
        if percent is not None:
            msg = "--repeatability is for a single recording; of several it is found from them: leave it out"
            raise CalibrationError(msg)
        gain = _pooled(gains)
        # Of few the spread may be small by chance: of two below an eighth of what it is in one pair of ten.
        least = math.hypot(*(g.u for g in gains)) / len(gains), REPEATABILITY * gain.value / (len(gains) - 1)
        gain = replace(gain, u=max(gain.u, math.hypot(*least)))
        return _turning(gain, _pooled(levels), at_w), f"found from {len(found)} recordings"
    if percent is not None and not 0.0 <= percent < 100.0:
        msg = f"a repeatability of {percent:g} %: write a share in percent, for example 0.25"
        raise CalibrationError(msg)
    share = REPEATABILITY if percent is None else percent / 100.0
    # One recording says nothing of how the next one differs. What is published is of energies, which contain both.
    line = _turning(gains[0], levels[0], at_w)
    gain = Number(gains[0].value, math.hypot(gains[0].u, share * gains[0].value))
    where = "assumed, as published for repeated energies of one card" if percent is None else "as stated"
    return replace(line, gain=gain), f"{share:.3g} of the gain, {where}"


def _levels(
    found: Sequence[Document], gains: Sequence[Number], offsets: Sequence[Number]
) -> tuple[float, list[Number]]:
    """Return a power in the middle of those that the lines were fitted over, and what is shown of it.

    There an error of the gain shows nothing. At zero, where the recordings do not say it: gain and offset are then
    taken for independent.
    """
    said = [level if isinstance(level := f.get("level"), Mapping) else None for f in found]
    known = [(stated(level, "at_w"), stated(level, "u")) for level in said if level is not None]
    if len(known) < len(found):
        return 0.0, list(offsets)
    at_w = math.fsum(at for at, _ in known) / len(known)
    return at_w, [
        Number(gain.value * at_w + offset.value, math.hypot(u, gain.u * (at - at_w)))
        for gain, offset, (at, u) in zip(gains, offsets, known, strict=True)
    ]


def _turning(gain: Number, level: Number, at_w: float) -> Affine:
    """Return the line through a level, about which it is turned by errors of its gain."""
    offset = Number(level.value - gain.value * at_w, math.hypot(level.u, gain.u * at_w))
    return Affine(gain, offset, -at_w * gain.u**2)


@_reads
def stated_channel(name: str, found: Sequence[Document]) -> Channel:
    """Return the channel of that name as all recordings state it: its gain and offset as uncertain as in the worst.

    Of what one of them does not state, or of another channel, nothing is stated.
    """
    each = [f.get("stated") if f.get("channel") == name else None for f in found]
    known = [(stated(one, "gain_u"), stated(one, "offset_u")) for one in each if isinstance(one, Mapping)]
    gain_u, offset_u = (max(of) for of in zip(*known, strict=True)) if len(known) == len(each) else (0.0, 0.0)
    return Channel(name, Quantity.POWER, gain_u=gain_u, offset_u=offset_u)


def as_stated(channel: Channel) -> tuple[Affine, str]:
    """Return the line of a channel that no meter was beside: as shown, and as well known as is stated of it.

    Raises CalibrationError: nothing is stated of it.
    """
    if not channel.gain_u:
        msg = (
            f"without a meter the gain of {channel.name} is as uncertain as is stated of it, and nothing is: "
            "characterise the sensor, or a recording that pmtpy made of it, since these state it; name the device with "
            "--target if it is in this machine and states it; or characterise against a reference meter"
        )
        raise CalibrationError(msg)
    curve = Affine(Number(1.0, channel.gain_u), Number(0.0, channel.offset_u))
    return curve, f"no meter: the gain is as shown, known to {channel.gain_u:.3g} that is stated of such sensors"


def _pooled(numbers: Sequence[Number]) -> Number:
    return Number(*of_another([n.value for n in numbers], [n.u for n in numbers]))


def profile_of(found: Document, channel: Channel, came: tuple[tuple[str, str], ...]) -> Profile:
    """Make a profile of one recording of a device that is known; without a meter, of its kernel alone.

    Raises CalibrationError: the recording does not say of which device it is, or which watts were shown.
    """
    devices = identities([found])
    if not devices:
        msg = "what was found does not say of which device it is"
        raise CalibrationError(msg)
    metered = _number_of(found.get("gradient")) is not None
    curve, spread = calibration_line([found], None) if metered else as_stated(channel)
    came = (*came, ("repeatability", spread))
    kernel = response_of([found])
    return Profile(devices[0], channel.name, curve, *shown_range([found]), kernel, came, candidates([found]))


@_reads
def response_of(found: Sequence[Document]) -> Response:
    """Return what the recordings say of how the sensor follows time.

    Of a kernel that is none of the families, the shape that comes nearest, a triangle among them, which has its gain
    and its mean lag.

    Raises CalibrationError: they name different kernels.
    """
    kernels = [k if isinstance(k := f.get("kernel"), Mapping) else {} for f in found]
    known = [k if _shaped([k]) else next(iter(_shaped(k.get("candidates", ()))), k) for k in kernels]
    each = [n if n.get("family") == TRIANGULAR else k for k, n in zip(kernels, known, strict=True)]
    families, kernels = list(dict.fromkeys(str(k.get("family", "")) for k in each)), known
    if len(families) > 1:
        msg = f"the recordings disagree about the kernel: {', '.join(f or 'none' for f in families)}"
        raise CalibrationError(msg)

    def pooled(each: Sequence[Number | None]) -> Number | None:
        known = [n for n in each if n is not None]
        return _pooled(known) if len(known) > 1 else (known[0] if known else None)

    window, tau, delay = (
        pooled([_number_of(k.get(key), 1e-3) for k in kernels]) for key in ("window_ms", "tau_ms", "offset_ms")
    )
    period = pooled([_number_of(f.get("update_period_ms"), 1e-3) for f in found])
    noise = pooled([Number(n) if isinstance(n := f.get("noise_w"), float) and n >= 0.0 else None for f in found])
    state, lasts = (
        pooled([Number(stated(n, key)) if isinstance(n := f.get("state"), Mapping) else None for f in found])
        for key in ("watts", "seconds")
    )
    return Response.stated(
        families[0],
        refresh_s=period,
        window_s=window,
        tau_s=tau,
        delay_s=delay,
        noise=noise,
        state=state,
        state_s=lasts,
    )


@_reads
def candidates(found: Sequence[Document]) -> tuple[tuple[float, Response], ...]:
    """Return the kernels that a single recording left open, with the share of belief in each, the likeliest first.

    None where a family was named, or of several recordings. Shapes of which no width is known are left out: those that
    come nearest stand for them.
    """
    kernel = found[0].get("kernel")
    if len(found) > 1 or not isinstance(kernel, Mapping) or kernel.get("family") != AMBIGUOUS:
        return ()
    rows = [(stated(row, "share"), row) for row in _shaped(kernel.get("candidates", ()))]
    least = _LEAST_BELIEF * sum(share for share, _ in rows)
    rows = [(share, row) for share, row in rows if share >= least]
    total = sum(share for share, _ in rows) or 1.0
    each = []
    for share, row in rows:
        window, tau, delay = (_number_of(row.get(key), 1e-3) for key in ("window_ms", "tau_ms", "offset_ms"))
        each.append((share / total, Response.stated(str(row["family"]), window_s=window, tau_s=tau, delay_s=delay)))
    return tuple(each)


def _shaped(kernels: Sequence[Document]) -> list[Document]:
    """Return those of which a width is known."""
    return [k for k in kernels if any(_number_of(k.get(key)) is not None for key in ("window_ms", "tau_ms"))]


@_reads
def shown_range(found: Sequence[Document]) -> tuple[float, float]:
    """Return the lowest and the highest reading of all recordings, watts.

    Raises CalibrationError: one of them does not say.
    """
    spans = [f.get("shown_w") for f in found]
    if not all(isinstance(s, list) and len(s) == 2 for s in spans):
        msg = "what was found does not say which watts were shown; state them: --range LOW,HIGH"
        raise CalibrationError(msg)
    ends = [stated({"shown_w": x}, "shown_w") for s in spans if isinstance(s, list) for x in s]
    return min(ends), max(ends)


def _of_a_log(identity: object) -> bool:
    """Whether a recording was converted from another tool's log, which says of its device no more than that."""
    return isinstance(identity, Mapping) and identity.get("backend") == RECORDED and identity.get("virtual") is None


@_reads
def identities(found: Sequence[Document]) -> list[Identity]:
    """Return the devices that the recordings are of, as far as they say.

    Raises CalibrationError: what one says of it cannot be, or whether it is virtual is not known.
    """
    facts = [f["identity"] for f in found if f.get("identity") is not None and not _of_a_log(f["identity"])]
    wrong = next((f for f in facts if not isinstance(f, Mapping)), None)
    if wrong is not None:
        msg = f"the identity of the device must be an object, not {wrong!r}"
        raise CalibrationError(msg)
    return [Identity.read(f) for f in facts if isinstance(f, Mapping)]


def _number_of(entry: object, scale: float = 1.0) -> Number | None:
    """Read an estimate, ``{"value", "low", "high"}`` at 95 %, as a value with its standard uncertainty."""
    if not isinstance(entry, Mapping):
        return None
    try:
        value, low, high = (stated(entry, key) * scale for key in ("value", "low", "high"))
    except (KeyError, TypeError, ValueError):
        return None
    if not low <= value <= high:
        msg = f"an estimate lies outside its own interval, or is no number: {value:g} ({low:g} to {high:g})"
        raise CalibrationError(msg)
    return Number(value, abs(high - low) / 2.0 / Z95)


def _estimate(found: Document, key: str) -> Number:
    number = _number_of(found.get(key))
    if number is None:
        declined = found.get("declined")
        why = declined.get(key, "") if isinstance(declined, Mapping) else ""
        msg = f"there is no {key} in what was found{': ' if why else ''}{why}; characterise against a reference meter"
        raise CalibrationError(msg)
    return number
