"""``pmtpy`` as a process of its own that need not import first: it is forked from one that has.

A start is a third of a second of imports, the same each time, and the tests start it some hundred times. What is begun
here has its own memory, streams, folder, environment and exit status as any process has. It differs in that its
modules are there already, so a test of what is imported, or of the interpreter's own variables (``PYTHON...``, the
locale), begins a real one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LARGE = {"top", "view"}  # verbs whose libraries nobody else imports
_READY = b"r"

# Begins one in the folder and with the streams and the environment that it has itself, passes signals on to it and ends
# as it does. It runs without the site's packages, so it is there at once.
_STARTER = """\
import marshal, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({path!r})
asked = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
socket.send_fds(line, [len(asked).to_bytes(4, "little")], [0, 1, 2])
line.sendall(asked)
pid = int.from_bytes(line.recv(4), "little")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda n, _: os.kill(pid, n))
status = int.from_bytes(line.recv(4), "little", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class Prepared:
    """An interpreter that has imported the command line and begins it again and again."""

    def __init__(self, folder: Path) -> None:
        path, starter = folder / "socket", folder / "starter.py"
        starter.write_text(_STARTER.format(path=str(path)))
        self.command = [sys.executable, "-I", "-S", str(starter)]
        code = f"from tests.support.prepared import serve; serve({str(path)!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.read(1) == _READY

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def serve(path: str) -> None:
    """Begin programs for whoever connects, until killed or orphaned."""
    _import_all()
    parent = os.getppid()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    listener.settimeout(5.0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    os.write(1, _READY)
    while os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _begin(line)
                return
            line.close()


def _import_all() -> None:
    cli = importlib.import_module("pmtpy.cli")
    for module in pkgutil.iter_modules(cli.__path__):
        if module.name not in _LARGE:
            importlib.import_module(f"pmtpy.cli.{module.name}")
    importlib.import_module("pmtpy.regions.region")
    # Every backend with its virtual device; the libraries that one needs are loaded by who opens it.
    for backend in importlib.import_module("pmtpy.sensor.registry").BACKENDS:
        importlib.import_module(f"pmtpy.backends.{backend}")
        importlib.import_module(f"pmtpy.emulators.{backend}")
    # What is here lives for good: else each program goes through all of it, and copies the pages, when it ends.
    gc.collect()
    gc.freeze()


def _begin(line: socket.socket) -> None:
    """Fork the program, tell who it is, wait for it, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.settimeout(None)
    size, streams, _, _ = socket.recv_fds(line, 4, 3)
    wanted, asked = int.from_bytes(size, "little"), b""
    while len(asked) < wanted:
        asked += line.recv(wanted - len(asked))
    pid = os.fork()
    if pid == 0:
        line.close()
        _become(streams, *marshal.loads(asked))  # noqa: S302  (from our own starter)
        return
    for stream in streams:
        os.close(stream)
    line.sendall(pid.to_bytes(4, "little"))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # who began it was killed meanwhile
        line.sendall(status.to_bytes(4, "little", signed=True))
    os._exit(0)


def _become(streams: list[int], words: list[str], folder: str, environment: dict[str, str]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["pmtpy", *words]
    sys.path[0] = folder
    runpy.run_module("pmtpy", run_name="__main__")
