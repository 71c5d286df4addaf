"""Instruments that are asked only where they are named: nothing on a machine shows them, or asking disturbs."""

from __future__ import annotations

from pmtpy.core.source import Discovery
from pmtpy.errors import Finding, Obstacle, Verdict


def only_named(backend: str, device: str | None, why: str, name: str) -> Discovery:
    """Return what looking for such an instrument finds: the one that is named; else why none, and how to name it."""
    if device:
        asked = Finding(backend, device, Verdict.WORKS, f"{device} will be asked over the network")
        return Discovery((device,), (asked,))
    cure = f"name {name}; to try without one: {backend}:virtual"
    return Discovery((), (Finding(backend, "", Verdict.ABSENT, why, Obstacle.HARDWARE, (cure,)),))
