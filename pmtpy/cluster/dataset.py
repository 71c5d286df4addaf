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

from pmtpy.core import arguments
from pmtpy.core.channel import TOTAL
from pmtpy.errors import BackendUnavailableError, TargetError

_BY = ("host", "job", "sensor", "channel")


class DataSet:
    """A data set; made by :func:`dataset`.

    Attributes
    ----------
    root : Path
    pattern : str
        What names its files: for ``dask.dataframe.read_parquet``, ``ray.data.read_parquet``, ``spark.read.parquet``.
    """

    def __init__(self, root: Path) -> None:
        try:
            import duckdb
        except ImportError as error:
            found = "it needs the Python package duckdb, which is not installed"
            raise BackendUnavailableError("dataset", found, "pip install 'pmtpy[dataset]'") from error
        if not root.is_dir():
            msg = f"there is no folder {root}"
            raise TargetError(msg)
        if next(root.glob("host=*/date=*/*.parquet"), None) is None:
            msg = f"{root} is no data set: it has no host=.../date=.../*.parquet; 'pmtpy dump --dataset' makes one"
            raise TargetError(msg)
        self.root = root
        self.pattern = str(root / "host=*" / "date=*" / "*.parquet")
        self._connection: Any = duckdb.connect()
        quoted = self.pattern.replace("'", "''")
        types = "hive_types={'host': VARCHAR, 'date': DATE}"
        self._connection.execute(
            f"create view rows as select * from read_parquet('{quoted}', hive_partitioning=true, {types})"
        )

    def rows(self) -> Any:
        """Return all rows as a lazy relation of DuckDB: ``.df()``, ``.arrow()``, ``.pl()`` fetch them."""
        return self._connection.table("rows")

    def sql(self, query: str) -> Any:
        """Ask DuckDB; the table is called ``rows``."""
        return self._connection.sql(query)

    def polars(self) -> Any:
        """Return all rows as a LazyFrame of Polars."""
        try:
            import polars as pl
        except ImportError as error:
            found = "it needs the Python package polars, which is not installed"
            raise BackendUnavailableError("dataset", found, "pip install polars") from error
        return pl.scan_parquet(self.pattern, hive_partitioning=True)

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
            The columns ``by``, ``start`` with ``every``; then ``joules``, ``seconds`` (covered by rows, the longest of
            what is added), ``uncovered_s`` (of it, without known energy), ``lost``, ``gain_joules`` (standard
            uncertainty by the gains alone, added linearly), ``virtual``.
        """
        columns = [self._column(name) for name in arguments.sequence(by, f"columns among {', '.join(_BY)}")]
        if channel is None and "channel" not in columns:
            msg = "channels lie inside each other and do not add up: name one channel, or add 'channel' to by"
            raise TargetError(msg)
        chosen = "true" if channel is None else f"channel = {_literal(channel)}"
        keys = "host, job, sensor, channel, run"
        if start is None and stop is None and every is None:
            each = _WHOLE.format(keys=keys, chosen=chosen)
            of_bin = ""
        else:
            each = self._stretches(keys, chosen, start, stop, every)
            of_bin = ', "start"' if every is not None else ""
        group = ", ".join(columns) + of_bin
        group = group.removeprefix(", ") or "()"
        shown = f"{group}, " if group != "()" else ""
        query = (
            f"select {shown}sum(joules) as joules, max(seconds) as seconds, max(uncovered_s) as uncovered_s,"
            f" cast(sum(lost) as bigint) as lost, sum(gain_u * joules) as gain_joules, bool_or(virtual) as virtual"
            f" from ({each}) group by {group} order by all"
        )
        return self._connection.sql(query)

    @staticmethod
    def _column(name: object) -> str:
        if name not in _BY:
            msg = f"{name!r} is no column to group by; there are: {', '.join(_BY)}"
            raise TargetError(msg)
        return str(name)

    @staticmethod
    def _stretches(keys: str, chosen: str, start: float | None, stop: float | None, every: float | None) -> str:
        begin = _seconds(start, "start") if start is not None else None
        end = _seconds(stop, "stop") if stop is not None else None
        # A row tells of the time since the one before it, which may lie in the folder of the day before.
        days = [
            f"date {sign} DATE '{datetime.fromtimestamp(at, timezone.utc).date() + timedelta(days=more)}'"
            for sign, at, more in ((">=", begin, -1), ("<=", end, 1))
            if at is not None
        ]
        where = " and ".join([chosen, *days])
        low = "t0" if begin is None else f"greatest(t0, {begin!r})"
        high = "t1" if end is None else f"least(t1, {end!r})"
        pairs = _PAIRS.format(keys=keys, where=where, low=low, high=high)
        if every is None:
            return _SHARES.format(keys=keys, edge="", of_edge="", pieces=_CLIPPED.format(pairs=pairs))
        width = arguments.number(every, "every, a number of seconds above 0", least=1e-3)
        binned = _BINNED.format(pairs=pairs, width=repr(float(width)))
        return _SHARES.format(keys=keys, edge='"start",', of_edge=', "start"', pieces=binned)


# Differences between the first and the last row of each run: no row between is needed.
_WHOLE = """
select {keys}, arg_max(joules, time) - arg_min(joules, time) as joules, max(time) - min(time) as seconds,
  arg_max(uncovered_s, time) - arg_min(uncovered_s, time) as uncovered_s, sum(lost) as lost, max(gain_u) as gain_u,
  bool_or(virtual) as virtual
from rows where {chosen} group by {keys}"""

# Each row tells of the time since the one before it, from t0 to t1; of that, {low} to {high} is asked for.
_PAIRS = """
select *, {low} as low, {high} as high
from (
  select {keys}, lag(time) over w as t0, time as t1, joules - lag(joules) over w as joules,
    uncovered_s - lag(uncovered_s) over w as uncovered_s, lost, gain_u, virtual
  from rows where {where} window w as (partition by {keys} order by time))
where t1 > t0 and {high} > {low}"""

_SHARES = """
select {keys}, {edge} sum(joules * (b - a) / (t1 - t0)) as joules, sum(b - a) as seconds,
  sum(uncovered_s * (b - a) / (t1 - t0)) as uncovered_s, sum(case when b = t1 then lost else 0 end) as lost,
  max(gain_u) as gain_u, bool_or(virtual) as virtual
from ({pieces}) where b > a group by {keys}{of_edge}"""

_CLIPPED = "select *, low as a, high as b from ({pairs})"

_BINNED = """
select *, greatest(low, bin * {width}) as a, least(high, (bin + 1) * {width}) as b, bin * {width} as "start"
from (
  select *, unnest(range(cast(floor(low / {width}) as bigint), cast(floor(high / {width}) as bigint) + 1)) as bin
  from ({pairs}))"""


def _literal(text: object) -> str:
    return "'" + arguments.instance(text, str, "the name of a channel").replace("'", "''") + "'"


def _seconds(value: float, name: str) -> float:
    return float(arguments.number(value, f"{name}, Unix seconds", least=0.0, most=1e11))


def dataset(root: str | os.PathLike[str]) -> DataSet:
    """Open a data set of many hosts, which ``pmtpy dump --dataset`` grows (extra ``dataset``).

    Raises
    ------
    TargetError
        There is none.
    BackendUnavailableError
        DuckDB is not installed.

    Examples
    --------
    ``pmt.dataset("energy").energies(by=("job",)).df()``: the joules of every job.
    """
    return DataSet(Path(arguments.path(root, "the folder of a data set")))
