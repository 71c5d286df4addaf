"""The folder beside a Parquet file that is not finished; :mod:`pmtpy.io._unfinished` says what is in it."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from pmtpy.errors import SinkError
from pmtpy.io import _unfinished as unfinished
from pmtpy.io.write.file import Output, already_there


class Journal:
    """Kept up while the file grows, removed when its end is written.

    Parameters
    ----------
    path : Path
        The Parquet file.
    facts : dict
        Metadata of the dump as known at its start.
    overwrite : bool
        Replace what an earlier dump left; otherwise that is an error, since rows can be read from it.
    """

    def __init__(self, path: Path, facts: dict[str, object], *, overwrite: bool) -> None:
        self._folder = unfinished.folder(path)
        if self._folder.exists():
            if not overwrite:
                raise already_there(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            msg = f"cannot write {self._folder}: {error.strerror}"
            raise SinkError(msg) from error
        opened: list[Output] = []
        try:
            for name in (unfinished.FACTS, unfinished.GROUPS, unfinished.TAIL):
                opened.append(Output(self._folder / name, overwrite=True))  # noqa: PERF401  (what was opened is closed)
            opened[0].write(json.dumps(facts).encode())
        except SinkError:
            self._close(opened)
            self.discard()
            raise
        self._opened = opened
        self._groups, self._tail = opened[1], opened[2]
        self._tailed = True  # whether all rows that wait are in the tail

    def group(self, account: bytes) -> None:
        """Note a row group that was written; the tail begins anew.

        Raises SinkError: there is no room for it: the row group must be taken back.
        """
        self._groups.write(unfinished.record(account))
        self._groups.settle()
        self.forget()
        self._tailed = True

    def rows(self, batch: bytes) -> None:
        """Note rows that wait for the next row group. Where there is no room, they are in memory alone."""
        if self._tailed:
            try:
                self._tail.write(unfinished.record(batch))
            except SinkError:
                self._tailed = False

    def forget(self) -> None:
        """Empty the tail: its rows are in a row group, or a row group needs the room."""
        self._tail.take_back(self._tail.size)
        self._tailed = False

    def remove(self) -> None:
        """Remove everything: the file has its end."""
        self._close(self._opened)
        self.discard()

    def release(self) -> None:
        """Close the files and leave them: the end could not be written."""
        self._close(self._opened)

    def discard(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _close(opened: list[Output]) -> None:
        for file in opened:
            with contextlib.suppress(SinkError):
                file.close()
