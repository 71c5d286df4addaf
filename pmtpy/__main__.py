"""``python -m pmtpy``, and where the commands ``pmtpy`` and ``pmt-dump`` start.

Most of a short command's time goes into imports. So they are made here, where Ctrl-C ends the program quietly.
"""

import sys


def main() -> int:
    """Run ``pmtpy VERB``; return the exit code."""
    try:
        from pmtpy import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130


def main_dump() -> int:
    """Run ``pmt-dump``, which is ``pmtpy dump``."""
    sys.argv[1:1] = ["dump"]
    return main()


if __name__ == "__main__":
    sys.exit(main())
