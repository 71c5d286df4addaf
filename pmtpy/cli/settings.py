"""The settings file ``pmtpy.toml``: default sensors, and options (among them a calibration profile) for each.

Only the command line reads it; a program that calls :func:`pmtpy.create` gets what it asks for and nothing else. The
command line wins over the environment, and the environment over this file. A broken file stops the command: measuring
with half of the settings would give numbers that look right.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pmtpy.errors import TargetError
from pmtpy.sensor.registry import BACKENDS, VIRTUAL, canonical, options_from_text, split_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "pmtpy.toml"
_PLACE = "PMT_CONFIG"
# An option of the file gives way to the environment's word for the same thing.
_SAME_IN_ENVIRONMENT = {"sysfs_root": "PMT_SYSFS_ROOT", "file": "PMT_OCC_FILE"}
_TABLE = re.compile(r"\s*\[(?P<name>[^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"\s*(?P<name>[^=#]+?)\s*=")

_log = logging.getLogger("pmtpy")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file says."""

    path: Path | None = None  # the file; None if there is none
    sensors: tuple[str, ...] = ()  # default targets
    # (option to text): ``rapl`` speaks for every device of the backend but virtual ones, ``nvml:0`` for that one
    # alone
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    text: str = ""  # the file as it is, to tell lines
    # rails that are parts of one device, which is a target by its name
    combine: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def rails(self, target: str) -> tuple[str, ...]:
        """Return the targets of which a target is made: those of a combination, else itself."""
        return self.combine.get(target, (target,))

    def options_for(self, target: str, environment: Mapping[str, str]) -> dict[str, object]:
        """Return the options for a target with the types that its backend expects.

        Raises TargetError: it has no such option, or the value cannot be what the option is. The message names line and
        key.
        """
        typed: dict[str, object] = {}
        for table, key, value in self._said_of(target, environment):
            try:
                typed |= options_from_text(target, {key: value})
            except TargetError as error:  # noqa: PERF203  (the line and the key are told)
                raise _wrong(self.path, self.text, table, key, str(error)) from error
        return typed

    def texts_for(self, target: str, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the options for a target as they are written; the errors are those of :meth:`options_for`."""
        self.options_for(target, environment)
        return {key: value for _, key, value in self._said_of(target, environment)}

    def _said_of(self, target: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        """Table, key and value of what is said of a target, the backend's first."""
        backend, device = split_target(target)
        # What is right for hardware (a profile, a way to read it) is not for its rehearsal.
        rehearsal = device is not None and device.startswith(VIRTUAL)
        for table in (target,) if rehearsal else dict.fromkeys((backend, target)):
            for key, value in self.options.get(table, {}).items():
                if _SAME_IN_ENVIRONMENT.get(key, "") not in environment:
                    yield table, key, value


def find(environment: Mapping[str, str], folder: Path) -> Path | None:
    """Return the file to read: ``PMT_CONFIG`` (empty: none), else ``folder``'s, else the user's; None without any."""
    if _PLACE in environment:
        return Path(environment[_PLACE]) if environment[_PLACE] else None
    places = [folder / NAME]
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or _home(), ".config"))
    if home.is_absolute():  # a service may have none
        places.append(home / "pmtpy" / NAME)
    return next((path for path in places if _is_there(path)), None)


def _is_there(path: Path) -> bool:
    """Whether it is a file. What lies in a folder that is closed to him, as homes are to a service, is not his."""
    try:
        return path.is_file()
    except OSError as error:
        _log.info("no settings are read from %s: %s", path, error.strerror)
        return False


def _home() -> str:
    """Return the home of this user; no absolute path where nobody knows one."""
    return os.path.expanduser("~")  # noqa: PTH111  (pathlib raises where there is none)


def load_settings() -> Settings:
    """Read the file that holds here.

    Raises TargetError: it cannot be read or understood; the message names line and key.
    """
    path = find(os.environ, Path())
    if path is None:
        return Settings()
    path = path.absolute()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the settings {path}: {error}"
        raise TargetError(msg) from error
    _log.info("settings are read from %s", path)
    return parse(text, path)


def parse(text: str, path: Path) -> Settings:
    """Understand the text of a file; paths of profiles in it are relative to the file.

    Raises TargetError: it is not TOML, or has a key or a value that means nothing. The message names line and key.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{path}: {error}"
        raise TargetError(msg) from error
    for key in content:
        if key not in {"sensors", "options", "combine"}:
            raise _wrong(path, text, "", key, "there is no such setting; there are: sensors, options, combine")
    sensors = content.get("sensors", [])
    if not isinstance(sensors, list) or not all(isinstance(s, str) for s in sensors):
        raise _wrong(path, text, "", "sensors", 'it must be a list of targets, for example ["rapl", "nvml:0"]')
    tables = content.get("options", {})
    if not isinstance(tables, dict):
        raise _wrong(path, text, "", "options", "it must be tables, for example [options.rapl]")
    combine = _combinations(path, text, content.get("combine", {}))
    targets = tuple(s if s in combine else _target(path, text, "", "sensors", s) for s in sensors)
    options: dict[str, dict[str, str]] = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _wrong(path, text, "options", name, "it must be a table, for example [options.rapl]")
        target = _target(path, text, name, "", name)
        options[target] = {key: _as_text(path, text, name, key, value) for key, value in table.items()}
    return Settings(path, targets, options, text, combine)


def _combinations(path: Path, text: str, tables: Any) -> dict[str, tuple[str, ...]]:
    """Understand ``[combine.NAME]`` tables, each with the rails of one device."""
    example = (
        'it must be a table with rails, for example [combine.gpu] and rails = ["hwmon:ina226/0", "hwmon:ina226/1"]'
    )
    if not isinstance(tables, dict):
        raise _wrong(path, text, "", "combine", example)
    found: dict[str, tuple[str, ...]] = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or set(table) != {"rails"} or not isinstance(table["rails"], list):
            raise _wrong(path, text, "combine", name, example)
        if ":" in name or any(name in {row.name, *row.aliases} for row in BACKENDS.values()):
            raise _wrong(path, text, "combine", name, "a combination needs a name that no sensor has, without a colon")
        found[name] = tuple(_target(path, text, f"combine.{name}", "rails", str(rail)) for rail in table["rails"])
    return found


def _target(path: Path, text: str, table: str, key: str, name: str) -> str:
    try:
        return canonical(name)
    except TargetError as error:
        raise _wrong(path, text, table, key, str(error)) from error


def _as_text(path: Path, text: str, table: str, key: str, value: Any) -> str:
    """Write a value as it would stand on a command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise _wrong(path, text, table, key, "it must be a text, a number, true or false")
    if key == "interval" and not isinstance(value, str):
        raise _wrong(path, text, table, key, 'write it with its unit, for example "50ms"')
    if key == "calibration" and value != "none":
        return str(path.parent / str(value))
    return str(value)


def _wrong(path: Path | None, text: str, table: str, key: str, why: str) -> TargetError:
    name = ".".join(filter(None, ("options" if table and table != "options" else "", _quoted(table), _quoted(key))))
    line = _line_of(text, table, key)
    return TargetError(f"{path}, line {line}, {name}: {why}" if line else f"{path}, {name}: {why}")


def _quoted(name: str) -> str:
    return f'"{name}"' if ":" in name else name


def _line_of(text: str, table: str, key: str) -> int:
    """Find where a key of a table (or, without a key, the table) stands; 0 if it is written in another way."""
    inside = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _TABLE.fullmatch(line)
        if header:
            inside = header["name"].replace('"', "").replace("'", "").strip().removeprefix("options.")
            if (inside == table and not key) or (not table and inside == key) or (table == "options" and inside == key):
                return number
            continue
        found = _KEY.match(line)
        if found and inside == table and found["name"].strip("\"'") == key:
            return number
    return 0
