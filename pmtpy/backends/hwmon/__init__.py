"""hwmon: any power or energy reading of a Linux hwmon chip, by chip and label.

Serves POWER9 (ibmpowernv), shunt monitors on I2C (INA226 and its family), ACPI power meters (NVIDIA Grace), graphics
cards (amdgpu, xe, i915) and supplies. :mod:`._device` finds the files, :mod:`._channels` knows what they measure. It
must never add readings whose relation nobody described: such a chip has channels and no total, until labels are chosen.

Facts: Linux ``Documentation/hwmon/`` (sysfs-interface, ibmpowernv, ina2xx, acpi_power_meter, corsair-psu, pmbus),
``Documentation/gpu/amdgpu/thermal.rst``,
``Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon``, ``drivers/gpu/drm/xe/xe_hwmon.c``; skiboot
``hw/occ-sensor.c``; NVIDIA's ACPI tables of Grace; ``Xilinx/XRT``, ``xocl/subdev/xmc.c``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy._handlers import of_a_handler
from pmtpy.backends._ina import in_turn
from pmtpy.backends._sysfs import content_of, number, optional_number, optional_text, sysfs_root, why
from pmtpy.backends.hwmon import _channels as meaning
from pmtpy.backends.hwmon._device import QUANTITIES, UNITS, Attribute, Chip, scan
from pmtpy.backends.hwmon._source import ASLEEP, REMEDY, UNPLUG, HwmonSource
from pmtpy.core.channel import Channel, Derivation, Quantity, outermost, unique_name
from pmtpy.core.clock import Clock
from pmtpy.core.source import Discovery
from pmtpy.errors import BackendUnavailableError, TargetError

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine

_OF_JETSONS = frozenset({"ina3221", "ina237", "ina238"})
_REFERENCE = "Linux Documentation/hwmon/sysfs-interface.rst"
_AT_ODDS = 1.2  # times; what rounding and two conversions leave is less
_CLEAR_STEPS = 20.0  # of a reading, from which on rounding is no matter
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class _Reading:
    """One column: the file, which chip it is of, and what it means."""

    chip: Chip
    attribute: Attribute
    channel: Channel

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when the chip returns under another number."""
        return self.chip.name, self.chip.address, self.attribute.path.name


def discover(
    device: str | None = None, *, machine: Machine | None = None, sysfs_root: str | PathLike[str] | None = None
) -> Discovery:
    """List the chips that measure power or energy, but for those that another backend puts together.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.hwmon._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine))
    chips, reason = _chips(sysfs_root)
    if not chips:
        return Discovery.none("hwmon", reason, REMEDY)
    if _on_a_jetson(_root(sysfs_root)):  # where they are one device, with its total: jetson
        chips = tuple(c for c in chips if c.name not in _OF_JETSONS)
        if not chips:
            reason = "the only chips are the monitors of a Jetson"
            return Discovery.none("hwmon", reason, "use the target jetson")
    if charging := [c.charging for c in chips if c.charging]:
        chips = tuple(c for c in chips if not c.charging)
        if not chips:
            return Discovery.none("hwmon", "; ".join(charging), UNPLUG)
    meters = [c for c in chips if c.name == "power_meter"]
    names = [c.device for c in chips if c not in meters] + (["power_meter"] if meters else [])
    return Discovery(tuple(names))


def open_source(
    device: str | None,
    *,
    clock: Clock,
    sysfs_root: str | PathLike[str] | None = None,
    label: str | None = None,
    power: bool = False,
) -> HwmonSource:
    """Open the readings of a chip.

    Parameters
    ----------
    device : str or None
        ``chip/0`` (counted in the order of addresses), ``chip/1-0040`` (by address), or ``chip`` where there is one of
        that name; ``power_meter`` opens all ACPI meters together. None: the only chip there is.
    sysfs_root : path or None
        Where sysfs is mounted; default ``PMT_SYSFS_ROOT``, else ``/sys``.
    label : str or None
        Only readings with these labels (several separated by commas; a label or a channel name, in any case). If their
        relation is not known they are added up, since they were asked for.
    power : bool
        Show powers also where the same part has an energy counter; they have to be polled in the background.

    Raises TargetError: no such chip or label; the message lists what there is.
    Raises BackendUnavailableError: no chip measures power or energy, or none of the readings may be read.
    """
    chips, reason = _chips(sysfs_root)
    if not chips:
        raise BackendUnavailableError("hwmon", reason, REMEDY)
    chosen = _choose(device, chips)
    if reason := next(filter(None, (chip.charging for chip in chosen)), ""):
        raise BackendUnavailableError("hwmon", reason, UNPLUG)
    readings, notes = _readings(chosen, power=power)
    products = [] if any(c.measures_energy for c in (r.channel for r in readings)) else _products(readings, chosen)
    operands = {name for product in products for name in product.operands}
    readings = [r for r in readings if r.channel.measures_energy or r.channel.name in operands]
    if label:
        readings, products, told = _labelled(readings, products, label, chosen)
        notes = (*notes, *told)
    if not products and not any(r.channel.measures_energy for r in readings):
        found = "; ".join(notes) or "voltages and currents that belong together are not known for this chip"
        raise BackendUnavailableError("hwmon", f"{chosen[0].device} gives no power or energy: {found}", REMEDY)
    locate = _locator(_root(sysfs_root), readings)
    notes = (*notes, *dict.fromkeys(n for chip in chosen for n in in_turn(chip.name)))
    return HwmonSource(chosen, [*(r.channel for r in readings), *products], locate, notes, clock)


def _on_a_jetson(root: Path) -> bool:
    compatible = optional_text(root / "firmware/devicetree/base/compatible") or ""
    return any(name.startswith("nvidia,tegra") for name in compatible.split("\0"))


def _root(given: str | PathLike[str] | None) -> Path:
    return sysfs_root(given)


def _chips(given: str | PathLike[str] | None) -> tuple[tuple[Chip, ...], str]:
    root = _root(given)
    chips, dangling = scan(root)
    where = root / "class" / "hwmon"
    if dangling and not chips:
        return chips, f"{where} lists {', '.join(dangling)}, but what these links point to is hidden"
    return chips, f"{where} has no chip that measures power or energy"


def _choose(device: str | None, chips: Sequence[Chip]) -> list[Chip]:
    """Pick the chips that a device names."""
    # Whole names are compared, not parts: a driver may put any character into its own.
    found = [c for c in chips if not device or device in (c.name, f"{c.name}/{c.index}", f"{c.name}/{c.address}")]
    # Each ACPI meter is a chip of its own; without a number all of them are meant.
    if len(found) == 1 or (device in (None, "", "power_meter") and {c.name for c in found} == {"power_meter"}):
        return found
    listed = ", ".join(c.device + (f" ({c.address})" if c.address else "") for c in chips)
    what = "several chips fit" if found else "there is no chip"
    msg = f"hwmon: {what} {device or 'no device'!r}; there are: {listed}"
    raise TargetError(msg)


def _readings(chips: Sequence[Chip], *, power: bool) -> tuple[list[_Reading], tuple[str, ...]]:
    """Read every attribute once and keep those that answer, or may answer when the device wakes up."""
    notes: list[str] = []
    awake: list[tuple[Chip, Attribute]] = []
    asleep: list[tuple[Chip, Attribute]] = []
    for chip in chips:
        for attribute in chip.attributes:
            problem, may_wake = _first_reading(chip, attribute)
            if not problem:
                awake.append((chip, attribute))
            elif may_wake:
                asleep.append((chip, attribute))
            if problem:
                notes.append(f"{chip.device} {attribute.path.name} ({attribute.label or 'no label'}): {problem}")
    kept = awake or asleep  # a chip of which nothing answers is asleep; a single silent channel is switched off
    counted = {(c.device, a.part) for c, a in kept if a.kind == "energy"}
    kept = [(c, a) for c, a in kept if a.kind != "power" or power or (c.device, a.part) not in counted]
    parts = meaning.without_orphans(meaning.domains(chips), {(c.device, a.part) for c, a in kept})
    kept.sort(key=lambda pair: (pair[1].kind != "energy", not pair[1].average))
    taken: set[str] = set()
    several = len(chips) > 1
    readings = [_Reading(c, a, _channel(c, a, parts.get((c.device, a.part), ""), taken, several)) for c, a in kept]
    if any(r.channel.measures_energy for r in readings) and not outermost([r.channel.domain for r in readings]):
        labels = ", ".join(repr(r.attribute.label or r.channel.name) for r in readings if r.channel.measures_energy)
        notes.append(f"which of {labels} make a total is not known: choose with the option label= to add some up")
    notes += meaning.missing_meters(chips)
    notes += _backwards(r for r in readings if r.attribute.kind == "power")
    held = [_held_against_factors(r) for r in readings]
    return [reading for reading, _ in held], (*notes, *[note for _, note in held if note])


def _held_against_factors(reading: _Reading) -> tuple[_Reading, str]:
    """Widen a power that voltage and current of its shunt monitor contradict, and say so; else the text is empty.

    The chip multiplies the three of one conversion, so a load that moves is in all of them.
    """
    chip, path = reading.chip, reading.attribute.path
    if reading.attribute.kind != "power" or not chip.name.startswith("ina"):
        return reading, ""
    places = [path.with_name(f"{kind}{reading.attribute.number}_input") for kind in ("in", "curr")]
    least = _CLEAR_STEPS * (meaning.step(chip) or 0.0)
    ratios, said = [], ""
    for _ in range(_LOOKS):  # one of them may fall between two conversions
        power, millivolts, milliamperes = (optional_number(place) for place in (path, *places))
        if power is None or millivolts is None or milliamperes is None:
            return reading, ""
        watts, product = abs(power) * 1e-6, abs(millivolts * milliamperes) * 1e-6
        if min(watts, product) <= least or abs(milliamperes) < _CLEAR_STEPS:
            return reading, ""
        ratios.append(product / watts)
        said = f"{watts:.4g} W where its voltage times its current make {product:.4g} W"
    nearest = min(ratios, key=lambda ratio: abs(math.log(ratio)))
    if abs(math.log(nearest)) < math.log(_AT_ODDS):
        return reading, ""
    note = (
        f"{chip.device} {path.name} shows {said}: the driver scales one of them wrongly, and nothing tells which; the "
        "uncertainty spans both"
    )
    channel = replace(reading.channel, gain_u=math.hypot(reading.channel.gain_u, nearest - 1.0))
    return replace(reading, channel=channel), note


def _backwards(powers: Iterable[_Reading]) -> Iterator[str]:
    """Say which shunt monitor shows a power without its sign while its current is negative."""
    for chip, attribute in ((p.chip, p.attribute) for p in powers if p.chip.name.startswith("ina")):
        current = optional_number(attribute.path.with_name(f"curr{attribute.number}_input"))
        if current is not None and current < 0:
            yield (
                f"{chip.device} curr{attribute.number}_input is negative and {attribute.path.name} has no sign: "
                "current flows back, or the board is wired the other way; energy that flows back is counted as used"
            )


def _first_reading(chip: Chip, attribute: Attribute) -> tuple[str, bool]:
    """Say why an attribute cannot be used (empty if it can), and whether that may pass."""
    reason = meaning.unusable(chip, attribute)
    if reason:
        return reason, False
    try:
        value = number(content_of(attribute.path))
    except OSError as error:
        if of_a_handler(error):
            raise
        return why(error), error.errno in ASLEEP
    except ValueError as error:
        if of_a_handler(error):
            raise
        return "it holds no number", False
    if chip.name == "ibmpowernv" and value == 0:
        return "it reads 0, which this firmware shows for what it cannot measure", False
    return "", False


def _channel(chip: Chip, attribute: Attribute, domain: str, taken: set[str], several: bool) -> Channel:  # noqa: FBT001
    kind = attribute.kind
    stem = meaning.slug(attribute.label) if attribute.label else f"{kind}{attribute.number}"
    if several and not attribute.label:
        stem = f"meter{chip.index}.{stem}"
    name = unique_name(taken, stem, "average" if attribute.average else kind, f"{kind}{attribute.number}")
    taken.add(name)
    refresh, window = meaning.refresh_s(chip, attribute), meaning.window_s(chip, attribute)
    most, kept = _limits(chip, attribute, domain) if kind in {"power", "energy"} else (None, None)
    return Channel(
        name,
        QUANTITIES[kind],
        scale=UNITS[kind],
        domain=domain if kind in {"power", "energy"} else "",
        label=attribute.label,
        refresh_s=refresh,
        window_s=window,
        lag_s=meaning.lag_s(chip, attribute),
        resolution=meaning.step(chip) if kind == "power" else None,
        gain_u=meaning.gain_u(chip, attribute),
        wrap=meaning.wrap(chip, attribute),
        max_watts=most,
        kept_watts=kept,
        least_watts=meaning.least_watts(domain, kind),
        reference=_REFERENCE,
    )


def _limits(chip: Chip, attribute: Attribute, domain: str) -> tuple[float, float]:
    """Return what a part can draw at most, and keeps to on average; the voltage of a rail is read for it."""
    millivolts = optional_number(attribute.path.with_name(f"in{attribute.number}_input")) if chip.shunts else None
    of_several = f"shunt{attribute.number}_resistor"
    return meaning.limits(
        chip,
        domain,
        limit_w=attribute.limit_w,
        volts=None if millivolts is None else millivolts * 1e-3,
        shunt=of_several if of_several in dict(chip.shunts) else "shunt_resistor",
    )


def _products(readings: Sequence[_Reading], chips: Sequence[Chip]) -> list[Channel]:
    """Make powers of the voltages and currents that belong together."""
    by_path = {r.attribute.path: r.channel for r in readings}
    found = []
    taken = {c.name for c in by_path.values()}
    for chip in chips:
        matched = [(v, a) for v, a in meaning.pairs(chip) if v.path in by_path and a.path in by_path]
        for volts, amperes in matched:
            stem = meaning.slug(volts.label or amperes.label or f"rail{volts.number}")
            name = unique_name(taken, stem, "watts")
            taken.add(name)
            base = f"external/hwmon/{chip.name}/{chip.address or chip.index}"
            most, kept = _limits(chip, amperes, base)
            found.append(
                Channel(
                    name,
                    Quantity.POWER,
                    derivation=Derivation.PRODUCT,
                    operands=(by_path[volts.path].name, by_path[amperes.path].name),
                    domain=base if len(matched) == 1 else "",
                    label=volts.label or amperes.label,
                    refresh_s=meaning.refresh_s(chip, amperes),
                    gain_u=meaning.gain_u(chip, amperes),
                    max_watts=most,
                    kept_watts=kept,
                    reference=_REFERENCE,
                )
            )
    return found


def _labelled(
    readings: Sequence[_Reading], products: Sequence[Channel], label: str, chips: Sequence[Chip]
) -> tuple[list[_Reading], list[Channel], tuple[str, ...]]:
    """Keep the readings that were asked for, and give those of unknown relation a part of the total."""
    wanted = [text.strip().lower() for text in label.split(",") if text.strip()]
    there = [r.channel for r in readings if r.channel.measures_energy] + list(products)
    chosen = [c for c in there if c.label.lower() in wanted or c.name in wanted]
    missing = [w for w in wanted if not any(w in {c.label.lower(), c.name} for c in chosen)]
    if missing or not chosen:
        listed = ", ".join(repr(c.label or c.name) for c in there)
        msg = f"hwmon {chips[0].device} has no label {', '.join(map(repr, missing or [label]))}; it has: {listed}"
        raise TargetError(msg)
    told = not any(c.domain for c in chosen)
    final = {c.name: replace(c, domain=f"external/hwmon/{chips[0].device}/{c.name}") if told else c for c in chosen}
    operands = {name for p in products if p.name in final for name in p.operands}
    kept = [
        replace(r, channel=final.get(r.channel.name, r.channel))
        for r in readings
        if r.channel.name in final or r.channel.name in operands
    ]
    note = (f"the total is the sum of {', '.join(c.label or c.name for c in chosen)}, as asked for",) if told else ()
    return kept, [final[p.name] for p in products if p.name in final], note


def _locator(root: Path, readings: Sequence[_Reading]) -> Callable[[], Sequence[Path | None]]:
    """Make the function that finds the files by driver, address and name, whatever the chip's number is now."""
    first: list[Path] | None = [r.attribute.path for r in readings]

    def locate() -> Sequence[Path | None]:
        nonlocal first
        if first is not None:
            known, first = first, None
            return known
        now = {(c.name, c.address, a.path.name): a.path for c in scan(root)[0] for a in c.attributes}
        return [now.get(r.key) for r in readings]

    return locate
