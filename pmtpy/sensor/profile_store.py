"""Where the profiles of this user's own devices are kept, so that an opened device finds its own.

One file for each device and channel in ``$XDG_DATA_HOME/pmtpy/profiles``, by default under ``~/.local/share``. Only the
profile of the very device is ever taken, by serial number and driver branch, and every result says so. A virtual device
takes none: its settings change with each opening. Other cards' profiles are never taken for this one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pmtpy.errors import CalibrationError, SinkError

if TYPE_CHECKING:
    from pmtpy.core.calibration.profile import Profile
    from pmtpy.core.channel import Channel, Identity

_MAX_BYTES = 1 << 20  # of a file; a profile has about a thousand, a lookup of a thousand points 40 thousand
_NO_FILE = "it is no ordinary file"
UNCALIBRATED = "not calibrated"  # a note of a channel that begins so is no longer true of a calibrated one


def folder() -> str:
    """Return where the profiles are; it need not exist."""
    base = os.environ.get("XDG_DATA_HOME", "")
    if not base.startswith(os.sep):  # "relative paths are invalid": XDG Base Directory Specification 0.8
        base = os.path.join(os.path.expanduser("~"), ".local", "share")  # noqa: PTH111, PTH118  (pathlib is slow)
    return os.path.join(base, "pmtpy", "profiles")  # noqa: PTH118


def save(profile: Profile) -> tuple[str, Profile | None]:
    """Keep a profile in the place of the one before; return the path of its file, and that one.

    One whose gain was not measured takes the place of none whose was, while that is of use.

    Raises CalibrationError: it corrects nothing, is not of one device that can be known again, or would take such a
    place.
    Raises SinkError: the file cannot be written.
    """
    device = profile.device
    if device.virtual or device.unproven:
        why = "it is virtual" if device.virtual else device.unproven
        msg = f"the profile cannot be found again by the device, since {why}; keep it in a file of its own"
        raise CalibrationError(msg)
    if profile.as_shown and not profile.response.shaped:
        msg = (
            "neither gain nor kernel were found, so it would correct nothing: see that the load runs on the device "
            "that is measured, and give more of it (--duration)"
        )
        raise CalibrationError(msg)
    parts = (device.backend, device.model, device.serial, profile.channel)
    name = "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part) for part in parts) + ".json"
    path = os.path.join(folder(), name)  # noqa: PTH118
    if not os.path.isabs(path):  # noqa: PTH117
        msg = f"{path}: this user has no home directory: set XDG_DATA_HOME to where profiles shall be kept"
        raise SinkError(msg)
    from pathlib import Path

    from pmtpy.io.whole import one_at_a_time, put_whole

    try:
        os.makedirs(folder(), exist_ok=True)  # noqa: PTH103
    except OSError as error:
        msg = f"cannot make {folder()}: {error.strerror}"
        raise SinkError(msg) from error
    with one_at_a_time(Path(folder()) / ".lock"):  # what is found here must still be there when it is replaced
        before = _place_of(path, profile)
        put_whole(Path(path), profile.to_json())
    return path, before


def _place_of(path: str, profile: Profile) -> Profile | None:
    """Return the profile in whose place another comes; CalibrationError where it may not."""
    try:
        before = _kept(path)
    except (OSError, UnicodeDecodeError, CalibrationError):  # none, or none that can be read
        return None
    if profile.as_shown and not before.as_shown and _fits(before, profile.device):
        msg = (
            f"the gain of this profile was not measured, and that of {before.digest}, which is kept of this device in "
            f"{path}, was ({before.summary}): certify it beside a meter (--meter), or remove that file first"
        )
        raise CalibrationError(msg)
    return before


def read_profile(path: str) -> Profile:
    """Read a profile that a user names, of whatever kind its file is.

    Raises CalibrationError: it cannot be read, or is none.
    """
    from pmtpy.core.calibration.profile import parse_profile

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        msg = f"the calibration profile {path} cannot be read: {why}"
        raise CalibrationError(msg) from error
    return parse_profile(text, path)


def _kept(path: str) -> Profile:
    """Read a profile of the folder, which nobody named: of an ordinary file of a profile's size, without waiting.

    Raises OSError, UnicodeDecodeError, CalibrationError: it is no such file, or holds no profile.
    """
    from pmtpy.core.calibration.profile import parse_profile

    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  (a device may act on being opened)
        raise CalibrationError(_NO_FILE)
    # Should a pipe have come into its place since, it is opened without waiting for a writer, and refused.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CalibrationError(_NO_FILE)
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        msg = f"it is longer than {_MAX_BYTES >> 20} MiB, which no profile is"
        raise CalibrationError(msg)
    return parse_profile(content.decode("utf-8"), path)


def _fits(profile: Profile, device: Identity) -> bool:
    """Whether the device, as it is now, takes a profile: its driver may be of another branch."""
    from pmtpy.core.calibration.matching import refuse_stranger

    try:
        refuse_stranger(profile, device)
    except CalibrationError:
        return False
    return True


def find(identity: Identity, channels: Sequence[Channel]) -> tuple[list[Profile], list[str]]:
    """Return the profiles of a device, and what is to be said of them in every result.

    A file that cannot be read or is for another driver is left out, and that is said, too. So are profiles of one
    channel that differ: nothing tells which of them holds.
    """
    place = folder()
    known = os.path.isabs(place) and os.path.isdir(place)  # noqa: PTH112, PTH117  (a service may have no home)
    if identity.virtual or not identity.serial or not known:
        return [], []
    from pmtpy.core.calibration.matching import calibrate, unproven  # only who has profiles pays for them

    kept: dict[str, dict[str, Profile]] = {}  # by channel and path
    notes: list[str] = []
    try:
        names = sorted(n for n in os.listdir(place) if n.endswith(".json"))  # noqa: PTH208
    except OSError as error:
        return [], [f"the profiles in {place} are left out: {error}"]
    for name in names:
        path = os.path.join(place, name)  # noqa: PTH118
        try:
            profile = _kept(path)
            if (profile.device.backend, profile.device.serial) != (identity.backend, identity.serial):
                continue
            calibrate([profile], identity, channels)
        except (OSError, UnicodeDecodeError, CalibrationError) as error:
            notes.append(f"the profile {path} is left out: {error}")
            continue
        if why := unproven(profile, identity):  # machines may share this folder
            notes.append(f"the profile {path} is left out: {why}; give it by hand (calibration=) if it was")
            continue
        kept.setdefault(profile.channel, {})[path] = profile
    profiles: list[Profile] = []
    for channel, found in kept.items():
        if len({profile.digest for profile in found.values()}) > 1:
            notes.append(f"{channel}: none of its profiles is taken, since they differ; keep one: {', '.join(found)}")
            continue
        path, profile = next(iter(found.items()))
        profiles.append(profile)
        notes.append(f"{channel}: {_said(profile)} {profile.digest} of this very device, {path}")
    return profiles, notes


def _said(profile: Profile) -> str:
    """Say what a profile does to its channel."""
    if not profile.as_shown:
        return "corrected by the profile"
    if profile.response.shaped:
        return "the gain is as shown, since none was measured; energies are corrected in time by the profile"
    return "neither gain nor kernel are known, so nothing is corrected by the profile"
