"""Which power is part of which, over several sensors: a list in which each part stands below its whole. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmtpy.core.channel import outermost
from pmtpy.core.rows import Layout


@dataclass(frozen=True, slots=True)
class Node:
    """One power to show."""

    # sensor, column: which sensor, and which column of its powers; 0 is its total
    sensor: int
    column: int
    label: str
    depth: int  # how many wholes contain it
    root: int  # number of the outermost whole that it stands below: nodes of one root are sorted together


def contains(whole: str, part: str) -> bool:
    """Whether one physical part is, or is inside, another; the whole machine contains all but what is external."""
    if not whole or not part:
        return False
    if whole == "host":
        return part.partition("/")[0] != "external"
    return part == whole or part.startswith(whole + "/")


def hierarchy(sensors: Sequence[tuple[str, Layout]]) -> list[Node]:
    """Return the powers of sensors, given by target and layout, each whole before its parts.

    A sensor is one line, its channels below it. All of it stands below another sensor's channel that contains it: a
    node's meter above its sockets, two meters of one board one below the other.
    """
    place = [_above(i, sensors) for i in range(len(sensors))]
    made: list[Node] = []

    def add(sensor: int, depth: int, root: int) -> None:
        target, layout = sensors[sensor]
        root = len(made) if depth == 0 else root
        made.append(Node(sensor, 0, target, depth, root))
        alone = len(layout.energy) == 1 and bool(layout.in_total)
        below(sensor, 0, depth + 1, root)
        domains = [c.domain for c in layout.energy]
        depths = _depths(domains)
        for i in _in_order(domains):
            if not alone:
                made.append(Node(sensor, i + 1, layout.energy[i].name, depth + 1 + depths[i], root))
            below(sensor, i + 1, depth + 1 + depths[i] + (not alone), root)

    def below(sensor: int, column: int, depth: int, root: int) -> None:
        for i, whole in enumerate(place):
            if whole == (sensor, column):
                add(i, depth, root)

    for i, whole in enumerate(place):
        if whole is None:
            add(i, 0, 0)
    return made


def _above(sensor: int, sensors: Sequence[tuple[str, Layout]]) -> tuple[int, int] | None:
    """Return the sensor and the column that contain all of a sensor; of several, the narrowest."""
    layout = sensors[sensor][1]
    own = [layout.energy[i - 1].domain for i in layout.in_total]
    found: list[tuple[int, int, int]] = []
    for other, (_, theirs) in enumerate(sensors):
        for column, channel in enumerate(theirs.energy, start=1):
            inside = bool(own) and all(contains(channel.domain, d) for d in own)
            same = inside and any(contains(d, channel.domain) for d in own)
            if other != sensor and inside and (not same or other < sensor):  # of two alike the first is the whole
                found.append((len(channel.domain), other, column))
    return max(found)[1:] if found else None


def _depths(domains: Sequence[str]) -> list[int]:
    """Return in how many others each part is; what measures a part once more stands below the first that does."""
    return [
        sum(contains(w, d) and w != d for w in set(domains)) + bool(d and d in domains[:i])
        for i, d in enumerate(domains)
    ]


def _in_order(domains: Sequence[str]) -> list[int]:
    """Return the numbers of channels, each whole before its parts and parts beside each other as they came."""
    first = {i: domains[i] for i in outermost(domains)}
    order: list[int] = []
    for i, domain in enumerate(domains):
        whole = next((w for w, d in first.items() if contains(d, domain)), i)
        if whole == i:
            order.append(i)
            inside = [j for j, d in enumerate(domains) if j != i and j not in first and contains(domain, d)]
            order += sorted(inside, key=lambda j: (domains[j].split("/"), j))
    return order + [i for i in range(len(domains)) if i not in order]
