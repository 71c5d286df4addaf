"""The version of this package: that of the git tag it was built from (setuptools-scm in ``pyproject.toml``).

It is asked of what was installed, so there is no second place to keep. Imported when somebody asks, because looking
takes the standard library tens of milliseconds.
"""

from importlib import metadata

try:
    __version__ = metadata.version("pmtpy")
except metadata.PackageNotFoundError:  # a folder on the path that nobody installed
    __version__ = "0+unknown"
