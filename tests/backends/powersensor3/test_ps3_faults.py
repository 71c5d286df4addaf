"""What happens between processes: a starved program, an unplugged board, a killed parent, a second user, a fork.

The board is a process of its own behind a real pseudo-terminal, and the port is opened as a real one would be. Waits
end as soon as the thing waited for has happened; their limits are only for a test that fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import select
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pmtpy
from pmtpy.backends._serial.port import FoundPort, holders, open_port
from pmtpy.backends._serial.transport import DirectTransport, Piece, RelayTransport
from pmtpy.backends.powersensor3 import PowerSensor3Source, discover, open_source
from pmtpy.backends.powersensor3._port import BACKEND, USB, choose_port
from pmtpy.backends.powersensor3.config import set_fields
from pmtpy.backends.powersensor3.device import open_board
from pmtpy.core.clock import HostClock
from pmtpy.emulators.powersensor3 import BoardSpec, VirtualBoard, parse_pairs
from pmtpy.errors import BackendUnavailableError, SensorClosedError, SourceLostError
from tests.support.daemons import descriptors, numbers_of_a_socket
from tests.support.many_files import many_files

CLOCK = HostClock()
LIMIT_S = 240.0
SPEC = BoardSpec(parse_pairs("4"), boot_s=0.05, flash_s=0.05)
ROOT = str(Path(pmtpy.__file__).parents[1])


@pytest.fixture
def board() -> Iterator[VirtualBoard]:
    with VirtualBoard("constant:60", SPEC) as virtual:
        yield virtual


@pytest.fixture(params=["relay", "direct"])
def source(request: pytest.FixtureRequest, board: VirtualBoard) -> Iterator[PowerSensor3Source]:
    opened = open_source(board.path, clock=CLOCK, transport=request.param)
    yield opened
    opened.close()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def rows_for(source: PowerSensor3Source, seconds: float) -> tuple[int, int]:
    """Rows and lost rows of a while."""
    rows = lost = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        block = source.read()
        rows += len(block)
        lost += 0 if block.lost is None else int(block.lost.sum())
        time.sleep(0.02)
    return rows, lost


def rows_until(source: PowerSensor3Source, count: int) -> tuple[int, int]:
    """Rows and lost rows until there are more than ``count``, however long a busy machine takes to send them."""
    rows = lost = 0
    end = time.monotonic() + LIMIT_S
    while rows <= count:
        assert time.monotonic() < end, f"only {rows} rows came"
        more, missing = rows_for(source, 0.02)
        rows, lost = rows + more, lost + missing
    return rows, lost


def streaming(board: VirtualBoard) -> bool:
    """Whether frames go out."""
    before = board.history().frames
    time.sleep(0.05)
    return board.history().frames > before


def test_rows_come_at_the_rate_of_the_board_on_the_clock_of_the_host(
    board: VirtualBoard, source: PowerSensor3Source
) -> None:
    rows_for(source, 0.2)
    block = source.read()
    begin = time.monotonic()
    while not len(block := source.read()):
        assert time.monotonic() - begin < LIMIT_S
    now_ns = CLOCK.now_ns()
    # The board's process delivers every 2 ms; a busy machine may keep it waiting, also while the clocks are first laid
    # on each other: then rows seem later than they are, by what the fastest of the first pieces was late.
    assert now_ns - 1_000_000_000 < block.t_ns[-1] <= now_ns + 5_000_000
    assert source.skipped_bytes == 0


def test_holding_the_interpreter_for_five_seconds_loses_no_frame(board: VirtualBoard) -> None:
    source = open_source(board.path, clock=CLOCK)
    first = source.read()
    lost = 0 if first.lost is None else int(first.lost.sum())
    before = board.history().boots[-1].runs[0][0]
    # PyDLL keeps the interpreter lock during the call: no thread of this process runs for five seconds.
    ctypes.PyDLL(None).usleep(5_000_000)
    rows, missing = rows_until(source, 5 * 20_000)
    log = board.history().boots[-1]
    assert lost + missing == 0
    assert len(log.runs) == 1
    assert len(first) + rows <= log.runs[0][1] - before
    assert source.skipped_bytes == 0
    source.close()


def test_frames_that_nobody_sent_are_counted_and_the_stream_goes_on(
    board: VirtualBoard, source: PowerSensor3Source
) -> None:
    rows_for(source, 0.3)
    board.inject("stall", seconds=0.5)
    _, lost = rows_until(source, 20_000)
    runs = board.history().boots[-1].runs
    missing = sum(b[0] - a[1] for a, b in itertools.pairwise(runs))
    # Exact where pieces arrive in time, as the tests of the clock show. Here the scheduler may delay the first piece
    # after the gap by some milliseconds, which are then taken for lost; 20 ms are 400 frames.
    assert abs(lost - missing) <= 400
    assert missing > 9000


def test_a_board_behind_a_pseudo_terminal_says_that_a_program_answers_for_it(source: PowerSensor3Source) -> None:
    assert any("pseudo-terminal" in note for note in source.identity.notes)


def test_unplugging_is_an_error_from_every_later_call_and_the_board_can_return(
    board: VirtualBoard, source: PowerSensor3Source
) -> None:
    rows_for(source, 0.1)
    board.unplug()
    with pytest.raises(SourceLostError, match=r"unplugged|hung up"):
        rows_for(source, LIMIT_S)
    for _ in range(3):
        with pytest.raises(SourceLostError):
            source.read()
    with pytest.raises(SourceLostError):
        source.mark("too late")
    source.close()
    board.plug_in()
    again = open_source(board.path, clock=CLOCK)
    rows_until(again, 1000)
    again.close()


def test_a_board_that_falls_silent_is_lost_where_that_was_asked_for(board: VirtualBoard) -> None:
    source = open_source(board.path, clock=CLOCK, silence_s=0.5)
    board.inject("stall", seconds=60)
    with pytest.raises(SourceLostError, match="has sent no frame for"):
        rows_for(source, LIMIT_S)
    source.close()


def test_closing_stops_the_board_and_ends_the_relay(board: VirtualBoard) -> None:
    source = open_source(board.path, clock=CLOCK)
    transport = source._board.transport
    assert isinstance(transport, RelayTransport)
    source.mark("on the way")  # the firmware would hang if it were stopped now
    source.close()
    source.close()
    assert transport._relay.returncode == 0
    until(lambda: not streaming(board))
    open_source(board.path, clock=CLOCK, transport="direct").close()


def test_a_stop_right_after_a_mark_does_not_hang_the_firmware() -> None:
    with VirtualBoard("constant:60", BoardSpec(hang_on_marker=True)) as virtual:
        for transport in ("relay", "direct"):
            source = open_source(virtual.path, clock=CLOCK, transport=transport)
            source.mark("x")
            source.close()
        open_source(virtual.path, clock=CLOCK).close()


def relay_of(source: PowerSensor3Source) -> subprocess.Popen[bytes]:
    transport = source._board.transport
    assert isinstance(transport, RelayTransport)
    return transport._relay


def test_a_signal_that_is_sent_to_the_whole_group_does_not_end_the_relay(board: VirtualBoard) -> None:
    with contextlib.closing(open_source(board.path, clock=CLOCK)) as source:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            relay_of(source).send_signal(number)
            assert rows_until(source, 1000)[1] == 0


def test_the_board_is_told_to_stop_though_the_relay_was_killed(board: VirtualBoard) -> None:
    source = open_source(board.path, clock=CLOCK)
    relay_of(source).kill()
    with pytest.raises(SourceLostError, match="relay process does not answer"):
        rows_for(source, LIMIT_S)
    source.close()
    until(lambda: not streaming(board))


def test_a_relay_that_is_not_scheduled_keeps_nobody_waiting_and_loses_nothing(board: VirtualBoard) -> None:
    with contextlib.closing(open_source(board.path, clock=CLOCK)) as source:
        rows_for(source, 0.2)
        relay_of(source).send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        calls = 0
        while time.monotonic() - begin < 1.0:
            source.read()
            calls += 1
        assert calls > 5  # a reading waits 20 ms for the relay, and not for the seconds that it may be away
        relay_of(source).send_signal(signal.SIGCONT)
        _, lost = rows_until(source, 20_000)
        # What the pseudo-terminal does not hold is kept by the board's process, as the kernel does for a real port.
        assert lost == 0


def test_when_it_is_closed_the_line_is_quiet_before_the_lock_is_given_up(board: VirtualBoard) -> None:
    for transport in ("relay", "direct"):
        source = open_source(board.path, clock=CLOCK, transport=transport)
        rows_for(source, 0.1)
        taken: list[bytes] = []

        def wait_for_the_lock(taken: list[bytes] = taken) -> None:
            fd = os.open(board.path, os.O_RDWR | os.O_NOCTTY)
            fcntl.flock(fd, fcntl.LOCK_EX)  # as PowerSensor3's own tools wait
            os.set_blocking(fd, False)
            time.sleep(0.2)
            with contextlib.suppress(BlockingIOError):
                taken.append(os.read(fd, 4096))
            os.close(fd)

        waiting = threading.Thread(target=wait_for_the_lock)
        waiting.start()
        source.close()
        waiting.join(LIMIT_S)
        assert taken == []
        until(lambda: not streaming(board))


PROGRAM = """
    import sys
    from pmtpy.backends.powersensor3 import open_source
    from pmtpy.core.clock import HostClock
    source = open_source(sys.argv[1], clock=HostClock())
    rows = 0
    while rows < 1000:
        rows += len(source.read())
    source.close()
"""


def ran(path: str, *, at: str = ROOT, before: str = "", **how: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + textwrap.dedent(PROGRAM), path]
    env = {**os.environ, "PYTHONPATH": at}
    return subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False, **how)  # type: ignore[call-overload,no-any-return]


def test_a_program_without_stdin_stdout_and_stderr_reads_the_board(board: VirtualBoard) -> None:
    for closed in ((0,), (0, 1), (0, 1, 2)):
        before = "".join(f"import os; os.close({fd})\n" for fd in closed)
        found = ran(board.path, before=before)
        assert found.returncode == 0, found.stderr


def test_a_package_in_an_archive_runs_its_relay(board: VirtualBoard, tmp_path: Path) -> None:
    archive = tmp_path / "pmtpy.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in Path(ROOT, "pmtpy").rglob("*.py"):
            file.write(path, path.relative_to(ROOT))
    found = ran(board.path, before=f"import sys; sys.path.insert(0, {str(archive)!r})\n")
    assert found.returncode == 0, found.stderr


def test_a_program_that_embeds_python_does_not_run_itself_as_the_relay(board: VirtualBoard, tmp_path: Path) -> None:
    trap = tmp_path / "editor"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    trap.chmod(0o755)
    embedded = f"import sys; sys.executable = {str(trap)!r}\n"
    assert ran(board.path, before=embedded).returncode == 0  # by the interpreter beside the library
    nowhere = embedded + "sys._base_executable = sys.executable; sys.prefix = sys.base_prefix = '/nowhere'\n"
    found = ran(board.path, before=nowhere)
    assert "has no Python interpreter" in found.stderr
    assert "transport=direct" in found.stderr
    assert not (tmp_path / "was-run").exists()


def test_what_is_called_python_and_is_none_is_told_from_the_relay(board: VirtualBoard, tmp_path: Path) -> None:
    other = tmp_path / "python-editor"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    found = ran(board.path, before=f"import sys; sys.executable = {str(other)!r}\n")
    assert "did not run the relay process (status 3)" in found.stderr


def test_where_no_relay_can_be_started_the_port_is_free_for_what_the_error_advises(
    board: VirtualBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python-editor"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(other))
        with pytest.raises(BackendUnavailableError, match="did not run the relay process") as error:
            open_source(board.path, clock=CLOCK)
    assert "transport=direct" in error.value.remedy
    open_source(board.path, clock=CLOCK, transport="direct", timeout_s=0.0).close()


OPEN_AND_TELL = """
    import os, sys, time
    from pmtpy.backends.powersensor3 import open_source
    from pmtpy.core.clock import HostClock
    source = open_source(sys.argv[1], clock=HostClock())
    {then}
    print("streaming", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def program(path: str, then: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """A user's program that has the board open."""
    script = textwrap.dedent(OPEN_AND_TELL).format(then=then)
    command = [sys.executable, "-c", script, path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ROOT})
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "streaming\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_killed_program_leaves_a_board_at_rest_that_the_next_one_can_open(board: VirtualBoard) -> None:
    with program(board.path) as process:
        assert streaming(board)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not streaming(board))
        open_source(board.path, clock=CLOCK).close()


def test_a_forked_child_that_outlives_a_killed_program_does_not_keep_the_board(board: VirtualBoard) -> None:
    fork = "child = os.fork(); _ = child or time.sleep(600); open(sys.argv[1] + '.child', 'w').write(str(child))"
    with program(board.path, fork) as process:
        child = int(Path(board.path + ".child").read_text())
        try:
            process.send_signal(signal.SIGKILL)
            process.wait()
            until(lambda: not streaming(board))
            # The child still has the port open, but not the lock: a relay gives it back explicitly.
            open_source(board.path, clock=CLOCK, timeout_s=LIMIT_S).close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_program_that_ends_without_closing_leaves_a_board_at_rest(board: VirtualBoard) -> None:
    with program(board.path, "print('streaming', flush=True); sys.exit()") as process:
        assert process.wait(LIMIT_S) == 0
        until(lambda: not streaming(board))


def test_a_board_left_streaming_is_recovered() -> None:
    with VirtualBoard("constant:60", BoardSpec(streaming=True)) as virtual:
        source = open_source(virtual.path, clock=CLOCK)
        rows_until(source, 1000)
        source.close()


def test_a_second_user_is_told_who_has_the_board(board: VirtualBoard) -> None:
    with program(board.path) as process:
        begin = time.monotonic()
        with pytest.raises(BackendUnavailableError, match=rf"in use by .*pid {process.pid} ") as caught:
            open_source(board.path, clock=CLOCK, timeout_s=0.2)
        assert time.monotonic() - begin < LIMIT_S
        assert "0.2 s" in caught.value.remedy


def test_a_second_user_in_the_same_process_is_told_so(board: VirtualBoard) -> None:
    source = open_source(board.path, clock=CLOCK)
    with pytest.raises(BackendUnavailableError, match="this process"):
        open_source(board.path, clock=CLOCK, timeout_s=0.0)
    source.close()


def test_a_port_that_becomes_free_within_the_limit_is_opened(board: VirtualBoard) -> None:
    first = open_port(BACKEND, board.path, clock=CLOCK)
    later = threading.Timer(0.1, os.close, [first])
    later.start()
    os.close(open_port(BACKEND, board.path, clock=CLOCK, timeout_s=LIMIT_S))
    later.join()


def test_a_forked_child_is_refused_and_the_parent_goes_on(source: PowerSensor3Source) -> None:
    rows_for(source, 0.1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            source.read()
        except SensorClosedError:
            source.close()  # must not stop the parent's board
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert rows_until(source, 2000)[1] == 0


def test_a_program_with_thousands_of_files_reads_the_board(board: VirtualBoard) -> None:
    with many_files():
        source = open_source(board.path, clock=CLOCK)
        rows_until(source, 2000)
        source.close()


def test_a_transfer_that_a_killed_program_broke_off_is_recovered(board: VirtualBoard) -> None:
    fd = open_port(BACKEND, board.path, clock=CLOCK)
    os.write(fd, b"R")
    answer = select.poll()
    answer.register(fd, select.POLLIN)
    assert answer.poll(1000.0 * LIMIT_S)
    os.close(fd)
    # The board waits for a byte of the host, and resets itself after two seconds.
    opened = open_board(board.path, clock=CLOCK)
    assert opened.firmware.mcu == "F411"
    opened.close()


def test_the_configuration_is_written_through_a_real_terminal(board: VirtualBoard) -> None:
    opened = open_board(board.path, clock=CLOCK)
    # A terminal that turns CR into LF, as new ones do, would damage this number.
    vref = float(struct.unpack("<f", b"\r\r\xd3?")[0])
    opened.write_records(set_fields(opened.records, 0, name="gpu", vref=vref))
    opened.close()
    again = open_board(board.path, clock=CLOCK)
    assert (again.records[1].name, again.records[0].vref) == ("gpu", vref)
    again.reset()
    again.close()
    until(lambda: len(board.history().boots) == 2)


def test_a_path_without_a_port_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="No such file"):
        open_source(str(tmp_path / "ttyACM9"), clock=CLOCK)
    (tmp_path / "file").touch()
    with pytest.raises(BackendUnavailableError, match="not a serial port"):
        open_source(str(tmp_path / "file"), clock=CLOCK)


def test_only_one_board_is_chosen_without_a_name() -> None:
    board = FoundPort("/dev/ttyACM0", "A1", "PowerSensor3", usb=USB)
    other = FoundPort("/dev/ttyS0", "", "16550A")
    assert choose_port([other, board]) is board
    with pytest.raises(BackendUnavailableError, match=r"none at all"):
        choose_port([])
    with pytest.raises(BackendUnavailableError, match=r"/dev/ttyS0 \(16550A\)"):
        choose_port([other])
    twin = FoundPort("/dev/ttyACM1", "B2", usb=USB)
    with pytest.raises(BackendUnavailableError, match=r"2 boards .*ttyACM0 \(serial A1\), .*ttyACM1 \(serial B2\)"):
        choose_port([board, twin])


def test_discovery_names_boards_or_says_why_there_are_none() -> None:
    found = discover()
    assert bool(found.devices) != ("USB identity" in found.reason)


def test_nobody_holds_a_path_that_does_not_exist() -> None:
    assert holders("/dev/there is no such device") == []


def test_a_closed_transport_says_so(board: VirtualBoard) -> None:
    transport = DirectTransport(open_port(BACKEND, board.path, clock=CLOCK), board.path, CLOCK)
    transport.close()
    transport.close()
    for use in (transport.receive, lambda: transport.write(b"V"), lambda: transport.wait(0.0)):
        with pytest.raises(SensorClosedError):
            use()


def test_a_signal_in_the_middle_of_a_fetch_loses_no_frame(board: VirtualBoard) -> None:
    class Stopped(Exception):  # noqa: N818
        pass

    armed = False

    def stop(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False  # one signal at a time: the next may come before this one is dealt with
            raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with contextlib.closing(open_source(board.path, clock=CLOCK)) as source:
            stopped = 0
            end = time.monotonic() + LIMIT_S
            signal.setitimer(signal.ITIMER_REAL, 0.003, 0.0007)
            while stopped <= 200 and time.monotonic() < end:
                pieces: list[Piece] = []
                try:
                    armed = True
                    pieces = source._board.transport.receive()
                    armed = False
                except Stopped:
                    stopped += 1
                armed = False
                source._pending += pieces
            signal.setitimer(signal.ITIMER_REAL, 0)
            block = source.read()
            rows, lost = len(block), int(block.lost.sum()) if block.lost is not None else 0
            span_ns = int(block.t_ns[-1]) - int(block.t_ns[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped > 200
    assert rows + lost == pytest.approx(span_ns / 50_000, rel=0.01)


def test_two_boards_of_one_serial_number_are_two_meters() -> None:
    with contextlib.ExitStack() as stack:
        boards = [stack.enter_context(VirtualBoard("constant:60", SPEC)) for _ in range(2)]
        sensors = [stack.enter_context(pmtpy.create("powersensor3", board.path, serial="same")) for board in boards]
        with pmtpy.region("both", *sensors) as region:
            until(lambda: sensors[0].read().joules[0] > 6.0)
        with pytest.raises(pmtpy.CoverageError, match="external meters"):  # and not the one in the place of both
            _ = region.total


@pytest.mark.parametrize("transport", ["relay", "direct"])
def test_a_program_that_closes_all_descriptors_loses_the_board_and_keeps_its_own(
    board: VirtualBoard, transport: str
) -> None:
    before = descriptors()
    source = open_source(board.path, clock=CLOCK, transport=transport)
    rows_until(source, 100)
    source.mark("on the way")
    with numbers_of_a_socket(descriptors() - before):
        for _ in range(2):
            with pytest.raises(SourceLostError, match="program has closed its descriptor; reopen"):
                source.read()
        source.close()
    assert descriptors() == before
    again = open_source(board.path, clock=CLOCK, transport=transport)
    rows_until(again, 100)
    again.close()


def test_what_has_the_number_of_the_line_to_the_relay_alone_is_not_read_either(board: VirtualBoard) -> None:
    source = open_source(board.path, clock=CLOCK)
    transport = source._board.transport
    assert isinstance(transport, RelayTransport)
    with numbers_of_a_socket([transport._socket.fileno()]):
        with pytest.raises(SourceLostError, match="program has closed its descriptor; reopen"):
            rows_for(source, LIMIT_S)
        source.close()
    assert transport._relay.returncode == 0
