"""The end of a dump: by leaving a with-statement, and what is wrong with the file."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from pmtpy.errors import SinkError
from pmtpy.sensor.lifecycle import leave

if TYPE_CHECKING:
    from typing_extensions import Self

    from pmtpy.io.write import Ending, Writer


class Dump:
    """A running dump, as a with-statement. Made by :meth:`pmtpy.Sensor.dump`."""

    def __init__(self, target: str, stop: Callable[[], object]) -> None:
        self._target = target
        self._stop = stop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._stop, error, f"ending the dump of {self._target}")


def problem_of(ending: Ending, writer: Writer, target: str) -> SinkError | None:
    """Return what is wrong with the file of a dump that ended; None: nothing."""
    if not ending.error:
        return None
    problem = SinkError(f"the dump of {target} is not whole: {ending.error}")
    problem.__cause__ = writer.error
    return problem
