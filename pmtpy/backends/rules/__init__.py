"""Files that give users access to sensors for good: udev rules, tmpfiles lines, kernel settings.

They are data, which ``pmtpy doctor --rules`` prints. Each says in its comments what it permits and how it is installed.
"""

from __future__ import annotations

from importlib import resources

_SUFFIXES = (".rules", ".conf")
_COPY = "sudo cp "


def names() -> tuple[str, ...]:
    """Return the names of all files."""
    return tuple(sorted(p.name for p in resources.files(__name__).iterdir() if p.name.endswith(_SUFFIXES)))


def text(name: str) -> str:
    """Return a file as it is.

    Raises KeyError: there is no such file.
    """
    if name not in names():
        raise KeyError(name)
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def commands(name: str) -> tuple[str, ...]:
    """Return the commands that install a file and put it in force, from the file's own comment.

    Raises KeyError: there is no such file.
    """
    _, _, after = text(name).partition("# Install:\n")
    lines = []
    for line in after.splitlines():
        if not line.startswith("#   "):
            break
        command = line.removeprefix("#").strip()
        if command.startswith(_COPY):  # where the package lies is not for the user to know
            folder = command.split()[-1]
            command = f"pmtpy doctor --rules {name} | sudo tee {folder}{name}"
        lines.append(command)
    return tuple(lines)
