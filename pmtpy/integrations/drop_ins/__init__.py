"""Stand-ins for two other Python modules: ``pmt`` of PMT and ``powersensor`` of PowerSensor3.

A program written for either runs unmodified on pmtpy's sensors. Only the faces are here: what is measured, and how far
it can be trusted, comes from the rest of the package. Where the originals give a silent zero, these raise.

Facts: the Python bindings of PMT 1.3.1 and of the state after it (``python/__init__.py``, ``python/pypmt.cpp``,
``common/PMT.cpp``), and of PowerSensor3 1.6.1 (``python/PyPowerSensor.cc``, ``host/src/PowerSensor.cc``).
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from pmtpy.errors import PmtError

__all__ = ["install_as_pmt", "install_as_powersensor"]

_MARK = "__pmtpy__"


def install_as_pmt() -> ModuleType:
    """Let ``import pmt`` give a module that behaves as PMT's own Python binding.

    Call it before anything imports ``pmt``; calling it again changes nothing. Returns the module.

    Raises
    ------
    PmtError
        Another module called ``pmt`` has been imported already.
    """
    return _install("pmt", "pmtpy.integrations.drop_ins._pmt_module", ("PMT", "State", "create"))


def install_as_powersensor() -> ModuleType:
    """Let ``import powersensor`` give a module that behaves as PowerSensor3's own Python binding.

    Call it before anything imports ``powersensor``; calling it again changes nothing. Returns the module.

    Raises
    ------
    PmtError
        Another module called ``powersensor`` has been imported already.
    """
    names = ("Joules", "MAX_PAIRS", "PowerSensor", "State", "Watt", "__version__", "seconds")
    return _install("powersensor", "pmtpy.integrations.drop_ins._powersensor_module", names)


def _install(name: str, face: str, binary: tuple[str, ...]) -> ModuleType:
    """Put a module made of ``face`` into ``sys.modules``, and inside it the one that holds the compiled half's names.

    Both originals are a package around a compiled module of the same name, so both names can be imported.
    """
    present = sys.modules.get(name)
    if present is not None:
        if hasattr(present, _MARK):
            return present
        where = getattr(present, "__file__", None) or "not from a file"
        msg = (
            f"another module called {name!r} was imported already ({where}); call install_as_{name}() before anything "
            f"imports it, or run the program with 'python -m pmtpy.integrations.drop_ins SCRIPT'"
        )
        raise PmtError(msg)
    source = importlib.import_module(face)
    inner = _module(f"{name}.{name}", source, binary, package=False)
    outer = _module(name, source, tuple(source.__all__), package=True)
    setattr(outer, name, inner)
    sys.modules[inner.__name__] = inner
    sys.modules[name] = outer
    return outer


def _module(name: str, source: ModuleType, names: tuple[str, ...], *, package: bool) -> ModuleType:
    module = ModuleType(name, source.__doc__)
    module.__spec__ = ModuleSpec(name, None, origin="pmtpy", is_package=package)
    module.__package__ = name if package else name.rpartition(".")[0]
    if package:
        module.__path__ = []
    setattr(module, _MARK, True)
    for each in names:
        setattr(module, each, getattr(source, each))
    return module
