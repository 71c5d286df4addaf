"""Every error that pmtpy raises: one class for each different thing a caller can do about it.

::

    PmtError
     +-- TargetError (ValueError)             what was asked for names nothing, or does not go together
     |    +-- UnwatchedError (KeyError)       a region was asked for a sensor that does not watch it
     +-- BackendUnavailableError (OSError)    library, device or permission missing: backend, reason, remedy
     |    +-- MissingPackageError (SinkError)  a Python package is not installed
     +-- ReadError (OSError)                  one reading failed; the next may work
     +-- ProtocolError                        the device said what its protocol forbids
     +-- SourceLostError (ConnectionError)    it was there and is gone
     +-- CoverageError (ValueError)           no rows cover the interval asked for
     +-- CalibrationError (ValueError)        wrong device, channel, range or file
     +-- FileFormatError (ValueError)         a recording cannot be read: path, line, what was wrong
     +-- DeclinedError (ValueError)           an estimator was asked for what the data cannot tell
     +-- SinkError (OSError)                  a file could not be written, or rows were lost on the way to it
     +-- SensorClosedError (RuntimeError)     used after close, or in a forked child
     +-- WorkFailedError (RuntimeError)       what was to be measured failed itself
     +-- BenchStoppedError (RuntimeError)     a benchmark ended early: ``result`` is what was measured until then

No vendor exception crosses the waist: backends chain theirs as the cause. Why a backend cannot be used, and what cures
it, is a :class:`Finding`: a backend's ``discover`` returns it, the error carries it, ``pmtpy doctor`` prints it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Verdict(enum.Enum):
    """What a finding comes down to."""

    WORKS = "works"
    LIMITED = "limited"  # it measures, but something is missing that a cure would bring
    BROKEN = "broken"  # the hardware is here (or was asked for), and cannot be used
    ABSENT = "absent"  # this machine has no such hardware


class Obstacle(enum.Enum):
    """What stands in the way: one word for each different thing to do about it."""

    HARDWARE = "hardware"
    DRIVER = "driver"
    KERNEL_MODULE = "kernel module"
    LIBRARY = "library"
    EXTRA = "extra not installed"
    PERMISSION = "permission"
    GROUP = "group"
    CONTAINER = "container"
    BUSY = "busy"
    FIRMWARE = "firmware"
    DEAD = "dead reading"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found about a backend or one of its devices.

    Attributes
    ----------
    backend, device : str
        ``device`` is empty where the finding is about the backend, or its device has no name.
    verdict : Verdict
    found : str
        What was looked for, and what was found.
    obstacle : Obstacle or None
        None where nothing is in the way.
    cure : tuple of str
        What to do, one step each; a line that begins with ``$ `` is a command to type as it stands.
    rules : tuple of str
        Names of files in :mod:`pmtpy.backends.rules` that cure it for good; each alone is enough.
    """

    backend: str
    device: str
    verdict: Verdict
    found: str
    obstacle: Obstacle | None = None
    cure: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether what it is about can be opened."""
        return self.verdict in {Verdict.WORKS, Verdict.LIMITED}

    @property
    def remedy(self) -> str:
        """The cure in one line; empty where there is none."""
        steps = [step.removeprefix("$ ") for step in self.cure]
        steps += [f"for good: pmtpy doctor --rules {name}" for name in self.rules]
        return "; ".join(steps).replace(":; ", ": ")


class PmtError(Exception):
    """Base of all errors raised by pmtpy."""


class TargetError(PmtError, ValueError):
    """What was asked for cannot be, and nothing was done.

    It names nothing that exists (a target, a channel, an option, of which the message lists what there is), or things
    that do not go together.
    """


class UnwatchedError(TargetError, KeyError):
    """A region was asked for a sensor that does not watch it: what a mapping says of a key that it does not have."""

    __str__ = Exception.__str__  # a KeyError shows its message as Python's text, in quotes


class BackendUnavailableError(PmtError, OSError):
    """A backend cannot be used here.

    Made of a :class:`Finding`, or of the backend's name, the reason and the remedy.

    Attributes
    ----------
    finding : Finding
        What ``pmtpy doctor`` prints of it.
    """

    def __init__(self, about: str | Finding, reason: str = "", remedy: str = "") -> None:
        if isinstance(about, str):
            about = Finding(about, "", Verdict.BROKEN, reason, cure=(remedy,) if remedy else ())
        self.finding = about
        super().__init__(f"{self.backend}: {self.reason}" + (f"\n  remedy: {self.remedy}" if self.remedy else ""))

    @property
    def backend(self) -> str:
        """Name of the backend, e.g. ``"rapl"``."""
        return self.finding.backend

    @property
    def reason(self) -> str:
        """What was looked for and what was found instead."""
        return self.finding.found

    @property
    def remedy(self) -> str:
        """The command, rule or package that cures it. Empty when there is no cure on this machine."""
        return self.finding.remedy

    def __reduce__(self) -> tuple[type[BackendUnavailableError], tuple[Finding]]:
        """Pickle by the finding, since the message alone cannot rebuild it."""
        return type(self), (self.finding,)


class ReadError(PmtError, OSError):
    """One reading failed in a way that may pass (busy bus, torn buffer). The next reading may work."""


class ProtocolError(PmtError):
    """The device answered with something its protocol forbids. The message shows the bytes or the value."""


class SourceLostError(PmtError, ConnectionError):
    """The device was there and is gone (unplugged, reset, off the bus). Every later call raises this again."""


class CoverageError(PmtError, ValueError):
    """The recorded rows do not cover the interval that was asked for."""


class CalibrationError(PmtError, ValueError):
    """A calibration profile is broken, or belongs to another device, channel or range."""


class FileFormatError(PmtError, ValueError):
    """A recording cannot be read. The message names the file, the line and what was wrong with it."""


class Reason(str):
    """Why something is declined, as a text that ends with what would help, and knows it apart. It never changes.

    Attributes
    ----------
    why : str
    polls, load : str
        What would help: to poll otherwise, another load. Empty: nothing of the kind does.
    """

    __slots__ = ("load", "polls", "why")
    why: str
    polls: str
    load: str

    def __new__(cls, why: str, *, polls: str = "", load: str = "") -> Self:
        """Join the parts."""
        reason = super().__new__(cls, "; ".join(filter(None, (why, polls, load))))
        reason.why, reason.polls, reason.load = why, polls, load
        return reason

    def after(self, need: str) -> Reason:
        """Return the reason of what needs that which is declined."""
        return Reason(f"{need}: {self.why}", polls=self.polls, load=self.load)


class DeclinedError(PmtError, ValueError):
    """An estimator declines: the data cannot tell what was asked. The message says why and what would help.

    Made of the parts of a :class:`Reason`, which is its ``reason``.
    """

    def __init__(self, why: str, *, polls: str = "", load: str = "") -> None:
        self.reason = Reason(why, polls=polls, load=load)
        super().__init__(self.reason)


class SinkError(PmtError, OSError):
    """A file could not be written completely. The message says how many rows are missing and why."""


class MissingPackageError(BackendUnavailableError, SinkError):
    """What was asked for needs a Python package that is not installed; the remedy installs it.

    It is a :class:`SinkError` too, since what was asked for may be a file.
    """


class SensorClosedError(PmtError, RuntimeError):
    """The sensor was closed, or belongs to the parent of this forked process. Open it again."""


class WorkFailedError(PmtError, RuntimeError):
    """What was to be measured failed itself: a command ended with another status than 0, or could not be started."""


class BenchStoppedError(PmtError, RuntimeError):
    """A benchmark ended before its time: its work failed, or its sensor was lost; that is the cause.

    Attributes
    ----------
    result : BenchResult
        What was measured until then; its verdict is ``unresolved``.
    """

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result
