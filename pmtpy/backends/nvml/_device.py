"""The vendor's module ``pynvml`` (package nvidia-ml-py), found, checked and held open.

The only module that touches the vendor's names. Its exceptions stop here: every call answers with a value or raises
:class:`~pmtpy.backends.nvml._errors.Fault`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from pmtpy._extras import extra
from pmtpy._handlers import of_a_handler
from pmtpy.backends.nvml import _errors as errors
from pmtpy.errors import BackendUnavailableError

T = TypeVar("T")

# Value types and the member of the union that each one fills (nvml.h, nvmlValueType_t and nvmlValue_t).
MEMBER = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def find_module(given: ModuleType | None = None) -> ModuleType:
    """Return the vendor's module: as given, else imported.

    Raises BackendUnavailableError: it is not installed, or the old package ``pynvml`` hides it.
    """
    module = given if given is not None else _imported()
    # The old package has the same module name. Its copies of the binding end before this function came.
    if not hasattr(module, "_nvmlGetFunctionPointer") or not hasattr(module, "nvmlDeviceGetFieldValues"):
        reason = f"the module pynvml at {getattr(module, '__file__', '?')} is the deprecated package pynvml"
        cure = "pip uninstall -y pynvml && pip install --force-reinstall 'nvidia-ml-py>=12.535'"
        raise BackendUnavailableError(errors.BACKEND, reason, cure)
    return module


def _imported() -> ModuleType:
    with extra("pynvml", errors.BACKEND), warnings.catch_warnings():
        # The package pynvml 13 makes the import of the real module warn about itself.
        warnings.simplefilter("ignore")
        import pynvml
    return _as_module(pynvml)


def _as_module(module: object) -> ModuleType:
    assert isinstance(module, ModuleType)  # noqa: S101  (what an import gives)
    return module


class Answer(NamedTuple):
    """One field as the driver filled it."""

    value: float | None  # the count; None where the driver did not fill it, whatever stands in its place
    stamp_us: int  # Unix microseconds at which the driver took it; 0 where it does not say
    code: int  # status of this field


class Library:
    """The vendor's module with NVML started in it. NVML counts the starts, so each sensor holds one of its own."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._error: type[Exception] = module.NVMLError
        self._started = False

    def start(self) -> None:
        """Start NVML. Raises Fault."""
        self.ask("nvmlInit")
        self._started = True

    def restart(self) -> None:
        """Give up what is held and start anew; handles of before are void. Raises Fault."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Release this sensor's start, once. May be called twice."""
        if self._started:
            self._started = False
            with contextlib.suppress(errors.Fault):  # somebody else ended it: then there is nothing to release
                self.ask("nvmlShutdown")

    def ask(self, call: str, *arguments: object) -> Any:
        """Call a function of the vendor's module.

        Raises Fault: with NVML's return code.
        """
        return self.read(_as_it_is, call, *arguments)

    def read(self, parse: Callable[[Any], T], call: str, *arguments: object) -> T:
        """Call a function and make of its answer what is needed: here alone answers are checked for their kind.

        Raises Fault: with NVML's return code, or UNEXPECTED where ``parse`` stumbles over the answer.
        """
        function = getattr(self.module, call, None)
        if function is None:
            raise errors.Fault(call, errors.FUNCTION_NOT_FOUND)
        try:
            return parse(function(*arguments))
        except self._error as error:
            raise errors.Fault(call, _code(error)) from error
        except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, ctypes.ArgumentError) as error:
            if of_a_handler(error):
                raise
            raise errors.Fault(call, errors.UNEXPECTED) from error

    def optional(self, parse: Callable[[Any], T], call: str, *arguments: object) -> T | None:
        """Do the same for what a GPU or a driver may lack: None then."""
        try:
            return self.read(parse, call, *arguments)
        except errors.Fault as fault:
            if fault.code in errors.RESTART | errors.DEAD:
                raise
            return None

    def number(self, call: str, *arguments: object) -> int | None:
        """Ask for a whole number; None where this GPU or driver has none."""
        return self.optional(int, call, *arguments)

    def text(self, call: str, *arguments: object) -> str:
        """Ask for a text; empty where there is none."""
        return self.optional(as_text, call, *arguments) or ""

    def fields(self, handle: object, wanted: Sequence[tuple[int, int]]) -> list[Answer]:
        """Ask for several (field, scope) in one call, so that they are of one instant as far as the driver can."""
        if not wanted:
            return []

        def parse(answer: Any) -> list[Answer]:
            return [_answer(field) for _, field in zip(wanted, answer, strict=True)]

        return self.read(parse, "nvmlDeviceGetFieldValues", handle, list(wanted))

    @property
    def driver(self) -> str:
        """Version of the driver, empty where it does not say."""
        return self.text("nvmlSystemGetDriverVersion")


def _as_it_is(answer: Any) -> Any:
    return answer


def as_text(answer: Any) -> str:
    """Return a text; old bindings give bytes.

    Raises TypeError: it is neither.
    """
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if not isinstance(answer, str):
        raise TypeError(answer)
    return answer


def _code(error: Exception) -> int:
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else errors.UNKNOWN


def _answer(field: Any) -> Answer:
    code = int(field.nvmlReturn)
    member = MEMBER.get(int(field.valueType))
    if code or member is None:
        return Answer(None, 0, code or errors.NOT_SUPPORTED)
    value, stamp_us = float(getattr(field.value, member)), int(field.timestamp)
    return Answer(value if math.isfinite(value) else None, stamp_us if 0 < stamp_us < 2**63 else 0, code)
