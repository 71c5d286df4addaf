"""``python -m pmtpy``: the same as the command ``pmtpy``."""

import sys

from pmtpy.cli import main

sys.exit(main())
