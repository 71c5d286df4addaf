"""Python packages that only some uses need: which extra brings each, and how a missing one is told."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterator, Mapping

from pmtpy.errors import Finding, MissingPackageError, Obstacle, Verdict

# What is imported, and the extra of pmtpy that brings it.
EXTRAS: Mapping[str, str] = types.MappingProxyType(
    {
        "amdsmi": "amdsmi",
        "argcomplete": "cli",
        "bokeh": "live",
        "duckdb": "dataset",
        "matplotlib": "plot",
        "opentelemetry": "otel",
        "otf2": "otf2",
        "pandas": "analysis",
        "perfetto": "perfetto",
        "prometheus_client": "prometheus",
        "pyarrow": "parquet",
        "pyjls": "jls",
        "pynvml": "nvml",
        "rich": "cli",
        "scipy": "analysis",
        "textual": "live",
        "threadpoolctl": "analysis",
        "tornado": "live",
    }
)
_DISTRIBUTED_AS = {"opentelemetry": "opentelemetry-api", "pynvml": "nvidia-ml-py"}

# The first Python that a package has releases for, where that is newer than ours: on an older one pip installs the
# extra without it, in silence.
FIRST_PYTHON: Mapping[str, tuple[int, int]] = types.MappingProxyType({"pyjls": (3, 11)})


def installation(package: str, python: tuple[int, ...]) -> str:
    """Return the step that brings a package to this version of Python."""
    name = _DISTRIBUTED_AS.get(package, package)
    command = f"pip install 'pmtpy[{EXTRAS[package]}]'" if package in EXTRAS else f"pip install {name}"
    first = FIRST_PYTHON.get(package, python)
    if python < first:
        here, needed = (".".join(map(str, version)) for version in (python, first))
        return f"{name} has no release for Python {here}; with {needed} or newer: {command}"
    return f"$ {command}"


def missing(package: str, use: str, why: str = "is not installed", otherwise: str = "") -> MissingPackageError:
    """Return what is to be raised where ``use`` needs a package that is not here; ``otherwise``: what helps, too."""
    name = _DISTRIBUTED_AS.get(package, package)
    install = installation(package, sys.version_info[:2])
    cure = (install, otherwise) if otherwise else (install,)
    found = f"the Python package {name} {why}"
    return MissingPackageError(Finding(use, "", Verdict.BROKEN, found, Obstacle.EXTRA, cure))


def require(package: str, use: str, otherwise: str = "") -> None:
    """See that a package is there without loading it; ``otherwise``: what helps where it is not, but to install it.

    Raises MissingPackageError: it is not.
    """
    if importlib.util.find_spec(package) is None:
        raise missing(package, use, otherwise=otherwise)


@contextlib.contextmanager
def extra(package: str, use: str, kind: type[ImportError] | None = None) -> Iterator[None]:
    """Import a package in this with-statement.

    Raises MissingPackageError, or ``kind`` with its message: it cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package
        why = "is not installed" if absent else f"cannot be imported: {error}"
        if kind is not None:
            raise kind(str(missing(package, use, why))) from error
        raise missing(package, use, why) from error
