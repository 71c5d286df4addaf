"""Every error that pmtpy raises: one class for each different thing a caller can do about it.

::

    PmtError
     +-- TargetError (ValueError)             the string names nothing we know, or an option is wrong
     +-- BackendUnavailableError (OSError)    library, device or permission missing: backend, reason, remedy
     +-- ReadError (OSError)                  one reading failed; the next may work
     +-- ProtocolError                        the device said what its protocol forbids
     +-- SourceLostError (ConnectionError)    it was there and is gone
     +-- CoverageError (ValueError)           no rows cover the interval asked for
     +-- CalibrationError (ValueError)        wrong device, channel, range or file
     +-- FileFormatError (ValueError)         a recording cannot be read: path, line, what was wrong
     +-- DeclinedError (ValueError)           an estimator was asked for what the data cannot tell
     +-- SinkError (OSError)                  a file could not be written, or rows were lost on the way to it
     +-- SensorClosedError (RuntimeError)     used after close, or in a forked child

No vendor exception crosses the waist: backends chain theirs as the cause.
"""

from __future__ import annotations


class PmtError(Exception):
    """Base of all errors raised by pmtpy."""


class TargetError(PmtError, ValueError):
    """A target, a channel or an option names nothing that exists. The message lists what does."""


class BackendUnavailableError(PmtError, OSError):
    """A backend cannot be used here.

    Attributes
    ----------
    backend : str
        Name of the backend, e.g. ``"rapl"``.
    reason : str
        What was looked for and what was found instead.
    remedy : str
        The command, rule or package that cures it. Empty when there is no cure on this machine.
    """

    def __init__(self, backend: str, reason: str, remedy: str = "") -> None:
        self.backend = backend
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{backend}: {reason}" + (f"\n  remedy: {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[BackendUnavailableError], tuple[str, str, str]]:
        """Pickle by the three fields, since the message alone cannot rebuild them."""
        return type(self), (self.backend, self.reason, self.remedy)


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


class DeclinedError(PmtError, ValueError):
    """An estimator declines: the data cannot tell what was asked. The message says why and what would help."""


class SinkError(PmtError, OSError):
    """A file could not be written completely. The message says how many rows are missing and why."""


class SensorClosedError(PmtError, RuntimeError):
    """The sensor was closed, or belongs to the parent of this forked process. Open it again."""
