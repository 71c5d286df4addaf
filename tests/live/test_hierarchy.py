from __future__ import annotations

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Layout
from pmtpy.live._hierarchy import hierarchy


def _layout(**domains: str) -> Layout:
    return Layout(tuple(Channel(n.replace("_", "."), Quantity.POWER, domain=d) for n, d in domains.items()))


def _shown(*sensors: tuple[str, Layout]) -> list[str]:
    return ["  " * n.depth + n.label for n in hierarchy(sensors)]


def test_parts_stand_below_their_whole_and_a_sensor_inside_another_ones_channel() -> None:
    rapl = _layout(core="host/socket0/package/core", package="host/socket0/package", dram="host/socket0/dram")
    node = _layout(machine="host", psu="")
    gpu = _layout(board="gpu/1", again="gpu/1", memory="gpu/1/memory")
    meter = _layout(pair0="external/a")
    assert _shown(("rapl", rapl), ("gpu", gpu), ("node", node), ("meter", meter)) == [
        "node",
        "  machine",
        "    rapl",
        "      package",
        "        core",
        "      dram",
        "    gpu",
        "      board",
        "        again",
        "        memory",
        "  psu",
        "meter",
    ]


def test_of_two_sensors_of_one_part_the_second_stands_below_the_first() -> None:
    assert _shown(("a", _layout(gpu="gpu/1")), ("b", _layout(gpu="gpu/1"))) == ["a", "  b"]


def test_what_measures_no_known_part_stands_for_itself() -> None:
    assert _shown(("a", _layout(x="", y="")), ("b", _layout(x=""))) == ["a", "  x", "  y", "b", "  x"]


def test_nodes_know_their_outermost_whole() -> None:
    nodes = hierarchy(
        [("rapl", _layout(p="host/socket0")), ("meter", _layout(m="external/a")), ("n", _layout(h="host"))]
    )
    assert [(n.label, n.root) for n in nodes] == [("meter", 0), ("n", 1), ("rapl", 1)]
