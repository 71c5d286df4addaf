from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.occ._progress import Progress, Step, stamp_ns
from pmtpy.backends.occ.layout import UNKNOWN_TIME, Entry, Record
from pmtpy.errors import ReadError

RATE = 1996.18
ENTRY = Entry("PWRSYS", "W", 12, 2000.0, 1.0, 0x80, 1, counter=False, offset=6872, function=0)
START = 1_000_000 * 512_000_000


def record(seconds: float, watts: int = 530, *, total: int = 0, tag: int = 0) -> Record:
    """The record after ``seconds`` at constant power, with counters that began elsewhere."""
    samples = round(seconds * RATE)
    stamp = (START + int(seconds * 512e6)) & ~0xF
    return Record(12, stamp, watts, watts, watts, (total + watts * samples) % 2**64, (tag + samples) % 2**32)


def followed(*records: Record) -> tuple[Progress, list[Step]]:
    progress, steps = Progress(ENTRY), []
    for i, new in enumerate(records):
        steps.append(progress.judge(new, i))
        progress.accept(new, i, steps[-1])
    return progress, steps


def test_the_worked_example_of_the_interface_gives_its_energy() -> None:
    a = Record(12, 1 << 40, 530, 530, 530, 10, 10)
    b = Record(12, (1 << 40) + 20_520_000_000, 530, 530, 530, 10 + 42_400_000, 10 + 80_000)
    _, steps = followed(a, b)
    assert steps[-1] is Step.SAMPLES
    mean = (b.total - a.total) / (b.tag - a.tag)
    assert mean * stamp_ns(b.stamp - a.stamp) * 1e-9 == pytest.approx(21_241.40625)


def test_equal_records_are_nothing_new() -> None:
    assert followed(record(1), record(1))[1] == [Step.RESTART, Step.NOTHING]


@given(total=st.integers(0, 2**64 - 1), tag=st.integers(0, 2**32 - 1), gap=st.floats(0.04, 1e5))
def test_wraps_of_sum_and_count_are_not_restarts(total: int, tag: int, gap: float) -> None:
    records = [record(t, total=total, tag=tag) for t in (1.0, 1.04008, 1.08015, 1.0815 + gap)]
    assert followed(*records)[1][1:] == [Step.SAMPLES] * 3


@given(down=st.floats(0.0, 5.0), up=st.floats(0.05, 1e5), before=st.floats(1.0, 1e6))
def test_a_restart_is_seen_even_when_the_new_counts_have_passed_the_old_ones(
    down: float, up: float, before: float
) -> None:
    progress, _ = followed(record(before), record(before + 0.04008), record(before + 0.08016))
    later = record(before + 0.08016 + down + up)
    samples = round(up * RATE)
    # Counts within one part in thousands of where they would have been cannot be told apart, nor do they matter.
    if abs((record(before + 0.08016).tag + (down + up) * RATE) - samples) < 0.1 * (up + down) * RATE:
        return
    new = later._replace(total=530 * samples, tag=samples)
    assert progress.judge(new, 0) is Step.RESTART


def test_a_gap_in_which_the_count_turned_over_unseen_is_not_trusted() -> None:
    progress, _ = followed(record(1), record(2), record(3))
    assert progress.judge(record(3 + 30 * 86_400), 0) is Step.RESTART


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"stamp": record(1.0).stamp}, "older"),
        ({"stamp": record(2.0).stamp}, "of the same instant"),
        ({"sample": 531}, "extremes"),
        ({"lowest": 531}, "extremes"),
        ({"tag": record(2.0).tag}, "no new sample"),
        ({"total": record(2.0).total}, "the mean 0 lies outside"),
        ({"total": 0, "tag": 0, "stamp": 0}, "empty"),
    ],
)
def test_a_torn_record_is_refused(change: dict[str, int], why: str) -> None:
    progress, _ = followed(record(1.5), record(2.0))
    with pytest.raises(ReadError, match=why):
        progress.judge(record(3.0)._replace(**change), 0)


def test_extremes_that_were_cleared_in_between_are_no_contradiction() -> None:
    progress, _ = followed(record(1.0, 30), record(2.0, 30)._replace(lowest=10, highest=90))
    new = record(3.0, 30)._replace(sample=80, lowest=80, highest=80)
    assert progress.judge(new, 0) is Step.SAMPLES


def test_a_mean_beyond_the_largest_sample_is_a_restart() -> None:
    progress, _ = followed(record(1.0), record(2.0))
    assert progress.judge(record(3.0, total=2**40), 0) is Step.RESTART


def test_without_time_of_day_the_host_clock_serves() -> None:
    timeless = [record(t)._replace(stamp=UNKNOWN_TIME) for t in (1.0, 1.04008, 5.0, 5.0)]
    progress = Progress(ENTRY)
    steps = []
    for new, t_ns in zip(timeless, (1_000_000_000, 1_050_000_000, 5_030_000_000, 5_060_000_000), strict=True):
        steps.append(progress.judge(new, t_ns))
        progress.accept(new, t_ns, steps[-1])
    assert steps == [Step.RESTART, Step.SAMPLES, Step.SAMPLES, Step.NOTHING]
    assert progress.judge(record(6.0), 6_030_000_000) is Step.RESTART
