"""A closed terminal ends every verb as SIGTERM does: sensors closed, files whole; unless hang-ups are switched off."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import cast

import pytest

from pmtpy.cli.stopping import Stop, Stopped
from pmtpy.errors import FileFormatError
from tests.cli.conftest import ROOT, Started, wait_for

LONG = {
    "read": "read rapl:virtual --for 1h",
    "dump": "dump powersensor3:virtual -f run.csv",
    "compare": "compare rapl:virtual nvml:virtual --duration 1h",
    "characterise": "characterise nvml:virtual --duration 1h",
    "sim": "sim powersensor3",
    "run": "run -s rapl:virtual -- sleep 3600",
}
_BY_THE_USER = {"dump": 0, "sim": 0}  # these end well however they are asked to


def _is_at_work(child: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether it has its handler of this signal: Linux tells which signals a process catches."""
    caught = next(
        line.split()[1]
        for line in Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines()
        if line.startswith("SigCgt")
    )
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see when a process is at work")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("verb", LONG)
def test_each_verb_ends_on_a_hang_up_as_on_sigterm(
    started: Started, tmp_path: Path, verb: str, number: signal.Signals
) -> None:
    child = started(*LONG[verb].split())
    wait_for(lambda: _is_at_work(child, number))
    if verb == "dump":
        wait_for((tmp_path / "run.csv").exists)
    child.send_signal(number)
    out, errors = child.communicate(timeout=120)
    assert "Traceback" not in errors, errors
    assert child.returncode in {_BY_THE_USER.get(verb, 128 + number), 128 + number}, out + errors
    if verb == "dump" and child.returncode == 0:
        assert json.loads((tmp_path / "run.csv.json").read_text())["complete"] is True


def test_a_hang_up_that_is_switched_off_stays_off(started: Started, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, '-m', 'pmtpy', *sys.argv[1:]])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "dump", "rapl:virtual", "-f", "run.csv"], cwd=tmp_path, stderr=subprocess.PIPE
    ) as child:
        wait_for((tmp_path / "run.csv").exists)
        child.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=1.0)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=120) == 0
    assert json.loads((tmp_path / "run.csv.json").read_text())["complete"] is True


def test_a_signal_in_the_midst_of_an_import_comes_again_behind_it() -> None:
    midst = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"))
    with Stop() as stop:
        stop._ask(signal.SIGTERM, cast("FrameType", midst))  # where an exception may be thrown away
        with pytest.raises(Stopped, match="SIGTERM"):
            time.sleep(240.0)


def test_a_request_that_something_swallowed_is_made_again_until_it_is_heard() -> None:
    with Stop() as stop:
        for _ in range(2):  # the second time by the alarm alone
            with contextlib.suppress(Stopped):
                if not stop.asked:
                    os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(240.0)
        with stop.taken():
            time.sleep(240.0)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_request_waits_for_the_end_of_what_must_not_be_lost_but_not_when_it_is_made_again() -> None:
    done: list[str] = []

    def asked(stop: Stop, *numbers: signal.Signals) -> None:
        with stop.later():
            for number in numbers:
                os.kill(os.getpid(), number)
                stop.rest(0.2)  # within which the alarm comes, too
                assert stop.asked
                done.append(number.name)

    for numbers in ((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGINT)):
        with Stop() as stop:
            with pytest.raises(Stopped, match=numbers[0].name):
                asked(stop, *numbers)
            with stop.taken():
                time.sleep(240.0)
    with Stop() as stop:
        asked(stop)
    assert done == ["SIGTERM", "SIGHUP", "SIGINT"]


def test_what_ends_on_the_way_out_is_not_disturbed_by_the_request_itself() -> None:
    reminded: list[int] = []
    stop = Stop()

    def remind(number: int, frame: FrameType | None) -> None:
        reminded.append(number)
        stop._remind(number, frame)

    def ended() -> None:
        with stop:
            signal.signal(signal.SIGALRM, remind)
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                with contextlib.suppress(OSError):
                    raise OSError  # an error that is handled on the way out changes nothing
                while len(reminded) < 3:
                    time.sleep(0.01)

    with pytest.raises(Stopped, match="SIGTERM"):
        ended()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_who_listens_by_then_hears_it_once() -> None:
    heard: list[int] = []
    midst = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"))
    with Stop() as stop:
        stop._ask(signal.SIGTERM, cast("FrameType", midst))
        before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
        wait_for(lambda: bool(heard))
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_a_signal_that_became_another_error_on_its_way_is_heard() -> None:
    class Member:
        def __set_name__(self, _owner: type, _name: str) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    def make() -> None:  # before Python 3.12: RuntimeError: Error calling __set_name__
        type("Record", (), {"member": Member()})

    def wrap() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Stopped as ended:
            msg = "it cannot be read"
            raise FileFormatError(msg) from ended

    for interrupted in (make, wrap):
        with Stop() as stop, pytest.raises(Stopped, match="SIGTERM"), stop.heard():
            interrupted()
    with Stop() as stop, pytest.raises(FileFormatError), stop.heard():
        raise FileFormatError(str(stop.asked))


def test_ctrl_c_while_python_still_imports_ends_quietly(started: Started, tmp_path: Path) -> None:
    package = tmp_path / "instead" / "numpy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)\n"
    )
    path = os.pathsep.join([str(package.parent), str(ROOT)])
    child = started("list", env={"PYTHONPATH": path})
    out, errors = child.communicate(timeout=240)
    assert (out, errors, child.returncode) == ("", "", 130)


_ASKED_WHILE_HANDLERS_CHANGE = """
import os, signal, time
from pmtpy.cli import stopping

change, asked = signal.signal, []
exec(compile('''
def changed(number, handler):  # a request comes right behind, as if in the midst of the module's own lines
    before = change(number, handler)
    ours = isinstance(getattr(handler, "__self__", None), stopping.Stop)
    if number == signal.{at} and ours is {entering} and not asked:
        asked.append(number)
        os.kill(os.getpid(), signal.SIGTERM)
    return before
''', stopping.__file__, "exec"))
signal.signal = changed
try:
    with stopping.Stop():
        while {entering}:
            time.sleep(0.01)
except stopping.Stopped as stopped:
    print(stopped)
print(bool(asked), signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM) is signal.SIG_DFL)
"""


@pytest.mark.parametrize(
    ("at", "entering", "said"),
    [
        pytest.param("SIGTERM", "True", "SIGTERM\nTrue (0.0, 0.0) True\n", id="entering"),
        pytest.param("SIGINT", "False", "True (0.0, 0.0) True\n", id="leaving"),
    ],
)
def test_whoever_asks_while_handlers_change_leaves_no_alarm_behind(at: str, entering: str, said: str) -> None:
    program = _ASKED_WHILE_HANDLERS_CHANGE.format(at=at, entering=entering)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, said), ran.stderr
