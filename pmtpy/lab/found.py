"""What a characterisation found, with whose it is: the document that ``calibrate profile`` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.core.channel import Channel, Identity


@dataclass(frozen=True, slots=True)
class Found:
    """What was found, and of whom: the identity of the device where it is known, and the lowest and highest reading."""

    found: Characterisation
    target: str
    identity: Mapping[str, Any] | None
    shown_w: tuple[float, float] | None
    corrected_by: tuple[str, ...] = ()  # digests of profiles that had corrected the readings: no profile is made of it
    stated_u: tuple[float, float] | None = (
        None  # standard uncertainties of gain and offset (W); None: nothing is stated
    )

    @classmethod
    def of(
        cls,
        found: Characterisation,
        target: str,
        identity: Identity | Mapping[str, Any] | None,
        polls: Series,
        *,
        channel: Channel | None,
        corrected_by: Iterable[str] = (),
    ) -> Found:
        """Make one of the readings that were characterised; ``channel`` is what is stated of it, as it was read."""
        known = polls.watts[np.isfinite(polls.watts)]
        span = (float(np.min(known)), float(np.max(known))) if len(known) else None
        known_as = asdict(identity) if isinstance(identity, Identity) else identity
        stated = (channel.gain_u, channel.offset_u) if channel is not None and channel.gain_u else None
        return cls(found, target, known_as, span, tuple(sorted(corrected_by)), stated)

    @property
    def virtual(self) -> bool | None:
        """Whether the device is emulated; None where that is not known."""
        return None if self.identity is None else self.identity.get("virtual")

    def document(self) -> dict[str, Any]:
        """Return the JSON document; it says of which device it is, and whether that is virtual."""
        return self.found.document() | {
            "target": self.target,
            "virtual": self.virtual,
            "identity": self.identity,
            "shown_w": None if self.shown_w is None else list(self.shown_w),
            "state": {"watts": line.state_w, "seconds": line.state_s} if (line := self.found.transfer) else None,
            "level": {"at_w": line.level_at_w, "u": line.level_u} if line else None,
            "noise_w": self.found.kernel.best.residual_w if self.found.kernel is not None else None,
            "stated": {"gain_u": self.stated_u[0], "offset_u": self.stated_u[1]} if self.stated_u else None,
            "notes": list(self.found.notes),
            "corrected_by": list(self.corrected_by),
        }
