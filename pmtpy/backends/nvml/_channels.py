"""Which registers a GPU has, found by asking each once, and what each of them means as a channel.

A register that fails, or answers with a zero or an impossible number, when it is first asked is left out: it is not
there. What is left is asked again and again by :mod:`pmtpy.backends.nvml._source`, which treats the same answers as
failed readings. Ids of fields: nvml.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pmtpy.backends._assumed_gain import GPU_U
from pmtpy.backends._card_limit import kept_watts
from pmtpy.backends.nvml import _errors as errors
from pmtpy.backends.nvml import _published as published
from pmtpy.backends.nvml import facts
from pmtpy.backends.nvml._device import Library
from pmtpy.backends.nvml._errors import Fault
from pmtpy.backends.nvml.facts import Kind
from pmtpy.core.channel import Channel, Quantity

_FIELD_MEMORY_TEMPERATURE = 82  # C
_FIELD_ENERGY = 83  # mJ, the GPU's
_FIELD_AVERAGE = 185  # mW
_FIELD_INSTANT = 186  # mW
_FIELD_SCOPED_ENERGY = 191  # mJ, takes a scope
GPU, MODULE, MEMORY = 0, 1, 2

# No board, module or tray reports more (a GB300 module is limited to 2900 W): such an answer is a sentinel.
MOST_WATTS = 10_000.0
_LEAST_WATTS = 0.5  # of a GPU that is on enough to be read: a counter that rests for longer does not count
_MOST_MJ = 2.0**53  # beyond it float64 skips counts; 9 TJ is 28 years at 10 kW
_MOST_CELSIUS = 150.0
_MOST_MHZ = 20_000.0

# Field, scope and kind of everything that is asked for in one call.
_FIELDS = (
    (_FIELD_ENERGY, GPU, Kind.ENERGY),
    (_FIELD_INSTANT, GPU, Kind.INSTANT),
    (_FIELD_AVERAGE, GPU, Kind.AVERAGE),
    (_FIELD_SCOPED_ENERGY, MODULE, Kind.ENERGY),
    (_FIELD_INSTANT, MODULE, Kind.INSTANT),
    (_FIELD_AVERAGE, MODULE, Kind.AVERAGE),
    (_FIELD_INSTANT, MEMORY, Kind.INSTANT),
    (_FIELD_AVERAGE, MEMORY, Kind.AVERAGE),
)
_SCOPES = {GPU: "gpu", MODULE: "module", MEMORY: "memory"}
_LABELS = {
    _FIELD_ENERGY: "total_energy_consumption",
    _FIELD_SCOPED_ENERGY: "total_energy_consumption",
    _FIELD_INSTANT: "power.draw.instant",
    _FIELD_AVERAGE: "power.draw.average",
}


@dataclass(frozen=True, slots=True)
class Register:
    """One number that the driver offers."""

    channel: Channel  # its meaning
    kind: Kind | None  # what it holds of power or energy; None for temperatures and clocks
    field: tuple[int, int] | None  # (int, int): field and scope, for those that are asked together in one call
    ask: Callable[[Library, object], float] | None  # How to ask for one that has a call of its own. Raises Fault.
    # counts outside are no reading: the driver's zero for "not supported", sentinels, garbage
    least: float
    most: float

    def fits(self, count: float | None) -> bool:
        """Whether ``count`` can be a reading of this register."""
        return count is not None and self.least <= count <= self.most


class Board(NamedTuple):
    """What decides about the registers of a GPU."""

    name: str
    driver: str
    generation: str
    # paths of the physical parts: the GPU, and the module that holds it (empty: none, or not known which)
    domain: str
    module: str
    max_watts: float  # more than this no register of the GPU or its memory can show


class Found(NamedTuple):
    """The registers that answer, those of power and energy first, and what the user should hear about others."""

    registers: tuple[Register, ...]
    notes: tuple[str, ...]


def find(library: Library, handle: object, board: Board, order: tuple[Kind, ...]) -> Found:
    """Ask for every register once, and keep those that answer; of power and energy only the kinds in ``order``.

    The first channel of a part of the machine is the one that enters totals, so ``order`` decides about the total.
    A kind that is not in it is not asked for: on some drivers the energy call alone takes milliseconds.

    Raises Fault: the GPU or NVML as a whole does not answer.
    """
    notes: list[str] = []
    found: dict[str, Register] = {}
    scopes = facts.scopes(board.driver)
    wanted = [_power(board, kind, s, (f, s), None) for f, s, kind in _FIELDS if s in scopes and kind in order]
    for register in _answering(library, handle, wanted, notes):
        # On GH200 the GPU's own field and the module's give the same channel: the one that says module is the better.
        if register.channel.name not in found or register.field[1:] == (MODULE,):  # type: ignore[index]
            found[register.channel.name] = register
    calls = [r for r in _calls(board, set(found)) if r.kind in order]
    found |= {r.channel.name: r for r in _answering(library, handle, calls, notes)}
    power = sorted(found.values(), key=lambda r: order.index(r.kind) if r.kind else 0)
    values = _answering(library, handle, _values(), notes) if power else []
    return Found((*power, *values), tuple(notes))


def _answering(library: Library, handle: object, wanted: list[Register], notes: list[str]) -> list[Register]:
    """Return the registers that answer with a possible number; note those that may answer later."""
    fields = [r.field for r in wanted if r.field is not None]
    try:
        answers = iter(library.fields(handle, fields))
    except Fault as fault:
        if fault.code in errors.RESTART | errors.DEAD:
            raise
        answers = iter(())  # a driver older than fields as a whole
    found = []
    for register in wanted:
        try:
            if register.field is not None:
                answer = next(answers, None)
                # "Not supported" may come with a zero in its place, and a zero may come with a good status.
                count, code = (answer.value, answer.code) if answer else (None, errors.NOT_SUPPORTED)
            else:
                count, code = register.ask(library, handle) if register.ask else None, 0
        except Fault as fault:
            if fault.code in errors.RESTART | errors.DEAD:
                raise
            count, code = None, fault.code
        if not code and register.fits(count):
            found.append(register)
        elif code in errors.PASSING:
            notes.append(f"{register.channel.name} is left out: {errors.meaning(code)}; open again later to have it")
    return found


def _calls(board: Board, have: set[str]) -> list[Register]:
    """Registers with a call of their own, for drivers that do not offer them as fields."""
    calls = []
    if not have & {"gpu.energy", "module.energy"}:
        ask = _single("nvmlDeviceGetTotalEnergyConsumption")
        calls.append(_power(board, Kind.ENERGY, GPU, None, ask))
    if not have & {"gpu.instant", "gpu.average", "module.instant", "module.average"}:
        kind = facts.usage_kind(board.generation, board.driver)
        calls.append(_power(board, kind, GPU, None, _single("nvmlDeviceGetPowerUsage")))
    return calls


def _single(call: str, *arguments: int) -> Callable[[Library, object], float]:
    return lambda library, handle: library.read(float, call, handle, *arguments)


def _power(
    board: Board,
    kind: Kind,
    scope: int,
    field: tuple[int, int] | None,
    ask: Callable[[Library, object], float] | None,
) -> Register:
    if scope == GPU and facts.reads_module(board.name, kind):
        scope = MODULE
    timing = facts.timing(board.generation, kind, board.name)
    energy = kind is Kind.ENERGY
    others = published.spread(board.name, board.driver, kind) if scope == GPU else None
    most = MOST_WATTS if scope == MODULE else board.max_watts
    channel = Channel(
        f"{_SCOPES[scope]}.{kind.value}",
        Quantity.ENERGY if energy else Quantity.POWER,
        scale=1e-3,
        method=None if energy else facts.rule(timing),
        domain={GPU: board.domain, MODULE: board.module, MEMORY: f"{board.domain}/memory"}[scope],
        label=_LABELS[field[0]] if field else (_LABELS[_FIELD_ENERGY] if energy else "power.draw"),
        refresh_s=timing.refresh_s,
        window_s=timing.window_s,
        lag_s=timing.window_s / 2 if timing.window_s else None,
        gain_u=others.gain_u if others else GPU_U,
        max_watts=most,
        kept_watts=kept_watts(most),
        least_watts=_LEAST_WATTS if energy else 0.0,
        reference=timing.reference,
    )
    return Register(channel, kind, field, ask, 1.0, _MOST_MJ if energy else most * 1e3)


def _values() -> list[Register]:
    """Temperatures and clocks: they belong to a row, and make no row of their own."""
    rows: list[tuple[str, Quantity, float, tuple[int, int] | None, Callable[[Library, object], float] | None]] = [
        ("gpu.temperature", Quantity.TEMPERATURE, 1.0, None, _temperature),
        ("memory.temperature", Quantity.TEMPERATURE, 1.0, (_FIELD_MEMORY_TEMPERATURE, GPU), None),
        ("gpu.sm_clock", Quantity.FREQUENCY, 1e6, None, _single("nvmlDeviceGetClockInfo", 1)),
        ("gpu.memory_clock", Quantity.FREQUENCY, 1e6, None, _single("nvmlDeviceGetClockInfo", 2)),
    ]
    found = []
    for name, quantity, scale, field, ask in rows:
        clock = quantity is Quantity.FREQUENCY
        # The zero of a field means "not supported"; that of a call is a clock at rest or a cold card.
        least = 1.0 if field else 0.0
        channel = Channel(name, quantity, scale=scale, reference=facts.NVML_REFERENCE)
        found.append(Register(channel, None, field, ask, least, _MOST_MHZ if clock else _MOST_CELSIUS))
    return found


def _temperature(library: Library, handle: object) -> float:
    """Ask the newer call, and the older one where the driver lacks it."""
    try:
        return library.read(float, "nvmlDeviceGetTemperatureV", handle, 0)
    except Fault as fault:
        if fault.code in errors.RESTART | errors.DEAD | errors.PASSING:
            raise
        return library.read(float, "nvmlDeviceGetTemperature", handle, 0)
