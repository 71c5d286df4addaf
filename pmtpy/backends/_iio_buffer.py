"""Buffers of Linux' industrial I/O: conversions of a chip as the kernel stamped them, whatever the chip is.

Facts: Linux ``Documentation/ABI/testing/sysfs-bus-iio`` and ``Documentation/iio/iio_devbuf.rst``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pmtpy._handlers import of_a_handler
from pmtpy.backends._descriptor import marked, ours
from pmtpy.backends._sysfs import optional_text
from pmtpy.core.clock import NS_PER_S
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import BackendUnavailableError, SourceLostError

_STAMP = "in_timestamp"
_LENGTH = 4096  # conversions that the kernel keeps: seconds
_READ_BYTES = 1 << 16
_CLOCK_NS = 3600 * NS_PER_S  # Unix time is decades away
_TYPE = re.compile(r"(le|be):([su])(\d+)/(\d+)(?:X\d+)?>>(\d+)")


def number_of(folder: Path, name: str) -> float | None:
    """Return the number in a file of a chip; None where there is none."""
    try:
        return float(optional_text(folder / name) or "")
    except ValueError:
        return None


class Buffer:
    """The conversions of some channels of a chip. Owns the descriptor; used by one thread at a time.

    Parameters
    ----------
    signed : sequence of str
        Channels that bear a sign whatever the driver says.

    Raises BackendUnavailableError: another program captures from it, not permitted, or a driver that stores otherwise.
    """

    def __init__(
        self, backend: str, folder: Path, node: Path, channels: Sequence[str], *, signed: Sequence[str] = ()
    ) -> None:
        self._folder, self._channels = folder, channels
        self._layout = _layout(backend, folder, channels, signed)
        self._rest, self._last_ns = b"", -1
        self._lost: SourceLostError | None = None
        self._fd = _switched_on(backend, folder, node, channels)
        self._mark = marked(self._fd)

    def read(self, now_ns: int) -> tuple[Ints, Floats]:
        """Take what has come: stamps on the monotonic clock, shape (n,), and counts, shape (n, channels).

        Raises SourceLostError: the chip is gone, the program has closed the descriptor, or the stamps are of another
        clock; every later call raises it again.
        """
        if self._lost is not None:
            raise self._lost
        data = self._rest + self._drained()
        whole = np.frombuffer(data, self._layout, len(data) // self._layout.itemsize)
        self._rest = data[len(whole) * self._layout.itemsize :]
        whole = whole[whole[_STAMP] > self._last_ns]
        if not len(whole):
            return np.empty(0, np.int64), np.empty((0, len(self._channels)))
        if abs(int(whole[_STAMP][-1]) - now_ns) > _CLOCK_NS:
            raise self._gone(
                "its timestamps are no longer on the monotonic clock, another program has changed that; open the"
                " sensor again"
            )
        t_ns = np.maximum.accumulate(whole[_STAMP].astype(np.int64))
        keep = np.diff(t_ns, prepend=self._last_ns) > 0
        t_ns, whole = t_ns[keep], whole[keep]
        self._last_ns = int(t_ns[-1])
        return t_ns, np.stack([whole[c] for c in self._channels], axis=1).astype(np.float64)

    def _drained(self) -> bytes:
        if not ours(self._fd, self._mark):
            # Another program may have set the buffer up since, with other channels.
            raise self._gone("the program has closed its descriptor; reopen the sensor")
        parts: list[bytes] = []
        while not parts or len(parts[-1]) == _READ_BYTES:
            try:
                parts.append(os.read(self._fd, _READ_BYTES))
            except BlockingIOError:
                break
            except OSError as error:
                if of_a_handler(error):
                    raise
                raise self._gone(f"the chip is gone ({error.strerror}); reopen the sensor") from error
            if not parts[-1]:
                break
        return b"".join(parts)

    def _gone(self, why: str) -> SourceLostError:
        self._lost = SourceLostError(f"{self._folder.name}: {why}")
        return self._lost

    def close(self) -> None:
        """Switch the buffer off and close it. May be called twice."""
        if self._fd < 0:
            return
        if ours(self._fd, self._mark):
            os.close(self._fd)
        self._fd = -1
        with contextlib.suppress(OSError):
            (self._folder / "buffer/enable").write_text("0")


def _switched_on(backend: str, folder: Path, node: Path, channels: Sequence[str]) -> int:
    """Have the chip convert, with stamps of the monotonic clock; return the descriptor of its node."""
    try:
        (folder / "buffer/enable").write_text("0")
        for path in sorted((folder / "scan_elements").glob("*_en")):
            path.write_text("1" if path.name[:-3] in {*channels, _STAMP} else "0")
        (folder / "current_timestamp_clock").write_text("monotonic")
        with contextlib.suppress(FileNotFoundError):  # 0: wait for the conversion, so that none comes twice
            (folder / "in_allow_async_readout").write_text("0")
        (folder / "buffer/length").write_text(str(_LENGTH))
        (folder / "buffer/enable").write_text("1")
        return os.open(node, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if of_a_handler(error):
            raise
        cure = {
            errno.EBUSY: "end the other program that captures from it",
            errno.EACCES: f"$ sudo chmod -R a+rw {folder} {node}",
        }.get(error.errno or 0, "see what the kernel says: $ dmesg | tail")
        raise BackendUnavailableError(backend, f"{error.filename or folder}: {error.strerror}", cure) from error


def _field(backend: str, folder: Path, channel: str, *, signed: bool) -> tuple[int, str]:
    """Return (index, numpy type) of a channel in the buffer's records."""
    found = _TYPE.fullmatch(optional_text(folder / f"scan_elements/{channel}_type") or "")
    index = number_of(folder, f"scan_elements/{channel}_index")
    if found is None or index is None or int(found[4]) not in {8, 16, 32, 64} or found[5] != "0":
        why = f"{folder.name} does not say how it stores {channel}"
        raise BackendUnavailableError(backend, why, "see which driver has it: name in its folder")
    return int(
        index
    ), f"{'<' if found[1] == 'le' else '>'}{'i' if signed or found[2] == 's' else 'u'}{int(found[4]) // 8}"


def _layout(backend: str, folder: Path, channels: Sequence[str], signed: Sequence[str]) -> np.dtype[np.void]:
    """Return the layout of a record: fields in the order of their index, each aligned to its size."""
    fields = sorted((*_field(backend, folder, c, signed=c in signed), c) for c in (*channels, _STAMP))
    offsets, at = [], 0
    for _, kind, _ in fields:
        size = np.dtype(kind).itemsize
        at = -(-at // size) * size
        offsets.append(at)
        at += size
    at = -(-at // 8) * 8
    return np.dtype(
        {"names": [n for *_, n in fields], "formats": [k for _, k, _ in fields], "offsets": offsets, "itemsize": at}
    )
