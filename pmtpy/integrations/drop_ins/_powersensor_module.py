"""What ``import powersensor`` gives: the names, arguments and results of PowerSensor3's own Python binding.

Differences, each on purpose: faults raise, where the original ends the program; the last arguments of ``Joules``,
``Watt`` and ``dump`` have defaults, as its own documentation has them; a state is always later than the one before;
energy follows the board's clock; a pair of which only one sensor is in use shows NaN.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from pmtpy.core import state as states
from pmtpy.errors import TargetError
from pmtpy.integrations.drop_ins.held import Held, known_energy, known_power, rehearsed
from pmtpy.sensor.registry import create
from pmtpy.sensor.sensor import Sensor, acquisition_of

__all__ = ["MAX_PAIRS", "Joules", "PowerSensor", "State", "Watt", "seconds"]

__version__ = "1.6.1"  # of the binding that this one follows; some programs ask for it

MAX_PAIRS = 4
_HISTORY_S = 0.02  # only the newest row is looked up; more would cost time


class State:
    """What the board showed at one instant. Lists have one entry per pair: 0 for a pair that is not in use."""

    __slots__ = ("_current", "_energy", "_state", "_voltage")

    def __init__(
        self, state: states.State, energy: Sequence[float], current: Sequence[float], voltage: Sequence[float]
    ) -> None:
        self._state = state
        self._energy, self._current, self._voltage = tuple(energy), tuple(current), tuple(voltage)

    @property
    def consumed_energy(self) -> list[float]:
        """Energy of each pair since the board was opened, joules."""
        return list(self._energy)

    @property
    def current(self) -> list[float]:
        """Current of each pair, amperes."""
        return list(self._current)

    @property
    def voltage(self) -> list[float]:
        """Voltage of each pair, volts."""
        return list(self._voltage)

    @property
    def time_at_read(self) -> datetime:
        """The instant in local time, without a zone. For differences use :func:`seconds`: no clock change harms it."""
        return datetime.fromtimestamp(self._state.timestamp)  # noqa: DTZ006  (as the original)


class PowerSensor:
    """A board. Released when nobody holds this object any more.

    Parameters
    ----------
    device : str
        Path of its port, for example ``/dev/ttyACM0``; ``"virtual"``, or ``PMT_DEVICE=virtual`` in the environment,
        rehearses without a board.
    **options
        Options of the backend, which the original does not have.

    Raises BackendUnavailableError: no board there, or it is in use, or not permitted.
    """

    def __init__(self, device: str, **options: object) -> None:
        sensor = create("powersensor3", rehearsed(str(device)), history_s=_HISTORY_S, **options)  # type: ignore[arg-type]
        self._held = Held(sensor)
        self._at = [_Place(sensor, pair) for pair in range(MAX_PAIRS)]
        for note in sensor.identity.notes:
            warnings.warn(f"{sensor.target}: {note}", stacklevel=2)

    def read(self) -> State:
        """Return a new state, later than the one before.

        Raises SourceLostError: the board is gone (the original ends the program, or repeats its last state).
        """
        while True:
            state = self._held.read()
            recent = self._held.sensor.history()
            row = int(np.searchsorted(recent.t_ns, state.t_ns))
            if row < len(recent) and recent.t_ns[row] == state.t_ns:
                break
        values = recent.values[row].tolist()
        return State(
            state,
            [at.of(state.joules, at.power) for at in self._at],
            [at.of(values, at.current) for at in self._at],
            [at.of(values, at.voltage) for at in self._at],
        )

    def dump(self, filename: str | os.PathLike[str], use_absolute_timestamp: bool = False) -> None:  # noqa: FBT001, FBT002  (the original's arguments)
        """Write every sample to a text file, replacing what is there, until the next call; ``""`` only stops."""
        if os.fspath(filename):
            self._held.start_dump(filename, "powersensor3", absolute=use_absolute_timestamp)
        else:
            self._held.stop_dump()

    def mark(self, marker: str) -> None:
        """Put a marker of one character into the board's stream; it appears in the dump on the row it belongs to."""
        if len(marker) != 1:
            msg = f"a marker is one character, not {marker!r}"
            raise ValueError(msg)
        self._held.sensor.mark(marker)

    def get_name(self, pair_id: int) -> str:
        """Return the stored name of a pair; empty for a pair that is not in use."""
        _check(pair_id)
        if pair_id < 0:
            raise TargetError(_no_pair(pair_id))
        return self._at[pair_id].label

    def close(self) -> None:
        """Release the board now. The original has no such method: there it is released with the object."""
        self._held.close()


class _Place:
    """Where a pair's numbers are in a State and in the values of a row."""

    def __init__(self, sensor: Sensor, pair: int) -> None:
        layout, name = acquisition_of(sensor).layout, f"pair{pair}"
        values = [c.name for c in layout.values]
        measured = name in layout.names
        self.power = layout.names.index(name) if measured else None
        self.label = layout.energy[layout.names.index(name) - 1].label if measured else ""
        self.current = values.index(f"{name}.current") if measured else None
        self.voltage = values.index(f"{name}.voltage") if measured else None
        # Not in use is nothing there, which is zero; in use and yet not measured is not known.
        half = any(re.match(rf"pair {pair} is not measured", note) for note in sensor.identity.notes)
        self.absent = float("nan") if half else 0.0

    def of(self, numbers: Sequence[float], place: int | None) -> float:
        return self.absent if place is None else numbers[place]


def _no_pair(pair: int) -> str:
    return f"a PowerSensor3 has the pairs 0 to {MAX_PAIRS - 1}, and not {pair}"


def _check(pair: int) -> None:
    if pair >= MAX_PAIRS:
        raise TargetError(_no_pair(pair))


def _channel(first: State, second: State, pair: int) -> tuple[str | None, float | None]:
    """Return the channel of a pair (None: the total), or what stands for a pair that has none."""
    _check(pair)
    if pair < 0:
        return None, None
    name = f"pair{pair}"
    if name in first._state.names:  # noqa: SLF001  (the functions and the class are one face)
        return name, None
    return None, second.consumed_energy[pair] - first.consumed_energy[pair]


def Joules(first_state: State, second_state: State, sensor_pair: int = -1) -> float:  # noqa: N802  (the original's name)
    """Return the energy from one state to the other, joules: of a pair, or of all if ``sensor_pair`` is negative."""
    channel, absent = _channel(first_state, second_state, sensor_pair)
    if absent is not None:
        return absent
    return known_energy(first_state._state, second_state._state, channel)  # noqa: SLF001


def seconds(first_state: State, second_state: State) -> float:
    """Return the seconds from one state to the other."""
    return states.seconds(first_state._state, second_state._state)  # noqa: SLF001


def Watt(first_state: State, second_state: State, sensor_pair: int = -1) -> float:  # noqa: N802  (the original's name)
    """Return the mean power from one state to the other, watts: of a pair, or of all if ``sensor_pair`` is negative.

    Of a state and itself, the power at that instant, where the original gives NaN.
    """
    channel, absent = _channel(first_state, second_state, sensor_pair)
    if absent is not None:
        return absent
    return known_power(first_state._state, second_state._state, channel)  # noqa: SLF001
