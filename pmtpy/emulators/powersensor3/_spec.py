"""What a virtual board is made of: its variant, its sensor modules, its firmware version, the records in its flash.

Pure data, no state and no time. Facts are from the public PowerSensor3 repository (firmware 1.6.1, the versions
before it where they differ) and from the ISPASS 2025 paper; where a figure is an assumption it says so.
"""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass, field
from fractions import Fraction

from pmtpy.core.arguments import number
from pmtpy.errors import TargetError

SENSORS = 8
PAIRS = 4
FULL_SCALE_V = 3.3
MAX_LEVEL = 1023
FRAME_BYTES = 18
LEVELS_PER_VOLT = MAX_LEVEL / FULL_SCALE_V


@dataclass(frozen=True, slots=True)
class Variant:
    """How one microcontroller samples."""

    name: str  # prefix of the version line
    period_us: Fraction  # device microseconds per frame, exact
    scans: int  # Scans of which a frame is the mean, rounded down. 1: the conversion itself is sent.
    block: int  # frames in which the timestamps (10 bits of whole microseconds) repeat a whole number of times


# 25 cycles at 24 MHz (F411) or 21 MHz (F401), 8 channels, 6 scans; 154 cycles at 21 MHz, 4 conversions (F407).
VARIANTS = {
    "F411": Variant("F411", Fraction(25 * 8 * 6, 24), 6, 4 * 512),
    "F401": Variant("F401", Fraction(25 * 8 * 6, 21), 6, 4 * 448),
    "F407": Variant("F407", Fraction(154 * 4, 21), 1, 5 * 384),
}


@dataclass(frozen=True, slots=True)
class Module:
    """A current sensor: volts at the pin per ampere, and the noise of one scan in amperes rms."""

    sensitivity: float
    noise_a: float


# Sensitivities: the public host tools' defaults. Noise: chosen so that a 12 V / 10 A module reproduces Table II of
# the paper (0.72 W rms at 12 V and 20 kHz, so 60 mA rms after six scans and rounding); the 20 A part by the ratio of
# the two in Table I (0.41 / 0.35). The noise of the 50 A and 75 A parts is not published: assumed as large at
# the pin as that of the 20 A part.
MODULES = {
    "MLX10": Module(0.12, 0.145),
    "MLX20": Module(0.0625, 0.170),
    "MLX50": Module(0.025, 0.425),
    "MLX75": Module(0.01667, 0.637),
}
VOLTAGE_GAIN = 0.091  # of the 12 V modules, in the public examples
VOLTAGE_NOISE_LEVELS = 1.0  # of one scan, rms: assumed; enough to dither the 35 mV steps of a constant voltage
OPEN_NOISE_LEVELS = 2.0  # of an input with nothing connected: assumed
ZERO_V = (1.636, 1.622, 1.650, 1.644)  # true zero of each current sensor, near half the supply as in real ones


@dataclass(frozen=True, slots=True)
class Pair:
    """One module on the board."""

    module: str = "MLX10"  # type of the current sensor, a key of ``MODULES``; empty: nothing is connected
    volts: float = 12.0  # voltage of the supply it sits in, constant
    share: float = 1.0  # part of the world's load that flows through it
    name: str = "pair0"  # pair name in the flash
    # built in backwards: the pin voltage falls with the current, the stored sensitivity is negative
    inverted: bool = False

    def __str__(self) -> str:
        """Write the pair as :func:`parse_pairs` reads it."""
        return f"{'-' * self.inverted}{self.module or 'off'}:{self.volts!r}:{self.share!r}:{self.name}"


DEFAULT_PAIRS = "MLX10:12:0.25:slot,MLX20:12:0.75:ext12v"
_PAIRS_HELP = (
    "pairs are a number from 1 to 4, or MODULE[:VOLTS[:SHARE[:NAME]]] joined by commas, e.g. "
    f"{DEFAULT_PAIRS}; modules: {', '.join(MODULES)}, -MLX10 (built in backwards), off"
)


def parse_pairs(text: str) -> tuple[Pair, ...]:
    """Read pairs from text; shares that are left out divide what the others leave over.

    A bare number stands for so many MLX10 modules at 12 V with equal shares.

    Raises TargetError: unknown module, malformed number, no pair or more than four, or shares that do not sum to 1.
    """
    if len(text) == 1 and text.isdigit():
        text = ",".join(["MLX10"] * int(text))
    fields = [(*item.split(":"), "", "", "")[:4] for item in text.split(",")]
    try:
        shares = [float(f[2]) if f[2] else None for f in fields]
        volts = [float(f[1]) if f[1] else 12.0 for f in fields]
    except ValueError:
        raise TargetError(f"pairs {text!r}: not a number; {_PAIRS_HELP}") from None
    open_ends = sum(s is None and f[0] != "off" for s, f in zip(shares, fields, strict=True))
    rest = (1.0 - sum(s for s in shares if s is not None)) / max(1, open_ends)
    pairs = []
    for i, (module, *_, name) in enumerate(fields):
        kind = module.removeprefix("-")
        if kind == "off":
            pairs.append(Pair("", 0.0, 0.0, name))
            continue
        share = shares[i]
        pairs.append(Pair(kind, volts[i], rest if share is None else share, name or f"pair{i}", module != kind))
    unknown = sorted({f[0].removeprefix("-") for f in fields} - {*MODULES, "off"})
    total = sum(p.share for p in pairs)
    if unknown or len(pairs) > PAIRS or abs(total - 1) > 1e-9 or any(p.module and p.volts <= 0 for p in pairs):
        raise TargetError(f"pairs {text!r}: unknown {unknown}, shares sum to {total:g} (must be 1); {_PAIRS_HELP}")
    return tuple(pairs)


class Stored(enum.Enum):
    """The state of the configuration in the flash."""

    GOOD = "good"  # calibrated to this board
    UNCALIBRATED = "uncalibrated"  # nominal zeros, not those of this board
    TAILS = "tails"  # left-overs behind the NUL of each string, as the public host tools write them
    NO_NUL = "no-nul"  # strings without an end
    ERASED = "erased"  # all 0xFF
    NAN = "nan"  # a sensitivity that is no number, everything else good
    HALF = "half"  # of the last pair only the current sensor is in use


@dataclass(frozen=True, slots=True)
class BoardSpec:
    """Everything that is fixed about a virtual board."""

    # one to four; pair ``p`` is sensors ``2p`` (current) and ``2p + 1`` (voltage)
    pairs: tuple[Pair, ...] = field(default_factory=lambda: parse_pairs(DEFAULT_PAIRS))
    # microcontroller and firmware version; the version decides record size, version line and commands
    variant: str = "F411"
    version: str = "1.6.1"
    demo: bool = False  # demo build: only the version line differs here
    noise: bool = True  # off: every scan of a constant input gives the same level
    seed: int = 1  # of the noise and of the faults
    drift_ppm: float = 0.0  # how much faster the board's crystal runs than the host's clock
    # standard deviation of a timestamp, microseconds: real ones are a few late or early, as interrupts allow
    jitter_us: float = 0.0
    stored: Stored = Stored.GOOD  # state of the configuration in the flash at first boot
    streaming: bool = False  # left streaming by an earlier user
    # A stop while a marker waits for its frame locks the firmware up, as it does in reality. Off: the marked frame
    # goes out first.
    hang_on_marker: bool = False
    open_level: int = 37  # what the inputs without a module read; 1023 makes sensor 7 send the bytes of the stop word
    # Time to write the flash, and from a reset until the port is back. Assumed.
    flash_s: float = 0.5
    boot_s: float = 0.3

    def __post_init__(self) -> None:
        """Refuse a board that cannot be."""
        if self.variant not in VARIANTS:
            raise TargetError(f"no variant {self.variant!r} of the board; there are {', '.join(VARIANTS)}")
        if not 1 <= len(self.pairs) <= PAIRS:
            raise TargetError(f"a board has one to four pairs, not {len(self.pairs)}")
        number(self.seed, "a seed: a whole number, 0 or more", least=0)
        number(self.drift_ppm, "a drift in parts per million: no crystal is off by 10,000", least=-1e4, most=1e4)
        number(self.jitter_us, "a jitter in microseconds: 0 to 1000", least=0, most=1e3)
        number(self.open_level, "a level: 0 to 1023", least=0, most=1023)
        for seconds in (self.flash_s, self.boot_s):
            number(seconds, "a time of the board's in seconds: 0 to 3600", least=0, most=3600)
        if not re.fullmatch(r"\d{1,3}(\.[\w-]{1,9})*", self.version):
            raise TargetError(f"{self.version!r} is not the version of a firmware, such as 1.6.1")

    @property
    def hardware(self) -> Variant:
        """The sampling of this variant."""
        return VARIANTS[self.variant]

    @property
    def release(self) -> tuple[int, ...]:
        """Firmware version as numbers; a part that is no number counts as very new."""
        return tuple(int(part) if part.isdigit() else 999 for part in self.version.split("."))

    @property
    def record_bytes(self) -> int:
        """Size of a configuration record: 41, or 25 before pairs had names (1.3.0)."""
        return 41 if self.release >= (1, 3) else 25

    @property
    def version_line(self) -> bytes:
        """Answer to ``V``: with words in front before 1.5.0."""
        words = "" if self.release >= (1, 5) else "Firmware version: "
        return f"{words}{self.variant}-{self.version}{'-DEMO' if self.demo else ''}\r\n".encode()

    @property
    def rounding_volts(self) -> float:
        """How much lower the mean reads at the pin because means are rounded down: (scans - 1) / 2 / scans levels.

        5/12 of a level for six scans; nothing without noise, when all scans agree, or without averaging.
        """
        scans = self.hardware.scans
        return (scans - 1) / (2 * scans) / LEVELS_PER_VOLT if self.noise else 0.0


@dataclass(frozen=True, slots=True)
class Record:
    """The configuration of one sensor as stored: strings up to their NUL, float32 numbers, in use."""

    kind: bytes
    name: bytes
    vref: float
    sensitivity: float
    in_use: bool

    def pack(self, size: int, tail: bytes = b"\0") -> bytes:
        """Make the bytes of the record: 41, or 25 without the name. ``tail`` fills the strings behind their NUL."""
        strings = [text[:15] + b"\0" + tail * (15 - len(text[:15])) for text in (self.kind, self.name)]
        return b"".join(strings[: 2 if size == 41 else 1]) + struct.pack(
            "<ffB", self.vref, self.sensitivity, self.in_use
        )

    @staticmethod
    def unpack(data: bytes) -> Record:
        """Read a record of either size, as the firmware itself would use it."""
        vref, sensitivity, in_use = struct.unpack("<ffB", data[-9:])
        kind, name = data[:16].split(b"\0")[0], data[16:-9].split(b"\0")[0]
        return Record(kind, name, vref, sensitivity, bool(in_use))


def factory_flash(spec: BoardSpec) -> bytes:
    """Return the flash at first boot: eight records, calibrated to the board unless ``spec.stored`` says not."""
    bias, damaged = spec.rounding_volts, spec.stored
    records: list[Record] = []
    for p in range(PAIRS):
        pair = spec.pairs[p] if p < len(spec.pairs) else Pair("", 0.0, 0.0, "")
        if not pair.module:
            records += [Record(b"", b"", 0.0, 1.0, in_use=False)] * 2
            continue
        name = pair.name.encode()
        zero, low = (1.65, 0.0) if damaged is Stored.UNCALIBRATED else (ZERO_V[p] - bias, -bias)
        sign = -1.0 if pair.inverted else 1.0
        sensitivity = sign * MODULES[pair.module].sensitivity
        half = damaged is Stored.HALF and p == len(spec.pairs) - 1
        if damaged is Stored.NAN:
            sensitivity = float("nan")
        records.append(Record(pair.module.encode(), name, zero, sensitivity, in_use=True))
        records.append(Record(b"voltage", name, low, VOLTAGE_GAIN, in_use=not half))
    tail = b"\xa5" if damaged is Stored.TAILS else b"\0"
    packed = [record.pack(spec.record_bytes, tail) for record in records]
    if damaged is Stored.ERASED:
        packed = [b"\xff" * spec.record_bytes] * SENSORS
    if damaged is Stored.NO_NUL:
        packed = [b"\xc3" * (spec.record_bytes - 9) + data[-9:] for data in packed]
    return b"".join(packed)
