"""A virtual AMD GPU: the real backend and the real ``amdsmi`` wrapper, on a library that is a Python object.

The wrapper binds its library while it is imported. A private copy of the package is imported with a ``ctypes`` whose
loader answers with :class:`~pmtpy.emulators.amdsmi._driver.VirtualSmi`; the program's own ``amdsmi``, if it has one, is
not touched.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from pmtpy._extras import missing
from pmtpy.backends.amdsmi import open_source
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._virtual_source import card_of, open_on, phase_of
from pmtpy.emulators.amdsmi._driver import VirtualCard, VirtualSmi
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.world import shared_world
from pmtpy.errors import BackendUnavailableError, TargetError

__all__ = ["PROFILES", "VirtualCard", "VirtualSmi", "open_virtual", "private_amdsmi"]

_ROCM = 7  # whose library is modelled
_OLDER = {*range(_ROCM), *range(20, 26)}  # as on PyPI; and as in the tree of ROCm, which counts as its library does
# Which of the two powers a generation tells, and whether it counts energy: docs/backends/amdsmi.md.
PROFILES = {
    "mi300x": VirtualCard("AMD Instinct MI300X", current=True, average=False),
    "mi210": VirtualCard("AMD Instinct MI210", current=False, average=True),
    "rx7900": VirtualCard("AMD Radeon RX 7900 XTX", current=False, average=True, energy=False),
}


def private_amdsmi(library: object) -> ModuleType:
    """Import a copy of the real ``amdsmi`` of its own, bound to ``library`` instead of libamd_smi.so.

    Raises MissingPackageError: the package amdsmi is not installed.
    Raises BackendUnavailableError: it is of an older ROCm, whose structures are others.
    """
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        raise missing("amdsmi", "amdsmi", "is not installed, and the virtual GPU drives it")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # one in the tree of ROCm alone has none
        _refuse_older(importlib.metadata.version("amdsmi"))
    name, origin = f"_pmtpy_amdsmi_{id(library):x}", Path(spec.origin)
    package = _empty(name, origin)
    wrapper = _empty(f"{name}.amdsmi_wrapper", origin.with_name("amdsmi_wrapper.py"))
    wrapper.__dict__["__builtins__"] = _builtins_with(_ctypes_for(library))
    try:
        for module in (wrapper, package):
            assert module.__spec__ is not None  # noqa: S101  (made just above)
            assert module.__spec__.loader is not None  # noqa: S101  (the same)
            module.__spec__.loader.exec_module(module)
    finally:
        for known in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
            del sys.modules[known]
    return package


def _refuse_older(version: str) -> None:
    """Refuse a wrapper whose structures the virtual library would fill as they are not: the interpreter would crash."""
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) in _OLDER:
        raise BackendUnavailableError(
            "amdsmi",
            f"the virtual GPU answers as the library of ROCm {_ROCM} does, and the Python package amdsmi {version} is "
            "of an older one; a real GPU takes the package of its own ROCm",
            f"pip install 'amdsmi>={_ROCM}' (in an environment of its own, on a machine with an older ROCm)",
        )


def _empty(name: str, path: Path) -> ModuleType:
    """Make a module that is not executed yet, and can be found by the relative imports of the others."""
    places = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=places)
    assert spec is not None  # noqa: S101  (a file that find_spec found, or lies beside it)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return module


def _ctypes_for(library: object) -> ModuleType:
    """Return a ``ctypes`` like the real one, whose loader finds ``library`` whatever it is asked for."""
    own = ModuleType("ctypes")
    own.__dict__.update(vars(ctypes))
    own.__dict__["CDLL"] = lambda *_: library
    return own


def _builtins_with(ctypes_module: ModuleType) -> dict[str, object]:
    def own_import(name: str, *arguments: object) -> object:
        real: Callable[..., object] = builtins.__import__
        return ctypes_module if name == "ctypes" else real(name, *arguments)

    return {**vars(builtins), "__import__": own_import}


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    profile: str = "mi300x",
    period_ms: float = 1.0,
    window_ms: float = 1.0,
    gain: float = 1.0,
    offset_w: float = 0.0,
    noise_w: float = 0.0,
    total: str | None = None,
) -> Source:
    """Open the real backend on a virtual GPU that draws the shared load.

    Parameters
    ----------
    device : str, optional
        ``virtual``; ``virtual1``, ``virtual2``, ... are further cards of the node, each with a phase of its own.
    profile : str
        Model of GPU: one of ``PROFILES``.
    period_ms, window_ms : float
        Update period of all registers, and the window of the momentary power; the average is over a second.
    gain, offset_w, noise_w : float
        Error of the sensor: reading = gain x power + offset + noise. Powers are shown in whole watts.
    total
        As for a real GPU.
    """
    number = card_of("amdsmi", device)
    if profile not in PROFILES:
        msg = f"amdsmi:virtual: no profile {profile!r}; there are: {', '.join(PROFILES)}"
        raise TargetError(msg)
    world = shared_world(load, clock=clock)
    sensor = SensorModel(
        update_s=period_ms / 1e3,
        phase_s=phase_of(number, period_ms / 1e3),
        window_s=window_ms / 1e3,
        gain=gain,
        offset_w=offset_w,
        noise_w=noise_w,
        step_w=1.0,
        counter_update_s=period_ms / 1e3,
        counter_step_j=0.0,
        seed=1 + number,
    )
    serial = f"0x{0x1122334455667788 + number:x}"
    card = replace(PROFILES[profile], sensor=sensor, index=number, hip_id=number, node_id=1 + number, serial=serial)
    driver = VirtualSmi(world, [card])
    library = private_amdsmi(driver)
    return open_on(
        world, lambda far: open_source(card.pci, clock=far, library=library, total=total), leave=driver.leave
    )
