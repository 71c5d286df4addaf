"""What lies beside a Parquet file until its end is written: enough to read it up to the last rows that were written.

Parquet keeps the account of its row groups in its last bytes, so a file whose writer was killed cannot be read. Beside
``run.parquet`` there is therefore the folder ``run.parquet.unfinished`` until the end, with three files::

    facts.json  the metadata of the dump, as known at its start
    groups      a record for each row group: its account, with places counted from the start of run.parquet
    tail        records of the rows that wait for the next row group, as Arrow streams

A record is its length (8 bytes, little-endian), its CRC-32 (4 bytes), then itself. A record that is cut short or does
not fit its checksum ends the list: nothing behind it is believed. Pure but for :func:`records`, which reads a file.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

FACTS, GROUPS, TAIL = "facts.json", "groups", "tail"
MAGIC = b"PAR1"
"""First and last four bytes of a Parquet file; the last are preceded by the length of the account (4 bytes)."""
FIRST_ROW = b"first_row"
"""Key of a tail record's schema metadata: the number of its first row, counted from the start of the dump."""

_HEAD = struct.Struct("<QI")


def folder(path: Path) -> Path:
    """Where the folder of an unfinished file is."""
    return path.with_name(path.name + ".unfinished")


def record(content: bytes) -> bytes:
    """Make a record of ``content``."""
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def records(path: Path) -> list[bytes]:
    """Return the contents of the whole records of a file, in order; none where there is no file."""
    if not path.is_file():
        return []
    rest = memoryview(path.read_bytes())
    found = []
    while len(rest) >= _HEAD.size:
        length, checksum = _HEAD.unpack_from(rest)
        content = bytes(rest[_HEAD.size : _HEAD.size + length])
        if len(content) < length or zlib.crc32(content) != checksum:
            break
        found.append(content)
        rest = rest[_HEAD.size + length :]
    return found
