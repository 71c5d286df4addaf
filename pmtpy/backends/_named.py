"""Instruments that are asked only where they are named: nothing on a machine shows them, or asking disturbs."""

from __future__ import annotations

from pmtpy.core.source import Discovery
from pmtpy.errors import Finding, Obstacle, Verdict


def only_named(backend: str, why: str, name: str) -> Discovery:
    """Return what looking for such an instrument finds: ``why`` nothing, and how to name it."""
    cure = f"name {name}; to try without one: {backend}:virtual"
    return Discovery((), (Finding(backend, "", Verdict.ABSENT, why, Obstacle.HARDWARE, (cure,)),))
