"""What the verbs share beside their arguments: the sensors that are meant, opened; messages, exit codes, reports."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pmtpy.cli.page import Line, Page, message, plain
from pmtpy.cli.settings import load_settings
from pmtpy.cli.terminal import show
from pmtpy.errors import (
    BackendUnavailableError,
    CalibrationError,
    PmtError,
    ProtocolError,
    ReadError,
    SinkError,
    SourceLostError,
    TargetError,
)
from pmtpy.io.origin import host_names, launch_of, short_name, this_machine
from pmtpy.io.write.file import Output, already_there
from pmtpy.sensor.combine import combine
from pmtpy.sensor.registry import canonical, create, list_sensors, options_from_text, split_target, takes_option
from pmtpy.sensor.sensor import Sensor

USAGE, UNAVAILABLE, LOST = 2, 3, 4
MEASURES_ALL = "started by the launcher, pmtpy run --mpi (or --into DIR) measures each node of the job once"


def say(text: str) -> None:
    """Print a message for the person at the terminal, on stderr."""
    aside(message(text))


def warn_of_the_rest(verb: str, instead: str, *, on_each_node: bool = False) -> None:
    """Say, once on each node, what of the job a process on it does not see, or others see as well.

    ``instead``: what would measure all of it once. ``on_each_node``: one that a launcher started is not the only one.
    """
    launch, machine = launch_of(os.environ), this_machine(os.environ)
    named = {short_name(name) for name in host_names(launch.hosts)} if launch.in_front else set()
    if not launch.reads:
        return
    if (launch.local_size or 1) > 1:
        what = (
            f"{launch.local_size} processes of this job were started on this node, and a sensor sees what all of them"
            " use: do not add up what it shows in several"
        )
    elif named and short_name(machine.host) not in named:
        what = f"{machine.host} is no node of this job ({launch.hosts}), and what they use is not in the numbers"
    elif (launch.nodes or 1) > 1 and (launch.in_front or not on_each_node):
        what = f"this job has {launch.nodes} nodes, and the numbers are those of {machine.host} alone"
    else:
        return
    say(f"pmtpy {verb}: warning: {what}; {instead}")


def aside(page: Page) -> None:
    """Show what stands beside a result on stderr; where that is full or gone, nobody reads it, which is no fault."""
    with contextlib.suppress(OSError):
        show(page, sys.stderr)


def announce(url: str) -> None:
    """Print where a service listens; one whose stdout is closed or full serves all the same."""
    try:
        print(url, flush=True)
    except (OSError, SinkError):
        say(f"listening at {url}")


def configure_logging(verbose: int, *, quiet: bool) -> None:
    """Send the package's log to stderr at the level asked for."""
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Once())
    logging.basicConfig(format="pmtpy: %(message)s", level=level, handlers=[handler])


class _Once(logging.Filter):
    """Lets each piece of information through once: several parts of a verb read the same settings."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        again = record.levelno == logging.INFO and text in self._said
        self._said.add(text)
        return not again


def exit_code(error: PmtError) -> int:
    """Return the exit code that the public page gives to an error."""
    if isinstance(error, BackendUnavailableError):
        return UNAVAILABLE
    if isinstance(error, (TargetError, CalibrationError, SinkError)):  # a file that must not or cannot be written
        return USAGE
    return LOST if isinstance(error, SourceLostError) else 1


def _default_targets() -> list[str]:
    """Return the target named by the environment (``PMT_NAME``, ``PMT_DEVICE``), else those of the settings file."""
    name, device = os.environ.get("PMT_NAME", ""), os.environ.get("PMT_DEVICE", "")
    return [f"{name}:{device}" if device else name] if name else list(load_settings().sensors)


def chosen_targets(named: Sequence[str], *, everything: bool = False) -> list[str]:
    """Return the targets named, or the environment's, or the settings file's, or (if asked) every available one.

    Raises TargetError: none was named and none can be chosen.
    """
    combinations = load_settings().combine
    targets = [t if t in combinations else canonical(t) for t in named or _default_targets()]
    if not targets and everything:
        targets = [line.target for line in list_sensors() if line.available]
        if not targets:
            raise BackendUnavailableError(
                "sensors",
                "none is available on this machine",
                "'pmtpy doctor' says what is missing; NAME:virtual rehearses a sensor without its hardware",
            )
    if not targets:
        msg = "name a TARGET, for example rapl or powersensor3:virtual; 'pmtpy list' shows what is there"
        raise TargetError(msg)
    doubled = sorted({t for t in targets if targets.count(t) > 1})
    if doubled:
        msg = f"{', '.join(doubled)} is named twice"
        raise TargetError(msg)
    return targets


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """Split ``key=value`` arguments."""
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            msg = f"an option is written key=value, not {pair!r}"
            raise TargetError(msg)
        options[key.strip().replace("-", "_")] = value
    return options


def options_for(targets: Sequence[str], pairs: Sequence[str]) -> dict[str, dict[str, object]]:
    """Give each target those options that it has, over those of the settings file; refuse one that none of them has."""
    typed = _settings_for(targets)
    for key, value in parse_options(pairs).items():
        takers = [target for target in targets if takes_option(target, key)]
        for target in takers or targets[:1]:  # where none has it, the first says so
            typed[target] |= options_from_text(target, {key: value})
    return typed


def _settings_for(targets: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return what the settings file says for each target."""
    settings = load_settings()
    return {t: settings.options_for(t, os.environ) for t in targets}


@contextlib.contextmanager
def opened(targets: Sequence[str], pairs: Sequence[str], *, interval: float | None = None) -> Iterator[list[Sensor]]:
    """Open sensors; close all of them at the end, whatever happens."""
    with open_all(targets, pairs, interval=interval, strict=True) as sensors:
        yield sensors


@contextlib.contextmanager
def open_all(
    targets: Sequence[str], pairs: Sequence[str], *, strict: bool, interval: float | None = None
) -> Iterator[list[Sensor]]:
    """Open sensors; close all of them at the end. Unless ``strict``, one that cannot be opened is told and left out.

    Raises BackendUnavailableError: one cannot be opened (strict), or none can.
    """
    settings = load_settings()
    typed = options_for([rail for target in targets for rail in settings.rails(target)], pairs)
    with contextlib.ExitStack() as stack:
        sensors: list[Sensor] = []
        for target in targets:
            options = typed.get(target, {})
            # The interval of -o wins over --interval, and both over that of the settings file.
            if interval is not None and "interval" not in parse_options(pairs):
                options["interval"] = interval
            try:
                if target in settings.combine:
                    rails = {rail: typed[rail] for rail in settings.combine[target]}
                    sensors.append(stack.enter_context(_combined(target, rails, interval)))
                    continue
                sensors.append(stack.enter_context(create(*split_target(target), **options)))  # type: ignore[arg-type]
            except (BackendUnavailableError, SourceLostError, ReadError, ProtocolError) as error:
                if strict or (target == targets[-1] and not sensors):
                    raise
                say(f"left out: {error}")
        yield sensors


def _combined(name: str, rails: Mapping[str, dict[str, object]], interval: float | None) -> Sensor:
    """Open the rails of a combination, each with its options."""
    for rail, options in rails.items():
        if options.pop("interval", None) is not None or "calibration" in options:
            msg = f"{rail} is a rail of {name}, and cannot have an interval or a calibration of its own"
            raise TargetError(msg)
    return combine(name, list(rails), interval=interval, each=rails)


def check_writable(*paths: str | None) -> None:
    """Refuse files that cannot be written before a command has run for an hour, not after. None names no file.

    Raises SinkError: the folder does not exist or may not be written to, or the name is that of a folder.
    """
    for path in paths:
        if path is None:
            continue
        place = Path(path)
        why = ""
        if place.is_dir():
            why = "it is a folder"
        elif not place.parent.is_dir():
            why = f"there is no folder {place.parent}"
        elif not os.access(place if place.exists() else place.parent, os.W_OK):
            why = "permission denied"
        if why:
            msg = f"cannot write {path}: {why}"
            raise SinkError(msg)


def check_new(*paths: str | None, overwrite: bool) -> None:
    """Refuse, before anything is measured, what cannot be written, and a file that exists unless it may be replaced.

    Raises SinkError: as :func:`check_writable`, or the file exists. Devices and pipes hold nothing to be lost.
    """
    check_writable(*paths)
    for path in paths:
        if path is not None and Path(path).is_file() and not overwrite:
            raise already_there(Path(path))


def write_new(path: str, text: str, *, overwrite: bool) -> None:
    """Write a text as a new file, or in the place of one that may be replaced.

    Raises SinkError: the file exists, or cannot be written; then there is none or an empty one, rather than a part.
    """
    output = Output(path, overwrite=overwrite)
    try:
        output.empty()
        output.write(text.encode())
        output.close()
    except SinkError:
        output.discard()
        raise


def write_report(report: Page | str, path: str) -> None:
    """Write a report to a file; where that fails after all, it goes to stderr, so that no measurement is lost.

    Raises SinkError: it is not in the file.
    """
    text = report if isinstance(report, str) else plain(report)
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        aside([Line(text)])
        msg = f"cannot write {path}: {error.strerror}; the report is above"
        raise SinkError(msg) from error


def deliver(report: Page | str, path: str | None, *, of_command: bool = True) -> None:
    """Give a report: to a file, as JSON on stdout, or to a person, on stderr where stdout is the measured command's.

    Raises OSError: nobody has it, or SinkError: it is not in the file.
    """
    if path:
        write_report(report, path)
    elif isinstance(report, str):
        print(report)
    else:
        show(report, sys.stderr if of_command else sys.stdout)
