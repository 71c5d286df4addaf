"""Frames of a small meter with two pairs, whose curves are known in closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.write import Header

START_NS = 5_000_000_000
UNIX_NS = 1_700_000_000_000_000_000
STEP_NS = 50_000

PAIRS = tuple(
    c
    for i in range(2)
    for c in (
        Channel(f"pair{i}.current", Quantity.CURRENT, scale=0.01),
        Channel(f"pair{i}.voltage", Quantity.VOLTAGE, scale=0.005),
        Channel(
            f"pair{i}",
            Quantity.POWER,
            derivation=Derivation.PRODUCT,
            operands=(f"pair{i}.voltage", f"pair{i}.current"),
            domain=f"rail{i}",
        ),
    )
)

MakeFrame = Callable[..., Frame]


@pytest.fixture
def header() -> Header:
    """Header of a virtual board with two pairs."""
    return Header(
        "powersensor3:virtual",
        Identity("powersensor3", model="virtual board", virtual=True),
        Layout(PAIRS),
        Anchor(START_NS, UNIX_NS),
        version="0.1.0",
    )


@pytest.fixture
def make_frame() -> MakeFrame:
    """Rows ``first`` to ``first + n`` of a meter at 12 V, with 1 A and 2 A: 36 W in total."""

    def make(n: int, first: int = 0, marks: tuple[tuple[int, str], ...] = ()) -> Frame:
        k = np.arange(first, first + n)
        seconds = k * STEP_NS / 1e9
        watts = np.tile([36.0, 12.0, 24.0], (n, 1))
        return Frame(
            START_NS + k * STEP_NS,
            watts,
            100.0 + seconds[:, None] * watts,
            np.tile([1.0, 12.0, 2.0, 12.0], (n, 1)),
            np.zeros(n, np.int64),
            np.zeros((n, 3), np.int64),
            marks,
        )

    return make
