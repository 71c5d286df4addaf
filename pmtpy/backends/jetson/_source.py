"""The rails of a Jetson module, read together."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pmtpy._handlers import of_a_handler
from pmtpy.backends._assumed_gain import METER_U
from pmtpy.backends._ina import limits, shunt_changed
from pmtpy.backends._sysfs import TRIES, Registers, number, why
from pmtpy.backends.jetson._channels import KIT, MODULE, Board, Plan
from pmtpy.backends.jetson._device import Rail, rails
from pmtpy.backends.machine import IN_A_CONTAINER
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity, unique_name
from pmtpy.core.clock import Clock
from pmtpy.core.presentation import amount
from pmtpy.core.response import Number, Response
from pmtpy.core.rows import Layout
from pmtpy.core.source import PolledSource, Remarks, Traits
from pmtpy.errors import BackendUnavailableError, ReadError

REMEDY = (
    "these monitors are on NVIDIA Jetson modules only; there, load the driver (sudo modprobe ina3221); "
    f"{IN_A_CONTAINER}"
)
# The whole input of a module that runs this program: the smallest, a Nano, idles at 0.5 W and more.
_LEAST_WATTS = 0.2
_MAX_WATTS = 1000.0  # a register full of ones; the largest kits are fed with 240 W

_REFERENCE = "TI SBOS576 (INA3221); NVIDIA Jetson Linux Developer Guide, INA3221 rails"
# A sweep waits for one conversion in every file, 40 ms for three rails at the usual settings, so it cannot follow them
# all; readings at random instants (pmtpy.sensor.poller) see every phase of a load of any period.
_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Live:
    """A rail that could be read, and its voltage then (V)."""

    rail: Rail
    volts: float


def probe(found: list[Rail]) -> tuple[list[Live], list[str]]:
    """Read each rail, so that one dead channel does not make all of them unreadable."""
    read = [(rail, _first(rail)) for rail in found]
    live = [Live(rail, numbers[0] / 1000) for rail, numbers in read if not isinstance(numbers, ReadError)]
    notes = [
        f"left out: {rail.label or 'a channel without a name'} of {rail.chip}: {error}"
        for rail, error in read
        if isinstance(error, ReadError)
    ]
    return live, notes


def _first(rail: Rail) -> list[float] | ReadError:
    """Read a rail, and again where it fails: the bus may have been busy."""
    numbers = _once(rail)
    for _ in range(TRIES - 1):
        if not isinstance(numbers, ReadError):
            break
        numbers = _once(rail)
    return numbers


def _once(rail: Rail) -> list[float] | ReadError:
    """Millivolts and milliamperes of a rail, or why they cannot be read."""
    try:
        files = Registers(lambda: _files([rail]))
    except OSError as error:
        if of_a_handler(error):
            raise
        return ReadError(f"{error.filename}: {why(error)}")
    try:
        return _numbers(files, [rail])[0]
    except ReadError as error:
        return error
    finally:
        files.close()


def _files(of: list[Rail]) -> list[Path]:
    """The files in the order of reading: rail by rail, so that the middle of a sweep is the middle of its currents."""
    return [path for rail in of for path in ([rail.volts] if rail.together else [rail.volts, rail.amps])]


def _numbers(files: Registers, of: list[Rail], beside: Collection[int] = ()) -> tuple[list[float], dict[int, str]]:
    """Millivolts and milliamperes of one rail after the other; NaN for numbers ``beside`` the total that are none.

    The second are the reasons of those, by their places.
    """
    expected = [n for rail in of for n in ([2] if rail.together else [1, 1])]
    numbers: list[float] = []
    unread: dict[int, str] = {}
    for file, (path, text, count) in enumerate(zip(files.paths, files.texts(), expected, strict=True)):
        found, first = _parsed(path, text, count), len(numbers)
        if isinstance(found, ReadError):
            if first not in beside:
                raise found
            unread |= dict.fromkeys(range(first, first + count), files.unread.get(file, str(found)))
            found = [math.nan] * count
        numbers += found
    return numbers, unread


def _parsed(path: Path, text: str, count: int) -> list[float] | ReadError:
    """Return the ``count`` numbers that a file holds, or what it holds instead."""
    words = text.split()
    msg = f"{path}: it holds {amount(len(words), 'number')} instead of {count}"
    if len(words) == count:
        try:
            return [number(word.encode()) for word in words]
        except ValueError:
            msg = f"{path}: it holds {' '.join(words)[:40]!r}, which is not a number"
    return ReadError(msg)


def _with_the_total_between(number: int, total: Collection[int]) -> list[int]:
    """Return the order of reading: a row bears the middle of a sweep, which can take 40 ms, and so does the total."""
    others = [rail for rail in range(number) if rail not in total]
    half = len(others) // 2
    return [*others[:half], *total, *others[half:]]


class JetsonSource(PolledSource):
    """All rails of a module. Used by one thread at a time.

    A reading can wait for a conversion in every file, so only the pump reads.
    """

    def __init__(self, root: Path, live: list[Live], chosen: Plan, identity: Identity, clock: Clock) -> None:
        super().__init__(clock)
        self._root = root
        self.identity = identity
        self.channels = _channels(live, chosen)
        layout = Layout(self.channels)
        total = [part - 1 for part in layout.in_total]
        order = _with_the_total_between(len(live), total)
        # The column of each number that is read.
        self._columns = [column for rail in order for column in (2 * rail, 2 * rail + 1)]
        self._opened = tuple(live[rail].rail for rail in order)
        self._rails = list(self._opened)
        self._most = [_most_milliamperes(rail, chosen.board) for rail in self._rails]
        refresh_s = max(rail.refresh_s for rail in self._rails)
        self.traits = Traits(interval_s=max(_INTERVAL_S, refresh_s), blocking=True)
        try:
            self._beside = frozenset(n for n, column in enumerate(self._columns) if column in layout.beside_total)
            # the currents that make the total
            self._parts = [n for n, column in enumerate(self._columns) if column in {2 * rail + 1 for rail in total}]
            # The first column of each file: one file of a rail holds both numbers, or two hold one each.
            columns = [
                c for i, rail in enumerate(self._rails) for c in ([2 * i] if rail.together else [2 * i, 2 * i + 1])
            ]
            alone = [file for file, column in enumerate(columns) if column in self._beside]
            self._files = Registers(self._locate, alone=alone)
        except OSError as error:
            if of_a_handler(error):
                raise
            raise BackendUnavailableError("jetson", f"{error.filename}: {why(error)}", REMEDY) from error

    def poll(self) -> list[float]:
        """Read all rails; a current at the end of the converter's range may be any larger one, and is none."""
        numbers, self._unread = _numbers(self._files, self._rails, self._beside)
        for i, most in enumerate(self._most):
            if abs(numbers[2 * i + 1]) >= most:
                self._not(numbers, 2 * i + 1, f"{numbers[2 * i + 1]:g} mA is the end of what the monitor can show")
        # One rail may be switched off, but the module is on: it runs this program.
        if len(self._parts) > 1 and not any(numbers[part] for part in self._parts):
            for part in self._parts:
                self._not(numbers, part, "all rails show 0 A, and the module runs this program")
        self._unread = {self._columns[n]: reason for n, reason in self._unread.items()}
        return [numbers[self._columns.index(column)] for column in range(len(numbers))]

    def _not(self, numbers: list[float], i: int, why: str) -> None:
        """Take a number for none."""
        numbers[i] = math.nan
        self._unread |= {i: why}

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:  # noqa: ARG002  (nothing tells when it was)
        """Say of which rail the driver reckons with another shunt than at the opening."""
        rails_now = zip(self._opened, self._rails, strict=True)
        changed = [
            shunt_changed(f"{was.label} of {was.chip}", was.shunt_ohm, now.shunt_now_ohm) for was, now in rails_now
        ]
        return Remarks(warnings=tuple(warning for each in changed for warning in each))

    def close(self) -> None:
        """Close the files. May be called twice."""
        self._files.close()

    def _locate(self) -> list[Path]:
        """Find the files of the same rails, which may have moved to another hwmon number."""
        now = {rail.key: rail for rail in rails(self._root)}
        # Rails that are gone keep their old files, so that opening them says which is missing.
        same = [now.get(rail.key, rail) for rail in self._rails]
        kept = zip(self._rails, same, strict=True)
        self._rails = [replace(new, label=old.label) if new.label in {"", old.label} else old for old, new in kept]
        return _files(self._rails)


def _channels(live: list[Live], chosen: Plan) -> tuple[Channel, ...]:
    channels: list[Channel] = []
    taken: set[str] = set()
    for item in live:
        rail = item.rail
        # A span of more than one conversion is that of a low pass.
        low_pass = rail.window_s > 1.5 * rail.refresh_s
        in_time: dict[str, Any] = {"refresh_s": rail.refresh_s}
        if low_pass:
            in_time["response"] = Response.stated("one-pole", tau_s=Number(rail.window_s / 2.0))
        else:
            in_time["window_s"] = rail.window_s
        name = _name(rail, taken)
        taken.add(name)
        step_a = _step_a(rail, chosen.board)
        chip = "ina3221" if rail.of_module else "ina238"
        most = limits(chip, item.volts, amperes=_most_milliamperes(rail, chosen.board) / 1000)
        volts = Channel(
            f"{name}.voltage", Quantity.VOLTAGE, scale=1e-3, label=rail.label, resolution=rail.bus_step_v,
            reference=_REFERENCE, **in_time,
        )  # fmt: skip
        amps = Channel(
            f"{name}.current", Quantity.CURRENT, scale=1e-3, label=rail.label, resolution=step_a,
            reference=_REFERENCE, **in_time,
        )  # fmt: skip
        power = Channel(
            name,
            Quantity.POWER,
            derivation=Derivation.PRODUCT,
            operands=(volts.name, amps.name),
            domain=chosen.domains.get(rail.label, ""),
            label=rail.label,
            resolution=step_a * abs(item.volts) if step_a is not None else None,
            gain_u=METER_U,
            max_watts=_MAX_WATTS,
            kept_watts=min(most.kept, _MAX_WATTS) if most else None,
            least_watts=_LEAST_WATTS if chosen.domains.get(rail.label, "") in {MODULE, KIT} else 0.0,
            reference=_REFERENCE,
            **in_time,
        )
        channels += (volts, amps, power)
    return tuple(channels)


def _name(rail: Rail, taken: set[str]) -> str:
    plain = "".join(c if c.isalnum() else "_" for c in rail.label.lower()).strip("_")
    address = rail.chip.replace(" ", "_")
    name = plain or f"{address}.channel{rail.channel}"
    return unique_name(taken, name, f"{address}.{rail.channel}")


def _step_a(rail: Rail, board: Board | None) -> float | None:
    """One step of the current, by the driver's shunt or else by that of the board's device tree; None: not known."""
    shunts = board.shunts if board is not None else {}
    shunt = rail.shunt_ohm or shunts.get(rail.label, shunts.get("", 0.0))
    return rail.shunt_step_v / shunt if shunt else None


def _most_milliamperes(rail: Rail, board: Board | None) -> float:
    """The reading at the end of the converter's range; drivers cut or round it to whole milliamperes."""
    step_a = _step_a(rail, board)
    return math.inf if step_a is None else math.floor(step_a * rail.shunt_steps * 1000)
