"""Run a program written for PMT or PowerSensor3: ``python -m pmtpy.integrations.drop_ins SCRIPT ARGS``."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from pmtpy.integrations.drop_ins import install_as_pmt, install_as_powersensor


def main(arguments: list[str]) -> None:
    """Install both stand-ins and run the script as if Python had been started on it."""
    parser = argparse.ArgumentParser(
        prog="python -m pmtpy.integrations.drop_ins",
        description="Run a script that imports PMT's 'pmt' or PowerSensor3's 'powersensor' on the sensors of pmtpy.",
        epilog="PMT_DEVICE=virtual in the environment makes every sensor virtual, to rehearse without hardware.",
    )
    parser.add_argument("script", help="the program to run")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args(arguments)
    if not Path(given.script).exists():
        parser.error(f"there is no {given.script}")
    install_as_pmt()
    install_as_powersensor()
    sys.argv = [given.script, *given.args]
    sys.path[0] = str(Path(given.script).resolve().parent)
    runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
