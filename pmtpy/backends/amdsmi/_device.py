"""The vendor's module ``amdsmi``, found, checked and started; and its answers as plain numbers, or none.

The only module that touches the vendor's names. Facts: the Python wrapper itself, releases 5.7 to 7.0.2, and the
reports of users that docs/backends/amdsmi.md lists.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from pmtpy._extras import missing
from pmtpy._handlers import of_a_handler
from pmtpy.errors import BackendUnavailableError

BACKEND = "amdsmi"

INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_INITIALISED, DRIVER_NOT_LOADED, UNEXPECTED = 1, 2, 10, 32, 34, 43
# The next reading may work: timeout, retry, busy, no data.
PASSING = frozenset({8, 9, 30, 40})

_MEANING = {
    1: "invalid argument",
    2: "not supported by this GPU or driver",
    8: "timeout",
    9: "try again",
    10: "permission denied",
    18: "the library could not be initialised",
    30: "the GPU is busy",
    31: "not found",
    32: "the library is not initialised",
    34: "the amdgpu driver is not loaded",
    40: "no data yet",
    43: "an answer that this release of the library does not understand",
    51: "no driver is present",
    52: "a file of the driver is missing",
}
_REMEDY = {
    10: "sudo usermod -a -G render,video $USER, then log in again",
    18: "see: dmesg | grep amdgpu; and whether the user is in the groups render and video",
    34: "sudo modprobe amdgpu",
    51: "sudo modprobe amdgpu",
}

# The version of libamd_smi.so that goes with a release of the wrapper. ROCm's own copy of the wrapper carries the
# library's version instead, which is far above ROCm's.
_LIBRARY_OF = ((7, 26), (6.4, 25), (6.1, 24), (5, 23))
_LEAST_LIBRARY = 20

MOST_WATTS = 5_000.0  # of a card; beyond it: sentinels of every width, and microwatts
# A cap beyond this is in microwatts, and one below the other no cap: the sentinel 0xFFFF in microwatts.
_MOST_CAP_WATTS, _LEAST_CAP_WATTS = 10_000.0, 1.0


class Fault(Exception):  # noqa: N818  (internal: becomes one of pmtpy's errors at the edge)
    """A call to the library failed with ``code``."""

    def __init__(self, call: str, code: int) -> None:
        self.code = code
        super().__init__(f"{call}: {_MEANING.get(code, 'an unknown error')} (AMD SMI error {code})")


def unavailable(attempted: str, fault: Fault) -> BackendUnavailableError:
    """Make the error for a library or a device that cannot be opened."""
    return BackendUnavailableError(BACKEND, f"{attempted}: {fault}", _REMEDY.get(fault.code, ""))


def find_module(given: ModuleType | None = None) -> ModuleType:
    """Return the vendor's module: as given, else imported.

    The wrapper binds every symbol of the library when it is imported: without the library it prints to stdout and
    raises KeyError, with an older one AttributeError.

    Raises BackendUnavailableError: it is not installed, or finds no library that fits.
    """
    if given is not None:
        return given
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi
    except ModuleNotFoundError as error:
        raise missing("amdsmi", BACKEND) from error
    except AttributeError as error:
        reason = f"the Python package amdsmi is newer than the library libamd_smi.so: {error}"
        raise BackendUnavailableError(BACKEND, reason, _same_version()) from error
    except Exception as error:
        if of_a_handler(error):
            raise
        # Whatever the wrapper raises means the same: it is of no use here.
        reason = f"the library libamd_smi.so is not found ({type(error).__name__}: {error})"
        cure = "install ROCm's package amd-smi-lib; if it is elsewhere than /opt/rocm, set ROCM_PATH"
        raise BackendUnavailableError(BACKEND, reason, cure) from error
    module: ModuleType = amdsmi
    return module


def _same_version() -> str:
    return "pip install amdsmi== the version of ROCm (cat /opt/rocm/.info/version), or an older one"


class Library:
    """The vendor's module, started.

    The library does not count its starts and one shut-down ends it for everybody in the process, so it is started by
    each sensor and never shut down by one.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._error: type[Exception] = module.AmdSmiException

    def start(self) -> None:
        """Start the library, as often as one likes. Raises Fault."""
        self.ask("amdsmi_init")

    def ask(self, call: str, *arguments: object) -> Any:
        """Call a function of the vendor's module.

        Raises Fault: with the library's status; NOT_SUPPORTED for a call that this wrapper does not have.
        """
        function = getattr(self.module, call, None)
        if function is None:
            raise Fault(call, NOT_SUPPORTED)
        try:
            return function(*arguments)
        except self._error as error:
            code = getattr(error, "err_code", None)
            raise Fault(call, code if isinstance(code, int) else INVALID) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if of_a_handler(error):
                raise
            # The wrapper stumbles over what the library filled in, text that is not UTF-8 for one.
            raise Fault(call, UNEXPECTED) from error

    def optional(self, call: str, *arguments: object) -> Any:
        """Call a function whose answer may be lacking: None then, after a second attempt where that may help."""
        answer, code = self._attempt(call, arguments)
        return self._attempt(call, arguments)[0] if code in PASSING else answer

    def _attempt(self, call: str, arguments: tuple[object, ...]) -> tuple[Any, int]:
        try:
            return self.ask(call, *arguments), 0
        except Fault as fault:
            if fault.code == NOT_INITIALISED:
                raise
            return None, fault.code

    def details(self, call: str, *arguments: object) -> dict[str, Any]:
        """Ask for a dictionary; empty where there is none."""
        answer = self.optional(call, *arguments)
        return answer if isinstance(answer, dict) else {}

    def check_versions(self) -> str:
        """Return a note where wrapper and library are not known to fit.

        Raises BackendUnavailableError: the wrapper is older than the library: the layouts may have moved, and numbers
        would be silently wrong.
        """
        wrapper = str(getattr(self.module, "__version__", ""))
        library = number(self.details("amdsmi_get_lib_version").get("major"))
        expected = _library_of(wrapper)
        if library is None or expected is None:
            return f"the versions of wrapper ({wrapper or 'unknown'}) and library could not be compared"
        if library > expected:
            reason = f"the Python package amdsmi {wrapper} is older than the library {library:g}; numbers may be wrong"
            raise BackendUnavailableError(BACKEND, reason, "pip install amdsmi== the version of ROCm installed")
        if library < expected:
            return f"the Python package amdsmi {wrapper} is newer than the library {library:g}"
        return ""


def _library_of(wrapper: str) -> float | None:
    match = re.match(r"(\d+)(?:\.(\d+))?", wrapper)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2] or 0)
    if major >= _LEAST_LIBRARY:
        return major
    release = major + minor / 10
    return next((library for least, library in _LIBRARY_OF if release >= least and major <= 7), None)


# -- answers as numbers ------------------------------------------------------------------------------------------------


def number(answer: object) -> float | None:
    """Return a number, or None for ``'N/A'``, None, text, booleans, and what is not finite."""
    if isinstance(answer, bool) or not isinstance(answer, (int, float)) or not math.isfinite(answer):
        return None
    return float(answer)


def watts(answer: object, most: float = MOST_WATTS) -> float | None:
    """Return a power in watts, or None.

    Zero is no reading: the second die of a card reports it, as does a layout that has moved. Beyond what a card can
    draw it is a sentinel of some width, or microwatts.
    """
    value = number(answer)
    return value if value is not None and 0 < value <= most else None


def limit_w(cap: Mapping[str, Any]) -> float | None:
    """Return the largest limit that an answer about the power cap names, or None.

    It is in watts before release 6.1.2 and in microwatts from then on, whatever the wrapper calls them.
    """
    named = [number(cap.get(key)) or 0.0 for key in ("max_power_cap", "default_power_cap", "power_cap")]
    scaled = [value * 1e-6 if value > _MOST_CAP_WATTS else value for value in named]
    return max([value for value in scaled if _LEAST_CAP_WATTS <= value <= MOST_WATTS], default=None)


def accumulator(answer: object) -> tuple[float, float, float | None] | None:
    """Return (counts, joules per count, stamp in ns or None) of an energy reading, or None.

    The accumulator was called ``power`` up to 6.2, and is an unsigned 64-bit number; float64 holds the first 2^53 of
    them, 137 GJ. The library says 15.3 uJ per count where the driver's unit is 2^-16 J: 0.27 % too much.
    """
    if not isinstance(answer, dict):
        return None
    count = number(answer.get("energy_accumulator", answer.get("power")))
    unit = number(answer.get("counter_resolution"))
    stamp = number(answer.get("timestamp"))
    if count is None or unit is None or not 0 < count < 2.0**53 or not 1e-3 <= unit <= 1e6:
        return None
    joules = 2.0**-16 if abs(unit - 15.3) < 0.05 else unit * 1e-6
    return count, joules, stamp if stamp is not None and 0 < stamp < 2.0**63 else None


def megahertz(answer: object) -> float | None:
    """Return a clock in MHz, or None. The key was called ``cur_clk`` up to 6.1."""
    if not isinstance(answer, dict):
        return None
    value = number(answer.get("clk", answer.get("cur_clk")))
    return value if value is not None and 0 <= value <= 20_000 else None
