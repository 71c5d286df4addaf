from __future__ import annotations

import errno
import gc
import os
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends import _sysfs
from pmtpy.backends._sysfs import Registers, entries, natural, number, optional_number, optional_text, sysfs_root
from pmtpy.errors import ReadError
from tests.support.daemons import numbers_of_a_socket


@given(st.integers(-(2**63), 2**64 - 1))
def test_every_number_that_a_register_can_hold_comes_back_as_it_is(value: int) -> None:
    assert number(f"{value}\n".encode()) == value


@given(st.binary(max_size=80))
def test_any_bytes_are_a_plain_number_or_refused(raw: bytes) -> None:
    try:
        value = number(raw)
    except ValueError:
        return
    assert raw.strip().lstrip(b"+-").isdigit()
    assert value == int(raw.strip())


@pytest.mark.parametrize("raw", [b"", b"\n", b"12 34\n", b"1_000\n", b"0x10\n", b"1.5\n", b"<not counted>", b"9" * 40])
def test_what_is_no_number_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        number(raw)


def test_the_root_is_given_or_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PMT_SYSFS_ROOT", raising=False)
    assert sysfs_root() == Path("/sys")
    monkeypatch.setenv("PMT_SYSFS_ROOT", "/host/sys")
    assert sysfs_root() == Path("/host/sys")
    assert sysfs_root("/elsewhere") == Path("/elsewhere")


def test_numbers_in_names_sort_as_numbers() -> None:
    assert sorted(["hwmon10", "hwmon2", "hwmon"], key=natural) == ["hwmon", "hwmon2", "hwmon10"]


def test_a_device_that_several_links_reach_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "devices" / "a").mkdir(parents=True)
    class_directory = tmp_path / "class"
    class_directory.mkdir()
    for name in ("first", "second"):
        (class_directory / name).symlink_to("../devices/a")
    (class_directory / "gone").symlink_to("../devices/b")
    listing = entries(class_directory)
    assert listing.paths == ((tmp_path / "devices" / "a").resolve(),)
    assert listing.dangling == ("gone",)
    assert entries(tmp_path / "nowhere") == _sysfs.Listing()


def test_an_optional_attribute_is_none_when_absent_or_garbled(tmp_path: Path) -> None:
    (tmp_path / "label").write_bytes(b" Vdd \n\0")
    assert optional_text(tmp_path / "label") == "Vdd"
    assert optional_text(tmp_path / "none") is None
    assert optional_number(tmp_path / "label") is None
    assert optional_number(tmp_path / "none") is None


def _files(folder: Path, *contents: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"n{i}" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(content)
    return paths


def test_registers_follow_a_file_that_is_rewritten_in_place(tmp_path: Path) -> None:
    paths = _files(tmp_path, "1\n", "22\n")
    registers = Registers(lambda: paths)
    assert registers.numbers() == [1, 22]
    paths[1].write_text("-7\n")
    assert registers.numbers() == [1, -7]
    assert registers.texts() == ["1", "-7"]
    assert registers.openings == 1
    registers.close()
    registers.close()


def test_a_garbled_file_is_named(tmp_path: Path) -> None:
    paths = _files(tmp_path, "1\n", "two\n")
    registers = Registers(lambda: paths)
    with pytest.raises(ReadError, match=r"n1: it holds b'two"):
        registers.numbers()
    registers.close()


def test_where_no_file_can_be_read_it_is_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file in files:
        file.write_text("1\n")
    registers = Registers(lambda: files, alone=range(3))

    def denied(fd: int, size: int, offset: int) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "pread", denied)
    with pytest.raises(ReadError, match=r"none of 3 files can be read: .*/a: permission denied; .*/b: permission den"):
        registers.numbers()
    registers.close()


def test_a_missing_file_is_an_error_at_opening_and_leaves_no_descriptor(tmp_path: Path) -> None:
    paths = [*_files(tmp_path, "1\n"), tmp_path / "none"]
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        Registers(lambda: paths)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _failing(code: int, dead: set[int]) -> object:
    real = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        if fd in dead:
            raise OSError(code, os.strerror(code))
        return real(fd, size, offset)

    return pread


@pytest.mark.parametrize("code", [errno.ENODATA, errno.EIO, errno.EINVAL, errno.EAGAIN, errno.ENXIO, errno.ETIMEDOUT])
def test_a_failure_that_may_pass_is_said_and_opens_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    paths = _files(tmp_path, "1\n", "2\n")
    registers = Registers(lambda: paths)
    dead = {registers._fds[1]}
    monkeypatch.setattr(os, "pread", _failing(code, dead))
    with pytest.raises(ReadError, match=f"n1: {_sysfs._WORDS[code][:8]}"):
        registers.numbers()
    dead.clear()
    assert registers.numbers() == [1, 2]
    assert registers.openings == 1
    registers.close()


def test_a_removed_device_is_looked_for_again_and_found_at_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = _files(tmp_path / "old", "1\n"), _files(tmp_path / "new", "5\n")
    place = [old]
    registers = Registers(lambda: place[0])
    dead = {registers._fds[0]}

    def pread(fd: int, size: int, offset: int, /) -> bytes:
        # A removed device: its descriptor is dead, though the number of the descriptor may be used again.
        if fd in dead and Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(tmp_path / "old"):
            raise OSError(errno.ENODEV, "No such device")
        return real(fd, size, offset)

    real = os.pread
    monkeypatch.setattr(os, "pread", pread)
    place[0] = [tmp_path / "nowhere"]
    for _ in range(2):
        with pytest.raises(ReadError, match="nowhere: the file does not exist"):
            registers.numbers()
    place[0] = new
    assert registers.numbers() == [5]
    assert registers.openings == 2
    assert registers.paths == tuple(new)
    registers.close()


def test_files_that_are_replaced_rather_than_rewritten_are_followed(tmp_path: Path) -> None:
    paths = _files(tmp_path, "1\n", "2\n")
    registers = Registers(lambda: paths)
    for i in range(10):
        for path in paths:
            new = path.with_suffix(".new")
            new.write_text(f"{i}\n")
            new.replace(path)
        assert registers.numbers() == [i, i]
        assert registers.texts() == [str(i), str(i)]
    assert registers.openings == 1
    registers.close()


@pytest.mark.parametrize("before", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("rewritten", [False, True])
def test_a_replaced_file_is_seen_at_the_first_reading_whatever_was_read_before(
    tmp_path: Path, before: int, *, rewritten: bool
) -> None:
    paths = _files(tmp_path, "1\n")
    registers = Registers(lambda: paths)
    for _ in range(before):
        assert registers.numbers() == [1]
    if rewritten:
        paths[0].write_text("2\n")
    (tmp_path / "new").write_text("3\n")
    (tmp_path / "new").replace(paths[0])
    assert registers.numbers() == [3]
    registers.close()


def test_files_of_the_kernel_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag")
    if not path.exists():
        pytest.skip(f"this machine's sysfs has no {path}")
    registers = Registers(lambda: [path])
    looks: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", looks.append)
        shown = registers.numbers()
    assert shown[0] in {0, 1}
    assert not looks
    registers.close()


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
@pytest.mark.parametrize("at", [0, 2**30])
@pytest.mark.parametrize("alone", [(), (1,)])
def test_a_program_that_closes_all_descriptors_loses_none_and_keeps_its_own(
    tmp_path: Path, taken: int, at: int, alone: tuple[int, ...]
) -> None:
    """The lowest numbers are used again first, by files that hold numbers as well."""
    paths, others = _files(tmp_path / "ours", "1\n", "2\n", "3\n"), _files(tmp_path / "theirs", "7\n", "8\n", "9\n")
    registers = Registers(lambda: paths, alone=alone)
    registers.renewed = set()
    numbers = sorted(registers._fds)
    for fd in numbers:
        os.close(fd)
    theirs = [os.open(path, os.O_RDWR) for path in others[:taken]]
    for fd in theirs:
        os.lseek(fd, at, os.SEEK_SET)
    assert theirs == numbers[:taken]
    assert registers.numbers() == [1, 2, 3]
    assert registers.texts() == ["1", "2", "3"]
    assert not registers.renewed  # the same files: their counters have gone on
    registers.close()
    for fd, shown in zip(theirs, (b"7", b"8", b"9"), strict=False):
        assert os.pread(fd, 1, 0) == shown
        os.close(fd)


@pytest.mark.parametrize("taken", [(0,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("alone", [(), (1,)])
def test_where_sockets_have_the_numbers_the_files_are_read_on(
    tmp_path: Path, taken: tuple[int, ...], alone: tuple[int, ...]
) -> None:
    paths = _files(tmp_path, "1\n", "2\n", "3\n")
    registers = Registers(lambda: paths, alone=alone)
    registers.renewed = set()
    with numbers_of_a_socket([registers._fds[i] for i in taken]):
        assert registers.numbers() == [1, 2, 3]
        assert not registers.renewed
        registers.close()


def test_a_single_descriptor_whose_number_is_used_again_is_not_read(tmp_path: Path) -> None:
    paths, others = _files(tmp_path / "ours", "1\n", "2\n", "3\n"), _files(tmp_path / "theirs", "7\n")
    registers = Registers(lambda: paths)
    os.close(registers._fds[1])
    other = os.open(others[0], os.O_RDONLY)
    assert registers.numbers() == [1, 2, 3]
    os.close(registers._fds[1])
    registers.close()
    os.close(other)


def test_of_another_file_that_is_found_instead_of_a_closed_one_it_is_said(tmp_path: Path) -> None:
    old, new = _files(tmp_path / "old", "1\n", "2\n"), _files(tmp_path / "new", "5\n", "6\n")
    place = [old]
    registers = Registers(lambda: place[0])
    registers.renewed = set()
    for fd in registers._fds:
        os.close(fd)
    place[0] = [old[0], new[1]]
    assert registers.numbers() == [1, 6]
    assert registers.renewed == {1}
    registers.close()


def test_why_a_file_could_not_be_opened_or_read_keeps_nothing_of_the_caller_alive(tmp_path: Path) -> None:
    class Precious:
        """What a program holds while it opens a sensor, and while it reads."""

    def opened() -> tuple[Registers, weakref.ref[Precious]]:
        precious = Precious()
        return Registers(lambda: [*paths, tmp_path / "none"], alone=(1, 2)), weakref.ref(precious)

    def read() -> weakref.ref[Precious]:
        precious = Precious()
        assert str(registers.numbers()) == "[1, nan, nan]"
        return weakref.ref(precious)

    paths = _files(tmp_path, "1\n", "2\n")
    registers, at_the_opening = opened()
    os.close(registers._fds[1])
    paths[1].unlink()
    at_a_reading = read()
    gc.collect()
    assert at_the_opening() is None
    assert at_a_reading() is None
    registers.close()
