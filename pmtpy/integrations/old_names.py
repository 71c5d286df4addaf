"""Module paths of the first releases, which keep working for one release with a warning.

The finder is asked only for modules of ours that nobody else finds, so it costs nothing where the names are the present
ones. CHANGELOG.md has the same table for readers.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    # The methods are what counts: importing importlib.abc would take longer than all that `import pmtpy` needs.
    Loader = MetaPathFinder = object

# Old path, without "pmtpy.": where its names are now, the first that has a name wins.
MOVED = MappingProxyType(
    {
        "busy": ("core.load_intervals",),
        "calibration": ("core.calibration.matching",),
        "clock": ("core.clock",),
        "combining": ("sensor.combine",),
        "compat": ("integrations.drop_ins",),
        "counters": ("core.counters",),
        "curve": ("sensor.acquisition",),
        "decorators": ("regions.decorators",),
        "diagnosis": ("backends.machine", "errors"),
        "history": ("sensor.history",),
        "integrate": ("core.integrate",),
        "kernel_tuner": ("integrations.kernel_tuner",),
        "lifetime": ("sensor.lifecycle",),
        "measurement": ("regions.measurement", "regions.interval_energy"),
        "model": ("core.channel", "core.rows"),
        "plot": ("plotting.recording",),
        "profile": ("core.calibration.profile",),
        "pump": ("sensor.poller",),
        "recordings": ("io.read",),
        "registry": ("sensor.registry",),
        "rules": ("backends.rules",),
        "sinks": ("io.write",),
        "source": ("core.source",),
        "state": ("core.state",),
        "sums": ("regions.total",),
        "transform": ("core.calibration.curves", "core.response"),
    }
)
# Old names of what bears another one now, by the old path.
RENAMED = MappingProxyType({"model.Form": "Derivation", "model.Rule": "EnergyMethod", "busy.Busy": "LoadIntervals"})


class _OldModule(ModuleType):
    """Looks names up where they are now."""

    def __getattr__(self, name: str) -> object:
        old = self.__name__.removeprefix("pmtpy.")
        wanted = RENAMED.get(f"{old}.{name}", name)
        for home in MOVED[old]:
            module = importlib.import_module(f"pmtpy.{home}")
            if hasattr(module, wanted):
                return getattr(module, wanted)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Mover(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        homes = " and ".join(f"pmtpy.{home}" for home in MOVED[module.__name__.removeprefix("pmtpy.")])
        message = f"{module.__name__} has moved to {homes}; the old path goes with the next release"
        warnings.warn(message, DeprecationWarning, stacklevel=2)


class OldNames(MetaPathFinder):
    """Finds the modules of the table."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  (of the protocol)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return a spec for an old path of ours, None for everything else."""
        if fullname.startswith("pmtpy.") and fullname.removeprefix("pmtpy.") in MOVED:
            return ModuleSpec(fullname, _Mover())
        return None


def install() -> None:
    """Let old paths be found, after everything that exists."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.append(OldNames())
