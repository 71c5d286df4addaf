"""``python -m pmtpy.emulators.powersensor3``: a virtual board in a process of its own."""

import sys

from pmtpy.emulators.powersensor3.serve import serve

if __name__ == "__main__":
    sys.exit(serve())
