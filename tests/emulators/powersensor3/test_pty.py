"""The board behind a real pseudo-terminal, in its own process, as any host program meets it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

import pmtpy
from pmtpy.emulators.powersensor3 import BoardSpec, VirtualBoard, parse_pairs
from pmtpy.emulators.powersensor3.serve import parse_fault, serve
from pmtpy.errors import SourceLostError, TargetError
from tests.support.daemons import descriptors, numbers_of_a_socket

from .conftest import frames, steps

SPEC = BoardSpec(parse_pairs("1"), boot_s=0.05, flash_s=0.05)
LIMIT_S = 240.0  # for anything to happen on a busy machine


class Host:
    """A program that has the port open."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(self.fd)
        self.got = b""

    def write(self, data: bytes) -> None:
        os.write(self.fd, data)

    def take(self, seconds: float) -> bytes:
        """Return what comes within a time."""
        end, out = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                out += os.read(self.fd, 65536)
        return out

    def until(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        end = time.monotonic() + LIMIT_S
        while len(self.got) < size:
            assert time.monotonic() < end, f"only {len(self.got)} of {size} bytes came"
            if select.select([self.fd], [], [], 1)[0]:
                self.got += os.read(self.fd, 65536)
        out, self.got = self.got[:size], self.got[size:]
        return out

    def ready(self) -> None:
        """Wait until the board has booted and answers."""
        self.write(b"V")
        assert self.until(12) == b"F411-1.6.1\r\n"

    def close(self) -> None:
        os.close(self.fd)


def wait_until_still(board: VirtualBoard) -> int:
    """Wait until the board, which streams, sends nothing more; return how many frames it has sent."""
    end, sent = time.monotonic() + LIMIT_S, -1
    while (now := board.history().frames) != sent:  # asking brings the board up to the present
        assert time.monotonic() < end
        sent = now
        time.sleep(0.05)
    return sent


@pytest.fixture
def board() -> Iterator[VirtualBoard]:
    with VirtualBoard("constant:60", SPEC) as virtual:
        yield virtual


@pytest.fixture
def host(board: VirtualBoard) -> Iterator[Host]:
    program = Host(board.path)
    program.ready()
    yield program
    program.close()


def test_frames_come_on_time_and_none_is_missing(board: VirtualBoard, host: Host) -> None:
    host.write(b"S")
    host.until(18 * 20)
    start_ns = time.monotonic_ns()
    got = host.until(18 * 10_000)
    took_s = (time.monotonic_ns() - start_ns) / 1e9
    assert 0.4 < took_s < LIMIT_S  # not faster than real time
    assert steps(got) == {50}
    truth = board.truth(start_ns, time.monotonic_ns())
    assert truth.missing == 0


def test_the_truth_is_the_closed_form_of_the_load_per_pair(board: VirtualBoard) -> None:
    assert board.truth(10**9, 11 * 10**9).exact.tolist() == pytest.approx([600.0, 0, 0, 0])


def test_marks_are_logged_with_their_place_in_the_stream(board: VirtualBoard, host: Host) -> None:
    host.write(b"S")
    got = host.until(18 * 100)
    host.write(b"M")
    got += host.until(18 * 10_000)
    places = [i for i, f in enumerate(frames(got)) if f[1].marker]
    assert [m.place for m in board.marks] == places
    assert len(places) == 1


def test_frames_that_the_host_leaves_unread_are_missing_in_the_timestamps() -> None:
    with VirtualBoard("constant:60", SPEC, buffer_bytes=384) as board:
        host = Host(board.path)
        host.ready()
        host.write(b"S")
        host.until(18)
        sent = wait_until_still(board)  # the line is full
        stall_ns = time.monotonic_ns()
        host.until(18 * sent - 18)
        host.until(18 * 1000)
        assert board.truth(0, time.monotonic_ns()).missing > 0
        assert board.history().boots[0].runs[0][1] <= board.history().sampler(0).frames_by(stall_ns)
        host.close()


def test_unplugging_hangs_the_line_up_and_the_path_comes_back(board: VirtualBoard, host: Host) -> None:
    host.write(b"S")
    host.until(18)
    board.unplug()
    assert not Path(board.path).exists()
    poller = select.poll()
    poller.register(host.fd, select.POLLIN)
    assert poller.poll(LIMIT_S * 1000)[0][1] & select.POLLHUP
    with pytest.raises(OSError, match="Input/output error"):
        host.write(b"S")
    board.plug_in()
    again = Host(board.path)
    again.ready()
    assert again.take(0.1) == b""  # a boot does not stream
    again.close()
    assert len(board.history().boots) == 2


def test_a_reset_command_takes_the_port_away_and_brings_it_back(board: VirtualBoard, host: Host) -> None:
    host.write(b"Z")
    poller = select.poll()
    poller.register(host.fd, select.POLLIN)
    assert poller.poll(LIMIT_S * 1000)[0][1] & select.POLLHUP
    end = time.monotonic() + LIMIT_S
    while not Path(board.path).exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    again = Host(board.path)
    again.ready()
    again.close()


def test_a_new_port_has_the_settings_of_a_new_ttyacm_and_feeds_nothing_back() -> None:
    with VirtualBoard("constant:60", BoardSpec(parse_pairs("1"), streaming=True)) as board:
        fd = os.open(board.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        iflag, _, _, lflag, *_ = termios.tcgetattr(fd)
        assert iflag & termios.ICRNL
        assert iflag & termios.IXON
        assert lflag & termios.ECHO
        os.close(fd)
        host = Host(board.path)  # left streaming: frames come without being asked for
        assert len(host.until(18 * 100)) == 1800
        host.close()


def test_after_the_port_was_closed_nothing_old_is_left_in_it(board: VirtualBoard, host: Host) -> None:
    second = Host(board.path)
    second.write(b"S")
    second.until(18)
    os.close(host.fd)
    second.close()
    wait_until_still(board)  # the board has noticed
    time.sleep(0.2)  # frames that nobody may see
    host.fd = os.open(board.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    data = host.until(18 * 400)
    at = next(i for i in range(18) if data[i] >> 4 == 15 and data[i + 1] >> 6 == 1)
    whole = data[at:]
    assert steps(whole[: len(whole) // 18 * 18]) == {50}  # one unbroken run
    (old, new) = board.history().boots[0].runs[:2]
    assert new[0] - old[1] > 3000


def test_fast_mode_streams_as_fast_as_it_is_read_with_timestamps_that_fit() -> None:
    with VirtualBoard("square:low=30,high=90,hz=2", SPEC, fast=True) as board:
        host = Host(board.path)
        host.ready()
        host.write(b"S")
        got = host.until(18 * 200_000)
        assert steps(got, 997) == {997 * 50 % 1024}
        host.write(b"T")
        while host.take(0.2):
            pass
        truth = board.truth()
        assert len(board.history().boots[0].runs) == 2  # one unbroken run, and the frame after the stop
        assert truth.sent.sum() == pytest.approx(truth.sent_exact.sum(), rel=1e-3)
        host.close()


def test_faults_can_be_switched_on_and_wrong_ones_are_refused(board: VirtualBoard, host: Host) -> None:
    with pytest.raises(TargetError, match="garbage"):
        board.inject("smoke")
    host.write(b"S")
    host.until(18)
    board.inject("lose", rate=1e-3)
    host.until(18 * 4000)
    board.inject("none")
    assert board.history().boots[0].damaged
    assert parse_fault("lose:rate=1e-6,burst=3") == ("lose", {"rate": 1e-6, "burst": 3})
    with pytest.raises(TargetError, match="NAME:KEY"):
        parse_fault("lose:rate=x")


def test_the_process_ends_when_it_is_closed_and_says_so_afterwards() -> None:
    board = VirtualBoard("constant:60", SPEC)
    board.close()
    board.close()
    assert not Path(board.path).exists()
    with pytest.raises(SourceLostError):
        board.unplug()


def test_the_board_ends_when_the_program_that_started_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "import time\nfrom pmtpy.emulators.powersensor3 import VirtualBoard\n"
        "board = VirtualBoard()\nprint(board.pid, flush=True)\ntime.sleep(60)\n"
    )
    user = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(pmtpy.__file__).parents[1])},
    )
    assert user.stdout is not None
    pid = int(user.stdout.readline())
    user.kill()
    user.wait()
    user.stdout.close()
    end = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_serving_prints_the_path_and_ends_with_status_0_on_ctrl_c(tmp_path: Path) -> None:
    link = tmp_path / "ps3"
    server = subprocess.Popen(
        [sys.executable, "-m", "pmtpy.emulators.powersensor3", "--link", str(link), "--load", "constant:60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(pmtpy.__file__).parents[1])},
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == f"{link}\n".encode()
        host = Host(str(link))
        host.ready()
        host.close()
        server.send_signal(signal.SIGINT)
        _, messages = server.communicate(timeout=LIMIT_S)
    finally:
        server.kill()
    assert server.returncode == 0
    assert messages.startswith(b"0 frames sent")
    assert not link.exists()


def test_a_wrong_option_is_refused_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(["--pairs", "9"]) == 2
    assert "MODULE" in capsys.readouterr().err


def test_a_forked_child_that_closes_the_board_leaves_it_to_the_parent(board: VirtualBoard) -> None:
    child = os.fork()
    if child == 0:
        board.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    host = Host(board.path)
    host.ready()
    host.close()


def test_commands_that_mean_nothing_are_answered_with_what_was_wrong() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "pmtpy.emulators.powersensor3", "--control"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(pmtpy.__file__).parents[1])},
    )
    said, _ = server.communicate(
        b'{"do": "dance"}\nnonsense\n{"do": "inject", "fault": "lose", "x": 1}\n', timeout=LIMIT_S
    )
    path, *errors = said.splitlines()
    assert b"PowerSensor3" in path
    assert [b"dance" in errors[0], b"nonsense" in errors[1], b"lose" in errors[2]] == [True] * 3
    assert server.returncode == 0


def test_an_interrupt_while_the_board_starts_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupted(board: VirtualBoard) -> dict[str, object]:
        started.append(board)
        raise KeyboardInterrupt

    monkeypatch.setattr(VirtualBoard, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        VirtualBoard(spec=SPEC)
    with pytest.raises(ProcessLookupError):  # ended, and its exit status taken
        os.kill(started[0].pid, 0)


def test_a_program_that_closes_all_descriptors_ends_its_board_and_keeps_its_own() -> None:
    before = descriptors()
    board = VirtualBoard(spec=SPEC)
    with numbers_of_a_socket(descriptors() - before):
        with pytest.raises(SourceLostError, match="has ended"):
            board.history()
        board.close()
    with pytest.raises(ProcessLookupError):
        os.kill(board.pid, 0)


def test_a_board_whose_program_has_ended_says_nothing() -> None:
    """Its answer finds no reader: nobody wants to read of that after the program that was run."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "pmtpy.emulators.powersensor3", "--control"]
    known = {**os.environ, "PYTHONPATH": str(Path(pmtpy.__file__).parents[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write_end, stderr=subprocess.PIPE, env=known) as board:
        os.close(write_end)
        assert board.stderr is not None
        assert board.stderr.read() == b""
        assert board.wait(LIMIT_S) == 0
