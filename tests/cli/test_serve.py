from __future__ import annotations

import signal
import urllib.request

from tests.cli.conftest import Pmtpy, Started


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


def test_a_port_that_is_none_is_a_mistake_of_usage(pmtpy: Pmtpy) -> None:
    done = pmtpy("serve", "rapl:virtual", "--port", "70000")
    assert done.returncode == 2
    assert "0 to 65535" in done.stderr
