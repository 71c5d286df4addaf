"""Tinkerforge's protocol over TCP: packets, addresses, authentication. Pure.

Facts: ``ip_connection.py`` of Tinkerforge's own binding 2.1.32, ``Tinkerforge/brickd`` (``client.c``), Wireshark's
dissector ``tfp``.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from pmtpy.core.presentation import amount
from pmtpy.errors import ProtocolError

PORT = 4223
BROADCAST, DAEMON = 0, 1
GET_NONCE, AUTHENTICATE = 1, 2
ENUMERATED, ENUMERATE = 253, 254
AVAILABLE, CONNECTED, DISCONNECTED = 0, 1, 2

_HEADER = struct.Struct("<IBBBB")
_MIN_PACKET_BYTES, _MAX_PACKET_BYTES = 8, 80
_ALPHABET = "123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"
_ANSWER_EXPECTED = 0x08
ERRORS = {1: "a parameter is invalid", 2: "it does not know the function", 3: "an unknown error"}


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet: address, function, sequence number (0: a callback), error, payload."""

    uid: int
    function: int
    sequence: int
    error: int
    payload: bytes


def pack(
    uid: int, function: int, payload: bytes = b"", *, sequence: int = 0, answer: bool = False, error: int = 0
) -> bytes:
    """Return the bytes of a packet."""
    options = sequence << 4 | (_ANSWER_EXPECTED if answer else 0)
    return _HEADER.pack(uid, _MIN_PACKET_BYTES + len(payload), function, options, error << 6) + payload


class Cutter:
    """Cuts a stream into packets; half a packet waits for its rest."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Packet]:
        """Take the next bytes; return the packets that are whole.

        Raises ProtocolError: a packet has a length that none can have: what follows cannot be understood.
        """
        data = self._rest + data
        packets, at = [], 0
        while len(data) - at >= _MIN_PACKET_BYTES:
            uid, length, function, options, flags = _HEADER.unpack_from(data, at)
            if not _MIN_PACKET_BYTES <= length <= _MAX_PACKET_BYTES:
                right = f"{_MIN_PACKET_BYTES} to {_MAX_PACKET_BYTES}"
                msg = f"a packet says that it has {amount(length, 'byte')}, and packets have {right}"
                raise ProtocolError(msg)
            if len(data) - at < length:
                break
            packets.append(Packet(uid, function, options >> 4, flags >> 6, data[at + _MIN_PACKET_BYTES : at + length]))
            at += length
        self._rest = data[at:]
        return packets


def uid_text(uid: int) -> str:
    """Write an address as it stands on a device."""
    text = ""
    while uid:
        uid, digit = divmod(uid, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text or _ALPHABET[0]


def uid_number(text: str) -> int:
    """Read an address; older ones of 64 bits fold to 32.

    Raises ValueError: it is none.
    """
    number = 0
    for letter in text:
        number = number * len(_ALPHABET) + _ALPHABET.index(letter)
    if number >= 1 << 32:
        high, low = number >> 32, number & 0xFFFF_FFFF
        number = low & 0xFFF | (low & 0x0F00_0000) >> 12 | (high & 0x3F) << 16 | (high & 0x000F_0000) << 6
        number |= (high & 0x3F00_0000) << 2
    if not number:
        msg = f"{text!r} is no address"
        raise ValueError(msg)
    return number


@dataclass(frozen=True, slots=True)
class Enumerated:
    """What a device says of itself."""

    uid: int
    name: str
    firmware: tuple[int, int, int]
    kind: int
    event: int


_ENUMERATED = struct.Struct("<8s8sc3B3BHB")


def enumerated(payload: bytes) -> Enumerated:
    """Understand an enumerate callback.

    Raises ValueError: it is none, or its address is none (a name that is not ASCII).
    """
    try:
        uid, _, _, _, _, _, *firmware, kind, event = _ENUMERATED.unpack(payload)
        name = uid.rstrip(b"\0").decode("ascii")
        number = uid_number(name)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        msg = f"a device calls itself {payload[:8]!r}, which is no address"
        raise ValueError(msg) from error
    return Enumerated(number, name, tuple(firmware), kind, event)


def digest(secret: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the proof that a secret is known."""
    return hmac.new(secret.encode("ascii"), server_nonce + client_nonce, hashlib.sha1).digest()
