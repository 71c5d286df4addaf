"""The metadata that belong to a dump of ours. A recording is read without them; what they do not say is not known."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtpy.core.channel import Identity
from pmtpy.core.presentation import amount
from pmtpy.errors import FileFormatError
from pmtpy.io.recorded import corrected_notes, load_of, time_u_of

if TYPE_CHECKING:
    import pandas as pd

_NEWEST_FORMAT = 1
_MAX_BYTES = 1 << 25  # bytes; ours have some thousand, and twenty million with very many regions, marks and stamps
_SET_S, _DRIFT = 1.0, 1e-3  # clocks that differ by more were set: a hundred times what crystals do, and a second
_TOLD_TIME_U_S = 0.01  # a board in good order is right to less than 1 ms, and a register to the length of a call


@dataclass(frozen=True, slots=True)
class Metadata:
    """What metadata say; where they say nothing that can be believed, why."""

    facts: dict[str, Any] | None
    why: str = ""  # there are none
    spoilt: bool = False  # they are there, and cannot be believed


def beside(path: Path) -> Metadata:
    """Return the metadata beside a file.

    Raises FileFormatError: they are of a newer version of pmtpy.
    """
    place = path.with_name(path.name + ".json")
    if not place.exists():  # of one that was packed since
        place = path.with_name(path.name.removesuffix(".gz") + ".json")
    unknown = "it is not known whether the file is complete or virtual"
    try:
        if place.stat().st_size > _MAX_BYTES:
            return Metadata(None, f"{place.name} is too long for metadata: {unknown}", spoilt=True)
        if not place.is_file():
            return Metadata(None, f"{place.name} is no ordinary file: {unknown}", spoilt=True)
        text = place.read_bytes()
    except FileNotFoundError:
        return Metadata(None, f"{place.name} is missing: {unknown}")
    except OSError as error:
        return Metadata(None, f"{place.name} cannot be read ({error.strerror}): {unknown}", spoilt=True)
    found = parsed(text, place)
    return replace(found, why=f"{place.name} cannot be read ({found.why}): {unknown}") if found.spoilt else found


def parsed(text: bytes, place: Path) -> Metadata:
    """Return metadata from their JSON.

    Raises FileFormatError: they are of a newer version of pmtpy.
    """
    none = "it is not metadata of pmtpy"
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return Metadata(None, none, spoilt=True)
    if not isinstance(facts, dict) or type(facts.get("format", 0)) is not int:
        return Metadata(None, none, spoilt=True)
    if facts.get("format", 0) > _NEWEST_FORMAT:
        msg = f"{place} was written by a newer pmtpy (format {facts['format']}, known here up to {_NEWEST_FORMAT})"
        raise FileFormatError(msg + "; update pmtpy")
    why = wrong_in(facts)
    return Metadata(None, why, spoilt=True) if why else Metadata(facts)


def wrong_in(facts: dict[str, Any]) -> str:
    """Say what in metadata cannot be, so that nothing in them can be believed; empty: nothing."""
    channels = facts.get("channels", [])
    if not isinstance(channels, list) or not all(
        isinstance(c, dict) and isinstance(c.get("name"), str) for c in channels
    ):
        return "its channels are not a row of objects with names"
    for key in ("virtual", "complete"):
        if not isinstance(facts.get(key), (bool, type(None))):
            return f"{key} must be true or false, not {reprlib.repr(facts[key])}"
    for key, kind in (("anchors", dict), ("regions", list), ("marks", list), ("load", dict)):
        if not isinstance(facts.get(key), (kind, type(None))):
            return f"{key} cannot be {reprlib.repr(facts[key])}"
    return "" if facts.get("identity") is None else _wrong_in_identity(facts["identity"], facts)


def _wrong_in_identity(identity: object, facts: dict[str, Any]) -> str:
    if not isinstance(identity, dict):
        return "the identity of the device is not an object"
    virtual = facts.get("virtual")
    if "virtual" in facts and identity.get("virtual", virtual) is not virtual:
        return f"virtual is {virtual!r} of the recording and {reprlib.repr(identity['virtual'])} of its device"
    try:
        Identity.read(identity | {"virtual": virtual is True})
    except ValueError as error:
        return str(error)
    return ""


def unended(facts: dict[str, Any] | None) -> bool:
    """Whether the metadata are those that were written at the start, since nobody ended the recording yet."""
    known = facts or {}
    return known.get("complete") is False and known.get("rows") is None


def said(facts: dict[str, Any] | None) -> list[str]:
    """Return what metadata say of how the recording came about that a reader of its numbers must know."""
    known = facts or {}
    told = _clock_set(known)
    told += corrected_notes(known)
    if time_u_of(known) > _TOLD_TIME_U_S:
        told.append(
            f"when its rows were taken is known to +- {time_u_of(known):.2g} s only (one standard uncertainty): they "
            "reached the machine late, or the device was silent, and some of their times may be off by as much"
        )
    remarks, error, dropped = known.get("remarks"), known.get("error"), known.get("dropped")
    told += [r for r in remarks if isinstance(r, str)] if isinstance(remarks, list) else []
    if unended(facts):
        told.append(
            "it was not ended, or is still being written: its metadata do not say what is missing, nor which regions "
            "and stamps of the load there were"
        )
    if known.get("load") is not None and load_of(known) is None:
        told.append("its stamps of the load are no stretches of time in order: they are not used")
    if isinstance(error, str) and error:
        told.append(f"when it ended: {error}")
    elif type(dropped) is int and dropped > 0:
        told.append(
            f"{amount(dropped, 'row is', 'rows are')} missing that the sensor delivered: the writer fell"
            " behind, or the disk refused"
        )
    return told


def _clock_set(facts: dict[str, Any]) -> list[str]:
    """Say so where the wall clock was set, or the machine slept, while it was recorded; rows have the time between."""
    anchors = facts.get("anchors")
    ends: list[Any] = [anchors.get(end) for end in ("start", "end")] if isinstance(anchors, dict) else []
    if len(ends) != 2 or not all(isinstance(e, dict) for e in ends):
        return []
    spans = {}
    for name in ("unix_ns", "monotonic_ns", "boottime_ns"):
        first, last = (e.get(name) for e in ends)
        if type(first) is int and type(last) is int:
            spans[name] = (last - first) / 1e9
    counted = spans.get("monotonic_ns", 0.0)
    if counted <= 0.0 or "unix_ns" not in spans:
        return []
    passed, told = spans.get("boottime_ns", counted), []
    if passed - counted > _SET_S:
        told.append(
            f"the machine slept for {passed - counted:.3g} s while it was recorded; rows behind are early by it"
        )
    by = spans["unix_ns"] - passed
    if abs(by) > _SET_S + _DRIFT * passed:
        told.append(
            f"the wall clock was set by {by:+.6g} s while it was recorded: the times of its rows are those of the "
            "clock at the start, so beside other recordings they may be off by as much"
        )
    return told


def into_attrs(table: pd.DataFrame, facts: dict[str, Any] | None) -> None:
    """Put what metadata say into ``attrs``, where there are any."""
    if facts is not None and "virtual" in facts and "target" in facts:
        table.attrs |= {"virtual": facts["virtual"], "complete": facts.get("complete"), "metadata": facts}
        table.attrs["notes"] += said(facts)
        hold_to_count(table.attrs, len(table), facts)


def hold_to_count(attrs: dict[Any, Any], rows: int, facts: dict[str, Any] | None, lost: int | None = None) -> None:
    """Hold the rows that were read against the number that was written; another is noted in ``attrs``: not complete.

    A line that was taken out, or stands there twice, may leave no other trace. So are rows that count as ``lost``.
    """
    if facts is not None and facts.get("converted_from") and facts.get("virtual") is None:
        attrs["notes"].append("the recording that it was converted from does not say whether it is virtual")
    written = (facts or {}).get("rows")
    found = rows + len(attrs["broken_lines"])
    if type(written) is int and written != found:
        attrs["complete"] = False
        attrs["notes"].append(
            f"it has {amount(found, 'row')} where {written} were written: lines were taken out or added since;"
            " copy it again from its source"
        )
    gone = [(facts or {}).get(key, 0) for key in ("lost", "dropped")]  # by the sensor, and on the way to the file
    if any(type(n) is not int for n in gone) or lost is None or "lost" not in (facts or {}) or written != rows:
        return
    if not gone[0] <= lost <= sum(gone):  # what was dropped last stands at no row
        attrs["notes"].append(
            f"its rows say that {amount(lost, 'other was', 'others were')} lost, its metadata say"
            f" {sum(gone)}: one of them is wrong; copy it again from its source"
        )
