"""The profiles of one opened device: which of them belong to it, and what they change.

A profile (:mod:`pmtpy.core.calibration.profile`) says whose channel it is. Here it meets a device: one of another
device, driver branch
or channel is refused, and so is a curve that cannot be applied to what the channel counts. Nothing here fits, reads a
file or guesses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Identity, Quantity
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Layout
from pmtpy.errors import CalibrationError


@dataclass(frozen=True, slots=True)
class Calibration:
    """The profiles of one opened device, by channel. The empty one changes nothing."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)  # of those that can hardly be, by what the channel states

    def channels(self, channels: Sequence[Channel]) -> tuple[Channel, ...]:
        """Return the channels with what the profiles know of them."""
        return tuple(self.profiles[c.name].calibrated(c) if c.name in self.profiles else c for c in channels)

    def warning(self, channel: Channel, true: Floats) -> str:
        """Say so where corrected powers of a channel lie outside the range of its profile, or that can hardly be."""
        profile = self.profiles.get(channel.name)
        if profile is None or channel.quantity is not Quantity.POWER:
            return ""
        said, beyond = [self.doubts[channel.name]] if channel.name in self.doubts else [], profile.outside(true)
        if beyond:
            said.append(
                f"of {amount(len(true), 'reading')} {amount(beyond, 'lies', 'lie')} outside the calibrated range, "
                f"{profile.low:g} to "
                f"{profile.high:g} {channel.unit} as shown; there the calibration is extrapolated"
            )
        return f"{channel.name}: {'; '.join(said)}" if said else ""

    def beside_total(self, channels: Sequence[Channel]) -> list[str]:
        """Say of which profiles the total has nothing: it is made of other readings of the same parts."""
        layout = Layout(tuple(channels))
        counted = [c.name for c in channels if c.derivation is Derivation.DIRECT]  # the columns of a Block
        left = [counted[i] for i in sorted(layout.beside_total) if counted[i] in self.profiles]
        made_of = ", ".join(layout.names[i] for i in layout.in_total)
        said = f"its profile changes nothing in the total, which is made of {made_of}"
        return [f"{name}: {said}" for name in left] if made_of else []

    @property
    def digest(self) -> str:
        """Digest of all profiles together, for file headers; empty where there is none."""
        each = "".join(f"{name}={profile.digest};" for name, profile in sorted(self.profiles.items()))
        return hashlib.sha256(each.encode()).hexdigest()[:16] if each else ""


def calibrate(profiles: Sequence[Profile], identity: Identity, channels: Sequence[Channel]) -> Calibration:
    """Fit profiles to an opened device.

    Raises CalibrationError: a profile belongs to another backend, board, driver branch or channel; two profiles are for
    one channel; or the curve cannot be applied to the channel (an offset in watts to a counter of energy).
    """
    by_name = {c.name: c for c in channels}
    chosen: dict[str, Profile] = {}
    for profile in profiles:
        refuse_stranger(profile, identity)
        channel = by_name.get(profile.channel)
        if channel is None:
            msg = (
                f"the calibration is for channel {profile.channel!r}, which {identity.backend} {identity.model} "
                f"does not have; it has: {', '.join(by_name)}"
            )
            raise CalibrationError(msg)
        if profile.channel in chosen:
            msg = f"two calibrations are given for channel {profile.channel!r}; give one"
            raise CalibrationError(msg)
        refuse_unfit(profile, channel)
        chosen[profile.channel] = profile
    return Calibration(chosen, {name: why for name, p in chosen.items() if (why := p.doubt(by_name[name]))})


def refuse_stranger(profile: Profile, here: Identity) -> None:
    """Refuse a profile that was made of another device.

    Raises CalibrationError: backend, model, serial number, driver branch or being virtual differ. What a profile does
    not say is not compared.
    """
    made = profile.device
    compared = [
        ("backend", made.backend, here.backend),
        ("model", made.model, here.model),
        ("serial number", made.serial, here.serial),
        ("driver branch", _branch(made.version), _branch(here.version)),
    ]
    for what, theirs, ours in compared:
        if theirs and theirs != ours:
            msg = (
                f"the calibration was made on another device: its {what} is {theirs!r}, here it is {ours!r}; "
                "characterise this device and make a profile of its own"
            )
            raise CalibrationError(msg)
    if made.virtual != here.virtual:
        kinds = ("virtual", "real") if made.virtual else ("real", "virtual")
        msg = f"the calibration was made on a {kinds[0]} device and this one is {kinds[1]}"
        raise CalibrationError(msg)


def unproven(profile: Profile, here: Identity) -> str:
    """Say why nothing shows that a profile was made of this very device; nothing where serial numbers show it."""
    doubt = "" if here.virtual else here.unproven or ("" if profile.device.serial else "it names no serial number")
    return doubt and f"nothing shows that the profile {profile.digest} was made of this very device: {doubt}"


def _branch(version: str) -> str:
    """Driver branch: sensors changed their averaging between branches (525, 530, 535), not within one."""
    return version.partition(".")[0]


def refuse_unfit(profile: Profile, channel: Channel) -> None:
    """Raise CalibrationError where a profile cannot be applied to a live channel."""
    curve = profile.curve
    if channel.derivation is not Derivation.DIRECT:
        msg = (
            f"channel {channel.name!r} is formed from {', '.join(channel.operands)}, so its profile corrects "
            "recordings alone (pmtpy calibrate energy); a live sensor is corrected by profiles of those"
        )
        raise CalibrationError(msg)
    if channel.energy_method is EnergyMethod.COUNTER and channel.quantity is Quantity.ENERGY:
        through_zero = isinstance(curve, Affine) and curve.offset.value == 0.0
        if not through_zero:
            msg = f"channel {channel.name!r} is a counter of energy: only a gain can be applied to it, no offset"
            raise CalibrationError(msg)
