from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pmtpy.backends._descriptor import marked, ours


def _file() -> int:
    return os.open("/dev/null", os.O_RDONLY)


def _pipe() -> int:
    first, second = os.pipe()
    os.close(second)
    return first


def _terminal() -> int:
    master, slave = os.openpty()
    os.close(master)
    return slave


def _socket() -> int:
    first, second = socket.socketpair()
    second.close()
    return first.detach()


@pytest.mark.parametrize("kind", [_file, _pipe, _terminal, _socket])
def test_a_descriptor_is_ours_until_its_number_is_anothers(kind: Callable[[], int], tmp_path: Path) -> None:
    fd = kind()
    mark = marked(fd)
    copy = os.dup(fd)
    assert ours(fd, mark)
    assert ours(copy, mark)  # what was opened is marked, not the number
    os.close(copy)
    os.close(fd)
    assert not ours(fd, mark)
    (tmp_path / "theirs").write_text("1")
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    if theirs != fd:
        os.dup2(theirs, fd)
    assert not ours(fd, mark)
    for number in {theirs, fd}:
        os.close(number)


def test_where_no_descriptor_can_be_marked_its_file_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(fd: int, command: int, value: int = 0) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))  # as of a kernel that does not know F_SETSIG

    monkeypatch.setattr("pmtpy.backends._descriptor.fcntl", refused)
    (tmp_path / "ours").write_text("1")
    (tmp_path / "theirs").write_text("2")
    fd = os.open(tmp_path / "ours", os.O_RDONLY)
    mark = marked(fd)
    assert ours(fd, mark)
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    os.dup2(theirs, fd)
    assert not ours(fd, mark)
    os.close(fd)
    os.close(theirs)
    assert not ours(fd, mark)
