"""The settings file: what it means, what wins over it, and that a broken one stops the command with line and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pmtpy.cli import main
from pmtpy.cli.settings import find, parse
from pmtpy.errors import TargetError
from tests.cli.conftest import Pmtpy

BOARD = '[options."powersensor3:virtual"]\nload = "constant:25"\n'


def test_the_folders_file_comes_before_the_users(tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    own = home / "pmtpy" / "pmtpy.toml"
    for path in (here / "pmtpy.toml", own):
        path.parent.mkdir(parents=True)
        path.touch()
    environment = {"XDG_CONFIG_HOME": str(home)}
    assert find(environment, here) == here / "pmtpy.toml"
    assert find(environment, tmp_path) == own
    assert find({"HOME": str(tmp_path)}, tmp_path) is None
    assert find({**environment, "PMT_CONFIG": "/other.toml"}, here) == Path("/other.toml")
    assert find({**environment, "PMT_CONFIG": ""}, here) is None


def test_a_service_without_a_home_or_with_one_that_is_closed_to_it_has_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 987654321)  # nobody in /etc/passwd, as under DynamicUser of systemd
    assert find({}, tmp_path) is None

    def closed(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", closed)
    assert find({"HOME": "/home/another"}, tmp_path) is None


def test_a_device_has_its_own_options_over_those_of_its_backend() -> None:
    settings = parse(
        '[options.nvml]\ntotal = "instant"\nsamples = true\n[options."nvidia:1"]\ntotal = "average"\n', Path("x.toml")
    )
    assert settings.options_for("nvml:0", {}) == {"total": "instant", "samples": True}
    assert settings.options_for("nvml:1", {}) == {"total": "average", "samples": True}
    assert settings.options_for("rapl", {}) == {}


def test_what_is_said_of_hardware_is_not_said_of_its_rehearsal() -> None:
    settings = parse('[options.rapl]\nvia = "perf"\n', Path("x.toml"))
    assert settings.options_for("rapl", {}) == {"via": "perf"}
    assert settings.options_for("rapl:virtual", {}) == {}


def test_a_profile_is_found_beside_the_file() -> None:
    settings = parse('[options."nvml:0"]\ncalibration = "nvml0.json"\n', Path("/etc/site/pmtpy.toml"))
    assert settings.options_for("nvml:0", {}) == {"calibration": "/etc/site/nvml0.json"}


def test_the_environment_wins_over_the_file() -> None:
    settings = parse('[options.occ]\nfile = "/a"\nsysfs_root = "/b"\n', Path("x.toml"))
    assert settings.options_for("occ", {}) == {"file": "/a", "sysfs_root": "/b"}
    assert settings.options_for("occ", {"PMT_OCC_FILE": "/c"}) == {"sysfs_root": "/b"}
    assert settings.options_for("occ", {"PMT_SYSFS_ROOT": "/c"}) == {"file": "/a"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sensors = [\n", ["end of document"]),
        ("\nsensors = nope\n", ["line 2", "column"]),
        ('\nsensor = ["rapl"]\n', ["line 2", "sensor:", "sensors, options"]),
        ('sensors = "rapl"\n', ["line 1", "sensors", "list"]),
        ('sensors = ["nonsense"]\n', ["line 1", "sensors", "nonsense"]),
        ("[options.nonsense]\nx = 1\n", ["line 1", "options.nonsense", "no sensor"]),
        ("options = 3\n", ["line 1", "options", "tables"]),
        ("[options]\nrapl = 3\n", ["line 2", "rapl", "table"]),
        ("# note\n[options.rapl]\nvia = []\n", ["line 3", "options.rapl.via", "text"]),
        ("[options.rapl]\ninterval = 0.05\n", ["line 2", "options.rapl.interval", "unit"]),
    ],
)
def test_a_broken_file_is_refused_with_line_and_key(text: str, words: list[str]) -> None:
    with pytest.raises(TargetError) as caught:
        parse(text, Path("x.toml"))
    for word in ("x.toml", *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[options.rapl]\nvia = "perf"\nsampels = true\n', ["line 3", "options.rapl.sampels", "its options: "]),
        ('[options.rapl]\nhistory_s = "long"\n', ["line 2", "options.rapl.history_s"]),
    ],
)
def test_an_option_that_a_backend_lacks_is_refused_when_it_is_used(text: str, words: list[str]) -> None:
    settings = parse(text, Path("x.toml"))
    with pytest.raises(TargetError) as caught:
        settings.options_for("rapl", {})
    for word in words:
        assert word in str(caught.value)


def watts(pmtpy: Pmtpy, *words: str, **environment: str) -> dict[str, float]:
    done = pmtpy("read", "--json", *words, env=environment)
    assert done.returncode == 0, done.stderr
    return {sensor["target"]: sensor["total"]["watts"] for sensor in json.loads(done.stdout)}


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "pmtpy.toml").write_text(f'sensors = ["powersensor3:virtual"]\n{BOARD}')
    assert watts(pmtpy) == {"powersensor3:virtual": pytest.approx(25, abs=6)}
    assert watts(pmtpy, "-o", "load=constant:60") == {"powersensor3:virtual": pytest.approx(60, abs=6)}
    assert set(watts(pmtpy, PMT_NAME="rapl", PMT_DEVICE="virtual")) == {"rapl:virtual"}
    assert set(watts(pmtpy, "hwmon:virtual", PMT_NAME="rapl", PMT_DEVICE="virtual")) == {"hwmon:virtual"}


def test_run_measures_with_the_files_sensors(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "pmtpy.toml").write_text(f'sensors = ["powersensor3:virtual"]\n{BOARD}')
    done = pmtpy("run", "--json", "--", "sleep", "0.3")
    assert done.returncode == 0, done.stderr
    (sensor,) = json.loads(done.stdout)["sensors"]
    assert sensor["total"]["watts"] == pytest.approx(25, rel=0.02)


def test_the_interval_of_the_command_line_wins_over_the_files(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "pmtpy.toml").write_text('[options."rapl:virtual"]\ninterval = "10s"\n')
    pmtpy("dump", "rapl:virtual", "--duration", "500ms", "--interval", "50ms", "-f", "run.csv")
    assert len((tmp_path / "run.csv").read_text().splitlines()) > 5


def test_a_broken_file_stops_every_command_that_measures(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "pmtpy.toml").write_text('[options."rapl:virtual"]\nlaod = "constant:25"\n')
    done = pmtpy("read", "rapl:virtual")
    assert done.returncode == 2
    assert "pmtpy.toml, line 2" in done.stderr
    assert "laod" in done.stderr
    assert pmtpy("read", "rapl:virtual", env={"PMT_CONFIG": ""}).returncode == 0


def test_v_tells_which_file_was_read_and_q_tells_only_errors(pmtpy: Pmtpy, tmp_path: Path) -> None:
    path = tmp_path / "pmtpy.toml"
    path.write_text('sensors = ["rapl:virtual"]\n')
    assert pmtpy("read", "-v").stderr.count(f"settings are read from {path}") == 1
    assert pmtpy("read").stderr == ""
    assert pmtpy("read", "-q").stderr == ""
    assert pmtpy("read", "-vv").returncode == 0
    done = pmtpy("read", "-q", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nonsense" in done.stderr


def test_the_file_in_the_docs_means_what_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    settings = parse(text, Path("/etc/site/pmtpy.toml"))
    assert settings.sensors == ("rapl", "nvml:0")
    assert settings.options_for("nvml:1", {}) == {"total": "instant", "interval": "20ms"}
    assert settings.options_for("nvml:0", {})["calibration"] == "/etc/site/nvml0.json"
    assert settings.options_for("powersensor3:virtual", {}) == {"load": "constant:25"}


ACCELERATOR = '[combine.accelerator]\nrails = ["tinkerforge:virtual", "pmd:virtual"]\n'


def test_a_combination_is_a_target_by_its_name_and_its_rails_have_their_options() -> None:
    settings = parse(
        f'sensors = ["accelerator"]\n{ACCELERATOR}[options."pmd:virtual"]\nslot = "eps1"\n', Path("x.toml")
    )
    assert settings.sensors == ("accelerator",)
    assert settings.rails("accelerator") == ("tinkerforge:virtual", "pmd:virtual")
    assert settings.rails("rapl") == ("rapl",)
    assert settings.options_for("pmd:virtual", {}) == {"slot": "eps1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[combine]\ngpu = ["rapl"]', "combine"),
        ("[combine.gpu]\nrails = 7", "rails"),
        ('[combine.gpu]\nrails = ["rapl"]\nother = 1', "rails"),
        ('[combine.gpu]\nrails = ["rapll"]', "rapll"),
        ('[combine.rapl]\nrails = ["pmd:virtual"]', "no sensor has"),
    ],
)
def test_a_wrong_combination_stops_the_command(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse(text, Path("x.toml"))


def test_a_combination_is_measured_as_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text(ACCELERATOR)
    monkeypatch.setenv("PMT_CONFIG", str(tmp_path / "x.toml"))
    assert main(["read", "accelerator", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["target"] == "accelerator"
    assert one["virtual"] is True
    assert len([name for name in one["channels"] if "." in name]) >= 9
