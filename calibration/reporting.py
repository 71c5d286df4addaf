"""What the reports of the bench share: where recordings are, tables in Markdown, pictures in one style."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
# Distinct in grey as well: dark, middle, light.
DARK, MIDDLE, LIGHT = "#1b3a5c", "#c8553d", "#8fb8de"


def recordings() -> Path:
    """Folder of the public recordings; ``PMTPY_SHARED`` names the folder above it.

    Raises SystemExit: they are not there.
    """
    shared = Path(os.environ.get("PMTPY_SHARED", HERE.parents[1] / "shared"))
    path = shared / "data" / "gpu-traces"
    if not path.is_dir():
        raise SystemExit(f"the recordings are not at {path}; set PMTPY_SHARED to the folder that holds data/gpu-traces")
    return path


def options(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Make the parser of a report's command line, with the folder that it is written to."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", metavar="DIR", help=f"where to write (default: calibration/reports/{name})")
    return parser


def folder(name: str, chosen: str | None) -> Path:
    """Make the folder of a report: the one chosen, else ``calibration/reports/NAME``."""
    path = Path(chosen) if chosen else HERE / "reports" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Write a table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def panels(rows: int, width: float = 8.0, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels, one above the other, legible in print and in grey."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(rows, 1, figsize=(width, height * rows), squeeze=False, layout="constrained")
    flat = [axes[i][0] for i in range(rows)]
    for axis in flat:
        axis.grid(visible=True, color="0.9", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, flat


def save(figure: Figure, path: Path) -> None:
    """Write a picture and free its memory."""
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
