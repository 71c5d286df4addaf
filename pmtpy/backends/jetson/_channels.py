"""Which rails of a Jetson make the module's power: the boards, and the rule for what is not in the list. Pure.

Rails are recognised by their exact names, never by parts of them ("_in" is in VDD_M2_IN, "gpu" in VDD_GPU_SOC), nor by
the model of the board: carriers of other makers keep the module's rails but not the model's name.

Facts: NVIDIA Jetson Linux Developer Guide (r32 to r38), tables of INA3221 rails; device trees of mainline Linux
(``arch/arm64/boot/dts/nvidia``); github.com/rbonghi/jetson_stats issues 51 and 344.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

MODULE = "host/module"
KIT = "host"

# What a channel without a rail is called, in capitals: by JetPack 4, by JetPack 5, and the sum of all channels.
_NO_RAIL = frozenset({"", "(NULL)", "NC", "SUM OF SHUNT VOLTAGES"})


@dataclass(frozen=True, slots=True)
class Board:
    """The rails of a module."""

    name: str
    total: tuple[str, ...]  # The rails whose sum is the power of the module. All of them are needed.
    inside: Mapping[str, str] = field(default_factory=dict)  # rails that are fed by another one, and by which
    others: tuple[str, ...] = ()  # further rails by which the board is told from others with the same total
    # shunt in ohms, for drivers that do not tell; "" is the default
    shunts: Mapping[str, float] = field(default_factory=dict)

    def matches(self, names: frozenset[str]) -> bool:
        """Whether all rails that define the board are there."""
        return names.issuperset(self.total) and names.issuperset(self.others)


_TX2 = ("VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_SYS_CPU")

BOARDS = (
    Board(
        "Jetson Nano",
        ("POM_5V_IN",),
        {"POM_5V_GPU": "POM_5V_IN", "POM_5V_CPU": "POM_5V_IN"},
        ("POM_5V_GPU", "POM_5V_CPU"),
        {"": 0.005},
    ),
    Board(
        "Jetson TX2",
        ("VDD_IN",),
        dict.fromkeys((*_TX2, "VDD_SYS_DDR", "VDD_5V0_DDR", "VDD_4V0_WIFI", "VDD_3V8_WIFI"), "VDD_IN"),
        _TX2,
        {"": 0.01, "VDD_IN": 0.005},
    ),
    Board(
        "Jetson TX1",
        ("VDD_IN",),
        {"VDD_GPU": "VDD_IN", "VDD_CPU": "VDD_IN"},
        ("VDD_GPU", "VDD_CPU"),
        {"": 0.01, "VDD_IN": 0.02},
    ),
    Board(
        "Jetson Xavier NX, Orin NX or Orin Nano",
        ("VDD_IN",),
        {"VDD_CPU_GPU_CV": "VDD_IN", "VDD_SOC": "VDD_IN"},
        ("VDD_CPU_GPU_CV", "VDD_SOC"),
        {"": 0.005},
    ),
    Board("Jetson AGX Xavier", ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"), shunts={"": 0.005}),
    Board(
        "Jetson AGX Orin or IGX Orin",
        ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
        {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"},
        shunts={"": 0.002},
    ),
    Board("Jetson AGX Thor", ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"), shunts={"": 0.002}),
)

# Rails of carriers that feed the whole kit, the module included.
INPUTS = ("VDD_MUX", "VIN")
# Rails that by their name are the input of a module, on a board that is not in the list.
_MODULE_INPUTS = ("VDD_IN", "POM_5V_IN")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is added up."""

    board: Board | None  # the module, if it was recognised
    domains: Mapping[str, str]  # part of the machine that a rail measures; "" for those outside of every total
    input: bool  # there is a rail that feeds the whole kit
    rule: str  # a sentence on what makes the total, or why there is none


def unused(label: str) -> bool:
    """Whether a channel with this label measures nothing."""
    return label.upper() in _NO_RAIL


def plan(names: Sequence[str], *, whole_kit: bool = False, unread: Collection[str] = ()) -> Plan:
    """Decide from the names of all rails what each of them measures.

    ``whole_kit``: let the input of the kit make the total rather than the module. ``unread``: those of the names that
    cannot be read, so that a total of which one is a part is not known.
    """
    found = frozenset(names)
    domains = dict.fromkeys(names, "")
    board = next((b for b in BOARDS if b.matches(found)), None)
    inputs = [name for name in INPUTS if name in found and name not in unread]
    missing = [name for name in (board.total if board is not None else ()) if name in unread]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        rule = f"no total: several channels are called {', '.join(doubled)}"
        return Plan(board, domains, bool(inputs), rule)
    if board is not None and missing:
        rule = f"no total: {', '.join(missing)} of {board.name} cannot be read"
    elif board is not None:
        rule = f"the total is the module ({board.name}): {' + '.join(board.total)}"
        domains.update(_domains(board, found))
    else:
        known = [name for name in _MODULE_INPUTS if name in found and name not in unread]
        rule = "no total: these rails belong to no known board, and adding them up could count power twice"
        if known:
            rule = f"the total is the input of the module: {known[0]}; the board is not known"
            domains[known[0]] = MODULE
    if whole_kit and inputs:
        rule = f"the total is the whole kit: {inputs[0]}"
        domains[inputs[0]] = KIT
    return Plan(board, domains, bool(inputs), rule)


def _domains(board: Board, found: frozenset[str]) -> dict[str, str]:
    alone = len(board.total) == 1
    parts = {rail: MODULE if alone else f"{MODULE}/{rail.lower()}" for rail in board.total}
    parts.update({rail: f"{parts[feed]}/{rail.lower()}" for rail, feed in board.inside.items() if rail in found})
    return parts
