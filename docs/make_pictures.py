"""Make the pictures of the documentation again, by the very commands that the gallery shows: ``make gallery``.

Each line of ``gallery.md`` that begins with ``$ `` runs in an empty folder; each picture that the page shows is then
copied into ``docs/images``.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "gallery.md"


def commands(text: str) -> list[list[str]]:
    """Return the commands that a page shows, in order."""
    return [shlex.split(line[2:]) for line in text.splitlines() if line.startswith("$ ")]


def pictures(text: str) -> list[str]:
    """Return the names of the pictures that a page shows, without their folder."""
    return re.findall(r"\]\(images/([^)]+)\)", text)


def main() -> None:
    """Run the commands and copy what they drew."""
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for program, *words in commands(text):
            if program != "pmtpy":
                sys.exit(f"{PAGE}: {program}: only commands of pmtpy are run")
            subprocess.run([sys.executable, "-m", "pmtpy", *words], cwd=folder, check=True)
        for name in pictures(text):
            shutil.copy(Path(folder) / name, DOCS / "images" / name)


if __name__ == "__main__":
    main()
