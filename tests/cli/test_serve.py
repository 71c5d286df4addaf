from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request

from tests.cli.conftest import ROOT, Pmtpy, Started


def test_sensors_are_served_until_they_are_told_to_end(started: Started) -> None:
    child = started("serve", "rapl:virtual", "-o", "load=constant:50", "--port", "0")
    assert child.stdout is not None
    url = child.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (our own server)
        assert b'pmt_sensor_up{sensor="rapl",device="virtual"} 1.0' in answer.read()
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "", "")


def test_who_has_no_stdout_is_served_all_the_same() -> None:
    words = "serve", "rapl:virtual", "-o", "load=constant:50", "--port", "0"
    code = f"import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'pmtpy', *{words!r}])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = child.stderr.readline()
        url = said.removeprefix("listening at ").strip()
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (our own server)
                assert b'pmt_sensor_up{sensor="rapl",device="virtual"} 1.0' in answer.read()
        finally:
            child.send_signal(signal.SIGTERM)
    assert child.returncode == 0


def test_a_port_that_is_none_is_a_mistake_of_usage(pmtpy: Pmtpy) -> None:
    done = pmtpy("serve", "rapl:virtual", "--port", "70000")
    assert done.returncode == 2
    assert "0 to 65535" in done.stderr
