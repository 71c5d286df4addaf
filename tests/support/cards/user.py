"""What a user does with a recording: runs the verbs of the command line, and reads what they print."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from pmtpy.cli import main
from tests.support.cards.recorder import Recording


def run(*words: str) -> tuple[int, str, str]:
    """Run a verb; return its exit code and what it printed on stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def characterised(made: Recording, *, reference: bool = True) -> dict[str, Any]:
    """Return the document of ``pmtpy characterise``."""
    against = ["--load", made.load, "--meter", made.meter] if reference else []
    code, out, err = run("characterise", made.log, "--channel", made.card.channel, "--json", *against)
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def profiled(found: dict[str, Any], made: Recording) -> Path:
    """Write the calibration profile of what was found."""
    folder, card = made.folder, made.card
    (folder / "found.json").write_text(json.dumps(found))
    out = folder / "profile.json"
    watts = f"{card.gain * 0.5 * card.idle_w + card.offset_w - 20.0:g},{card.gain * 1.3 * card.busy_w:g}"
    words = ["--device", card.name, f"--range={watts}", "-o", str(out)]
    code, _, err = run("calibrate", "profile", str(folder / "found.json"), *words)
    assert code == 0, err
    return out


def corrected(made: Recording, profile: Path, start_s: float, end_s: float) -> dict[str, Any]:
    """Return the energy of an interval of another recording, by ``pmtpy calibrate energy``."""
    words = ["--profile", str(profile), "--channel", made.card.channel, "--load", made.load]
    code, out, err = run("calibrate", "energy", made.log, *words, made.between(start_s, end_s), "--json")
    assert code == 0, err
    (energy,) = json.loads(out)["energies"]
    return dict(energy)
