"""The columns of a dump as JLS, which long recordings can be looked at in without being read. Needs ``pyjls``.

:mod:`pmtpy.io.jls` says what stands where. The library writes by a thread of its own, in chunks of a tenth of a second,
so a process that is killed loses what waits in the writer and in one chunk. It does not tell when a disk refuses, and
leaves a file then that nothing can read: therefore rows are refused while a disk has hardly any room left.
"""

from __future__ import annotations

import ctypes
import json
import math
import shutil
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy._extras import extra
from pmtpy.core.channel import Identity
from pmtpy.core.rows import Floats, Frame, Ints
from pmtpy.errors import SinkError
from pmtpy.io import jls
from pmtpy.io.columns import column_names, columns
from pmtpy.io.write._library_descriptor import LibraryDescriptor
from pmtpy.io.write._text import unbroken
from pmtpy.io.write.base import Ending, Header, Options, metadata
from pmtpy.io.write.file import Output

_EPOCH_S = 1_514_764_800  # 2018-01-01, where JLS counts from, in units of 2**-30 s
_UNITS_PER_S = 1 << 30
_CHUNK_S = 0.1
_LEAST_CHUNK = 16  # samples: the library takes no fewer
_DECIMATE = 104  # samples of the first summary; a multiple of what the library rounds to
_UTC_S = 10.0  # between entries of the map to Unix time, where the nominal rate is right to
_UTC_OFF_S = 1e-3
_UNKNOWN_RATE = 1000
_MOST_SIGNALS = 255  # JLS_SIGNAL_COUNT is 256, and number 0 is the library's own
_RESERVE = 64 << 20  # bytes that stay free, for the summaries at the end
_MOST_SAMPLES = 1 << 18  # made at once, gaps filled


class JlsSink:
    """Writes a JLS file."""

    def __init__(self, output: Output, header: Header, _how: Options) -> None:
        if output.path is None or not output.regular:
            msg = f"JLS is written to an ordinary file, not to {output.name}; a stream takes csv"
            raise SinkError(msg)
        with extra("pyjls", "writing JLS"):
            import pyjls
        self._pyjls = pyjls
        self._output, self._header = output, header
        self._path = output.path
        self._columns = [c for c in columns(header.layout) if c.index >= 0]
        self._samples = [c for c in self._columns if c.array != "joules"]
        self._joules = [c for c in self._columns if c.array == "joules"]
        if (count := len(self._columns) + 1) > _MOST_SIGNALS:
            msg = (
                f"a JLS file holds at most {_MOST_SIGNALS} signals, and {header.target} would make {count}: powers,"
                " energies and other values of every channel; take .csv or .parquet"
            )
            raise SinkError(msg)
        self._require_room(f"take .csv or .parquet, or free {_RESERVE / 1e6:.0f} MB and more")
        self._rate = 0
        self._next = 0  # sample number of the next row, were nothing lost
        self._checkpoint = 0
        self._last: tuple[int, int, Floats] | None = None  # sample, time and joules of the newest row
        self._origin: tuple[int, Floats] | None = None
        self._utc: tuple[int, int] | None = None  # sample and time of the newest entry
        self._heard = jls.Complaints()
        self._heard.attach()
        try:
            self._file, self._descriptor = LibraryDescriptor.opened_by(self._opened, self._path)
        except (RuntimeError, ValueError) as error:
            self._heard.detach()
            msg = f"cannot write {self._path}: {error}"
            raise SinkError(msg) from error
        source = header.identity
        self._file.source_def(1, *_described(header.target, source, header.version))

    def _opened(self) -> Any:
        return self._pyjls.Writer(str(self._path))

    # -- the beginning ---------------------------------------------------------------------------------------------

    def _begin(self, frame: Frame) -> None:
        """Define the signals, once it is known how often rows come."""
        self._rate = _rate(self._header, frame)
        self._stride = max(1, self._rate // jls.CHECKPOINTS_HZ) if self._rate > 10 * jls.CHECKPOINTS_HZ else 1
        kinds = self._pyjls.DataType
        for number, column in enumerate(self._samples, start=1):
            self._define(number, column.name, self._rate, kinds.F32)
        self._marked = 1
        slow = max(1, self._rate // self._stride)
        for number, name in enumerate(("elapsed", *(c.name for c in self._joules)), start=len(self._samples) + 1):
            self._define(number, name, slow, kinds.F64)
        self._file.user_data(jls.AT_START, json.dumps(self._facts()))

    def _define(self, number: int, name: str, rate: int, kind: int) -> None:
        chunk = max(_LEAST_CHUNK, round(rate * _CHUNK_S))
        decimate = min(_DECIMATE, chunk)
        self._file.signal_def_from_struct(
            self._pyjls.SignalDef(
                signal_id=number,
                source_id=1,
                signal_type=self._pyjls.SignalType.FSR,
                data_type=kind,
                sample_rate=rate,
                samples_per_data=chunk,
                sample_decimate_factor=decimate,
                entries_per_summary=200,
                summary_decimate_factor=10,
                annotation_decimate_factor=100,
                utc_decimate_factor=100,
                name=name,
                units="s" if name == "elapsed" else name.rpartition("_")[2],
            )
        )

    def _facts(self, ending: Ending | None = None) -> dict[str, object]:
        kept = {
            "rate": self._rate,
            "stride": self._stride,
            "signals": [c.name for c in self._samples],
            "joules": [c.name for c in self._joules],
        }
        return metadata(self._header, column_names(self._header.layout), ending) | {"jls": kept}

    # -- rows ------------------------------------------------------------------------------------------------------

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``."""
        if not len(frame):
            return
        self._check_room()
        if self._origin is None:
            self._begin(frame)
            self._origin = (int(frame.t_ns[0]), frame.joules[0].copy())
            self._file.user_data(jls.AT_FIRST, json.dumps({"unix_ns": int(frame.t_ns[0]) + self._unix_ns}))
        if not frame.lost.any():
            ids, cuts = self._next + np.arange(len(frame)), set[int]()
        else:
            gaps = np.minimum(frame.lost, self._rate * jls.LONGEST_GAP_S)
            if self._last is None:
                gaps[0] = 0  # before the first row there is no time
            ids = self._next + np.cumsum(gaps + 1) - 1
            cuts = set(np.flatnonzero(frame.lost > gaps).tolist())
        # A gap that is shorter here than in time begins a piece, and so does what would be too much at once.
        if ids[0] // _MOST_SAMPLES < ids[-1] // _MOST_SAMPLES:
            cuts |= set((np.flatnonzero(np.diff(ids // _MOST_SAMPLES)) + 1).tolist())
        for start, stop in pairwise(sorted({0, len(frame), *cuts})):
            self._append(frame.part(start, stop), ids[start:stop])

    def _check_room(self) -> None:
        if self._heard.errors:
            msg = f"cannot write to {self._path}: {self._heard.errors[0]}"
            raise SinkError(msg)
        self._require_file("cannot write to")
        self._require_room("rows that come meanwhile are not kept")

    def _require_file(self, cannot: str) -> None:
        try:
            self._descriptor.keep()
        except OSError as error:
            # It writes its summaries when it is forgotten, too: to whatever has its number.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._file))
            msg = f"{cannot} {self._path}: {error.strerror}; what came before is in it, but for the last moments"
            raise SinkError(msg) from error

    def _require_room(self, what: str) -> None:
        free = shutil.disk_usage(self._path).free
        if free < _RESERVE:
            need = f"JLS needs {_RESERVE / 1e6:.0f} to end"
            msg = f"cannot write to {self._path}: {free / 1e6:.0f} MB are free, and {need}; {what}"
            raise SinkError(msg)

    @property
    def _unix_ns(self) -> int:
        return self._header.anchor.unix_offset_ns

    def _append(self, frame: Frame, ids: Ints) -> None:
        self._map_to_unix(int(ids[0]), int(frame.t_ns[0]))
        start, length = self._next, int(ids[-1]) + 1 - self._next
        signals = _signals(frame, None if length == len(ids) else ids - start, length)
        for number, column in enumerate(self._samples, start=1):
            behind = frame.watts.shape[1] if column.array == "values" else 0
            self._file.fsr_f32(number, start, signals[behind + column.index])
        self._append_checkpoints(frame, ids)
        said = [(row, jls.LOSS, f"{int(frame.lost[row])} lost") for row in np.flatnonzero(frame.lost).tolist()]
        said += [(row, jls.MARK, unbroken(label)) for row, label in frame.marks]
        for row, group, text in sorted(said, key=lambda s: s[0]):  # in order: a reader seeks among them
            self._annotate(int(ids[row]), group, text)
        self._next = int(ids[-1]) + 1
        self._last = (int(ids[-1]), int(frame.t_ns[-1]), frame.joules[-1].copy())

    def _append_checkpoints(self, frame: Frame, ids: Ints) -> None:
        """Write time and joules at every sample number that the stride divides: of the last row up to it."""
        assert self._origin is not None  # noqa: S101  (set by the caller)
        start_ns, start_joules = self._origin
        at = np.arange(self._checkpoint, int(ids[-1]) // self._stride + 1) * self._stride
        if not len(at):
            return
        # Of all rows those on either side of a checkpoint matter, and the first, before which a gap may lie.
        row = np.searchsorted(ids, at, side="right")
        near = np.unique(np.concatenate([[0], np.maximum(row - 1, 0), np.minimum(row, len(ids) - 1)]))
        last = self._last or (int(ids[0]), int(frame.t_ns[0]), frame.joules[0])
        rows = np.concatenate([[last[0]], ids[near]])
        t_ns = np.concatenate([[last[1]], frame.t_ns[near]])
        which = np.searchsorted(rows, at, side="right") - 1
        joules = np.concatenate([last[2][None], frame.joules[near]])[which] - start_joules
        number = len(self._samples) + 1
        if len(rows) > 1 and rows[1] - rows[0] == self._rate * jls.LONGEST_GAP_S + 1:
            # The gap was longer in time: both of its ends keep the pace of the rows, and the jump is in its middle.
            middle, step_ns = (rows[0] + rows[1]) // 2, 1e9 / self._rate
            jump = [t_ns[0] + (middle - rows[0]) * step_ns, t_ns[1] - (rows[1] - middle - 1) * step_ns]
            if jump[0] < jump[1]:  # else rows came closer than the nominal rate says: time goes evenly
                rows, t_ns = np.insert(rows, 1, [middle, middle + 1]), np.insert(t_ns, 1, np.array(jump, np.int64))
        self._file.fsr(number, self._checkpoint, np.interp(at, rows, (t_ns - start_ns) / 1e9))
        for i, column in enumerate(self._joules, start=1):
            self._file.fsr(number + i, self._checkpoint, np.ascontiguousarray(joules[:, column.index]))
        self._checkpoint += len(at)

    def _map_to_unix(self, sample: int, t_ns: int) -> None:
        """Tell other readers when the samples were taken, as often as the nominal rate does not."""
        if self._utc is not None:
            known, known_ns = self._utc
            passed_s = (t_ns - known_ns) / 1e9
            off_s = abs(passed_s - (sample - known) / self._rate)
            if passed_s < _UTC_S and off_s < _UTC_OFF_S:
                return
            if off_s >= _UTC_OFF_S and self._last is not None and self._last[0] > known:
                self._enter(self._last[0], self._last[1])
        self._enter(sample, t_ns)

    def _enter(self, sample: int, t_ns: int) -> None:
        self._utc = (sample, t_ns)
        unix_ns = t_ns + self._unix_ns - _EPOCH_S * 10**9
        unix = (unix_ns * _UNITS_PER_S) // 10**9
        for number in range(1, len(self._samples) + 1):
            self._file.utc(number, sample, unix)
        for number in range(len(self._samples) + 1, len(self._samples) + len(self._joules) + 2):
            if sample % self._stride == 0:
                self._file.utc(number, sample // self._stride, unix)

    def _annotate(self, sample: int, group: int, text: str) -> None:
        self._file.annotation(self._marked, sample, math.nan, self._pyjls.AnnotationType.TEXT, group, text)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self, ending: Ending) -> Ending:
        """Write the metadata, close the file, and see that all rows are in it."""
        try:
            self._require_file("cannot finish")
            if self._origin is None:
                self._begin(_NOTHING)
            self._file.user_data(jls.AT_END, json.dumps(self._facts(ending)))
            self._file.close()
            if self._heard.errors:
                msg = f"cannot finish {self._path}: {self._heard.errors[0]}; it may not be readable"
                raise SinkError(msg)
        except RuntimeError as error:
            msg = f"cannot finish {self._path}: {error}; it may not be readable"
            raise SinkError(msg) from error
        finally:
            self._heard.detach()
            self._output.close()
        return ending


_NONE, _NO_ROWS = np.empty((0, 1)), np.empty(0, np.int64)
_NOTHING = Frame(_NO_ROWS, _NONE, _NONE, _NONE, _NO_ROWS, _NO_ROWS)


def _signals(frame: Frame, place: Ints | None, length: int) -> npt.NDArray[np.float32]:
    """Return watts and values, shape (signals, length), with NaN where rows are lost.

    ``place`` says where each row is; None: nothing is lost.
    """
    made = np.empty((frame.watts.shape[1] + frame.values.shape[1], len(frame)), np.float32)
    np.concatenate([frame.watts.T, frame.values.T], out=made, casting="same_kind")
    if place is None:
        return made
    filled = np.full((len(made), length), np.nan, np.float32)
    filled[:, place] = made
    return filled


def _rate(header: Header, frame: Frame) -> int:
    """Return the nominal samples a second: of the interval asked for, the polls, the device, or of the first rows."""
    known = header.interval_s or header.polled_s
    if known is None:
        known = min((c.refresh_s for c in header.layout.energy if c.refresh_s), default=None)
    if known is None and len(frame) > 1:
        known = float(np.median(np.diff(frame.t_ns) / (1 + frame.lost[1:]))) / 1e9
    return max(1, round(1 / known)) if known else _UNKNOWN_RATE


def _described(target: str, identity: Identity, version: str) -> tuple[str, ...]:
    """Name, vendor, model, version and serial number of the source, for other readers."""
    name = target + (" [virtual]" if identity.virtual else "")
    return name, identity.backend, identity.model, f"{identity.version}; pmtpy {version}", identity.serial
