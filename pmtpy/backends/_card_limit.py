"""What a graphics card can draw at most, by the limit that its driver states."""

from __future__ import annotations

# Limits are kept on average, so a register may show more than the largest limit that can be set, for a moment. What is
# above three times of it is no power of this card.
_ABOVE_LIMIT = 3.0


def most_watts(limit_w: float | None, otherwise: float) -> float:
    """Return what no such card draws; ``otherwise`` where no limit is known, and never more than that."""
    return min(_ABOVE_LIMIT * limit_w, otherwise) if limit_w is not None and limit_w > 0 else otherwise


def kept_watts(most: float) -> float:
    """Return what a card that draws no more than ``most`` for a moment keeps to on average."""
    return most / _ABOVE_LIMIT
