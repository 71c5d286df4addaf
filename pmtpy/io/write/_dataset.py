"""Rows as part of a data set of many hosts: Parquet files in folders of host and day. Needs ``pyarrow``.

``ROOT/host=NODE/date=DAY/JOB.SENSOR.RUN-NUMBER.parquet``, with one line for each row and channel, so that every file
has the same columns and any engine reads the tree as one table. Energies are cumulative over a run, which goes through
several files: what an interval used is a difference, also where rows were thinned or lost. A file appears in one step,
when it is whole; of a writer that is killed, the file that it was at is missing (docs/data-sets.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pmtpy._extras import extra
from pmtpy.core.channel import TOTAL
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Frame, Ints
from pmtpy.errors import SinkError
from pmtpy.io.columns import DATA_SET, with_gap
from pmtpy.io.write.base import Ending, Header
from pmtpy.io.write.file import Buffer, Output

_GROUP = 100_000  # lines of a row group: a few seconds of a stream, hours of a register
_DAY_S = 86400
# What makes a file, at most: of a line six numbers that do not compress (10 to 34 were seen), and what they are told
# apart by; of a row group its 13 columns, each with its place in the file and the least and greatest of its values,
# which stand at the file's end; and what else stands there.
_LINE_BYTES, _GROUP_BYTES, _GROUP_END_BYTES, _END_BYTES = 56, 1500, 1400, 1400
_WORTH_A_GROUP = 0.25  # of a file: what waits is written, to see how large it is, where it may be more than that


@dataclass(frozen=True, slots=True)
class DataSetPlace:
    """Where a data set grows."""

    root: Path
    # of the rows to come
    host: str
    job: str = ""
    most_bytes: int | None = None  # a file is ended before it is larger, and the next begun
    every_s: int = _DAY_S  # so is one at each multiple of this, from midnight in UTC

    def __fspath__(self) -> str:
        """Return the root."""
        return str(self.root)


def _name(text: str) -> str:
    """Return a text as part of a file's name; engines take a leading point or line as hidden, and Spark no colon."""
    return re.sub(r"[^A-Za-z0-9_+-]+", "-", text).strip("-_") or "none"


def _run_of(header: Header) -> str:
    """Return what tells a run from others: when it began, its clock, its device, and something random.

    The clock is the boot of the node, and what was added to its monotonic clock, in microseconds; the device is told by
    its serial number. By both pmtpy.cluster.dataset tells what two runs saw together: a wall clock may be set, and jobs
    that each have a GPU of their own call all of them by one name. Where nothing tells one boot from another (the node
    is its host's name), the wall clock has to do.
    """
    machine, anchor = header.origin.get("machine", {}), header.anchor
    boot = machine.get("node", "") if machine.get("node") != machine.get("host") else ""
    clock = f"{_digest(boot)}-{anchor.unix_offset_ns // 1000 if boot else 0}"
    return f"{anchor.unix_ns // 10**6:x}-{clock}-{_digest(header.identity.serial)}-{secrets.token_hex(3)}"


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(errors="replace"), digest_size=4).hexdigest() if text else "0"


class DataSetSink:
    """Writes the files of one sensor's run."""

    def __init__(self, place: DataSetPlace, header: Header) -> None:
        with extra("pyarrow", "writing a data set"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        self._pa, self._pq = pa, pq
        # A program that becomes a daemon goes to another folder.
        self._place = replace(place, root=place.root.absolute())
        self._unix_ns = header.anchor.unix_offset_ns
        self._run = _run_of(header)
        self._texts = {"job": place.job, "sensor": header.target, "run": self._run}
        self._virtual = header.identity.virtual
        energy = header.layout.energy
        first = 0 if header.layout.has_total else 1  # a zero would pass for a measurement
        self._channels = [*([TOTAL] if not first else []), *(c.name for c in energy)]
        self._gains = np.array([0.0, *(c.gain_u for c in energy)])
        alike: dict[str, list[int]] = {}  # the parts of the total, by their kinds
        for i in header.layout.in_total:
            alike.setdefault(energy[i - 1].kind, []).append(i)
        self._alike = list(alike.values())
        self._columns = list(range(first, len(energy) + 1))
        text = pa.dictionary(pa.int32(), pa.string())
        kinds = {"time": pa.float64(), "lost": pa.int64(), "virtual": pa.bool_()}
        kinds |= dict.fromkeys(("job", "sensor", "channel", "run"), text)
        self._schema = pa.schema([(n, kinds.get(n, pa.float64())) for n in DATA_SET])
        self._first: Frame | None = None  # one row, from which joules count
        self._is_safe = False  # whether a file that holds it is whole
        self._waiting: list[Frame] = []
        self._lines = 0
        # of the file at hand, all rows that it was given, and those that are missing before or between them
        self._given = 0
        self._gaps = 0
        # of those that were given up: rows in all, and samples missing before the next row that is taken
        self._dropped = 0
        self._gap = 0
        self._number = 0
        self._open: _File | None = None
        try:
            place.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {place.root}: {error.strerror}"
            raise SinkError(msg) from error

    def write(self, frame: Frame) -> None:
        """Take the rows of ``frame``, each into the file of its hour and day, or none and raise SinkError."""
        if not len(frame):
            return
        if self._first is None:
            self._first = replace(frame.part(0, 1), lost=np.zeros(1, np.int64), marks=())
        first, *others = self._cut(frame)
        self._make_way(first)
        self._take(first)
        for part in others:
            self._take_or_lose(part)

    def _take_or_lose(self, part: Frame) -> None:
        """Take a part of a frame of which others were taken, so that whoever wrote it cannot count its rows."""
        try:
            self._make_way(part)
        except SinkError:
            self._dropped += len(part)
            self._gap += len(part) + int(part.lost.sum())
        else:
            self._take(part)

    def _make_way(self, part: Frame) -> None:
        """See that there is a file for the part, which has room; SinkError where the disk has none."""
        day, nth = self._keys(part.t_ns[:1])[0].tolist()
        key = np.datetime64(day, "D").item().isoformat(), nth
        worth = self._lines * _LINE_BYTES > _WORTH_A_GROUP * (self._place.most_bytes or 0)
        if self._lines >= _GROUP or (worth and self._is_full(len(part))):
            self._flush()
        if self._open is not None and (self._open.key != key or self._is_full(len(part))):
            self._finish()
        if self._open is None:
            self._begin(key)

    def _take(self, part: Frame) -> None:
        part, self._gap = with_gap(part, self._gap), 0
        self._waiting.append(part)
        self._lines += len(part) * len(self._channels)
        self._given += len(part)
        self._gaps += int(part.lost.sum())

    def _cut(self, frame: Frame) -> list[Frame]:
        """Cut rows where the folder or the file changes."""
        keys = self._keys(frame.t_ns)
        edges = [0, *(np.flatnonzero(np.any(np.diff(keys, axis=0), axis=1)) + 1).tolist(), len(frame)]
        return [frame.part(a, b) for a, b in itertools.pairwise(edges)]

    def _keys(self, t_ns: Ints) -> Ints:
        """Return the day since 1970 of each row, and which of the day's files it belongs to."""
        unix_s = (t_ns + self._unix_ns) // 10**9
        return np.stack([unix_s // _DAY_S, unix_s % _DAY_S // self._place.every_s], axis=1)

    def _is_full(self, rows: int) -> bool:
        """Whether the file, with what waits and so many rows more, may be larger than one is to be."""
        most, file = self._place.most_bytes, self._open
        if most is None or file is None or not self._given:
            return False
        waiting = _GROUP_BYTES + (self._lines + rows * len(self._channels)) * _LINE_BYTES
        return file.size() + waiting + _END_BYTES + (file.groups + 1) * _GROUP_END_BYTES > most

    # -- files -------------------------------------------------------------------------------------------------------

    def _begin(self, key: tuple[str, int]) -> None:
        folder = self._place.root / f"host={_name(self._place.host)}" / f"date={key[0]}"
        name = f"{_name(self._place.job)}.{_name(self._texts['sensor'])}.{self._run}-{self._number:04d}.parquet"
        self._number += 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._open = _File(key, folder / name, self._pq, self._schema)
        except OSError as error:
            msg = f"cannot write {folder / name}: {error.strerror or error}"
            raise SinkError(msg) from error
        self._given = self._gaps = 0
        if self._number > 1 and not self._is_safe and self._first is not None:
            # Else the energy of the rows that were given up would be in no difference.
            self._waiting, self._lines = [self._first], len(self._channels)

    def _flush(self) -> None:
        """Write what waits as a row group: by channel, then by time, which takes least room."""
        if not self._waiting or self._open is None:
            return
        frames, self._waiting, self._lines = self._waiting, [], 0
        try:
            self._open.write(self._table(frames))
        except (OSError, SinkError, self._pa.ArrowException) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Drop the file that the disk refuses to finish; its rows are lost, the energies of the run are not."""
        assert self._open is not None  # noqa: S101  (the caller has one)
        path = self._open.path
        self._open.discard()
        self._open = None
        self._dropped += self._given
        self._gap += self._given + self._gaps
        cause = error.__cause__ or error
        why = (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
        msg = f"cannot write {path}: {why}; the {amount(self._given, 'row')} of that file are missing"
        raise SinkError(msg) from error

    def _finish(self) -> None:
        self._flush()
        if self._open is None:
            return
        file = self._open
        try:
            file.finish()
        except (OSError, SinkError, self._pa.ArrowException) as error:
            self._give_up(error)
        self._is_safe = True
        self._open = None

    def _table(self, frames: Sequence[Frame]) -> Any:
        pa, width = self._pa, len(self._channels)
        t_ns = np.concatenate([f.t_ns for f in frames])
        unix_ns = t_ns + self._unix_ns
        rows = len(t_ns)
        origin = self._first.joules[0] if self._first is not None else 0.0
        joules = np.concatenate([f.joules for f in frames]) - origin
        watts = np.concatenate([f.watts for f in frames])
        gaps = np.concatenate([f.uncovered_ns for f in frames])
        lost = np.concatenate([f.lost for f in frames])

        def by_channel(values: Any) -> Any:
            return pa.array(np.ascontiguousarray(values[:, self._columns].T).ravel())

        def text(values: list[str], index: Any) -> Any:
            return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(values, pa.string()))

        nothing = np.zeros(rows * width, np.int32)
        made = {
            "time": pa.array(np.tile(unix_ns // 10**9 + unix_ns % 10**9 / 1e9, width)),
            "channel": text(self._channels, np.repeat(np.arange(width, dtype=np.int32), rows)),
            "joules": by_channel(joules),
            "watts": by_channel(watts),
            "uncovered_s": by_channel(gaps / 1e9),
            "lost": pa.array(np.tile(np.asarray(lost, np.int64), width)),
            "gain_u": by_channel(self._gains_of(joules)),
            "virtual": pa.array(np.full(rows * width, self._virtual)),
            **{name: text([value], nothing) for name, value in self._texts.items()},
        }
        return pa.Table.from_arrays([made[n] for n in DATA_SET], schema=self._schema)

    def _gains_of(self, joules: Floats) -> Floats:
        """Return the relative uncertainty of all gains; that of the total by what its parts have used since the begin.

        Parts of one kind err alike and add linearly, kinds in squares (:func:`pmtpy.core.channel.sum_of_kinds`).
        """
        gains = np.repeat(self._gains[None, :], len(joules), axis=0)
        off = np.abs(joules * self._gains)
        summed = np.sqrt(sum(off[:, alike].sum(axis=1) ** 2 for alike in self._alike))
        used = np.abs(joules[:, 0])
        gains[:, 0] = np.divide(summed, used, out=np.zeros_like(used), where=used > 0.0)
        return gains

    def close(self, ending: Ending) -> Ending:
        """Finish the last file; say of how many rows there is none."""
        with contextlib.suppress(SinkError):
            self._finish()
        if not self._dropped:
            return ending
        text = "; ".join(
            filter(
                None,
                (ending.error, f"{amount(self._dropped, 'row')} of files that were given up found no room"),
            )
        )
        return replace(
            ending, rows=ending.rows - self._dropped, dropped=ending.dropped + self._dropped, complete=False, error=text
        )


class _File:
    """One Parquet file that is being written, under a name that no engine looks at."""

    def __init__(self, key: tuple[str, int], path: Path, pq: Any, schema: Any) -> None:
        self.key, self.path, self.groups = key, path, 0
        self._draft = path.with_name(f".{path.name}.tmp")
        self._output = Output(self._draft)
        try:
            self._writer = pq.ParquetWriter(
                _Stream(self._output), schema, compression="zstd", use_dictionary=True, write_page_checksum=True
            )
        except BaseException:
            self._output.discard()
            raise

    def size(self) -> int:
        return self._output.size

    def write(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=len(table))
        self.groups += 1

    def finish(self) -> None:
        self._writer.close()
        self._output.settle()
        self._output.close()
        self._draft.replace(self.path)

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.close()
        self._output.discard()


class _Stream(io.RawIOBase):
    """An output as a file to write to, which is left open: the library closes what it is given."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, content: Buffer) -> int:  # type: ignore[override]
        self._output.write(content)
        return len(content)

    def tell(self) -> int:
        return self._output.size
