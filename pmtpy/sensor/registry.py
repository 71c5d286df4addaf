"""Names to sensors: the table of backends, targets as text, opening and listing.

A backend is imported by name, when its name is used. Backends from outside come from the entry-point group
``pmtpy.backends``; they are looked for only when a name is unknown or everything is listed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin, get_type_hints

from pmtpy._extras import require
from pmtpy._handlers import let_out, of_a_handler
from pmtpy._loading import LOADING
from pmtpy.core import arguments
from pmtpy.core.clock import HOST_CLOCK, Clock, interval_seconds
from pmtpy.core.nearest import nearest
from pmtpy.core.source import Discovery, Source
from pmtpy.errors import BackendUnavailableError, Finding, PmtError, TargetError
from pmtpy.sensor import profile_store
from pmtpy.sensor._interpreter import require_main_interpreter
from pmtpy.sensor.sensor import Sensor

if TYPE_CHECKING:
    from pmtpy.core.calibration.matching import Calibration
    from pmtpy.core.calibration.profile import Profile

GROUP = "pmtpy.backends"
VIRTUAL = "virtual"
_NO_CALIBRATION = "none"
_TO_AUTHORS = "its author finds what a backend needs in docs/write-a-backend.md of pmtpy"


@dataclass(frozen=True, slots=True)
class Backend:
    """One row of the table."""

    name: str
    module: str  # where ``discover`` and ``open_source`` are
    virtual: str  # where ``open_virtual`` is; empty if the backend has no virtual device
    aliases: tuple[str, ...] = ()  # other names, among them PMT's own


def _own(name: str, *aliases: str) -> Backend:
    return Backend(name, f"pmtpy.backends.{name}", f"pmtpy.emulators.{name}", aliases)


BACKENDS: Mapping[str, Backend] = types.MappingProxyType(
    {
        row.name: row
        for row in (
            _own("amdsmi", "rocm"),
            _own("cray"),
            _own("hwmon"),
            _own("iio"),
            _own("ipmi"),
            _own("jetson", "tegra"),
            _own("nvml", "nvidia"),
            _own("occ"),
            _own("pmd"),
            _own("powersensor2"),
            _own("powersensor3", "ps3"),
            _own("rapl"),
            _own("redfish"),
            _own("tinkerforge"),
        )
    }
)


# Names of PMT that have no backend here.
_INSTEAD = {
    "likwid": "use rapl, which reads the same registers without a daemon",
    "xilinx": "use hwmon, where the driver of the card shows its power; 'pmtpy list' names it",
    "dummy": "it measures nothing; NAME:virtual, for example rapl:virtual, rehearses a sensor without its hardware",
    "arduino": "use powersensor2 with its port",
    "sysfs": "use hwmon or rapl",
}


_TRUTHS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of :func:`list_sensors`.

    Attributes
    ----------
    target : str
        What :func:`create` takes.
    backend, device : str
    available : bool
        Whether it can be opened, as far as can be told without opening it.
    reason, remedy : str
        Why it is not available (or what is restricted), and what to do about it.
    """

    target: str
    backend: str
    device: str
    available: bool
    reason: str
    remedy: str


def split_target(target: str) -> tuple[str, str | None]:
    """Split ``name:device`` at the first colon; an empty device is None.

    Raises TargetError: it names several sensors, with commas between.
    """
    several = [part.strip() for part in target.split(",")]
    names = [part.partition(":")[0] for part in several]
    if len(several) > 1 and all(any(n in (row.name, *row.aliases) for row in BACKENDS.values()) for n in names):
        msg = f"{target} is {len(several)} sensors, and one is meant: name each by itself, as in {' '.join(several)}"
        raise TargetError(msg)
    name, _, device = target.strip().partition(":")
    return name, device or None


def is_virtual(target: str) -> bool:
    """Whether a target is a device of an emulated world: ``nvml:virtual``, ``rapl:virtual2``."""
    return (split_target(target)[1] or "").startswith(VIRTUAL)


def backend_of(name: str) -> Backend:
    """Return the row for a name or an alias.

    Raises TargetError: nothing has that name; the message lists what has.
    """
    for row in BACKENDS.values():
        if name == row.name or name in row.aliases:
            return row
    others = dict(_from_outside())
    if name in others:
        return others[name]
    if name in _INSTEAD:
        msg = f"no sensor is called {name!r} as in PMT: {_INSTEAD[name]}"
        raise TargetError(msg)
    known = ", ".join(sorted({*BACKENDS, *others}))
    aliases = ", ".join(f"{a} = {b.name}" for b in BACKENDS.values() for a in b.aliases)
    near = nearest(name, [*BACKENDS, *others, *(a for b in BACKENDS.values() for a in b.aliases)])
    if "/" in name:
        near = "; a device stands behind the name of its sensor, as in powersensor3:/dev/ttyACM0"
    msg = f"no sensor is called {name!r}; there are: {known} ({aliases}){near}"
    raise TargetError(msg)


def _from_outside() -> Iterator[tuple[str, Backend]]:
    from importlib.metadata import entry_points  # takes longer to import than all of this package

    seen: dict[str, str] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in BACKENDS or seen.setdefault(entry.name, entry.value) != entry.value:
            both = f"{seen.get(entry.name, 'a built-in')} and {entry.value}"
            by = entry.dist.name if entry.dist is not None else "the package that brings the latter"
            msg = f"two backends are called {entry.name!r}: {both}; uninstall {by}, or have it renamed"
            raise TargetError(msg)
        yield entry.name, Backend(entry.name, entry.value, entry.value)


def all_backends() -> tuple[Backend, ...]:
    """Return the rows of the table, and those of backends from outside."""
    return (*BACKENDS.values(), *(row for _, row in _from_outside()))


def canonical(target: str) -> str:
    """Return the target with the backend's own name: ``ps3:/dev/x`` becomes ``powersensor3:/dev/x``."""
    what = 'a target: text such as "rapl" or "nvml:0", or an open Sensor'
    name, device = split_target(arguments.instance(target, str, what))
    own = backend_of(name).name
    return own if device is None else f"{own}:{device}"


def _module(row: Backend, text: str) -> types.ModuleType:
    try:
        with LOADING:
            return importlib.import_module(text)
    except ImportError as error:
        raise BackendUnavailableError(row.name, f"the module {text} cannot be imported: {error}") from error


def _function(row: Backend, name: str) -> Callable[..., Any]:
    """Return one of the two functions that make a module a backend."""
    found = getattr(_module(row, row.module), name, None)
    if not callable(found):
        why = f"the module {row.module} has no function {name}, so it is no backend"
        raise BackendUnavailableError(row.name, why, _TO_AUTHORS)
    return cast("Callable[..., Any]", found)


def discover(row: Backend, given: Mapping[str, object] = types.MappingProxyType({})) -> Discovery:
    """Ask a backend which devices there are; of what is ``given`` it gets what it takes.

    Raises BackendUnavailableError: its module cannot be imported, is no backend, or failed.
    """
    with _typed_errors(row.name, row.name):
        ask = _function(row, "discover")
        if given:
            import inspect  # slow to import, and a list does without

            known = inspect.signature(ask).parameters
            given = {key: value for key, value in given.items() if key in known}
        found: object = ask(**given)
        if not isinstance(found, Discovery):
            why = f"discover of the module {row.module} returned {found!r}, which is no Discovery"
            raise BackendUnavailableError(row.name, why, _TO_AUTHORS)
        return found


def opener(name: str, device: str | None) -> Callable[..., Source]:
    """Return the function that opens a device: the backend's own, or that of its emulated world."""
    row = backend_of(name)
    if device is None or not device.startswith(VIRTUAL):
        return _function(row, "open_source")
    module = _module(row, row.virtual)
    if not hasattr(module, "open_virtual"):
        raise BackendUnavailableError(row.name, "it has no virtual device")
    return cast("Callable[..., Source]", module.open_virtual)


def _own_options(function: Callable[..., Any]) -> dict[str, Any]:
    import inspect  # slow to import, and only needed to open a sensor

    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: hints.get(p.name, str) for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "clock"}


def _check_options(target: str, function: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Refuse what is no option, and text where a program gives an object: a user is told of no such option."""
    own = _own_options(function)
    known = _known_to_users(function)
    wrong = sorted(n for n, v in options.items() if n not in own or (isinstance(v, str) and n not in known))
    if wrong:
        near = nearest(wrong[0], known)
        names, there = ", ".join(map(repr, wrong)), ", ".join(known) or "none"
        msg = f"{target} has no option {names}; its options: {there}{near}"
        raise TargetError(msg)


def _known_to_users(function: Callable[..., Any]) -> list[str]:
    return [name for name, hint in _own_options(function).items() if not _is_object(hint)]


def _is_object(hint: Any) -> bool:
    """Whether an option is a function, a module or a stand-in for a device, which no text can be."""
    kinds = [
        k for k in (get_args(hint) if get_origin(hint) in {Union, types.UnionType} else [hint]) if k is not type(None)
    ]
    return all(get_origin(k) is Callable or k is types.ModuleType or getattr(k, "_is_protocol", False) for k in kinds)


def takes_option(target: str, key: str) -> bool:
    """Whether a sensor has an option that can be written as text."""
    return key in _own_options(create) or key in _known_to_users(opener(*split_target(target)))


def options_from_text(target: str, pairs: Mapping[str, str]) -> dict[str, object]:
    """Give options that were written as text (``-o key=value``) the types that the backend expects.

    Raises TargetError: an unknown option, or a value that cannot be what the option is.
    """
    name, device = split_target(target)
    function = opener(name, device)
    own = {**_own_options(function), **_own_options(create)}
    _check_options(target, function, {k: v for k, v in pairs.items() if k not in _own_options(create)})
    return {key: _typed(target, key, value, own[key]) for key, value in pairs.items()}


def _typed(target: str, key: str, text: str, hint: Any) -> object:
    kinds = set(get_args(hint)) or {hint}
    try:
        if bool in kinds:
            needed = "true or false"
            return _TRUTHS[text.lower()]
        if int in kinds and (float not in kinds or text.lstrip("-").isdigit()):
            needed = "a whole number"
            return int(text)
        if float in kinds and str not in kinds:
            needed = "a number"
            return float(text)
    except (ValueError, KeyError):
        msg = f"{target}: option {key} takes {needed}, not {text!r}"
        raise TargetError(msg) from None
    return text


def create(
    name: str,
    device: str | int | None = None,
    *,
    interval: float | str | None = None,
    history_s: float = 2.0,
    calibration: str | os.PathLike[str] | None = None,
    clock: Clock = HOST_CLOCK,
    **options: object,
) -> Sensor:
    """Open a sensor.

    Parameters
    ----------
    name : str
        A backend (``"rapl"``, ``"powersensor3"``), one of its aliases, or a target ``"name:device"``.
    device : str or int, optional
        Which device of the backend; ``"virtual"`` opens the real backend against an emulated world. None: the only
        one, or the backend's default.
    interval : float (seconds) or str (``"10ms"``, ``"100Hz"``), optional
        How often a sensor that must be polled is polled in the background. None: as fast as it refreshes.
    history_s : float
        How much of the past :meth:`~pmtpy.Sensor.history` keeps, in seconds.
    calibration : path, optional
        A calibration profile to apply. It must be made for this very device. None: that which is stored of the device
        (:mod:`pmtpy.sensor.profile_store`), if there is one; every result then says so. ``"none"``: no profile.
    clock : Clock
        For tests and rehearsals.
    **options
        What the backend offers: see its page. Text is taken as ``-o key=value`` takes it.

    Raises
    ------
    TargetError
        No such backend, device or option.
    BackendUnavailableError
        It cannot be used here (in a sub-interpreter of Python no sensor can), or a calibration needs scipy; the error
        says why and how to cure it.
    CalibrationError
        The profile is broken or belongs to another device.
    """
    named = [] if calibration is None or calibration == _NO_CALIBRATION else [_profile(calibration)]
    name, in_name = split_target(str(name))  # whatever was passed, the answer is what there is
    if device is not None and in_name is not None:
        msg = f"two devices were given: {in_name!r} in the target and {device!r}"
        raise TargetError(msg)
    where = in_name if device is None else str(device)
    row = backend_of(name)
    target = row.name if where is None else f"{row.name}:{where}"
    require_main_interpreter(row.name)
    function = opener(row.name, where)
    _check_options(target, function, options)
    own = _own_options(function)
    options = {k: _typed(target, k, v, own[k]) if isinstance(v, str) else v for k, v in options.items()}
    interval_s = interval_seconds(interval)
    history_s = arguments.number(history_s, "history_s, a number of seconds, 0 to 1e9", least=0.0, most=1e9)
    open_device = functools.partial(function, where, clock=clock, **options)
    with LOADING, _typed_errors(row.name, target):
        source = open_device()
        try:
            fitted, notes = _fitted(named, source, stored=calibration is None)
            open_again = functools.partial(_noted, open_device, fitted, notes)
            _say(source, fitted, notes)
            return Sensor(
                source,
                target,
                clock,
                calibration=fitted,
                history_s=history_s,
                interval_s=interval_s,
                open_again=open_again,
            )
        except BaseException:
            source.close()
            raise


@contextlib.contextmanager
def _typed_errors(backend: str, target: str) -> Iterator[None]:
    """Turn what a backend did not foresee into an error of ours: nobody should have to catch everything."""
    try:
        yield
    except PmtError as error:
        let_out(error)
        raise
    except Exception as error:
        if of_a_handler(error):
            raise
        it = "it" if target == backend else target  # the error begins with the name of the backend
        why = f"{it} cannot be opened, for a reason that its backend did not foresee: {error!r}"
        remedy = "please report this, with the output of: pmtpy doctor"
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            why, remedy = f"{it} cannot be opened: {error.strerror}", "ulimit -n 4096, or close some files"
        raise BackendUnavailableError(backend, why, remedy) from error


def _profile(path: str | os.PathLike[str]) -> Profile:
    return profile_store.read_profile(arguments.path(path, "a calibration profile"))


def _fitted(given: list[Profile], source: Source, *, stored: bool) -> tuple[Calibration | None, list[str]]:
    """Return the profiles to apply, those given or else those stored, and what is to be said of them."""
    profiles, notes = profile_store.find(source.identity, source.channels) if stored else ([], [])
    if not (given or profiles):
        return None, notes
    from pmtpy.core.calibration.matching import calibrate, unproven  # only a calibrated sensor pays for it

    fitted = calibrate([*profiles, *given], source.identity, source.channels)
    doubts = [f"{p.channel}: {why}" for p in given if (why := unproven(p, source.identity))]
    notes = [*notes, *doubts, *fitted.beside_total(source.channels)]
    if any(profile.response.shaped for profile in fitted.profiles.values()):  # said here, not after what was measured
        require("scipy", "a calibration that undoes lag and window", "or go without it: calibration=none")
    return fitted, notes


def _say(source: Source, fitted: Calibration | None, notes: list[str]) -> None:
    """Put notes about profiles into the identity; remove "not calibrated" from channels that are calibrated now."""
    measured = [name for name, profile in (fitted.profiles if fitted else {}).items() if not profile.as_shown]
    untrue = tuple(f"{name}: {profile_store.UNCALIBRATED}" for name in measured)
    said = source.identity.notes
    true = (*(note for note in said if not (untrue and note.startswith(untrue))), *notes)
    if true != said:
        source.identity = replace(source.identity, notes=true)


def _noted(open_device: Callable[[], Source], fitted: Calibration | None, notes: list[str]) -> Source:
    source = open_device()
    _say(source, fitted, notes)
    return source


def list_sensors() -> list[Listing]:
    """Look for every device of every backend, without opening any. Virtual devices are not listed."""
    return [line for row in all_backends() for line in _look(row)]


def _look(row: Backend) -> list[Listing]:
    try:
        found = discover(row)
    except BackendUnavailableError as error:
        return [Listing(row.name, row.name, "", available=False, reason=error.reason, remedy=error.remedy)]
    except PmtError as error:
        return [Listing(row.name, row.name, "", available=False, reason=str(error), remedy="")]
    if not found.devices:
        return [Listing(row.name, row.name, "", available=False, reason=found.reason, remedy=found.remedy)]
    return [_line(row, device, found.of(device)) for device in found.devices]


def _line(row: Backend, device: str, finding: Finding | None) -> Listing:
    return Listing(
        f"{row.name}:{device}" if device else row.name,
        row.name,
        device,
        available=finding is None or finding.usable,
        reason="" if finding is None else finding.found,
        remedy="" if finding is None else finding.remedy,
    )
