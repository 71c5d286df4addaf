"""What a column means: channels, their quantities, the ways power becomes energy, and what makes a total.

Everything here is frozen and pure.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pmtpy.core.response import UNKNOWN, Response

TOTAL = "total"


class Quantity(enum.Enum):
    """What a channel measures; the value is the suffix of its column in a file, which is the SI unit."""

    POWER = "W"
    ENERGY = "J"
    VOLTAGE = "V"
    CURRENT = "A"
    TEMPERATURE = "C"  # degrees Celsius: the one unit that is not SI, because every reader expects it
    FREQUENCY = "Hz"
    COUNT = "count"


class Derivation(enum.Enum):
    """How the values of a channel come about."""

    DIRECT = "direct"  # a column of the Block, scaled
    PRODUCT = "product"  # of a voltage and a current channel of the same row
    RATIO = "ratio"  # of the increments of a sum and of a count channel: the mean over the interval


class EnergyMethod(enum.Enum):
    """How a channel becomes energy: there are three ways and no fourth."""

    COUNTER = "counter"  # difference of a cumulative register, unwrapped
    TRAPEZOID = "integrated"  # samples of a momentary power, joined by straight lines
    MEAN = "interval mean"  # each value is the mean power since the row before


@dataclass(frozen=True, slots=True, init=False)
class Channel:
    """The meaning of one column.

    Attributes
    ----------
    name : str
        Lowercase, general to particular, stable across runs: ``package0.dram``, ``gpu``, ``pair1.voltage``.
    quantity : Quantity
        What is measured; fixes the unit.
    scale, offset : float
        SI value = (count + offset) * scale. For a RATIO: SI value = scale * (sum increment / count increment).
    wrap : float or None
        The number of counts after which a counter starts again from zero; None if it never does.
    derivation : Derivation
        DIRECT channels are the columns of a Block, in order; the others are derived from channels named in
        ``operands``.
    operands : tuple of str
        (voltage, current) for a PRODUCT, (sum, count) for a RATIO.
    method : EnergyMethod or None
        How power or energy is integrated. None: COUNTER for energy, MEAN for a RATIO, else TRAPEZOID.
    domain : str
        Physical part measured, as a path (``host/socket0/package/core``). Only the outermost domain of each tree
        enters a total, once, by the first channel that measures it. Empty: never part of a total.
    label : str
        The device's own name for it, where it has one (the pair name on a board, a rail name).
    response : Response
        How the channel follows time. What a maker states of it can be given as ``refresh_s``, ``window_s`` and
        ``lag_s`` (mean age of what an update shows) instead. The time between an
        update and its poll is not included: the core adds it, from the rows.
    resolution : float or None
        One step of the value in SI. None: ``abs(scale)`` for a DIRECT channel.
    gain_u : float
        Standard uncertainty of the gain, relative (0.01 is 1 %).
    offset_u : float
        Standard uncertainty of the zero, in SI.
    noise : float
        Standard deviation of one value at constant input, in SI.
    max_watts : float or None
        More than this cannot be: such a power is not believed, and a counter that shows it has restarted, not wrapped.
    least_watts : float
        Less than this cannot be while the part can be read: such a power, and a rest of a counter that is longer than
        this allows, are not believed. 0: it may be switched off.
    reference : str
        The document that says so.
    kept_watts : float or None
        What the part keeps to on average, where something holds it to that: bounds what no reading has shown more
        closely than ``max_watts``.
    energy_method : EnergyMethod
        The rule by which the channel becomes energy: ``method``, or what is usual for what is measured.
    """

    name: str
    quantity: Quantity
    scale: float
    offset: float
    wrap: float | None
    derivation: Derivation
    operands: tuple[str, ...]
    method: EnergyMethod | None
    domain: str
    label: str
    resolution: float | None
    gain_u: float
    offset_u: float
    noise: float
    max_watts: float | None
    least_watts: float
    reference: str
    response: Response
    kept_watts: float | None
    energy_method: EnergyMethod = field(init=False, repr=False, compare=False)
    refresh_s: float | None = field(init=False, repr=False, compare=False)
    window_s: float | None = field(init=False, repr=False, compare=False)
    lag_s: float | None = field(init=False, repr=False, compare=False)

    def __init__(  # noqa: PLR0917  (the order of the fields; three of them say in short what is one record)
        self,
        name: str,
        quantity: Quantity,
        scale: float = 1.0,
        offset: float = 0.0,
        wrap: float | None = None,
        derivation: Derivation = Derivation.DIRECT,
        operands: tuple[str, ...] = (),
        method: EnergyMethod | None = None,
        domain: str = "",
        label: str = "",
        refresh_s: float | None = None,
        window_s: float | None = None,
        lag_s: float | None = None,
        resolution: float | None = None,
        gain_u: float = 0.0,
        offset_u: float = 0.0,
        noise: float = 0.0,
        max_watts: float | None = None,
        least_watts: float = 0.0,
        reference: str = "",
        response: Response = UNKNOWN,
        kept_watts: float | None = None,
    ) -> None:
        """Describe a column.

        Raises
        ------
        ValueError
            A derived channel without its two operands, a scale that is no number.
        """
        fields = dict(locals())
        del fields["self"], fields["refresh_s"], fields["window_s"], fields["lag_s"]
        fields["response"] = response.but(refresh_s, window_s, lag_s)
        known = fields["response"]
        fields |= {
            "refresh_s": known.period_s or None,
            "window_s": known.span_s or None,
            "lag_s": known.lag_s if math.isfinite(known.delay_u) else None,
        }
        for field_name, value in fields.items():
            object.__setattr__(self, field_name, value)
        object.__setattr__(self, "energy_method", method or self._usual_method())
        if (self.derivation is Derivation.DIRECT) != (not self.operands) or len(self.operands) not in {0, 2}:
            msg = f"channel {self.name}: a {self.derivation.value} channel cannot be made of {self.operands!r}"
            raise ValueError(msg)
        if not (math.isfinite(self.scale) and math.isfinite(self.offset)):
            msg = f"channel {self.name}: scale {self.scale} and offset {self.offset} must be finite"
            raise ValueError(msg)

    def _usual_method(self) -> EnergyMethod:
        if self.quantity is Quantity.ENERGY:
            return EnergyMethod.COUNTER
        return EnergyMethod.MEAN if self.derivation is Derivation.RATIO else EnergyMethod.TRAPEZOID

    def timed(
        self, *, refresh_s: float | None = None, window_s: float | None = None, lag_s: float | None = None
    ) -> Channel:
        """Return the channel with another statement of how it follows time; None leaves a part as it is."""
        return replace(self, response=self.response.but(refresh_s, window_s, lag_s))

    def with_uncertainty(self, *, gain_u: float, offset_u: float, noise: float, resolution: float) -> Channel:
        """Return the channel with what is known better of one interval; every region of a product asks for it."""
        made = object.__new__(Channel)
        known = {"gain_u": gain_u, "offset_u": offset_u, "noise": noise, "resolution": resolution}
        for name in Channel.__slots__:
            object.__setattr__(made, name, known[name] if name in known else getattr(self, name))
        return made

    @property
    def kind(self) -> str:
        """What those of its device that err alike have in common (:func:`kind_of`)."""
        return kind_of(self.name, product=self.derivation is Derivation.PRODUCT)

    @property
    def unit(self) -> str:
        """Unit of the values, also the suffix of the column in a file."""
        return self.quantity.value

    @property
    def measures_energy(self) -> bool:
        """Whether the channel has a curve of energy."""
        return self.quantity in {Quantity.POWER, Quantity.ENERGY}

    @property
    def smallest_step(self) -> float:
        """One step of the value in SI; 0 where it is not known."""
        if self.resolution is not None:
            return self.resolution
        return abs(self.scale) if self.derivation is Derivation.DIRECT else 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What a source says of itself.

    Attributes
    ----------
    backend, model, serial, version : str
        Backend name, device model, serial number or UUID (empty where there is none), driver or firmware version.
    virtual : bool
        True when the far side is emulated. Every result and file carries it.
    notes : tuple of str
        Plain warnings about the device: what was wrong, and what works nevertheless.
    serial_is_place : bool
        True when the device has no number of its own, and ``serial`` is where it is in its machine, such as an address
        on a bus: another machine has another device there.
    """

    backend: str
    model: str = ""
    serial: str = ""
    version: str = ""
    virtual: bool = False
    notes: tuple[str, ...] = ()
    serial_is_place: bool = False

    @property
    def unproven(self) -> str:
        """Why nothing tells this device from others of its model; empty where its serial number does."""
        if not self.serial:
            return f"{self.backend} {self.model} has no serial number"
        if self.serial_is_place:
            return f"{self.serial} is its place in this machine, where another machine has another device"
        return ""

    @classmethod
    def read(cls, facts: Mapping[str, object]) -> Identity:
        """Return what a file says of a device; a text that it does not say is empty.

        Raises ValueError: it names no backend, or says something that is of another kind than here.
        """
        if "backend" not in facts:
            raise ValueError("the identity of the device has no backend")
        texts = {name: facts.get(name, "") for name in ("backend", "model", "serial", "version")}
        wrong = {name: (value, "a text") for name, value in texts.items() if not isinstance(value, str)}
        flags = {name: facts.get(name, False) for name in ("virtual", "serial_is_place")}
        wrong |= {name: (value, "true or false") for name, value in flags.items() if not isinstance(value, bool)}
        notes = facts.get("notes", ())
        if not isinstance(notes, (list, tuple)) or not all(isinstance(n, str) for n in notes):
            wrong["notes"] = notes, "a row of texts"
        for name, (value, kind) in wrong.items():
            msg = f"{name} of the device must be {kind}, not {reprlib.repr(value)}"
            raise ValueError(msg)
        return cls(**texts, **flags, notes=tuple(notes))  # type: ignore[arg-type]


def kind_of(name: str, *, product: bool) -> str:
    """Return what channels of one device that err alike have in common: their name without numbers (``package1``).

    A ``product`` errs by itself: its voltage and its current have converters that were calibrated for themselves.
    """
    return name if product else re.sub("[0-9]+", "", name)


def sum_of_kinds(errors: Iterable[tuple[str, float]]) -> float:
    """Join errors, each of a kind: units of one kind err alike, so they add linearly; kinds err independently."""
    together: dict[str, float] = {}
    for kind, u in errors:
        together[kind] = together.get(kind, 0.0) + u
    return math.hypot(*together.values())


def outermost(domains: Sequence[str]) -> tuple[int, ...]:
    """Indices of the entries that make a sum without counting anything twice.

    Of the non-empty ``domains`` (paths of physical parts), each outermost one is taken once, by its first entry; a
    domain inside another that is present is not taken. ``host`` by itself is the whole machine (a node's own meter):
    everything is inside it, graphics cards too, but for what is ``external``.
    """
    taken: dict[str, int] = {}
    present = {d for d in domains if d}
    machine = "host" in present
    for i, domain in enumerate(domains):
        parts = domain.split("/")
        inside = any("/".join(parts[:j]) in present for j in range(1, len(parts)))
        inside = inside or (machine and domain != "host" and parts[0] != "external")
        if domain and not inside and domain not in taken:
            taken[domain] = i
    return tuple(taken.values())


def summable(parts: Sequence[tuple[str, str]], *, rails: bool = False) -> tuple[tuple[int, ...], str]:
    """Say which channels of several sensors make a sum without counting anything twice: the one rule for all sums.

    Parts of one external meter can be summed, and so can those of built-in sensors; a meter beside built-in ones, or
    beside another meter, cannot, because nothing says what it is connected to: both may see one cable. Nor can a
    socket's sensor of all its GPUs (``host/.../gpus``) beside a GPU's own (``gpu/...``), because nothing says which
    GPUs are at which socket; nor a socket of a guessed number (``host/socket1?/...``) beside another sensor's sockets,
    among which it may be.

    Parameters
    ----------
    parts : sequence of (owner, domain)
        Every channel that measures energy: which sensor's it is, and the physical part.
    rails : bool
        Somebody said that the sensors see different rails of one thing, so that meters can be summed.

    Returns
    -------
    (indices, why)
        The channels that make the sum; none, and why not, where that cannot be told: which may see the same.
    """

    def of(wanted: Callable[[str], bool]) -> str:
        return ", ".join(dict.fromkeys(owner for owner, domain in parts if domain and wanted(domain)))

    def is_meter(domain: str) -> bool:
        return domain.partition("/")[0] == "external"

    meters, built_in = of(is_meter), of(lambda domain: not is_meter(domain))
    if meters and built_in:
        return (), f"an external meter ({meters}) may see what a built-in sensor sees ({built_in})"
    chosen = outermost([domain for _, domain in parts])
    if not chosen:
        return (), "none of them says which part of the machine it measures"
    paths = [parts[i][1].split("/") for i in chosen]
    met = {parts[i][1] for i in chosen if is_meter(parts[i][1])}
    if not rails and not any(met <= {d for o, d in parts if o == owner} for owner, _ in parts):
        apart = "pmt.combine makes one device of rails that do not"
        return (), f"external meters ({meters}) may see the same power ({apart})"
    if any(p[0] == "gpu" for p in paths) and any(p[-1] == "gpus" for p in paths):
        all_of, own = of(lambda domain: domain.endswith("/gpus")), of(lambda domain: domain.startswith("gpu/"))
        return (), f"a socket's sensor of all its GPUs ({all_of}) may see what a GPU's own sensor sees ({own})"
    sockets = dict.fromkeys(parts[i][0] for i in chosen if parts[i][1].startswith("host/socket"))
    if len(sockets) > 1 and any("?" in parts[i][1] for i in chosen):
        return (), f"a socket whose number is not known may be one that another sensor sees ({', '.join(sockets)})"
    return chosen, ""


def without(parts: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Say which sensors are in no sum, as none of their channels says which part it measures; ``parts`` as above."""
    said = {owner for owner, domain in parts if domain}
    silent = dict.fromkeys(owner for owner, _ in parts if owner not in said)
    return tuple(
        f"the total is without {owner}: nothing says which part of the machine it measures" for owner in silent
    )


def unique_name(taken: Collection[str], stem: str, *suffixes: str) -> str:
    """Return ``stem``, if another channel has that name with the first suffix, else number, that makes it its own.

    ``total`` is never free: it is the name of the sum.
    """
    names = itertools.chain([stem], (f"{stem}.{s}" for s in suffixes), (f"{stem}.{n}" for n in itertools.count(2)))
    return next(name for name in names if name != TOTAL and name not in taken)
