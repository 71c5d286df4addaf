"""Recordings of every format, small and sound, and ways to spoil them; seeded, so a find can be found again."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np

from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.write import Ending, Header, open_sink
from tests.support.one_pair import PAIR

ROWS = 40
_COUNTER = Layout((Channel("package0", Quantity.ENERGY, scale=1e-6, domain="host/socket0/package"),))
_BOARD = Layout(PAIR)
_MARK = "M A\n"
# What parsers stumble over: what is a number to one and not to another, ends of lines, marks of other formats.
_TOKENS = [
    *(b"nan", b"inf", b"-inf", b"1e308", b"-1e308", b"1e400", b"9" * 25, b"-1", b"0", b"", b"\0", b"\r", b"\r\n"),
    *(b"\n", b"\n\n", b",", b",,", b" ", b'"', b'""', b"\xff", b"\xef\xbb\xbf", b"\t", b"[N/A]", b"1_0", b"0x10"),
    *(b"M ", b"S ", b"timestamp", b"elapsed", b"total_W", b"{", b"}", b"[" * 2000, b"null", b"true", b"1e5", b"PAR1"),
]


def _ours(folder: Path, name: str, layout: Layout) -> None:
    """Write rows of 24 W, 5 ms apart, with a marker."""
    header = Header("test:virtual", Identity("test", virtual=True), layout, Anchor(0, 1_700_000_000_000_000_000))
    sink = open_sink(folder / name, header)
    k = np.arange(ROWS)
    joules = np.stack([24.0 * k * 5e-3] * 2, axis=1)
    values = np.tile([2.0, 12.0], (ROWS, 1)) if layout is _BOARD else np.empty((ROWS, 0))
    nothing = np.zeros(ROWS, np.int64)
    sink.write(Frame(k * 5_000_000, np.full((ROWS, 2), 24.0), joules, values, nothing, nothing, ((5, "a, b"),)))
    if not name.startswith("killed"):
        sink.close(Ending(Anchor(0, 0), ROWS, 0, 0, complete=True))


def make_seeds(folder: Path) -> list[str]:
    """Write a sound recording of every kind; return their names. What belongs to one lies beside it."""
    for name in ("board.csv", "board.parquet", "board.ps3", "board.pmt", "killed.parquet"):
        _ours(folder, name, _BOARD)
    for name in ("counter.csv", "counter.pmt"):
        _ours(folder, name, _COUNTER)
    ticks = np.zeros((60, 9), "<u2")
    ticks[:, 0] = np.arange(60) * 602 % 2**16
    ticks[:, 1:] = np.array([1600, 100, 1600, 0, 0, 0, 1600, 50]) << 4
    texts: dict[str, str | bytes] = {
        "packed.csv.gz": gzip.compress((folder / "board.csv").read_bytes(), mtime=0),
        "pmd.bin": ticks.tobytes(),
        "smi.csv": "timestamp, pstate, clocks.current.sm [MHz], power.draw [W]\n"
        + "".join(
            f"2023/07/13 18:15:{k:02d}.351, P0, 745 MHz, {'[N/A]' if k == 3 else '50.00 W'}\n" for k in range(20)
        ),
        "gpus.csv": "index, timestamp, power.draw [W]\n"
        + "".join(f"{g}, 2023/07/13 18:15:{k:02d}.{g * 5:03d}, {60 + k}.00\n" for k in range(12) for g in range(3)),
        "old.pmt": "timestamp total core\n" + "".join(f"{k / 10:.3f} 10.0 4.0\n" for k in range(9)) + 'M 1 7 "x"\n',
        "bare.pmt": "".join(f"{1733935225 + k * 0.06:.3f} 28.873 23.595\n" for k in range(20)),
        "old.ps3": "marker time dt_micro device_timestamp current0 voltage0 power0 power_total\n"
        + "".join(
            f"S {k * 50e-6:.6g} 50 {k * 50 % 1024} 2 12 24 24\n{chr(77) + ' A' + chr(10) if k == 7 else ''}"
            for k in range(30)
        ),
        "stamps.csv": "timestamp\n" + "".join(f"{1689268533578702 + k * 6000000}\n" * 2 for k in range(6)),
    }
    for name, content in texts.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return sorted(p.name for p in folder.iterdir() if p.is_file() and p.suffix != ".json")


def companions(recording: Path) -> list[Path]:
    """Return the files that belong to a recording, itself first."""
    beside = recording.with_name(recording.name + ".json")
    folder = recording.with_name(recording.name + ".unfinished")
    return [recording, *([beside] if beside.exists() else []), *(sorted(folder.iterdir()) if folder.is_dir() else [])]


def spoil(content: bytes, chance: random.Random) -> bytes:
    """Change bytes, take some out, put others in, cut, repeat, exchange lines or fields; once or several times."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(content) + 1)
        how = chance.randrange(8)
        other = chance.randrange(len(content) + 1)
        taken, put = [
            (1, bytes([chance.randrange(256)])),
            (chance.randrange(1, 40), b""),
            (0, chance.choice(_TOKENS)),
            (len(content), b""),
            (0, content[other : other + chance.randrange(60)]),
            (chance.randrange(1, 5), chance.randbytes(chance.randrange(6))),
            (0, b""),
            (0, b""),
        ][how]
        content = content[:at] + put + content[at + taken :]
        if how >= 6:
            content = _exchange(content, chance, fields=how == 7)
    return content


def _exchange(content: bytes, chance: random.Random, *, fields: bool) -> bytes:
    """Exchange two lines, or put something else into a field of one."""
    lines = content.split(b"\n")
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    if fields:
        separator = b"," if b"," in lines[a] else b" "
        parts = lines[a].split(separator)
        parts[chance.randrange(len(parts))] = chance.choice(_TOKENS)
        lines[a] = separator.join(parts)
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)
