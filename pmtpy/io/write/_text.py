"""A text file of rows together with the JSON file beside it: what the three text formats have in common."""

from __future__ import annotations

from dataclasses import replace

from pmtpy.errors import SinkError
from pmtpy.io.write.base import Ending, Header, metadata
from pmtpy.io.write.file import Buffer, Output, Sidecar


class TextFile:
    """Starts with a header line, grows by whole rows, ends with what is known at the end."""

    def __init__(self, output: Output, header: Header, columns: tuple[str, ...], first_line: str) -> None:
        self._output = output
        self._header = header
        self._columns = columns
        self._sidecar: Sidecar | None = None
        if output.regular and output.path is not None:
            self._sidecar = Sidecar(output.path, overwrite=output.overwrite)
            self._sidecar.write(metadata(header, columns))
        try:
            output.empty()
            output.write(first_line.encode() + b"\n")
        except SinkError:
            if self._sidecar is not None:
                self._sidecar.discard()
            raise

    def write(self, rows: Buffer) -> None:
        """Append whole rows in one call to the system."""
        self._output.write(rows)

    def close(self, ending: Ending) -> Ending:
        """Close the file, then let the sidecar say how it ended."""
        failure: SinkError | None = None
        try:
            try:
                self._output.settle()
            finally:
                self._output.close()
        except SinkError as error:
            failure = error
            ending = replace(ending, complete=False, error=ending.error or str(error))
        if self._sidecar is not None:
            self._sidecar.write(metadata(self._header, self._columns, ending))
        if failure is not None:
            raise failure
        return ending


def unbroken(label: str) -> str:
    """Return ``label`` on one line and without NULs, since a line break would cut the row in two."""
    return " ".join(label.replace("\0", " ").splitlines()).encode("utf-8", "replace").decode()
