"""What a browser saves of a page is one file, and it says what is known of the sensor."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

pytest.importorskip("bokeh", reason="needs bokeh: pip install 'pmtpy[live]'")

from pmtpy.live.server import _one_file


def test_a_recording_of_two_files_is_an_archive_of_both(tmp_path: Path) -> None:
    path = tmp_path / "selection-virtual.csv"
    path.write_text("rows")
    assert _one_file(path) == ("selection-virtual.csv", b"rows")
    path.with_name(path.name + ".json").write_text('{"virtual": true}')
    name, content = _one_file(path)
    assert name == "selection-virtual.zip"
    with zipfile.ZipFile(BytesIO(content)) as archive:
        assert archive.namelist() == [path.name, path.name + ".json"]
        assert archive.read(path.name + ".json") == b'{"virtual": true}'
