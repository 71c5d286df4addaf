"""What a board really did: which frames it sent, which of them carried a mark, which were damaged on the way.

Plain numbers, so that they travel between processes as JSON; the energies are worked out from them on demand.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pmtpy.core.rows import Floats
from pmtpy.emulators.load import Load
from pmtpy.emulators.powersensor3._sampler import Sampler
from pmtpy.emulators.powersensor3._spec import PAIRS, SENSORS, BoardSpec, Record


@dataclass(slots=True)
class BootLog:
    """The frames of one boot."""

    boot_ns: int  # host instant of the boot; frame ``k`` ends ``k + 1`` periods later
    # Numbers of the frames that were sent; ``end`` is not included. What is missing between two runs was never sent.
    runs: list[list[int]] = field(default_factory=list)
    # numbers of the frames that carried a mark, one entry per mark, in order
    marks: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)  # numbers of the frames that lost or gained bytes

    def sent(self, k0: int, k1: int) -> None:
        """Note that frames ``k0`` to ``k1`` (not included) went out."""
        if self.runs and self.runs[-1][1] == k0:
            self.runs[-1][1] = k1
        else:
            self.runs.append([k0, k1])

    @property
    def frames(self) -> int:
        """How many frames were sent."""
        return sum(b - a for a, b in self.runs)


@dataclass(frozen=True, slots=True)
class Mark:
    """A frame that carried a mark."""

    # which boot, and which frame since then
    boot: int
    frame: int
    place: int  # how many frames of this boot were sent before it: its place in the stream
    t_ns: int  # host instant of the end of the frame


@dataclass(frozen=True, slots=True)
class Truth:
    """The energy that a perfect instrument would report, and that of the frames sent. Joules per pair, index 0 to 3."""

    exact: Floats  # shape (4,); closed form of the load over the whole interval
    # shape (4,); the same, over the frames sent that end in the interval (closed form, without noise or steps)
    sent_exact: Floats
    sent: Floats  # shape (4,); what the levels of those frames say, by the configuration in the flash
    # frames sent that end in the interval; frames between the first and the last of them that were not sent; frames
    # among them that lost or gained bytes
    frames: int
    missing: int
    damaged: int


class History:
    """Everything a board did, over all its boots, with the means to work out energies.

    ``as_json`` and ``from_json`` carry it between processes; spec, load and epoch are known on both sides.
    """

    def __init__(self, spec: BoardSpec, load: Load, epoch_ns: int, cycle_blocks: int = 0) -> None:
        self._spec, self._load, self._epoch_ns, self._cycle = spec, load, epoch_ns, cycle_blocks
        self.boots: list[BootLog] = []
        self.flash = b""

    def sampler(self, boot: int) -> Sampler:
        """Return the analog side of one boot, counted from 0."""
        return Sampler(
            self._spec,
            self._load,
            epoch_ns=self._epoch_ns,
            boot_ns=self.boots[boot].boot_ns,
            boot=boot,
            cycle_blocks=self._cycle,
        )

    @property
    def records(self) -> list[Record]:
        """The configuration in the flash."""
        size = self._spec.record_bytes
        return [Record.unpack(self.flash[i * size : (i + 1) * size]) for i in range(SENSORS)]

    @property
    def frames(self) -> int:
        """Frames sent since the board exists."""
        return sum(boot.frames for boot in self.boots)

    @property
    def marks(self) -> list[Mark]:
        """The frames that carried marks, in the order of sending."""
        out = []
        for number, boot in enumerate(self.boots):
            sampler = self.sampler(number)
            for k in boot.marks:
                place = sum(min(b, k) - a for a, b in boot.runs if a < k)
                out.append(Mark(number, k, place, sampler.end_ns(k)))
        return out

    def truth(self, a_ns: int, b_ns: int) -> Truth:
        """Energies between two host instants. A frame belongs to the interval in which it ends."""
        t = (np.array([a_ns, b_ns], np.int64) - self._epoch_ns) / 1e9
        start, end = self._load.joules(t)
        shares = np.array([p.share for p in self._spec.pairs] + [0.0] * (PAIRS - len(self._spec.pairs)))
        exact, sent = np.zeros(PAIRS), np.zeros(PAIRS)
        frames = missing = damaged = 0
        for number, boot in enumerate(self.boots):
            sampler = self.sampler(number)
            first, last = sampler.frames_by(a_ns), sampler.frames_by(b_ns)
            runs = [(max(a, first), min(b, last)) for a, b in boot.runs if a < last and b > first]
            for a, b in runs:
                exact += sampler.joules(a, b)
                sent += sampler.joules_sent(a, b, self.records)
                frames += b - a
            missing += sum(b[0] - a[1] for a, b in itertools.pairwise(runs))
            damaged += sum(first <= k < last for k in boot.damaged)
        return Truth(shares * (end - start), exact, sent, frames, missing, damaged)

    def as_json(self) -> dict[str, Any]:
        """Return the log as plain lists and numbers."""
        boots = [{"boot_ns": b.boot_ns, "runs": b.runs, "marks": b.marks, "damaged": b.damaged} for b in self.boots]
        return {"boots": boots, "flash": self.flash.hex()}

    def from_json(self, text: dict[str, Any]) -> None:
        """Take over a log that another process kept."""
        self.boots = [BootLog(**boot) for boot in text["boots"]]
        self.flash = bytes.fromhex(text["flash"])
