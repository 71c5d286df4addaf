"""How a clause is stated that a source breaks."""

from __future__ import annotations


def require(condition: bool, clause: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not condition:
        raise AssertionError(clause)
