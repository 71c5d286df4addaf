"""A file that is replaced as a whole, whoever else writes it and however its writer ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pmtpy.errors import SinkError
from pmtpy.io.whole import draft_of, put_whole


def test_two_writers_at_once_do_not_share_a_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.json"

    def other(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        put_whole(path, "of the other\n")
        assert path.read_text() == "of the other\n"

    monkeypatch.setattr(os, "fsync", other)  # while the first is in the middle of its writing
    put_whole(path, "of the first\n")
    assert path.read_text() == "of the first\n"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("end", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_write_that_does_not_end_leaves_the_old_file_and_no_draft(
    end: BaseException | type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profile.json"
    put_whole(path, "old\n")

    def ends(_descriptor: int) -> None:
        raise end

    monkeypatch.setattr(os, "fsync", ends)
    with pytest.raises((KeyboardInterrupt, SinkError)):
        put_whole(path, "new\n")
    assert path.read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signals")
def test_what_a_killed_writer_leaves_is_known_as_a_draft(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    killed = (
        "import os, pathlib, signal; os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL);"
        f"from pmtpy.io.whole import put_whole; put_whole(pathlib.Path({str(path)!r}), 'new')"
    )
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL
    (left,) = (p.name for p in tmp_path.iterdir())
    assert not left.endswith(".json")
    assert draft_of(left) == path.name
    assert draft_of(path.name) == ""
    put_whole(path, "new\n")
    assert path.read_text() == "new\n"


@pytest.mark.skipif(os.name != "posix", reason="no modes of files")
def test_who_may_read_the_file_is_as_the_user_has_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        put_whole(tmp_path / "profile.json", "new\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "profile.json").stat().st_mode) == 0o640
