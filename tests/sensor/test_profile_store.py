from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pmtpy.backends._assumed_gain import GPU_U
from pmtpy.backends.nvml import _published as published
from pmtpy.backends.nvml.facts import Kind
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.matching import Calibration, unproven
from pmtpy.core.calibration.profile import Profile, applied_to
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.response import UNKNOWN, Number, Response
from pmtpy.emulators.nvml import VirtualDriver, make_gpu, private_pynvml
from pmtpy.emulators.world import make_world
from pmtpy.errors import CalibrationError, MissingPackageError
from pmtpy.io import whole
from pmtpy.sensor import profile_store
from pmtpy.sensor.registry import create
from tests.support.worlds import WalkingClock

_CARD = Identity("nvml", "NVIDIA X", "GPU-1", "570.1")
_CHANNELS = (Channel("gpu.instant", Quantity.POWER, domain="gpu/1"),)
_KERNEL = Response.stated("boxcar", refresh_s=Number(0.1), window_s=Number(0.1, 0.001))


def _profile(device: Identity = _CARD, channel: str = "gpu.instant", gain: float = 0.9) -> Profile:
    return Profile(device, channel, Affine(Number(gain, 0.01)), 10.0, 500.0, provenance=(("by", "a test"),))


def _in_time(device: Identity = _CARD) -> Profile:
    """One of which the gain was not measured, but the kernel."""
    return replace(_profile(device, gain=1.0), response=_KERNEL)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "pmtpy" / "profiles"


def test_a_device_finds_its_own_profile_and_no_other(store: Path) -> None:
    assert profile_store.find(_CARD, _CHANNELS) == ([], [])
    path, before = profile_store.save(_profile())
    assert before is None
    profile_store.save(_profile(Identity("nvml", "NVIDIA X", "GPU-2", "570.1")))
    assert Path(path).parent == store
    found, notes = profile_store.find(_CARD, _CHANNELS)
    assert [p.digest for p in found] == [_profile().digest]
    assert notes == [f"gpu.instant: corrected by the profile {_profile().digest} of this very device, {path}"]


def test_another_driver_branch_and_a_broken_file_are_left_out_and_said(store: Path) -> None:
    profile_store.save(_profile(Identity("nvml", "NVIDIA X", "GPU-1", "535.2")))
    (store / "broken.json").write_text("{", encoding="utf-8")
    found, notes = profile_store.find(_CARD, _CHANNELS)
    assert not found
    assert len(notes) == 2
    assert "not JSON" in notes[0]
    assert "driver branch" in notes[1]


def test_a_later_profile_takes_the_place_of_the_one_before(store: Path) -> None:
    profile_store.save(_profile())
    _, before = profile_store.save(_profile(gain=0.8))
    assert before == _profile()
    found, _ = profile_store.find(_CARD, _CHANNELS)
    assert [p.digest for p in found] == [_profile(gain=0.8).digest]


def test_profiles_of_one_channel_that_differ_are_not_chosen_from(store: Path) -> None:
    """As by a driver that began to call the card by another name, or by a copy that somebody edited."""
    place = Path(profile_store.save(_profile())[0])
    place.with_name("copy.json").write_text(place.read_text())
    assert len(profile_store.find(_CARD, _CHANNELS)[0]) == 1, "the same twice"
    place.with_name("copy.json").write_text(_profile(gain=0.5).to_json())
    profiles, (note,) = profile_store.find(_CARD, _CHANNELS)
    assert not profiles
    assert note.startswith("gpu.instant: none of its profiles is taken, since they differ")


def test_a_profile_without_a_measured_gain_takes_the_place_of_none_that_has_one(store: Path) -> None:
    path, _ = profile_store.save(_profile())
    with pytest.raises(CalibrationError, match=r"gain 0\.9 \+- 0\.01.*beside a meter \(--meter\)"):
        profile_store.save(_in_time())
    assert [p.digest for p in profile_store.find(_CARD, _CHANNELS)[0]] == [_profile().digest]
    later = replace(_CARD, version="580.2")  # the driver's other branch does not take the one that is kept
    profile_store.save(_in_time(later))
    profile_store.save(replace(_in_time(later), low=20.0))
    Path(path).write_text("spoilt", encoding="utf-8")
    profile_store.save(_in_time())


def test_a_profile_that_corrects_nothing_is_not_said_to_correct(store: Path) -> None:
    place = Path(profile_store.save(_in_time())[0])
    for response, said in ((_KERNEL, "the gain is as shown"), (UNKNOWN, "nothing is corrected by")):
        profile = replace(_profile(gain=1.0), response=response)
        place.write_text(profile.to_json(), encoding="utf-8")
        (note,) = profile_store.find(_CARD, _CHANNELS)[1]
        assert said in note
        assert not note.startswith("gpu.instant: corrected")
        (channel,) = Calibration({"gpu.instant": profile}).channels(_CHANNELS)
        assert applied_to(channel.reference) == ""
    assert applied_to(_profile().calibrated(_CHANNELS[0]).reference) == _profile().digest


def test_a_profile_that_would_correct_nothing_takes_no_place(store: Path) -> None:
    profile_store.save(_in_time())
    with pytest.raises(CalibrationError, match="neither gain nor kernel were found"):
        profile_store.save(_profile(gain=1.0))
    assert [p.digest for p in profile_store.find(_CARD, _CHANNELS)[0]] == [_in_time().digest]


def test_a_virtual_device_and_one_without_serial_are_not_stored(store: Path) -> None:
    chip = Identity("hwmon", "ina226", "1-0040", serial_is_place=True)
    for device in (Identity("nvml", "X", "GPU-1", virtual=True), Identity("nvml", "X"), chip):
        with pytest.raises(CalibrationError, match="cannot be found again"):
            profile_store.save(_profile(device))
    assert not store.exists()


def test_a_device_that_its_place_alone_tells_finds_no_profile_since_machines_may_share_the_folder(store: Path) -> None:
    chip, power = Identity("hwmon", "ina226", "1-0040"), (Channel("power1", Quantity.POWER),)
    path, _ = profile_store.save(_profile(chip, "power1"))  # as one was kept before places were told from numbers
    assert profile_store.find(chip, power)[0]
    found, (note,) = profile_store.find(replace(chip, serial_is_place=True), power)
    assert not found
    assert path in note
    assert "1-0040 is its place in this machine" in note


@pytest.mark.parametrize(
    ("serial", "told"), [("", "has no serial number"), ("1-0040", "1-0040 is its place in this machine")]
)
def test_a_profile_says_where_nothing_shows_whose_it_is(serial: str, told: str) -> None:
    here = Identity("hwmon", "ina226", serial, serial_is_place=bool(serial))
    assert told in unproven(_profile(here, "power1"), here)
    assert not unproven(_profile(_CARD), _CARD)
    assert "names no serial number" in unproven(_profile(replace(_CARD, serial="")), _CARD)


def test_an_opened_card_is_corrected_by_its_stored_profile_which_every_result_says(store: Path, tmp_path: Path) -> None:
    clock = WalkingClock()
    world = make_world("constant:100", clock=clock)
    library = private_pynvml(VirtualDriver(world, [make_gpu("rtx3090")]))
    given: dict[str, Any] = {"clock": clock, "library": library, "total": "instant", "sysfs_root": tmp_path}
    with create("nvml:0", **given) as sensor:
        identity, channel = sensor.identity, sensor.channels[0]
        assert [n for n in identity.notes if n.startswith("gpu.instant: not calibrated; 5 cards of this model were")]
        assert channel.gain_u == pytest.approx(0.032, abs=0.001)
        clock.advance(1.0)
        shown = sensor.read().watts[1]
    profile_store.save(_in_time(identity))
    with create("nvml:0", **given) as sensor:  # one that corrects no gain
        assert any(note.startswith("gpu.instant: not calibrated; 5 cards") for note in sensor.identity.notes)
    profile_store.save(_profile(identity, gain=0.5))
    with create("nvml:0", **given) as sensor:
        clock.advance(1.0)
        assert sensor.read().watts[1] == pytest.approx(2.0 * shown, rel=0.02)
        assert any("corrected by the profile" in note for note in sensor.identity.notes)
        assert not any(note.startswith("gpu.instant: not calibrated") for note in sensor.identity.notes)
        sensor.reopen()
        assert any("corrected by the profile" in note for note in sensor.identity.notes)
    explicit = tmp_path / "own.json"
    explicit.write_text(_profile(identity, gain=0.25).to_json(), encoding="utf-8")
    for calibration, factor in ((explicit, 4.0), ("none", 1.0)):
        with create("nvml:0", calibration=calibration, **given) as sensor:
            clock.advance(1.0)
            assert sensor.read().watts[1] == pytest.approx(factor * shown, rel=0.02)


def test_a_calibration_that_needs_scipy_says_so_when_the_sensor_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"total": "instant", "load": "constant:100", "clock": WalkingClock()}
    with create("nvml:virtual", **given) as sensor:
        identity = sensor.identity
    profile, file = _profile(identity), tmp_path / "own.json"
    monkeypatch.setitem(sys.modules, "scipy", None)
    for response, fails in ((_KERNEL, True), (UNKNOWN, False)):
        file.write_text(replace(profile, response=response).to_json(), encoding="utf-8")
        with contextlib.ExitStack() as stack:
            if fails:
                message = r"pip install 'pmtpy\[analysis\]'; or go without it: calibration=none"
                stack.enter_context(pytest.raises(MissingPackageError, match=message))
            create("nvml:virtual", calibration=file, **given).close()


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _huge(place: Path) -> None:
    place.write_bytes(_profile().to_json().encode() + b" " * (1 << 20))


def _unreadable(place: Path) -> None:
    place.symlink_to(place.name)  # in a circle, which root cannot open either


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_fifo, "it is no ordinary file"),
        (_device, "it is no ordinary file"),
        (Path.mkdir, "it is no ordinary file"),
        (_huge, "it is longer than 1 MiB, which no profile is"),
        (_unreadable, "symbolic links"),
        (lambda place: place.write_bytes(b"\xff\xfe"), "codec"),
        (lambda place: place.write_bytes(b"[" * 100_000), "not JSON"),
    ],
)
def test_what_is_no_file_of_a_profile_is_left_out_and_said_and_the_others_are_found(
    store: Path, make: Callable[[Path], object], why: str
) -> None:
    profile_store.save(_profile())
    make(store / "another.json")
    found, notes = profile_store.find(_CARD, _CHANNELS)
    assert [p.digest for p in found] == [_profile().digest]
    (said,) = (note for note in notes if "left out" in note)
    assert str(store / "another.json") in said
    assert why in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_profile_is_stored_in_the_place_of_a_pipe(store: Path) -> None:
    path, _ = profile_store.save(_profile())
    Path(path).unlink()
    os.mkfifo(path)
    assert profile_store.save(_profile()) == (path, None)
    assert [p.digest for p in profile_store.find(_CARD, _CHANNELS)[0]] == [_profile().digest]


def test_a_folder_that_cannot_be_listed_is_said(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile_store.save(_profile())

    def refused(place: str) -> list[str]:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr(os, "listdir", refused)  # root may list any
    assert profile_store.find(_CARD, _CHANNELS)[1] == [
        f"the profiles in {store} are left out: [Errno 13] Permission denied: '{store}'"
    ]


def test_published_cards_of_the_model_say_how_far_another_may_be_off() -> None:
    known = published.spread("NVIDIA GeForce RTX 3090", "570.86.15", Kind.INSTANT)
    assert known is not None
    assert len(known.errors) == 5
    assert min(known.errors) == pytest.approx(-0.04745)
    one = published.spread("NVIDIA A100-PCIE-40GB", "535.54.03", Kind.INSTANT)
    assert one is not None
    assert one.gain_u == pytest.approx(((GPU_U**2 + 0.054687**2) / 2.0) ** 0.5, rel=1e-3)
    assert "one card of this model was off by -5.5 %" in one.note("gpu.instant")
    assert published.spread("NVIDIA GeForce RTX 3090 Ti", "570.86.15", Kind.INSTANT) is None
    assert published.spread("NVIDIA H100 PCIe", "570.86.15", Kind.INSTANT) is None
    assert published.spread("NVIDIA GeForce GTX TITAN X", "530.1", Kind.INSTANT) is not None


def test_a_measured_gain_that_is_stored_meanwhile_is_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[threading.Thread] = []
    put = whole.put_whole

    def late(path: Path, text: str) -> None:
        """Let another program store its profile between the look at the place and the putting."""
        if not others:
            others.append(threading.Thread(target=lambda: profile_store.save(_profile())))
            others[0].start()
            others[0].join(0.5)  # one that must wait for this one has not ended by then
        put(path, text)

    monkeypatch.setattr(whole, "put_whole", late)
    path, before = profile_store.save(_in_time())
    others[0].join()
    assert before is None
    assert Path(path).parent == store
    assert [p.digest for p in profile_store.find(_CARD, _CHANNELS)[0]] == [_profile().digest]
