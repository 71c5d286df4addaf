"""Find the port of a board.

USB CDC-ACM: the speed of the line means nothing.
"""

from __future__ import annotations

from pmtpy.backends._serial.port import FoundPort
from pmtpy.errors import BackendUnavailableError

BACKEND = "powersensor3"
# STMicroelectronics virtual COM port, which the firmware leaves unchanged (PowerSensor3, docs/INSTALLATION_DEVICE.md).
USB_VENDOR, USB_PRODUCT = 0x0483, 0x5740
USB = (USB_VENDOR, USB_PRODUCT)


def choose_port(ports: list[FoundPort]) -> FoundPort:
    """Return the only board among the ports.

    Raises BackendUnavailableError: none or several; the message lists what is there.
    """
    boards = [p for p in ports if p.usb == USB]
    if len(boards) == 1:
        return boards[0]
    if boards:
        listed = ", ".join(f"{p.path} (serial {p.serial or 'unknown'})" for p in boards)
        raise BackendUnavailableError(
            BACKEND, f"{len(boards)} boards are connected: {listed}", f"name one of them: {BACKEND}:{boards[0].path}"
        )
    others = ", ".join(f"{p.path} ({p.description or 'no description'})" for p in ports) or "none at all"
    raise BackendUnavailableError(
        BACKEND,
        f"no serial port has the USB identity {USB_VENDOR:04x}:{USB_PRODUCT:04x} of a board; ports present: {others}",
        f"connect the board, or name its port: {BACKEND}:/dev/ttyACM0; to try without one: {BACKEND}:virtual",
    )
