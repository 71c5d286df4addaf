"""Work that is done when somebody asks for its result, or when too much of it waits."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# What waits holds rows, some tens of kilobytes for each: a program that keeps what it measured for hours, and never
# asks how far to trust it, must not fill the memory with them. So the oldest is worked out when one more begins to
# wait, which costs what working it out at once would have.
_MOST_WAITING = 32


class Pending(Generic[T]):
    """A result that is worked out once, by whoever asks first: what it is made of must never change.

    Any thread may ask; two that ask at the same moment find the same.
    """

    __slots__ = ("__weakref__", "_found", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._found: T | None = None

    def wait(self) -> None:
        """Count as one that waits; not needed where the result is asked for at once."""
        _waiting.append(weakref.ref(self))
        if len(_waiting) > _MOST_WAITING:
            oldest = _waiting.popleft()()
            if oldest is not None:  # nobody can ask for it any more
                oldest.result()

    def result(self) -> T:
        """Return what was found, or find it now."""
        work = self._work
        if work is not None:
            self._found, self._work = work(), None
        assert self._found is not None  # noqa: S101
        return self._found


_waiting: deque[weakref.ref[Pending[Any]]] = deque()
