"""The analog side of the board: the levels of any frame, as a pure function of its number.

Because noise is drawn per block of frames from a generator seeded by the block's number, the same frame has the same
levels whoever asks and whenever: the truth over any set of frames can be worked out later, by another process.

Frame ``k`` (counted from the boot of the board) covers the time from ``k`` to ``k + 1`` periods after the boot; its
timestamp is taken at the end. The load enters by its mean over the frame, from the closed-form integral.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pmtpy.core.clock import NS_PER_S
from pmtpy.core.rows import Floats
from pmtpy.emulators.load import Load
from pmtpy.emulators.powersensor3._spec import (
    FRAME_BYTES,
    LEVELS_PER_VOLT,
    MAX_LEVEL,
    MODULES,
    OPEN_NOISE_LEVELS,
    PAIRS,
    SENSORS,
    VOLTAGE_GAIN,
    VOLTAGE_NOISE_LEVELS,
    ZERO_V,
    BoardSpec,
    Record,
)

Levels = npt.NDArray[np.uint16]

FAST_CYCLE_BLOCKS = 32
_EXACT = 1e-6  # us, above the rounding of a float: a period that is a fraction does not fall short of a whole number


class Sampler:
    """Levels and bytes of the frames since one boot.

    Parameters
    ----------
    load : Load
        What flows through all pairs together.
    epoch_ns, boot_ns : int
        Host instants at which the load's time is 0, and at which the board started.
    boot : int
        Number of the boot; enters the seed of the noise.
    cycle_blocks : int
        After so many blocks the frames repeat, load and noise included, so that they need not be computed again;
        0: never. For streaming faster than real time.
    """

    def __init__(
        self, spec: BoardSpec, load: Load, *, epoch_ns: int, boot_ns: int, boot: int = 0, cycle_blocks: int = 0
    ) -> None:
        self.spec, self.boot_ns, self.boot = spec, boot_ns, boot
        self.block = spec.hardware.block
        self.period_ns = float(spec.hardware.period_us) * 1000 / (1 + spec.drift_ppm * 1e-6)
        self.period_s = self.period_ns / NS_PER_S
        self.shares = np.array([p.share for p in spec.pairs] + [0.0] * (PAIRS - len(spec.pairs)))
        self._load, self._start_s = load, (boot_ns - epoch_ns) / NS_PER_S
        self._cycle = cycle_blocks
        self._cache: dict[int, memoryview] = {}
        self._base, self._slope, self._noise = self._wiring()
        self._timestamps = self._timestamp_bytes()

    def _wiring(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return, per sensor: the level without load, levels per watt of the load, noise of one scan in levels."""
        base = np.full(SENSORS, self.spec.open_level, np.float32)
        slope = np.zeros(SENSORS, np.float32)
        noise = np.full(SENSORS, OPEN_NOISE_LEVELS, np.float32)
        for p, pair in enumerate(self.spec.pairs):
            if not pair.module:
                continue
            module, sign = MODULES[pair.module], -1 if pair.inverted else 1
            base[2 * p] = ZERO_V[p] * LEVELS_PER_VOLT
            slope[2 * p] = sign * module.sensitivity * LEVELS_PER_VOLT * pair.share / pair.volts
            noise[2 * p] = module.noise_a * module.sensitivity * LEVELS_PER_VOLT
            base[2 * p + 1] = pair.volts * VOLTAGE_GAIN * LEVELS_PER_VOLT
            noise[2 * p + 1] = VOLTAGE_NOISE_LEVELS
        return base, slope, noise

    def _timestamp_bytes(self) -> npt.NDArray[np.uint8]:
        """Return the first two bytes of every frame of a block; they are the same in each block."""
        period = self.spec.hardware.period_us
        off = np.random.default_rng([self.spec.seed, self.boot]).normal(0.0, self.spec.jitter_us, self.block)
        t = np.floor(np.arange(1, self.block + 1) * float(period) + off + _EXACT).astype(np.int64) % 1024
        return np.column_stack([0xF0 | t >> 6, 0x40 | t & 0x3F]).astype(np.uint8)

    def frames_by(self, t_ns: int) -> int:
        """Return how many frames are complete at a host instant."""
        n = int((t_ns - self.boot_ns) / self.period_ns)
        while self.end_ns(n) <= t_ns:
            n += 1
        while n > 0 and self.end_ns(n - 1) > t_ns:
            n -= 1
        return max(0, n)

    def end_ns(self, k: int) -> int:
        """Host instant of the end of frame ``k``, which is that of its timestamp."""
        return self.boot_ns + round((k + 1) * self.period_ns)

    def _at_s(self, k: npt.NDArray[np.int64]) -> Floats:
        """Time of the load at which frame ``k`` starts."""
        return np.asarray(self._start_s + k * self.period_s, np.float64)

    def _bounds_joules(self, k: npt.NDArray[np.int64]) -> Floats:
        """Energy of the load from the boot to the start of frame ``k``, closed form; repeats with the cycle."""
        if not self._cycle:
            return self._load.joules(self._at_s(k))
        frames = self._cycle * self.block
        ends = self._load.joules(self._at_s(np.array([0, frames])))
        part = self._load.joules(self._at_s(k % frames))
        return np.asarray(k // frames * (ends[1] - ends[0]) + part - ends[0], np.float64)

    def joules(self, k0: int, k1: int) -> Floats:
        """Energy of frames ``k0`` to ``k1`` (not included), joules, shape (4,): closed form, without noise or steps."""
        bounds = self._bounds_joules(np.array([k0, k1], np.int64))
        return np.asarray(self.shares * (bounds[1] - bounds[0]), np.float64)

    def levels(self, block: int) -> Levels:
        """Return the levels of one block of frames, shape (frames, 8)."""
        if self._cycle:
            block %= self._cycle
        first = block * self.block
        bounds = self._load.joules(self._at_s(np.arange(first, first + self.block + 1)))
        watts = (np.diff(bounds) / self.period_s).astype(np.float32)
        pin = self._base + watts[:, None] * self._slope
        scans = self.spec.hardware.scans
        if not self.spec.noise:
            level = np.rint(pin)
        else:
            # The sum of n scans, each rounded, is the rounded sum of the inputs plus noise whose variance is n times
            # that of a scan and of its rounding (1/12), less the rounding done here. Right for half a level rms and up.
            seed = [self.spec.seed, self.boot, block]
            normal = np.random.Generator(np.random.SFC64(seed)).standard_normal((self.block, SENSORS), np.float32)
            spread = np.sqrt(scans * self._noise**2 + (scans - 1) / 12, dtype=np.float32)
            level = np.rint(scans * pin + normal * spread)
            if scans > 1:
                level = np.floor(level / np.float32(scans))
        return np.clip(level, 0, MAX_LEVEL).astype(np.uint16)

    def encoded(self, block: int) -> memoryview:
        """Return the bytes of one block of frames, no marker set. The last blocks, or the whole cycle, are kept."""
        key = block % self._cycle if self._cycle else block
        made = self._cache.get(key)
        if made is None:
            levels = self.levels(block)
            out = np.empty((self.block, FRAME_BYTES), np.uint8)
            out[:, :2] = self._timestamps
            out[:, 2::2] = levels >> 6 | (0x80 | np.arange(SENSORS, dtype=np.uint16) << 4)
            out[:, 3::2] = levels & 0x3F
            made = memoryview(out.tobytes())
            if not self._cycle:
                self._cache.pop(block - 2, None)
            self._cache[key] = made
        return made

    def chunks(self, k0: int, k1: int) -> list[memoryview]:
        """Return the bytes of frames ``k0`` to ``k1`` (not included), cut where blocks meet."""
        out = []
        while k0 < k1:
            block, start = divmod(k0, self.block)
            stop = min(self.block, start + k1 - k0)
            out.append(self.encoded(block)[start * FRAME_BYTES : stop * FRAME_BYTES])
            k0 += stop - start
        return out

    def joules_sent(self, k0: int, k1: int, records: list[Record]) -> Floats:
        """Energy of frames ``k0`` to ``k1`` as their levels say, in joules, shape (4,).

        Volts times amperes by the stored ``records``, in float64, times the period in host time. Pairs that are not
        wholly in use, or that a host has given a sensitivity of 0, are 0.
        """
        total = np.zeros(PAIRS)
        whole: dict[int, Floats] = {}  # sums of whole blocks, which come again when the frames repeat
        while k0 < k1:
            block, start = divmod(k0, self.block)
            stop = min(self.block, start + k1 - k0)
            if self._cycle and stop - start == self.block:
                key = block % self._cycle
                if key not in whole:
                    whole[key] = self._watts(self.levels(block), records).sum(0)
                total += whole[key]
            else:
                total += self._watts(self.levels(block)[start:stop], records).sum(0)
            k0 += stop - start
        return total * self.period_s

    @staticmethod
    def _watts(levels: Levels, records: list[Record]) -> Floats:
        watts = np.zeros((len(levels), PAIRS))
        for p in range(PAIRS):
            i, v = records[2 * p], records[2 * p + 1]
            if i.in_use and v.in_use and i.sensitivity and v.sensitivity:
                amps = (levels[:, 2 * p] / LEVELS_PER_VOLT - i.vref) / i.sensitivity
                watts[:, p] = amps * (levels[:, 2 * p + 1] / LEVELS_PER_VOLT - v.vref) / v.sensitivity
        return watts
