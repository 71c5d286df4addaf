"""How a clause of the contract is stated that a source breaks."""

from __future__ import annotations


def require(condition: bool, clause: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not condition:
        msg = f"the source breaks this clause: {clause}"
        raise AssertionError(msg)
