"""Measure or dump every call of a function, of whatever kind; it returns what it always returned."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import types
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from pmtpy.core import arguments
from pmtpy.core.clock import interval_seconds
from pmtpy.errors import PmtError, TargetError
from pmtpy.regions.pool import check_targets, watching
from pmtpy.regions.region import Region, region
from pmtpy.sensor.sensor import DumpedAlreadyError, Sensor

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("pmtpy")
_MANY_CALLS = 100_000  # calls, some 250 MB


class Measured:
    """The measurements of a decorated function: one :class:`Region` for each call that has ended, the oldest first."""

    def __init__(self, name: str, targets: Sequence[str | Sensor], keep: int | None) -> None:
        self.name = name
        self._targets, self._keep = targets, keep
        self.measurements: list[Region] = []

    def new(self) -> Region:
        """Make the region of one call."""
        return region(self.name, *self._targets)

    def done(self, finished: Region) -> None:
        """Keep the region of a call that has ended, and log what it cost."""
        self.measurements.append(finished)
        if self._keep is None and len(self.measurements) == _MANY_CALLS:
            why = "%s has %d measurements, which hold some 250 MB: measure(..., keep=N) keeps the last N"
            _log.warning(why, self.name, _MANY_CALLS)
        if self._keep is not None and len(self.measurements) > self._keep:
            del self.measurements[: -self._keep or None]
        if _log.isEnabledFor(logging.INFO):
            for target, m in finished.outcomes().items():
                if isinstance(m, PmtError):
                    _log.warning("%s: %s: %s", self.name, target, m)
                else:
                    _log.info("%s: %s", self.name, m)


class _Call:
    """One call of a decorated function: its region is kept however the call ends."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._region = measured.new()

    def __enter__(self) -> None:
        self._region.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._region.__exit__(kind, error, trace)
        self._measured.done(self._region)


class MeasuredFunction(Protocol[P, R]):
    """What :func:`measure` makes of a function: the function as it was, with its measurements beside it."""

    __name__: str
    measurements: list[Region]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and measure it."""
        ...

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> MeasuredFunction[P, R]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]: ...


def measure(*targets: str | Sensor, keep: int | None = None) -> Callable[[Callable[P, R]], MeasuredFunction[P, R]]:
    """Measure every call of a function: plain, coroutine, generator or asynchronous generator.

    The function's arguments, result and exceptions are untouched. ``f.measurements`` is a list with one
    :class:`Region` per call that has ended; each call is also logged (logger ``pmtpy``, level INFO). A generator is
    measured from its first step to its end, a coroutine from its first step to its result, and a plain function that
    returns a coroutine or a future from its call to that result. A plain function that returns a generator is measured
    for its call alone: decorate the function that yields.

    A function under ``@contextmanager`` is measured from the entry of its with-statement to the end.

    Parameters
    ----------
    *targets : str or Sensor
        As for :func:`pmtpy.region`.
    keep : int, optional
        How many of the last calls are kept; None: all of them, at 2 to 3 kB for each, and some 10 kB if it is asked
        how far to trust them. From a hundred thousand on that is said (logger ``pmtpy``, level WARNING).
    """
    if not targets or callable(targets[0]):  # a bare @measure would put a decorator in the function's place
        msg = "measure() needs at least one sensor, for example @measure('rapl')"
        raise TargetError(msg)
    if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 0):
        msg = f"keep={keep!r} is not a number of calls: 0, 1, 2, ... or None for all of them"
        raise TargetError(msg)
    check_targets(targets)

    def decorate(function: Callable[P, R]) -> MeasuredFunction[P, R]:
        measured = Measured(getattr(function, "__qualname__", repr(function)), targets, keep)
        wrapper = _wrap(function, functools.partial(_Call, measured))
        inner = cast("MeasuredFunction[P, R]", getattr(wrapper, "__func__", wrapper))
        inner.measurements = measured.measurements
        return cast("MeasuredFunction[P, R]", wrapper)

    return decorate


def dump(
    target: str | Sensor,
    *,
    filename: str | os.PathLike[str],
    interval: float | str | None = None,
    overwrite: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Dump a sensor to a file while the function runs. Arguments as of :meth:`pmtpy.Sensor.start_dump`.

    The second call of the function writes ``run-2.csv`` beside ``run.csv``, and so on, so no call loses the one before.
    A call during which the sensor is being dumped already, as of a function that calls itself or runs in several
    threads, runs without a file of its own: its rows are in that dump. That is said once (logger ``pmtpy``, level
    WARNING).
    """
    begun, told = 0, False
    check_targets([target])
    interval_seconds(interval)
    stem, suffix = os.path.splitext(arguments.path(filename, "filename"))  # noqa: PTH122  (pathlib would be imported)

    def start() -> Any:
        nonlocal begun, told
        (sensor,) = watching([target]).values()
        path = f"{stem}-{begun + 1}{suffix}" if begun else filename
        try:
            running = sensor.dump(path, interval=interval, overwrite=overwrite)
        except DumpedAlreadyError:  # what only watches must not keep the function from running
            if not told:
                why = "%s is being dumped already: a call meanwhile has no file of its own, its rows are in that dump"
                _log.warning(why, sensor.target)
            told = True
            return nullcontext()
        begun += 1  # no other call has begun one meanwhile: a sensor writes one at a time
        return running

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return _wrap(function, start)

    return decorate


def _refuse_uncallable(function: object) -> None:
    """Refuse what has no calls to measure, such as a property."""
    if not callable(function):
        kind = type(function).__name__
        above = f"; put @{kind} above this decorator" if isinstance(function, property) else ""
        msg = f"only functions can be measured or dumped, not a {kind}{above}"
        raise TargetError(msg)


def _wrap(function: Callable[P, R], context: Callable[[], Any]) -> Callable[P, R]:
    """Run a function of any kind inside a context that is made anew for each call."""
    if isinstance(function, staticmethod | classmethod):
        return cast("Callable[P, R]", type(function)(_wrap(function.__func__, context)))
    _refuse_uncallable(function)
    for manager in (contextmanager, asynccontextmanager):
        if getattr(function, "__code__", None) is manager(_nothing).__code__:
            # What it returns is entered later: its body is measured, with what is inside the with-statement.
            return cast("Callable[P, R]", manager(_wrap(inspect.unwrap(function), context)))
    call = cast("Callable[..., Any]", function)
    kinds = (
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isasyncgenfunction, _asynchronous_generator),
        (inspect.isgeneratorfunction, _generator),
    )
    kind = next((wrap for of_kind, wrap in kinds if of_kind(function)), _plain)
    wrapper = functools.wraps(function)(kind(call, context))
    if kind is _generator and _is_awaited(call):
        wrapper = types.coroutine(wrapper)
    return cast("Callable[P, R]", wrapper)


def _is_awaited(call: Callable[..., Any]) -> bool:
    """Whether what a generator function returns can be awaited, as :func:`types.coroutine` makes it."""
    code = getattr(inspect.unwrap(call), "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _nothing() -> Any:
    """Stand for any function that a context manager is made of, to learn what makes them."""
    yield


def _coroutine(call: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with context():
            return await call(*args, **kwargs)

    return wrapper


def _generator(call: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with context():
            return (yield from call(*args, **kwargs))

    return wrapper


def _asynchronous_generator(call: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with context():
            generator = call(*args, **kwargs)
            try:
                step = anext(generator)
                while True:
                    shown = await step
                    try:
                        sent = yield shown
                    except Exception as error:  # noqa: BLE001  (thrown in by the caller: for the function to see)
                        step = generator.athrow(error)
                    else:
                        step = generator.asend(sent)
            except StopAsyncIteration:
                return
            finally:
                await generator.aclose()

    return wrapper


def _plain(call: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            stack.enter_context(context())
            result = call(*args, **kwargs)
            if hasattr(result, "add_done_callback"):  # a future: it is the caller's, and says when it is done
                result.add_done_callback(functools.partial(_end, stack.pop_all()))
            elif inspect.iscoroutine(result):
                return _finished(result, stack.pop_all())
            return result

    return wrapper


def _end(stack: ExitStack, _future: object) -> None:
    stack.close()


async def _finished(result: Coroutine[Any, Any, Any], stack: ExitStack) -> Any:
    with stack:
        return await result
