"""``%load_ext pmtpy``: the energy of a line or a cell of a notebook, with ``%energy`` and ``%%energy``.

A cell that fails or is interrupted is reported too, and said to be. Needs IPython, which is there where a notebook is.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import math
import shlex
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from IPython.core.error import UsageError

from pmtpy.errors import PmtError
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region, region
from pmtpy.sensor.registry import list_sensors


class CellEnergy:
    """What the runs of a line or a cell cost, to be shown and kept.

    Attributes
    ----------
    regions : list of Region
        One for each run, the oldest first.
    ended : str
        Empty, or how the last run ended: by which error, or by an interrupt.
    """

    def __init__(self, regions: list[Region], ended: str) -> None:
        self.regions, self.ended = regions, ended

    @property
    def region(self) -> Region:
        """The last run."""
        return self.regions[-1]

    def __getitem__(self, target: str) -> Measurement:
        """Return what one sensor measured in the last run."""
        return self.region[target]

    @property
    def joules(self) -> dict[str, list[float]]:
        """Energy of each run by target; NaN where a sensor was lost."""
        found: dict[str, list[float]] = {target: [] for target in self.region}
        for run in self.regions:
            for target, m in run.outcomes().items():
                found[target].append(m.joules if isinstance(m, Measurement) else math.nan)
        return found

    def _lines(self) -> list[str]:
        said = [f"this cell did not end well: {self.ended}; what it cost until then:"] if self.ended else []
        if len(self.regions) > 1:
            for target, joules in self.joules.items():
                mean = math.fsum(joules) / len(joules)
                said.append(
                    f"{target}: {mean:.6g} J per run in {len(joules)} runs, {min(joules):.6g} to {max(joules):.6g} J"
                )
            said.append("the last run:")
        return said

    def __repr__(self) -> str:
        shown = [str(m) if isinstance(m, Measurement) else f"{t}: {m}" for t, m in self.region.outcomes().items()]
        return "\n".join([*self._lines(), *shown])

    def _repr_html_(self) -> str:
        import html

        return "".join(f"<p>{html.escape(line)}</p>" for line in self._lines()) + self.region._repr_html_()


class _Words(argparse.ArgumentParser):
    """Options of a magic: a mistake is a message in the notebook, and ends nothing."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        msg = f"{message}; %energy? explains the options"
        raise UsageError(msg)


def _parser() -> _Words:
    parser = _Words(prog="%energy", add_help=False)
    parser.add_argument("-s", "--sensor", action="append")
    parser.add_argument("-r", "--runs", type=int, default=1)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-o", "--output")
    return parser


class EnergyMagic:
    """The magic of one IPython."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def energy(self, line: str, cell: str | None = None) -> None:
        """Measure the energy of a line (%energy STATEMENT) or of a cell (%%energy).

        Options: -s TARGET, a sensor such as rapl or nvml:0 (several times for several; without it every sensor that is
        available on this machine); -o NAME keeps the result in that variable; -r N runs it N times; -q shows nothing.
        A cell that fails or is interrupted is measured up to there.
        """
        args, code = self._asked(line, cell)
        if self._awaits(code) and _loop_runs():
            msg = "in a notebook a line cannot await: write %%energy as the first line of the cell"
            raise UsageError(msg)

        async def run() -> Any:
            return self.shell.run_cell(code, store_history=False)

        try:
            self._energy(args, run).send(None)  # it waits for nothing, so it comes to its end at once
        except StopIteration:
            return

    async def awaited(self, line: str, cell: str) -> None:
        """Measure a cell with ``await``, in the loop in which the shell runs all others."""
        args, code = self._asked(line, cell)

        async def run() -> Any:
            transformed = self.shell.transform_cell(code)
            return await self.shell.run_cell_async(code, store_history=False, transformed_cell=transformed)

        await self._energy(args, run)

    def transform(self, lines: list[str]) -> list[str]:
        """Have a cell that begins with ``%%energy`` and awaits something awaited itself; leave any other.

        A magic is a plain call: it could only start a loop of its own, which a notebook, in which one runs, does not
        allow.
        """
        name, _, options = lines[0].strip().partition(" ") if lines else ("", "", "")
        code = "".join(lines[1:])
        if name != "%%energy" or not self._awaits(code):
            return lines
        return [f"await get_ipython().find_cell_magic('energy').__self__.awaited({options!r}, {code!r})\n"]

    def _awaits(self, code: str) -> bool:
        return bool(self.shell.should_run_async(code, transformed_cell=self.shell.transform_cell(code)))

    def _asked(self, line: str, cell: str | None) -> tuple[argparse.Namespace, str]:
        options, code = self._split(line, cell)
        if _is_empty(code):
            msg = "there is nothing to measure: write %energy STATEMENT, or %%energy as the first line of a cell"
            raise UsageError(msg)
        try:
            words = shlex.split(options)
        except ValueError as error:
            msg = f"the options before the statement cannot be read: {str(error).lower()}"
            raise UsageError(msg) from error
        args = _parser().parse_args(words)
        if args.runs < 1:
            msg = f"-r needs a number of runs from 1 on, not {args.runs}"
            raise UsageError(msg)
        if args.output is not None and not args.output.isidentifier():
            msg = f"-o needs the name of a variable, not {args.output!r}"
            raise UsageError(msg)
        return args, code

    async def _energy(self, args: argparse.Namespace, run: Callable[[], Awaitable[Any]]) -> None:
        try:
            regions, ended = await _measured(args.sensor or _available(), run, args.runs)
            result = CellEnergy(regions, ended)
            if args.output is not None:
                self.shell.user_ns[args.output] = result
            if not args.quiet:
                importlib.import_module("IPython.display").display(result)
        except PmtError as error:
            raise UsageError(str(error)) from error

    @staticmethod
    def _split(line: str, cell: str | None) -> tuple[str, str]:
        """Split the options from the code, which may begin with or hold what looks like options."""
        if cell is not None:
            return line, cell
        rest, options = line.strip(), []
        while rest.startswith("-"):
            word, _, rest = rest.partition(" ")
            options.append(word)
            rest = rest.strip()
            if word in {"-s", "-r", "-o", "--sensor", "--runs", "--output"}:
                word, _, rest = rest.partition(" ")
                options.append(word)
                rest = rest.strip()
        return " ".join(options), rest


async def _measured(targets: list[str], run: Callable[[], Awaitable[Any]], runs: int) -> tuple[list[Region], str]:
    """Run the code in the user's own names, as IPython runs a cell; return what was measured, and how it ended."""
    regions: list[Region] = []
    for _ in range(runs):
        ended = "it was interrupted"
        try:
            measured = region("cell", *targets)
            with measured:
                regions.append(measured)
                result = await run()
                ended = _problem(result)
        except KeyboardInterrupt:  # before IPython took it, or behind
            if not regions:
                raise
            break
        except PmtError as error:
            if not regions:
                raise
            ended = str(error)
        if ended:
            break
    return regions, ended


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_empty(code: str) -> bool:
    """Whether there is nothing to run: no word, or comments alone."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in code.splitlines())


def _problem(result: Any) -> str:
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        return ""
    broken_off = isinstance(error, (KeyboardInterrupt, asyncio.CancelledError))  # the second of a cell with await
    return "it was interrupted" if broken_off else f"{type(error).__name__}: {error}"


def _available() -> list[str]:
    targets = [found.target for found in list_sensors() if found.available]
    if not targets:
        msg = (
            "no sensor is available on this machine: 'pmtpy doctor' says what is missing;"
            " -s rapl:virtual rehearses without one"
        )
        raise UsageError(msg)
    return targets


def load_ipython_extension(shell: Any) -> None:
    """Do what ``%load_ext pmtpy`` asks for."""
    magic = EnergyMagic(shell)
    shell.register_magic_function(magic.energy, "line_cell", "energy")
    shell.input_transformers_cleanup.append(magic.transform)
    show_recordings(shell.display_formatter.formatters["text/html"])


def show_recordings(formatter: Any) -> None:
    """Let recordings, which are tables, show their curve too. Pandas is not imported for that."""

    def shown(table: Any) -> str:
        from pmtpy.live.notebook import recording_html

        return recording_html(table)

    for module in ("pandas", "pandas.core.frame"):  # pandas 3, and before
        formatter.for_type_by_name(module, "DataFrame", shown)
