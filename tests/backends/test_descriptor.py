from __future__ import annotations

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
