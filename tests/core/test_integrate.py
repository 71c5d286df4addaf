from __future__ import annotations

import math
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Quantity
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Frame, Layout, Point, Row

V = Channel("p.voltage", Quantity.VOLTAGE, scale=0.01, offset=-3)
A = Channel("p.current", Quantity.CURRENT, scale=0.02, offset=-500)
P = Channel(
    "p", Quantity.POWER, derivation=Derivation.PRODUCT, operands=("p.voltage", "p.current"), domain="external/p"
)
MEAN = Channel(
    "p",
    Quantity.POWER,
    derivation=Derivation.PRODUCT,
    operands=("p.voltage", "p.current"),
    method=EnergyMethod.MEAN,
    window_s=5e-5,
    domain="x/p",
)
GAUGE = Channel("g", Quantity.POWER, scale=1e-3, domain="gpu")
COUNTER = Channel("c", Quantity.ENERGY, scale=1e-6, wrap=1000.0, domain="host")


def joined(parts: list[Frame | Point | None]) -> Frame:
    frames = [Frame.of_points([p]) if isinstance(p, Point) else p for p in parts if p is not None]
    return Frame(
        np.concatenate([f.t_ns for f in frames]),
        np.concatenate([f.watts for f in frames]),
        np.concatenate([f.joules for f in frames]),
        np.concatenate([f.values for f in frames]),
        np.concatenate([f.lost for f in frames]),
        np.concatenate([f.uncovered_ns for f in frames]),
    )


def run(channels: tuple[Channel, ...], blocks: list[Block]) -> Frame:
    integrator = Integrator(Layout(channels))
    return joined([integrator.advance(b) for b in blocks])


def cut(block: Block, places: list[int]) -> list[Block]:
    edges = sorted({0, len(block), *[p % (len(block) + 1) for p in places]})
    return [
        Block(
            block.t_ns[a:b],
            block.raw[a:b],
            None if block.lost is None else block.lost[a:b],
            block.fresh and a == 0,
        )
        for a, b in pairwise(edges)
    ]


@st.composite
def streams(draw: st.DrawFn) -> Block:
    n = draw(st.integers(2, 60))
    steps = draw(st.lists(st.integers(1, 200_000), min_size=n, max_size=n))
    raw = draw(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 1023)), min_size=n, max_size=n))
    lost = draw(st.lists(st.sampled_from([0, 0, 0, 1, 7]), min_size=n, max_size=n))
    return Block(np.cumsum(np.array(steps, np.int64)), np.array(raw, np.uint16), np.array(lost, np.int64))


@pytest.mark.parametrize("power", [P, MEAN])
@given(block=streams(), places=st.lists(st.integers(0, 60)))
def test_energy_does_not_depend_on_how_rows_are_cut_into_blocks(
    power: Channel, block: Block, places: list[int]
) -> None:
    whole = run((V, A, power), [block])
    parts = run((V, A, power), cut(block, places))
    rows = run((V, A, power), cut(block, list(range(len(block)))))
    for other in (parts, rows):
        # Sums of at most 60 terms of up to 5e2 W x 2e-4 s, taken in another order: 60 x 0.1 J x 2^-52 each.
        np.testing.assert_allclose(other.joules, whole.joules, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(other.watts, whole.watts, rtol=1e-13)
        np.testing.assert_allclose(other.values, whole.values, rtol=1e-13)
        assert other.uncovered_ns.tolist() == whole.uncovered_ns.tolist()
        assert other.lost.tolist() == whole.lost.tolist()


@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 200_000), st.sampled_from([0, 0, 0, 0, 3]), *[st.sampled_from([1.0, 7.5, math.nan])] * 4
        ),
        min_size=9,
        max_size=40,
    ),
    whole_rows=st.integers(0, 8),
)
def test_arrays_say_of_powers_that_are_not_read_what_single_rows_say(
    rows: list[tuple[float, ...]], whole_rows: int
) -> None:
    """Most blocks take a shorter way, those without a gap or a power that is no number; it must not be seen."""
    part = Channel("part", Quantity.POWER, domain="gpu/part")
    beside = Channel("beside", Quantity.POWER, method=EnergyMethod.MEAN, window_s=5e-5, domain="x/beside")
    table = np.array(rows)
    table[:whole_rows, 1:] = [0.0, 1.0, 2.0, 3.0, 4.0]  # an ordinary block before
    t_ns, lost = np.cumsum(table[:, 0]).astype(np.int64), table[:, 1].astype(np.int64)
    block = Block(t_ns, table[:, [2, 3, 4, 5]], lost if lost.any() else None)
    layout = (V, GAUGE, part, beside)
    singles = run(layout, cut(block, list(range(len(block)))))
    for other in (run(layout, [block]), run(layout, cut(block, [whole_rows]))):
        np.testing.assert_allclose(other.joules, singles.joules, rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(other.watts, singles.watts)
        assert other.uncovered_ns.tolist() == singles.uncovered_ns.tolist()
        assert other.lost.tolist() == singles.lost.tolist()


@given(watts=st.integers(1, 10**7), steps=st.lists(st.integers(1, 10**9), min_size=1, max_size=50))
def test_constant_power_gives_exactly_power_times_time(watts: int, steps: list[int]) -> None:
    t = np.cumsum(np.array([0, *steps], np.int64))
    frame = run((GAUGE,), [Block(t, np.full((len(t), 1), float(watts)))])
    assert frame.joules[-1, 0] == pytest.approx(watts * 1e-3 * sum(steps) * 1e-9, rel=1e-12)


@given(increments=st.lists(st.integers(0, 999), min_size=1, max_size=80), start=st.integers(0, 999))
def test_a_counter_that_wraps_equals_one_that_does_not(increments: list[int], start: int) -> None:
    true = np.cumsum([start, *increments])
    t = np.arange(len(true), dtype=np.int64) * 10**9
    wrapped = run((COUNTER,), [Block(t, (true % 1000)[:, None].astype(float))])
    assert wrapped.joules[-1, 1] == pytest.approx((true[-1] - true[0]) * 1e-6, abs=1e-12)
    assert wrapped.uncovered_ns[-1].tolist() == [0, 0]


@given(block=streams())
def test_adding_a_channel_changes_no_other(block: Block) -> None:
    alone = run((V, A, P), [block])
    other = Channel(
        "q", Quantity.POWER, derivation=Derivation.PRODUCT, operands=("p.voltage", "p.voltage"), domain="external/q"
    )
    both = run((V, A, P, other), [block])
    np.testing.assert_array_equal(both.joules[:, 1], alone.joules[:, 1])
    np.testing.assert_allclose(both.joules[:, 0], both.joules[:, 1] + both.joules[:, 2], rtol=1e-15)


def test_a_trapezoid_over_a_ramp_is_exact() -> None:
    t = np.arange(11, dtype=np.int64) * 10**8
    frame = run((GAUGE,), [Block(t, np.arange(11.0)[:, None] * 1000)])
    assert frame.joules[-1, 0] == pytest.approx(5.0)


def test_a_ratio_is_the_mean_of_the_samples_between() -> None:
    channels = (
        Channel("sum", Quantity.COUNT, wrap=2.0**64),
        Channel("n", Quantity.COUNT, wrap=2.0**32),
        Channel("sys", Quantity.POWER, derivation=Derivation.RATIO, operands=("sum", "n"), domain="host"),
    )
    near_the_end = 2**32 - 10
    rows = [[0, near_the_end], [500, near_the_end + 5], [2500, 5], [2500, 5]]
    frame = run(channels, [Block(np.arange(4, dtype=np.int64) * 10**9, np.array(rows, float))])
    assert frame.watts[1:3, 1].tolist() == [100.0, 200.0]
    assert frame.joules[2, 1] == 300.0
    assert math.isnan(frame.watts[3, 1])  # no sample in between: nothing is known, nothing is invented
    assert frame.uncovered_ns[:, 0].tolist() == [0, 0, 0, 10**9]


def test_a_lost_row_is_not_invented() -> None:
    t = np.array([0, 50, 150, 200], np.int64) * 1000
    raw = np.array([[1203, 600]] * 4, np.uint16)
    lost = np.array([0, 0, 1, 0], np.int64)
    power = 12.0 * 2.0
    covered = run((V, A, MEAN), [Block(t, raw, lost)])
    assert covered.joules[-1, 0] == pytest.approx(power * 150e-6)  # 200 us less the 50 us of the lost row
    assert covered.uncovered_ns[-1].tolist() == [50_000, 50_000]
    sampled = run((V, A, P), [Block(t, raw, lost)])
    assert sampled.joules[-1, 0] == pytest.approx(power * 100e-6)  # a momentary sample covers nothing before itself
    assert sampled.uncovered_ns[-1].tolist() == [100_000, 100_000]


def test_a_restart_adds_nothing_and_is_uncovered() -> None:
    t = np.arange(4, dtype=np.int64) * 10**9
    counter = Channel("c", Quantity.ENERGY, domain="gpu")
    integrator = Integrator(Layout((counter,)))
    integrator.advance(Block(t[:2], np.array([[10.0], [20.0]])))
    frame = integrator.advance(Block(t[2:], np.array([[3.0], [8.0]]), fresh=True))
    assert isinstance(frame, Frame)
    assert frame.joules[:, 1].tolist() == [10.0, 15.0]
    assert frame.uncovered_ns.tolist() == [[10**9, 10**9]] * 2


def test_a_counter_at_rest_keeps_its_power_then_bounds_it() -> None:
    channel = Channel("c", Quantity.ENERGY, scale=1.0, refresh_s=0.1, domain="gpu")
    integrator = Integrator(Layout((channel,)))
    seen = []
    for t_ms, count in [(0, 0), (100, 6), (150, 6), (200, 12), (1200, 12), (11_200, 12)]:
        point = integrator.advance(Row(t_ms * 1_000_000, [count]))
        assert isinstance(point, Point)
        seen.append(point.watts[1])
    assert np.isnan(seen[:3]).all()  # of what the first move shows nobody knows since when it was used
    assert seen[3] == 60.0
    assert seen[4] == 1.0  # less than one joule in a second
    assert seen[5] == pytest.approx(1 / 11)


def test_a_calibration_acts_before_the_product_and_on_the_power_of_a_counter() -> None:
    t = np.arange(10, dtype=np.int64) * 10**9
    raw = np.array([[1203, 600]] * 10, np.uint16)
    block = Block(t, raw)
    transforms = {"p.current": lambda a: a + 1.0}
    integrator = Integrator(Layout((V, A, P)), transforms)
    frame = integrator.advance(block)
    assert isinstance(frame, Frame)
    assert frame.joules[-1, 0] == pytest.approx(12.0 * 3.0 * 9)
    rows = Integrator(Layout((V, A, P)), transforms)
    point = [rows.advance(Row(int(a), b.tolist())) for a, b in zip(t, raw, strict=True)][-1]
    assert isinstance(point, Point)
    assert point.joules[0] == pytest.approx(12.0 * 3.0 * 9)
    counter = Channel("c", Quantity.ENERGY, domain="host")
    corrected = Integrator(Layout((counter,)), {"c": lambda w: (w - 5) / 0.5})
    corrected.advance(Row(0, [0.0]))
    last = corrected.advance(Row(2 * 10**9, [30.0]))
    assert isinstance(last, Point)
    assert last.joules[0] == pytest.approx((15 - 5) / 0.5 * 2)


def test_without_a_known_total_the_total_is_no_number() -> None:
    rail = Channel("rail", Quantity.POWER)
    frame = run((rail,), [Block(np.array([0, 10**9], np.int64), np.array([[5.0], [5.0]]))])
    assert math.isnan(frame.joules[-1, 0])
    assert frame.joules[-1, 1] == 5.0


@given(steps=st.lists(st.integers(100_000, 90_000_000), min_size=2, max_size=60), period_ms=st.integers(1, 40))
def test_a_slow_counter_read_at_any_instants_never_shows_twice_its_power_and_more(
    steps: list[int], period_ms: int
) -> None:
    slow = Channel("c", Quantity.ENERGY, scale=1e-6, domain="host", refresh_s=0.04)
    integrator = Integrator(Layout((slow,)))
    t_ns, period_ns = 0, period_ms * 1_000_000
    for step in steps:
        t_ns += step
        # 100 W, shown as of the last refresh: two refreshes seen within little more than one are the worst.
        point = integrator.advance(Row(t_ns, [t_ns // period_ns * (0.1 * period_ns)]))
        assert isinstance(point, Point)
        assert not point.watts[1] > 200.0 * (1 + 1e-9)


@pytest.mark.parametrize(("period_ms", "read_ms"), [(1, 2), (10, 20), (10, 50), (10, 80), (40, 50), (100, 50)])
def test_the_power_of_a_counter_that_moves_more_often_than_stated_is_what_it_counts(
    period_ms: int, read_ms: int
) -> None:
    channel = Channel("c", Quantity.ENERGY, scale=1e-3, domain="gpu", refresh_s=0.1)
    integrator, rng = Integrator(Layout((channel,))), np.random.default_rng(3)
    read = 1e9 + read_ms * (1e6 * np.arange(400) + rng.uniform(0.0, 2e5, 400))
    points = [integrator.advance(Row(t, [t // (period_ms * 1_000_000) * 60.0 * period_ms])) for t in read.astype(int)]
    watts = np.array([p.watts[1] for p in points if isinstance(p, Point)])[10:]  # three to nine moves in a row prove it
    if period_ms < 2 * read_ms:
        assert np.mean(watts) == pytest.approx(60.0, rel=0.1)
    assert np.all(abs(watts - 60.0) <= 60.0 * max(period_ms, 0.2 * read_ms) / read_ms)


@given(
    period_ms=st.integers(1, 100),
    phase_ns=st.integers(0, 99_999_999),
    steps=st.lists(st.integers(100_000, 300_000_000), min_size=1, max_size=30),
    corrected=st.booleans(),
)
def test_the_first_powers_of_a_counter_are_unknown_or_what_it_counts(
    *, period_ms: int, phase_ns: int, steps: list[int], corrected: bool
) -> None:
    """Whatever its period, up to the 100 ms that are stated, and whenever it is read.

    A move may come at half of the longest refresh that is not refuted, and show a half of the time since the last one.
    """
    channel = Channel("c", Quantity.ENERGY, scale=1e-6, domain="gpu", refresh_s=0.1)
    integrator = Integrator(Layout((channel,)), {"c": lambda watts: watts} if corrected else {})
    period_ns = period_ms * 1_000_000
    counted = 0
    for t_ns in accumulate(steps, initial=phase_ns):
        before, counted = counted, t_ns // period_ns * 60 * period_ms * 1000
        point = integrator.advance(Row(t_ns, [counted]))
        assert isinstance(point, Point)
        if counted > before and not math.isnan(point.watts[1]):
            assert 15.0 * (1 - 1e-9) <= point.watts[1] <= 120.0 * (1 + 1e-9)


@pytest.mark.parametrize("period_ms", [1, 10, 20])
def test_a_move_much_sooner_than_stated_leaves_the_power_as_it_was(period_ms: int) -> None:
    channel = Channel("c", Quantity.ENERGY, scale=1e-3, domain="gpu", refresh_s=0.1)
    integrator = Integrator(Layout((channel,)))
    read = (0, 1000, 1000 + period_ms)  # the last two look at one renewal
    points = [integrator.advance(Row(t * 1_000_000, [60 * t])) for t in read]
    assert [p.watts[1] for p in points if isinstance(p, Point)][1:] == [60.0, 60.0]  # and not 60 W * period / 100 ms


def test_a_lost_row_does_not_uncover_a_total_that_a_counter_makes() -> None:
    counter = Channel("gpu.energy", Quantity.ENERGY, domain="gpu/0")
    power = Channel("gpu.instant", Quantity.POWER, domain="gpu/0")
    integrator = Integrator(Layout((counter, power)))
    integrator.advance(Row(0, [0.0, 50.0]))
    point = integrator.advance(Row(2 * 10**9, [100.0, 50.0], 1))
    assert isinstance(point, Point)
    assert point.joules == (100.0, 100.0, 100.0)
    assert point.uncovered_ns == (0, 0, 0)
    assert integrator.lost == 1


# Counters of every kind that can come: without and with a range, a limit, a refresh period; the ranges are small and
# the limits low, so that the times below reach wraps, restarts and times too long to tell.
KINDS = [
    Channel(
        f"c{i}",
        Quantity.ENERGY,
        scale=scale,
        wrap=wrap,
        max_watts=most,
        refresh_s=refresh_s,
        domain=domain,
        least_watts=1e-3 if i == 1 else 0.0,  # a part that is never switched off
    )
    for i, (scale, wrap, most, refresh_s, domain) in enumerate(
        [
            (1e-6, 1e6, 50.0, 1e-3, "host/socket0/package"),
            (1e-6, 1e6, 50.0, 1e-4, "host/socket1/package"),
            (1e-6, 1e6, 50.0, None, "host/socket0/package/core"),
            (15.3e-6, 2.0**16, 20.0, 1e-3, "host/socket0/dram"),
            (1e-3, None, 300.0, 0.1, "gpu/0"),
            (1.0, None, None, None, "host/rest"),
            (1e-3, 5e3, None, None, ""),
        ]
    )
]
WRAPS = st.sampled_from([262_143_328_850.0, 65_712_999_613.0])
STEPS_NS = st.one_of(st.integers(1, 5_000_000), st.integers(1, 3_000_000_000))
GROWTHS = st.one_of(st.just(0), st.integers(0, 200), st.integers(0, 2_000_000), st.integers(-2_000_000, 0))


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True),
    rows=st.lists(
        st.tuples(STEPS_NS, st.lists(GROWTHS, min_size=4, max_size=4), st.sampled_from([0, 0, 3]), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    number=st.sampled_from([int, float]),
)
@example(  # moves a nanosecond apart, the first of which ends a rest of more than a refresh
    kinds=[KINDS[1]],
    rows=[(1, [0] * 4, 0, False), (100_000, [0] * 4, 0, False), (1, [1] * 4, 0, False), (1, [1] * 4, 0, False)],
    number=int,
)
def test_the_short_way_of_counters_says_exactly_what_the_long_one_says(
    kinds: list[Channel], rows: list[tuple[int, list[int], int, bool]], number: type[int | float]
) -> None:
    layout = Layout(tuple(kinds))
    short, long = Integrator(layout), Integrator(layout)
    long._counters, long._plain, long._ordinary = [*long._plain], [], []  # all to Counter.advance
    t_ns, counts = 10**9, [500] * len(kinds)
    for step_ns, growths, lost, fresh in rows:
        t_ns += step_ns
        for i, kind in enumerate(kinds):
            counts[i] = int((counts[i] + growths[i]) % (kind.wrap or 2**50))
        row = Row(t_ns, list(map(number, counts)), lost)
        # A restart comes as a Block; anything else may come either way.
        block = Block.row(t_ns, row.counts, lost=lost, fresh=True)
        a, b = (i.advance(block if fresh and lost else row) for i in (short, long))
        _check_same(a, b)
        assert short.lost == long.lost


def _check_same(a: Frame | Point | None, b: Frame | Point | None) -> None:
    """Two rows agree to the last bit; what is no number agrees with what is no number."""
    assert a is not None
    assert b is not None
    one, other = (x if isinstance(x, Frame) else Frame.of_points([x]) for x in (a, b))
    np.testing.assert_array_equal(one.watts, other.watts)
    np.testing.assert_array_equal(one.joules, other.joules)
    np.testing.assert_array_equal(one.uncovered_ns, other.uncovered_ns)
    np.testing.assert_array_equal(one.lost, other.lost)


@given(
    watts=st.integers(1, 900), steps=st.lists(st.integers(10_000, 2_000_000_000), min_size=2, max_size=60), wrap=WRAPS
)
def test_two_sockets_with_memory_count_what_was_used(watts: int, steps: list[int], wrap: float) -> None:
    channels = tuple(
        Channel(n, Quantity.ENERGY, scale=1e-6, wrap=wrap, max_watts=1000, refresh_s=1e-3, domain=f"host/{n}")
        for n in ("socket0/package", "socket0/dram", "socket1/package", "socket1/dram")
    )
    integrator = Integrator(Layout(channels))
    t_ns, points = 10**12, []
    for step_ns in [0, *steps]:
        t_ns += step_ns
        true_uj = watts * t_ns // 1000
        points.append(integrator.advance(Row(t_ns, [(true_uj + 7 * i) % int(wrap) for i in range(4)])))
    first, last = points[0], points[-1]
    assert isinstance(first, Point)
    assert isinstance(last, Point)
    assert last.uncovered_ns == (0,) * 5
    # Each end is cut to a whole microjoule.
    assert last.joules[1] == pytest.approx(watts * sum(steps) * 1e-9, abs=1.1e-6, rel=1e-12)
    assert last.joules[0] == pytest.approx(4 * watts * sum(steps) * 1e-9, abs=4.4e-6, rel=1e-12)
