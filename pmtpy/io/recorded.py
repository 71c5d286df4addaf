"""A recording as a sensor would have delivered it: a Header, then Frames. Pure.

Where metadata belong to it, channels are what they say; else they are told from the names of the columns, and the
total is taken as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.calibration.profile import applied_to
from pmtpy.core.channel import TOTAL, Channel, Derivation, EnergyMethod, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.counters import doubted_rest_s
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span
from pmtpy.core.numbers import real, whole
from pmtpy.core.presentation import not_covered, utf8
from pmtpy.core.rows import Floats, Frame, Ints, Layout
from pmtpy.io.channels import described_layout
from pmtpy.io.columns import FIXED, Column, columns, powers_among
from pmtpy.io.origin import origin_in
from pmtpy.io.write.base import WORTH_A_REMARK, Ending, Header, RecordedLoad, RecordedMark, RecordedRegion, Stretches

Flags = npt.NDArray[np.bool_]
_UNITS = {q.value: q for q in Quantity}
_NS = 1e9
_LAST_DIGIT_J = 1e-5  # energies of text files have six decimals: what is less may be rounded away
# what metadata say of all rows, or of the file
_OF_THE_WHOLE = {"rows", "lost", "dropped", "error", "converted_from", "uncovered_s"}


@dataclass(frozen=True, slots=True)
class RecordedLayout:
    """Which columns of a recording are which of a Frame."""

    layout: Layout
    columns: tuple[Column, ...]  # those of the layout that the recording has
    left_out: tuple[str, ...] = ()  # columns whose meaning is not known


def layout_of(names: Sequence[str], facts: dict[str, Any] | None, joules: str) -> RecordedLayout:
    """Return what the columns of a recording mean.

    Parameters
    ----------
    names : sequence of str
        All columns, with ``time``, ``elapsed``, ``lost``.
    facts : dict or None
        Metadata that belong to it.
    joules : str
        How energies came about, for a recording without metadata.
    """
    body = [n for n in names if n not in FIXED]
    if facts is not None:
        try:
            layout = described_layout(facts)
        except (KeyError, TypeError, ValueError):  # metadata of another program, or spoilt: the names must do
            layout = Layout(())
        known = columns(layout)
        # Without channels nobody says what makes the total.
        if layout.channels and {c.name for c in known} == set(body):
            return RecordedLayout(layout, known)
    return _by_names(body, EnergyMethod.MEAN if "mean since" in joules else EnergyMethod.TRAPEZOID)


def _by_names(body: Sequence[str], method: EnergyMethod) -> RecordedLayout:
    stems = [n for n in powers_among(body) if n != TOTAL]
    channels: list[Channel] = []
    for stem in stems:
        if f"{stem}_V" in body and f"{stem}_A" in body:
            volts, amperes = f"{stem}.voltage", f"{stem}.current"
            channels += [
                Channel(volts, Quantity.VOLTAGE, resolution=0.0),
                Channel(amperes, Quantity.CURRENT, resolution=0.0),
                Channel(
                    stem,
                    Quantity.POWER,
                    derivation=Derivation.PRODUCT,
                    operands=(volts, amperes),
                    method=method,
                    resolution=0.0,
                ),
            ]
        else:
            channels.append(Channel(stem, Quantity.POWER, method=method, resolution=0.0))
    taken = {f"{stem}_{unit}" for stem in stems for unit in ("W", "J")} | {f"{TOTAL}_W", f"{TOTAL}_J"}
    taken |= {f"{c.name}_{unit}" for c in channels if c.operands for unit in ("V", "A")}
    others = [n for n in body if n not in taken]
    split = {n: n.rpartition("_") for n in others}
    plain = [n for n in others if split[n][0] and split[n][2] in _UNITS and split[n][2] not in {"W", "J"}]
    channels += [Channel(split[n][0], _UNITS[split[n][2]], resolution=0.0) for n in plain]
    layout = Layout(tuple(channels), total_apart=True)
    known = tuple(c for c in columns(layout) if c.name in body)
    return RecordedLayout(layout, known, tuple(n for n in others if n not in plain))


def header_of(
    facts: dict[str, Any] | None,
    layout: Layout,
    *,
    name: str,
    converted_from: str,
    version: str,
    interval_s: float | None = None,
    start_s: float = 0.0,
) -> Header:
    """Return the header of a recording that is written anew.

    Parameters
    ----------
    name : str
        Of the recording, where it does not tell whose it is.
    version : str
        Of this pmtpy, for a recording that does not say what wrote it.
    interval_s : float, optional
        The interval to which it is thinned now.
    start_s : float
        Unix seconds of its beginning: the anchor of a recording that has no times but those of the wall.
    """
    known = facts or {}
    start_ns = round(start_s * _NS)
    given = known.get("identity") or {"backend": "recording", "model": name}
    identity = Identity.read(given | {"virtual": known.get("virtual") is True})
    anchor = anchor_of(known, "start") if known.get("clock", "host") == "host" else None
    return Header(
        utf8(str(known.get("target", name))),
        identity,
        layout,
        anchor or Anchor(start_ns, start_ns),
        interval_s or real(known.get("interval_s")),
        known.get("calibration"),
        str((known.get("versions") or {}).get("pmtpy", version)),
        None if interval_s else real(known.get("polled_s")),
        bool(known.get("stamped")),
        known.get("uncut") is True,
        aged_of(known),
        time_u_of(known),
        host_clock=anchor is not None,
        converted_from=utf8(converted_from),
        regions=_regions_of(facts),
        marks=_marks_of(facts),
        virtual_known=type(known.get("virtual")) is bool,
        origin=origin_in(known),
    )


def of_part(facts: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what metadata say of a part of their recording: not how many rows it has, nor how it ended."""
    return None if facts is None else {k: v for k, v in facts.items() if k not in _OF_THE_WHOLE} | {"complete": True}


def anchor_of(facts: dict[str, Any], end: str) -> Anchor | None:
    """Return wall and monotonic time of the start or the end, as metadata say it."""
    found = (facts.get("anchors") or {}).get(end)
    if not isinstance(found, dict):
        return None
    monotonic_ns, unix_ns = (_instant(found.get(k)) for k in ("monotonic_ns", "unix_ns"))
    if monotonic_ns is None or unix_ns is None:
        return None
    return Anchor(monotonic_ns, unix_ns, _instant(found.get("boottime_ns")))


def _instant(value: object) -> int | None:
    """Return nanoseconds as clocks count them, of 64 bits; None: it is anything else."""
    number = whole(value)
    return number if number is not None and abs(number) < 1 << 63 else None


def _regions_of(facts: dict[str, Any] | None) -> tuple[RecordedRegion, ...]:
    """Return the regions that metadata tell of; what is no region is not one."""
    found = []
    for each in (facts or {}).get("regions") or ():
        if isinstance(each, dict) and "label" in each:
            start_ns, end_ns = _instant(each.get("start_ns")), _instant(each.get("end_ns"))
            if start_ns is not None and end_ns is not None:
                found.append(RecordedRegion(utf8(str(each["label"])), start_ns, end_ns))
    return tuple(found)


def _marks_of(facts: dict[str, Any] | None) -> tuple[RecordedMark, ...]:
    """Return when marks were set, as metadata tell it; what is no mark is not one."""
    found = []
    for each in (facts or {}).get("marks") or ():
        if isinstance(each, dict) and isinstance(each.get("label"), str):
            t_ns = _instant(each.get("t_ns"))
            if t_ns is not None:
                found.append(RecordedMark(each["label"], t_ns))
    return tuple(found)


def load_of(facts: dict[str, Any] | None) -> RecordedLoad | None:
    """Return when the load was on, as metadata tell it; None where they do not, or tell what cannot be."""
    given = (facts or {}).get("load")
    if not isinstance(given, dict):
        return None
    on_ns, known_ns = (_stretches(given.get(key)) for key in ("on_ns", "known_ns"))
    return RecordedLoad(on_ns, known_ns) if on_ns is not None and known_ns else None


def _stretches(given: object) -> Stretches | None:
    """Return stretches of time if they are in order and do not overlap."""
    if not isinstance(given, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        return None
    ends = [_instant(end) for pair in given for end in pair]
    edges = [end for end in ends if end is not None]
    if len(edges) < len(ends) or any(b < a for a, b in pairwise(edges)):
        return None
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def _zero_ns(facts: dict[str, Any], start_unix_s: float) -> int | None:
    """Return a Unix time on the clock of the times in metadata; None where that is not known."""
    anchor = anchor_of(facts, "start")
    host = facts.get("clock", "host") == "host"
    if not math.isfinite(start_unix_s) or (host and anchor is None):
        return None
    return round(start_unix_s * 1e9) - (anchor.unix_offset_ns if host and anchor is not None else 0)


def marks_in(facts: dict[str, Any] | None, start_unix_s: float) -> list[tuple[float, str]]:
    """Return when the host set marks, in order, in seconds since a Unix time."""
    zero_ns = _zero_ns(facts or {}, start_unix_s)
    return [] if zero_ns is None else sorted(((m.t_ns - zero_ns) / 1e9, m.label) for m in _marks_of(facts))


def regions_in(facts: dict[str, Any] | None, start_unix_s: float) -> list[Span]:
    """Return the regions that a program measured while it was recorded, in order, in seconds since a Unix time."""
    zero_ns = _zero_ns(facts or {}, start_unix_s)
    if zero_ns is None:
        return []
    found = [Span((r.start_ns - zero_ns) / 1e9, (r.end_ns - zero_ns) / 1e9, r.label) for r in _regions_of(facts)]
    return sorted(found, key=lambda r: (r.start, -r.end))


def load_in(facts: dict[str, Any] | None, start_unix_s: float) -> LoadIntervals | None:
    """Return when the load was on while it was recorded, in seconds since a Unix time; None where nothing is known."""
    zero_ns, load = _zero_ns(facts or {}, start_unix_s), load_of(facts)
    if zero_ns is None or load is None:
        return None
    on_s, known_s = ((np.array(each, np.int64).reshape(-1, 2) - zero_ns) / _NS for each in (load.on_ns, load.known_ns))
    on_s = on_s[on_s[:, 1] > on_s[:, 0]]
    return LoadIntervals(on_s[:, 0], on_s[:, 1], known_s, absolute=False)


def corrected_by(facts: dict[str, Any] | None, name: str | None = None) -> frozenset[str]:
    """Return the digests of the calibration profiles by which a power was corrected while it was recorded.

    Those of all channels that it is formed of; of a power that the metadata do not name (None: of the recording), of
    all channels there are. Where no channel says it but the recording does, that digest, which is of no profile.
    """
    channels = {c["name"]: c for c in (facts or {}).get("channels", ())}
    own = {each: applied_to(str(c.get("reference", ""))) for each, c in channels.items()}
    if all(by is None for by in own.values()):
        return frozenset(filter(None, [str((facts or {}).get("calibration") or "")]))
    of = {each: c.get("of") for each, c in channels.items()}
    formed = {each: tuple(map(str, names)) if isinstance(names, (list, tuple)) else () for each, names in of.items()}
    formed[TOTAL] = tuple(each for each, c in channels.items() if c.get("in_total"))
    left, seen = [name] if name is not None and (name in own or formed.get(name)) else list(own), set[str]()
    while left:
        each = left.pop()
        seen.add(each)
        left += set(formed.get(each, ())) - seen
    return frozenset(filter(None, (own.get(each) for each in seen)))


def corrected_notes(facts: dict[str, Any] | None) -> list[str]:
    """Say of which powers the numbers are no longer those that the sensor showed."""
    each = {name: corrected_by(facts, name) for name in (str(c["name"]) for c in (facts or {}).get("channels", ()))}
    by = [f"{name} by {', '.join(sorted(digests))}" for name, digests in each.items() if digests]
    if not by:
        return []
    return [f"corrected by a calibration profile while it was recorded: {'; '.join(by)}; not to be corrected again"]


def time_u_of(facts: dict[str, Any] | None) -> float:
    """Return the standard uncertainty of the times of a recording in seconds, as its metadata state it."""
    found = (facts or {}).get("time_u_s")
    return max(0.0, real(found) or 0.0)


def aged_of(facts: dict[str, Any] | None) -> float:
    """Return how old a value may be at its row, in seconds, as the metadata of a recording state it.

    Those of older versions do not; a register is then as old as its polls, unless rows bear times of the device.
    """
    known = facts or {}
    found = known.get("aged_s", None if known.get("stamped") else known.get("polled_s"))
    return max(0.0, real(found) or 0.0)


def ending_of(facts: dict[str, Any] | None, header: Header, seen: Frames, *, rows: int, lost: int, why: str) -> Ending:
    """Return the ending of a recording of which ``rows`` rows were passed on.

    For how long no energy is known its metadata say, else the frames that were ``seen``: then it is a remark, too,
    since notes of the reader do not go along. ``why`` says why it is not whole, where the reader found that; it is not
    whole either if its metadata say so.
    """
    known = facts or {}
    (first_ns, last_ns), told_s = seen.span_ns, real(known.get("uncovered_s"))
    unknown_s, span_s = seen.unknown_ns / _NS, (last_ns - first_ns) / _NS
    found = [not_covered(unknown_s, span_s)] if told_s is None and unknown_s > WORTH_A_REMARK * span_s else []
    anchor = anchor_of(known, "end") if header.host_clock else None
    offset_ns = header.anchor.unix_offset_ns
    text = "; ".join(filter(None, (str(known.get("error") or ""), why)))
    return Ending(
        anchor or Anchor(last_ns, last_ns + offset_ns),
        rows,
        known["lost"] if type(known.get("lost")) is int else lost,
        known["dropped"] if type(known.get("dropped")) is int else 0,
        complete=not why and known.get("complete", True) is True,
        error=text,
        regions=_regions_of(facts),
        remarks=tuple(dict.fromkeys([*(r for r in known.get("remarks") or () if isinstance(r, str)), *found])),
        uncovered_s=unknown_s if told_s is None else told_s,
        time_u_s=time_u_of(known),
        aged_s=aged_of(known),
        marks=_marks_of(facts) or header.marks,
        load=load_of(facts),
    )


class UncoveredTime:
    """For how long no energy of a recording is known, as its rows come, block after block; of each power by itself.

    The one rule for every mean that is told of a recording: its energy over the time that this leaves.

    Parameters
    ----------
    counters, means : bool, shape (k,)
        Powers that are counted on while rows are lost, and those that are means since the row before.
    rests_s, steps_j : float64, shape (k,)
        How long a counter may show no energy though there is power, and how much it counts at a time.
    """

    def __init__(self, counters: Flags, means: Flags, rests_s: Floats, steps_j: Floats) -> None:
        self.counters, self._means = counters, means
        self._rests_ns, self._steps_j = rests_s * _NS, steps_j
        self._before: _Known | None = None  # what is known at the last row

    @classmethod
    def of(cls, layout: Layout, *, thinned: bool = False) -> UncoveredTime:
        """Return that of a recording with these channels, the total first; ``thinned`` as for :class:`Frames`."""
        counted = [c.energy_method is EnergyMethod.COUNTER for c in layout.energy]
        means = [c.energy_method is EnergyMethod.MEAN for c in layout.energy]
        parts = [i - 1 for i in layout.in_total]
        whole = [bool(parts) and all(kind[i] for i in parts) for kind in (counted, means)]
        rests, steps = [doubted_rest_s(c) for c in layout.energy], [c.smallest_step for c in layout.energy]
        return cls(
            np.array([whole[0], *counted]),
            np.array([whole[1], *means]) | thinned,
            np.array([max([rests[i] for i in parts], default=0.0), *rests]),
            np.array([sum(steps[i] for i in parts), *steps]),
        )

    def add(self, t_ns: Ints, watts: Floats, joules: Floats, lost: Ints) -> Ints:
        """Take the next rows; return the nanoseconds since the beginning without a known energy, shape (n, k).

        A step leads from a row with an energy to the next one that has one: rows without one between them cost
        nothing, since the energy of the later row includes theirs. Until then the time since the last one is unknown.
        A step over losses covers the time in which its power makes its energy, and one without energy, though there
        is power, none. But counters count on, unless they have shown no energy for longer than one rests: then the
        device began anew behind the losses.
        """
        known = self._before or _Known.nothing(int(t_ns[0]), joules.shape[1])
        unknown = np.empty(joules.shape, np.int64)
        missing_rows = known.lost + np.cumsum(lost)
        for j in range(joules.shape[1]):
            rows = np.flatnonzero(np.isfinite(joules[:, j]))
            at = np.concatenate([known.t_ns[j : j + 1], t_ns[rows]])
            energy = np.concatenate([known.joules[j : j + 1], joules[rows, j]])
            power = np.concatenate([known.watts[j : j + 1], watts[rows, j]])
            gone = np.diff(np.concatenate([known.lost_then[j : j + 1], missing_rows[rows]])) > 0
            dt, moved = np.diff(at), np.diff(energy)
            mean = power[1:] if self._means[j] else (power[1:] + power[:-1]) / 2
            least = np.abs(power[1:] if self._means[j] else np.minimum(np.abs(power[1:]), np.abs(power[:-1])))
            with np.errstate(divide="ignore", invalid="ignore"):
                made_in = np.clip(np.nan_to_num(moved / mean * _NS, nan=0.0, posinf=0.0, neginf=0.0), 0, dt)
            covered = dt.astype(np.float64)
            idle = (moved == 0.0) & ~(least * dt <= max(_LAST_DIGIT_J, self._steps_j[j]) * _NS)
            if self.counters[j]:
                idle &= gone & (dt > self._rests_ns[j])
            else:
                covered = np.where(gone & np.isfinite(mean), made_in, covered)
            covered[idle] = 0.0
            covered[np.isnan(moved)] = 0.0  # before the first energy
            so_far = known.unknown[j] + np.concatenate([[0], np.cumsum(dt - np.rint(covered).astype(np.int64))])
            last = np.searchsorted(rows, np.arange(len(t_ns)), side="right")  # the step that a row stands behind
            unknown[:, j] = so_far[last] + (t_ns - at[last])
            known.t_ns[j], known.joules[j], known.watts[j], known.unknown[j] = at[-1], energy[-1], power[-1], so_far[-1]
            known.lost_then[j] = missing_rows[rows[-1]] if len(rows) else known.lost_then[j]
        known.lost = int(missing_rows[-1])
        self._before = known
        return unknown


class Frames:
    """Makes Frames of the rows of a recording, block after block.

    Parameters
    ----------
    start_s : float
        Unix seconds of its beginning, where ``elapsed`` is zero.
    thinned : bool
        Whether the recording was thinned: then every power is a mean over the time that was covered.
    """

    def __init__(self, meaning: RecordedLayout, header: Header, start_s: float, *, thinned: bool = False) -> None:
        self._meaning = meaning
        anchor = header.anchor
        whole = int(start_s // 1)
        self._start_ns = whole * 10**9 + round((start_s - whole) * _NS) - anchor.unix_offset_ns
        self._uncovered = UncoveredTime.of(meaning.layout, thinned=thinned)
        self._unknown: Ints = np.zeros(len(meaning.layout.names), np.int64)
        self._has_energy: Flags = np.zeros(len(self._unknown), np.bool_)
        self.span_ns = (0, 0)  # when the first and the last row were, once there is one

    @property
    def unknown_ns(self) -> int:
        """For how long no energy of the total is known so far; without one, of the power that lacks most."""
        of = self._unknown[:1] if self._has_energy[0] else self._unknown[self._has_energy]
        return int(of.max(initial=0))

    def frame(self, found: dict[str, Any], labels: list[tuple[int, str]]) -> Frame:
        """Return the next rows."""
        layout = self._meaning.layout
        t_ns: Ints = self._start_ns + np.rint(found["elapsed"] * _NS).astype(np.int64)
        n = len(t_ns)
        arrays = {
            "watts": np.full((n, len(layout.names)), np.nan),
            "joules": np.full((n, len(layout.names)), np.nan),
            "values": np.full((n, len(layout.values)), np.nan),
        }
        for column in self._meaning.columns:
            if column.index >= 0:
                arrays[column.array][:, column.index] = found[column.name]
        lost = np.asarray(found["lost"], np.int64)
        unknown = self._uncovered.add(t_ns, arrays["watts"], arrays["joules"], lost)
        self._unknown = unknown[-1].copy()
        self._has_energy |= np.isfinite(arrays["joules"]).any(axis=0)
        self.span_ns = (self.span_ns[0] or int(t_ns[0]), int(t_ns[-1]))
        return Frame(t_ns, arrays["watts"], arrays["joules"], arrays["values"], lost, unknown, tuple(labels))


@dataclass(slots=True)
class _Known:
    """Of each column: time, energy and power of the last row that has an energy, and what was unknown by then."""

    t_ns: Ints
    joules: Floats
    watts: Floats
    unknown: Ints
    lost_then: Ints
    lost: int = 0

    @classmethod
    def nothing(cls, t_ns: int, width: int) -> _Known:
        """Of the time before ``t_ns`` nothing is asked."""
        zeros = np.zeros(width, np.int64)
        return cls(np.full(width, t_ns, np.int64), np.full(width, np.nan), np.full(width, np.nan), zeros, zeros.copy())
