"""A board of one pair of a voltage and a current, and a temperature: what recordings in the tests are of."""

from __future__ import annotations

from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Layout
from pmtpy.io.write import Header

START_NS, UNIX_NS = 7_000_000_000, 1_700_000_000_000_000_000
PAIR = (
    Channel("pair0.current", Quantity.CURRENT, scale=0.01),
    Channel("pair0.voltage", Quantity.VOLTAGE, scale=0.005),
    Channel(
        "pair0",
        Quantity.POWER,
        derivation=Derivation.PRODUCT,
        operands=("pair0.voltage", "pair0.current"),
        domain="rail0",
    ),
)
LAYOUT = Layout((*PAIR, Channel("board.temperature", Quantity.TEMPERATURE, scale=0.1)))
HEADER = Header("powersensor3:virtual", Identity("powersensor3", virtual=True), LAYOUT, Anchor(START_NS, UNIX_NS))
