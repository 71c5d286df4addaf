"""A data set of many hosts: what jobs used, asked of the Parquet tree that ``pmtpy dump --dataset`` grows.

DuckDB does the reading (extra ``dataset``), lazily: nothing is read before the answer is fetched, and then only the
columns and days that it takes. The tree itself is plain: pyarrow, Polars, Dask, Ray and Spark read it unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pmtpy._extras import extra
from pmtpy.core import arguments
from pmtpy.core.channel import TOTAL
from pmtpy.core.nearest import nearest
from pmtpy.errors import FileFormatError, TargetError

_BY = ("host", "job", "sensor", "channel")
_MAGIC = b"PAR1"  # begins and ends each file of Parquet


class DataSet:
    """A data set; made by :func:`dataset`.

    Attributes
    ----------
    root : Path
    pattern : str
        What names its files: for ``dask.dataframe.read_parquet``, ``ray.data.read_parquet``, ``spark.read.parquet``.
    broken : tuple of Path
        Files that are left out, because they are not whole.
    """

    def __init__(self, root: Path, *, skip_broken: bool = False) -> None:
        with extra("duckdb", "reading a data set"):
            import duckdb
        if not root.is_dir():
            msg = f"there is no folder {root}"
            raise TargetError(msg)
        if next(root.glob("host=*/date=*/*.parquet"), None) is None:
            msg = f"{root} is no data set: it has no host=.../date=.../*.parquet; 'pmtpy dump --dataset' makes one"
            raise TargetError(msg)
        self.root = root
        self.pattern = str(root / "host=*" / "date=*" / "*.parquet")
        self.broken: tuple[Path, ...] = ()
        self._files: str | list[str] = self.pattern
        if skip_broken:
            files = sorted(root.glob("host=*/date=*/*.parquet"))
            self.broken = tuple(path for path in files if not _is_whole(path))
            self._files = [str(path) for path in files if path not in set(self.broken)]
            if not self._files:
                msg = f"{root}: none of its files is whole; copy them again from their nodes"
                raise FileFormatError(msg)
        self._connection: Any = duckdb.connect()
        types = "hive_types={'host': VARCHAR, 'date': DATE}"
        named = [_literal(name) for name in self._files] if skip_broken else [_literal(self.pattern)]
        try:
            self._connection.execute(
                f"create view rows as select * from read_parquet([{', '.join(named)}], hive_partitioning=true, {types})"
            )
        except duckdb.Error as error:
            msg = f"{root}: {error}; copy that file again from its node, or leave it out by skip_broken=True"
            raise FileFormatError(msg) from error

    def rows(self) -> Any:
        """Return all rows as a lazy relation of DuckDB: ``.df()``, ``.arrow()``, ``.pl()`` fetch them."""
        return self._connection.table("rows")

    def sql(self, query: str) -> Any:
        """Ask DuckDB; the table is called ``rows``."""
        return self._connection.sql(query)

    def polars(self) -> Any:
        """Return all rows as a LazyFrame of Polars."""
        with extra("polars", "polars()"):
            import polars as pl
        return pl.scan_parquet(self._files, hive_partitioning=True)

    def energies(
        self,
        by: Sequence[str] = ("host", "job", "sensor"),
        *,
        channel: str | None = TOTAL,
        start: float | None = None,
        stop: float | None = None,
        every: float | None = None,
    ) -> Any:
        """Return what was used, as a lazy relation of DuckDB.

        Parameters
        ----------
        by : sequence of str
            A line for each of ``host``, ``job``, ``sensor``, ``channel``, or fewer. Sensors that see the same part are
            added up where ``sensor`` is not among them: choose them first.
        channel : str or None
            Only this one; None: every channel, which then has to be in ``by``.
        start, stop : float, optional
            Unix seconds; a row that reaches over an edge counts by its share of time.
        every : float, optional
            A line for each interval of so many seconds too, in the column ``start``.

        Returns
        -------
        DuckDBPyRelation
            The columns ``by``, ``start`` with ``every``; then ``joules``, ``seconds`` (covered by rows: of one sensor
            of one host its runs together, of several the longest), ``uncovered_s`` (of it, without known energy),
            ``lost``, ``gain_joules`` (standard uncertainty by the gains alone: linear over sensors of one backend, in
            squares over others), ``virtual``. What two
            runs of one sensor of one host saw at the same time is counted once (with ``job`` in ``by``: once a job).

        Raises TargetError: no row is of that channel; the message names those that there are.
        """
        columns = [self._column(name) for name in arguments.sequence(by, f"columns among {', '.join(_BY)}")]
        if channel is None and "channel" not in columns:
            msg = "channels lie inside each other and do not add up: name one channel, or add 'channel' to by"
            raise TargetError(msg)
        chosen = "true" if channel is None else f"channel = {self._known(channel)}"
        once = ["host", "sensor", "channel", *(["job"] if "job" in columns else [])]
        texts = {"keys": _KEYS, "chosen": chosen, "once": ", ".join(once), "of": _OF}
        binned = ['"start"'] if every is not None else []
        if start is None and stop is None and every is None:
            each = _QUERY.format(**texts)
        else:
            each = self._stretches(texts, start, stop, every)
        of_runs = _OF_RUNS.format(keys=", ".join(once + binned), each=each, of=_OF)
        group = ", ".join(columns + binned)
        listed = f"{group}, " if group else ""
        of_kinds = _OF_KINDS.format(listed=listed, each=of_runs)
        query = (
            f"select {listed}sum(joules) as joules, max(seconds) as seconds, max(uncovered_s) as uncovered_s,"
            f" cast(sum(lost) as bigint) as lost, sqrt(sum(gain_joules ** 2)) as gain_joules,"
            f" bool_or(virtual) as virtual from ({of_kinds}) group by {group or '()'} order by all"
        )
        return self._connection.sql(query)

    @staticmethod
    def _column(name: object) -> str:
        if name not in _BY:
            msg = f"{name!r} is no column to group by; there are: {', '.join(_BY)}"
            raise TargetError(msg)
        return str(name)

    def _known(self, channel: str) -> str:
        """Return the literal of a channel of which there are rows: the first is looked for, and all only in vain."""
        named = _literal(channel)
        if not self._connection.execute(f"select 1 from rows where channel = {named} limit 1").fetchall():
            there = [str(row[0]) for row in self._connection.execute(_CHANNELS).fetchall()]
            msg = f"no row is of a channel {channel!r}; there are: {', '.join(there)}{nearest(channel, there)}"
            raise TargetError(msg)
        return named

    @staticmethod
    def _stretches(texts: dict[str, str], start: float | None, stop: float | None, every: float | None) -> str:
        begin = _seconds(start, "start") if start is not None else None
        end = _seconds(stop, "stop") if stop is not None else None
        if begin is not None and end is not None and end <= begin:
            msg = f"stop ({end:.6f}) is not behind start ({begin:.6f}): no time lies between them"
            raise TargetError(msg)
        # A row tells of the time since the one before it, which may lie in the folder of the day before.
        days = [
            f"date {sign} DATE '{datetime.fromtimestamp(at, timezone.utc).date() + timedelta(days=more)}'"
            for sign, at, more in ((">=", begin, -1), ("<=", end, 1))
            if at is not None
        ]
        texts = {**texts, "chosen": " and ".join([texts["chosen"], *days])}
        high = "t1" if end is None else f"least(t1, {end!r})"
        low = "t0" if begin is None else f"greatest(t0, {begin!r})"
        pairs = _PAIRS.format(low=low, high=high, **texts)
        if every is None:
            return _SHARES.format(keys=_KEYS, edge="", of_edge="", pieces=_CLIPPED.format(pairs=pairs))
        width = arguments.number(every, "every, a number of seconds above 0", least=1e-3)
        binned = _BINNED.format(pairs=pairs, width=f"{float(width)!r}::double")
        return _SHARES.format(keys=_KEYS, edge='"start",', of_edge=', "start"', pieces=binned)


_CHANNELS = "select distinct channel from rows order by channel"
_KEYS = "host, job, sensor, channel, run"
# In the name of a run: the boot, by what its clock is ahead of the monotonic one, us, and the device.
_OF = "^[0-9a-f]+-([0-9a-f]+)-(-?[0-9]+)-([0-9a-f]+)-"

# Runs of one sensor of one host (and, where jobs are told apart, of one job), and up to when an earlier one has told
# of the same joules: two loggers of one host see one energy, which is counted once. What happened at the same time is
# told by the monotonic clock of one boot, since the wall clock may have been set between two runs, and of one device,
# since jobs with a GPU of their own each call it nvml:0. Where no boot is told from another (on other systems), wall
# times have to do.
_RUNS = """
runs as materialized (
  select {keys}, min(time) as t0, max(time) as t1, arg_min(joules, time) as j0, arg_max(joules, time) as j1,
    arg_min(uncovered_s, time) as u0, arg_max(uncovered_s, time) as u1, sum(lost) as lost,
    arg_max(gain_u, time) as gain_u, bool_or(virtual) as virtual
  from rows where {chosen} group by {keys}),
clocked as (
  select *, regexp_extract(run, '{of}', 1) as boot, regexp_extract(run, '{of}', 3) as device,
    coalesce(try_cast(regexp_extract(run, '{of}', 2) as double) / 1e6, 0) as ahead from runs),
cuts as materialized (
  select {keys}, cut from (
    select *, ahead + max(t1 - ahead) over (partition by {once}, boot, device order by t0 - ahead, t1 - ahead desc, run
      rows between unbounded preceding and 1 preceding) as cut from clocked) where cut > t0)"""

# Differences between the first and the last row of each run: no row between is needed, but where one is cut.
_QUERY = (
    "with"
    + _RUNS
    + """,
around as (
  select {keys}, any_value(cut) as cut, max(time) filter (time <= cut) as ta, min(time) filter (time > cut) as tb,
    arg_max(joules, time) filter (time <= cut) as ja, arg_min(joules, time) filter (time > cut) as jb,
    arg_max(uncovered_s, time) filter (time <= cut) as ua, arg_min(uncovered_s, time) filter (time > cut) as ub,
    sum(lost) filter (time > cut) as lost_later
  from rows join cuts using ({keys}) where {chosen} group by {keys})
select {keys}, j1 - coalesce(ja + (jb - ja) * (cut - ta) / (tb - ta), j0) as joules, t1 - coalesce(cut, t0) as seconds,
  u1 - coalesce(ua + (ub - ua) * (cut - ta) / (tb - ta), u0) as uncovered_s, coalesce(lost_later, lost) as lost,
  gain_u * joules as gain_joules, virtual
from runs left join around using ({keys}) where cut is null or cut < t1"""
)

# Each row tells of the time since the one before it, from t0 to t1; of that, {low} to {high} is asked for.
_PAIRS = (
    "with"
    + _RUNS
    + """
select *, greatest({low}, cut) as low, {high} as high
from (
  select {keys}, lag(time) over w as t0, time as t1, joules - lag(joules) over w as joules,
    uncovered_s - lag(uncovered_s) over w as uncovered_s, lost, gain_u, virtual
  from rows where {chosen} window w as (partition by {keys} order by time))
left join cuts using ({keys})
where t1 > t0 and {high} > greatest({low}, cut)"""
)

# The runs of a device follow each other.
_OF_RUNS = """
select {keys}, sum(joules) as joules, sum(seconds) as seconds, sum(uncovered_s) as uncovered_s, sum(lost) as lost,
  sum(gain_joules) as gain_joules, bool_or(virtual) as virtual
from ({each}) group by {keys}, regexp_extract(run, '{of}', 3)"""

# Sensors of one backend err alike, wherever they are: their gains add linearly, those of others in squares.
_OF_KINDS = """
select {listed}split_part(sensor, ':', 1) as kind, sum(joules) as joules, max(seconds) as seconds,
  max(uncovered_s) as uncovered_s, sum(lost) as lost, sum(gain_joules) as gain_joules, bool_or(virtual) as virtual
from ({each}) group by all"""

_SHARES = """
select {keys}, {edge} sum(joules * (b - a) / (t1 - t0)) as joules, sum(b - a) as seconds,
  sum(uncovered_s * (b - a) / (t1 - t0)) as uncovered_s, sum(case when b = t1 then lost else 0 end) as lost,
  sum(gain_u * joules * (b - a) / (t1 - t0)) as gain_joules, bool_or(virtual) as virtual
from ({pieces}) where b > a group by {keys}{of_edge}"""

_CLIPPED = "select *, low as a, high as b from ({pairs})"

_BINNED = """
select *, greatest(low, bin * {width}) as a, least(high, (bin + 1) * {width}) as b, bin * {width} as "start"
from (
  select *, unnest(range(cast(floor(low / {width}) as bigint), cast(floor(high / {width}) as bigint) + 1)) as bin
  from ({pairs}))"""


def _literal(text: object) -> str:
    return "'" + arguments.instance(text, str, "a name").replace("'", "''") + "'"


def _seconds(value: float, name: str) -> float:
    return float(arguments.number(value, f"{name}, Unix seconds", least=0.0, most=1e11))


def _is_whole(path: Path) -> bool:
    """Whether a file ends as Parquet does: a copy that was cut short does not."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(length - len(_MAGIC), 0))
        return file.read() == _MAGIC


def dataset(root: str | os.PathLike[str], *, skip_broken: bool = False) -> DataSet:
    """Open a data set of many hosts, which ``pmtpy dump --dataset`` grows (extra ``dataset``).

    Parameters
    ----------
    root : path
    skip_broken : bool
        Look at the end of each file and leave out those that are not whole, as copies that were cut short
        (``DataSet.broken`` names them). Else nothing is looked at before an answer is fetched, and DuckDB's error names
        the file.

    Raises
    ------
    TargetError
        There is none.
    FileFormatError
        The first of its files is not whole.
    MissingPackageError
        DuckDB is not installed.

    Examples
    --------
    ``pmt.dataset("energy").energies(by=("job",)).df()``: the joules of every job.
    """
    return DataSet(Path(arguments.path(root, "the folder of a data set")), skip_broken=skip_broken)
