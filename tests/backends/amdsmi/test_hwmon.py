"""Without ROCm's library: the files of the kernel's driver, and the identity that says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from pmtpy.backends.amdsmi import discover, open_source
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators.amdsmi import VirtualCard
from pmtpy.errors import BackendUnavailableError, SourceLostError, TargetError
from tests.backends.conftest import FailingFiles

from .rig import Rig, names


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A sysfs with nothing in it, on a machine without the package amdsmi."""
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    own = Tree()
    yield own
    own.close()


def add_card(tree: Tree, number: int, bus: str, **files: object) -> str:
    """Add a card as the kernel shows it, with a link from the class; return its hwmon folder."""
    device = f"devices/pci0000:00/0000:{bus}:00.0"
    folder = f"{device}/hwmon/hwmon{number}"
    tree.write(f"{folder}/name", "amdgpu")
    tree.write(f"{device}/unique_id", f"serial{number}")
    tree.link(f"{folder}/device", device)
    tree.link(f"class/hwmon/hwmon{number}", folder)
    for name, content in files.items():
        tree.write(f"{folder}/{name}", content)
    return folder


def opened(tree: Tree, device: str | None = None, total: str | None = None, clock: ManualClock | None = None) -> Source:
    return open_source(device, clock=clock or ManualClock(), total=total, sysfs_root=tree.root)


@pytest.mark.parametrize(
    ("file", "channel"), [("power1_average", "gpu.average_power"), ("power1_input", "gpu.current_power")]
)
def test_power_is_read_from_the_file_that_the_card_has_and_named_as_what_it_is(
    tree: Tree, file: str, channel: str
) -> None:
    temperatures = {"temp1_label": "edge", "temp1_input": 41000, "temp2_label": "junction", "temp2_input": 52000}
    add_card(tree, 0, "03", **{file: 123000000}, **temperatures, freq1_label="sclk", freq1_input=2100000000)
    source = opened(tree)
    assert names(source) == [channel, "gpu.edge_temperature", "gpu.hotspot_temperature", "gpu.gfx_clock"]
    values = [c.scale * v for c, v in zip(source.channels, source.read().raw[0], strict=True)]
    assert values == pytest.approx([123.0, 41.0, 52.0, 2.1e9])
    notes = " ".join(source.identity.notes)
    assert "because the Python package amdsmi is not installed" in notes
    assert "no energy counter" in notes
    source.close()
    source.close()


def test_a_card_without_a_number_of_its_own_is_known_by_its_place(tree: Tree) -> None:
    add_card(tree, 0, "03", power1_average=45000000)
    assert (opened(tree).identity.serial, opened(tree).identity.serial_is_place) == ("serial0", False)
    tree.remove("devices/pci0000:00/0000:03:00.0/unique_id")
    assert (opened(tree).identity.serial, opened(tree).identity.serial_is_place) == ("0000:03:00.0", True)


def test_the_power_of_an_apu_is_that_of_its_socket(tree: Tree) -> None:
    add_card(tree, 0, "03", power1_average=45000000)
    device = "devices/pci0000:00/0000:03:00.0"
    tree.write_bytes(f"{device}/gpu_metrics", b"\x78\0\3\0" + bytes(116))
    tree.write(f"{device}/numa_node", 0)
    tree.link("bus/pci/devices/0000:03:00.0", device)
    source = opened(tree)
    assert source.channels[0].domain == "host/socket0"
    assert any("includes the processor" in n for n in source.identity.notes)
    source.close()


def test_cards_are_numbered_and_named_by_their_pci_addresses(tree: Tree) -> None:
    add_card(tree, 0, "43", power1_average=100000000)
    add_card(tree, 1, "03", power1_average=200000000)
    tree.write("class/hwmon/hwmon7/name", "nvme")
    assert discover(sysfs_root=tree.root).devices == ("0", "1")
    for device, watts in (("0", 200e6), ("1", 100e6), ("0000:43:00.0", 100e6)):
        source = opened(tree, device)
        assert source.read().raw[0, 0] == watts
        source.close()
    with pytest.raises(TargetError, match="0000:43:00"):
        opened(tree, "2")


def test_without_cards_the_librarys_own_error_is_raised(tree: Tree) -> None:
    with pytest.raises(BackendUnavailableError, match="is not installed"):
        opened(tree)
    assert "is not installed" in discover(sysfs_root=tree.root).reason


def test_a_card_whose_power_cannot_be_read_is_said(tree: Tree) -> None:
    add_card(tree, 0, "03", power1_average=0, temp1_label="edge", temp1_input=41000)
    with pytest.raises(BackendUnavailableError, match="no power1_input or power1_average"):
        opened(tree)


def test_an_energy_total_needs_the_library(tree: Tree) -> None:
    add_card(tree, 0, "03", power1_average=100000000)
    with pytest.raises(BackendUnavailableError, match="no energy counter"):
        opened(tree, total="energy")


@pytest.mark.parametrize("content", [0, -5, "", "garbage", 9_000_000_000_000])
def test_what_is_no_power_is_a_lost_row(tree: Tree, content: object) -> None:
    folder = add_card(tree, 0, "03", power1_average=100000000)
    source = opened(tree)
    assert len(source.read()) == 1
    tree.write(f"{folder}/power1_average", content)
    assert len(source.read()) == 0
    tree.write(f"{folder}/power1_average", 110000000)
    block = source.read()
    assert block.raw[0, 0] == 110000000
    assert block.lost is not None
    assert block.lost[0] == 1
    source.close()


def test_a_card_that_is_unbound_is_lost(tree: Tree, failing_files: FailingFiles) -> None:
    folder = add_card(tree, 0, "03", power1_average=100000000)
    clock = ManualClock()
    source = opened(tree, clock=clock)
    source.read()
    tree.remove(folder)
    for _ in range(20):
        assert len(source.read()) == 0
        clock.advance(0.1)
    with pytest.raises(SourceLostError):
        source.read()


def test_a_wrapper_that_does_not_fit_its_library_is_not_used_where_files_are_there(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    add_card(tree, 0, "03", power1_average=100000000)
    rig = Rig(VirtualCard("AMD Instinct MI300X"))
    rig.amdsmi.__dict__["__version__"] = "6.3.3"
    source = rig.open(root=tree.root)
    assert names(source) == ["gpu.average_power"]
    assert any("older than the library" in n for n in source.identity.notes)
    source.close()


@pytest.mark.parametrize(("files", "most"), [({}, 5000.0), ({"power1_cap_max": 390_000_000}, 1170.0)])
def test_what_a_card_can_draw_bounds_what_no_reading_has_shown(tree: Tree, files: dict[str, int], most: float) -> None:
    """Without a bound, 10 ms of 330 W over 20 W were said at once to be twice what the card had drawn at rest."""
    folder = add_card(tree, 0, "03", power1_input=20_000_000, **files)
    source = opened(tree)
    assert source.channels[0].max_watts == most
    tree.write(f"{folder}/power1_input", round(most * 1e6) + 1)
    assert len(source.read()) == 0
    source.close()
