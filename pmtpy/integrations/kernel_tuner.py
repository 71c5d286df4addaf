"""An observer for Kernel Tuner that reports energy with its uncertainty, from any sensor.

Importing this module imports ``kernel_tuner``; nothing else of pmtpy does. Facts: ``BenchmarkObserver``,
``ContinuousObserver`` and the benchmark loops in ``core.py`` of Kernel Tuner 1.5.

Each run of a kernel is a region from its launch to the first moment at which it is seen to have ended. Kernel Tuner's
own observers begin after the launch, which on a back end that waits for the kernel (its C back end) is when it has
already ended; and it asks its observers one after the other, so what another one does, before the launch and after the
end, is no part of a region that goes by the launch.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pmtpy._extras import extra
from pmtpy.analysis.repetition.plan import Timing, timing_of
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S
from pmtpy.core.state import LEAST_COVERAGE
from pmtpy.errors import CoverageError, TargetError
from pmtpy.integrations.drop_ins.held import warm_up
from pmtpy.lab.bench_trial import when_settled
from pmtpy.lab.conditions import conditions
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region, region
from pmtpy.regions.total import sum_up
from pmtpy.sensor.sensor import Sensor, acquisition_of

with extra("kernel_tuner", "pmtpy.integrations.kernel_tuner", ImportError):
    from kernel_tuner.observers import BenchmarkObserver, ContinuousObserver
    from kernel_tuner.util import RuntimeFailedConfig

__all__ = ["EnergyObserver"]

_log = logging.getLogger("pmtpy")
_KEPT_S = 1.0  # half of what sensors keep of the past by default
_LEAST_CONTINUOUS_S = 1.0  # Kernel Tuner's own least
# Readings of the slowest sensor that a steady run takes: 2 s of one of 100 ms. The study of such sensors takes 5 s, the
# thesis that compared them with a PowerSensor3 as few iterations as will do, because a warm card draws more.
_STEADY_PERIODS = 20.0
_COOLING_S = 60.0
# What a kernel says of its time decides how often it is repeated, and is multiplied by the power of the whole stretch.
_WARNED_SHARE, _LEAST_SHARE = 0.5, 0.01  # of the time of its calls; in seconds it would be a thousandth
_MOST_SHARE, _SLACK_MS = 1.1, 0.1
_TOLD = 2.0  # standard uncertainties, 95 %: an energy that is not that far from nothing says nothing about a kernel


class EnergyObserver(BenchmarkObserver):  # type: ignore[misc]  # Kernel Tuner has no types
    """Adds the energy of a kernel to Kernel Tuner's results.

    Results, for each configuration: ``pmt_energy`` (joules, mean of the runs), ``pmt_power`` (watts, mean over the
    runs), ``pmt_energy_uncertainty`` and ``pmt_power_uncertainty`` (standard uncertainties, about 68 %) and
    ``pmt_runs``, the number of runs that counted. With several sensors these stand for the sum, each physical part
    once, and each sensor has its own besides: ``pmt_nvml_0_energy`` for ``nvml:0``. Where no sum can be told (an
    external meter beside built-in sensors) there are only those.

    The uncertainty is that of one run, not divided by the number of runs, because the errors of a sensor are much the
    same each time; the scatter of the mean is added to it in square.

    Parameters
    ----------
    *targets : str or Sensor
        Sensors, as for :func:`pmtpy.region`.
    name : str
        What the names of the results begin with.
    continuous_s : float, optional
        Let Kernel Tuner run each kernel again and again for so many seconds (at least 1) and take the power from
        that: for sensors that are slower than the kernel. ``pmt_energy`` is then that power times the kernel's time.
    steady : bool
        Do so for as long as the slowest of the sensors needs and no longer, so that the card is not heated, and take
        all of them over the very same stretch, after the readings have risen: one method for a PowerSensor3 and the
        GPU's own sensor. Adds ``pmt_temperature`` (C) and ``pmt_core_freq`` (MHz) where a sensor has them, so that
        ``pmtpy calibrate transfer`` can read Kernel Tuner's cache. Not together with ``continuous_s``.
    cool_to_c : float, optional
        With ``steady``: wait before each configuration until the card is as cool as that, a minute at most.

    Raises TargetError: no sensor was named, or one that does not exist; when tuning starts, too: two observers of one
    name.
    Raises BackendUnavailableError: a sensor cannot be used; raised when tuning starts.

    Examples
    --------
    >>> tune_kernel(  # doctest: +SKIP
    ...     ...,
    ...     observers=[EnergyObserver("nvml:0")],
    ...     objective="pmt_energy",
    ...     objective_higher_is_better=False,
    ... )

    A configuration of none of whose runs the energy is known, or whose energy (of several sensors: their sum) is not
    told from nothing, less than twice its uncertainty, counts as failed, with a warning in the log ``pmtpy``: it is
    never the best, and the tuning goes on.
    """

    def __init__(
        self,
        *targets: str | Sensor,
        name: str = "pmt",
        continuous_s: float | None = None,
        steady: bool = False,
        cool_to_c: float | None = None,
    ) -> None:
        if not targets:
            msg = "EnergyObserver() needs at least one sensor, for example EnergyObserver('rapl')"
            raise TargetError(msg)
        if (steady and continuous_s is not None) or (cool_to_c is not None and not steady):
            msg = "steady says itself how long kernels run: it goes without continuous_s, and cool_to_c goes with it"
            raise TargetError(msg)
        self._steady, self._cool_to_c = steady, cool_to_c
        self._rise_s = 0.0  # of a steady run: what passes before it is measured
        self._launched_ns: int | None = None
        self._last: tuple[Sensor, ...] = ()
        self._targets = targets
        self.name = name
        self._next: Region | None = None  # waits for the launch
        self._open: Region | None = None  # from the launch to the end of the kernel
        self._sees_launches = False
        self._in_continuous = False
        self._runs: list[Region] = []
        self._measured: list[dict[str, Measurement]] = []
        self._told: set[str] = set()
        self._calls: list[tuple[float, float]] = []  # single calls: how long they took, and said to take, ms
        if steady:
            continuous_s = _LEAST_CONTINUOUS_S
        self._repeats = continuous_s is not None
        if continuous_s is not None:
            self.continuous_observer = _Continuous(self, continuous_s)

    def register_device(self, dev: object) -> None:
        """Open the sensors, which can take longer than a kernel.

        Raises TargetError: another observer of the same name is there.
        """
        super().register_device(dev)
        others = (o for o in getattr(dev, "observers", ()) if isinstance(o, EnergyObserver) and o is not self)
        if any(other.name == self.name for other in others):
            msg = f"two observers would write {self.name}_energy, and one of the two be lost: give each its name="
            raise TargetError(msg)
        self._sees_launches = _tell_launches(dev, self._launch, self._seen_end, self._returned)
        self._last = region("kernel", *self._targets).sensors
        for sensor in self._last:
            warm_up(sensor)
        if self._steady:
            timings = [_timing(sensor) for sensor in self._last]
            self._rise_s = max(t.rise_s for t in timings)
            measured_s = max(_STEADY_PERIODS * t.refresh_s for t in timings)
            duration_s = max(_LEAST_CONTINUOUS_S, self._rise_s + measured_s)
            self.continuous_observer.continuous_duration = duration_s

    def register_configuration(self, params: Mapping[str, object]) -> None:  # noqa: ARG002  (Kernel Tuner's arguments)
        """Forget what a configuration that failed has left."""
        self._end()
        self._next = None
        self._runs.clear()
        self._measured.clear()
        self._calls.clear()
        if self._cool_to_c is not None:
            self._cool(self._cool_to_c)

    def before_start(self) -> None:
        """Prepare a run; it begins with the launch."""
        if self._repeats and not self._in_continuous:
            return  # single runs are not what is asked for, and too short for what they would say
        while self._runs and sum(run.seconds for run in self._runs) > _KEPT_S:
            self._evaluate(self._runs.pop(0))
        self._next = region("kernel", *self._targets)
        if not self._sees_launches:
            self._begin()

    def after_finish(self) -> None:
        """End the run, if its end was not seen."""
        self._end()

    def enter_continuous(self) -> None:
        """Kernels run one after the other from now on."""
        self._in_continuous, self._launched_ns = True, None

    def leave_continuous(self) -> None:
        """They have ended."""
        self._in_continuous = False

    def while_running(self) -> None:
        """Begin a steady run, if the time has come."""
        if self._steady:
            self.begin_when_risen()

    def begin_when_risen(self) -> None:
        """Begin a run that was held back, if the time has come."""
        now_ns = HOST_CLOCK.now_ns()
        if self._launched_ns is None:
            self._launched_ns = now_ns
        if now_ns - self._launched_ns >= self._rise_s * NS_PER_S:
            self._begin()

    def at_end(self) -> dict[str, float]:
        """Return the temperature and the clock of the card, as far as its sensor tells."""
        known = {k: v for sensor in self._last for k, v in conditions(sensor).items()}
        found = {}
        if "gpu.temperature_C" in known:
            found[f"{self.name}_temperature"] = known["gpu.temperature_C"]
        if "gpu.sm_clock_Hz" in known:
            found[f"{self.name}_core_freq"] = known["gpu.sm_clock_Hz"] / 1e6
        return found

    def _cool(self, limit_c: float) -> None:
        end_ns, idle = HOST_CLOCK.now_ns() + round(_COOLING_S * NS_PER_S), threading.Event()
        while self.at_end().get(f"{self.name}_temperature", -math.inf) > limit_c and HOST_CLOCK.now_ns() < end_ns:
            HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + NS_PER_S, idle)

    def _launch(self) -> None:
        if self._steady and self._in_continuous:
            self.begin_when_risen()
        else:
            self._begin()

    def _begin(self) -> None:
        if self._next is not None:
            self._open, self._next = self._next, None
            self._open.__enter__()

    def _seen_end(self) -> None:
        if not self._in_continuous:  # there a kernel follows the other
            self._end()

    def _returned(self, took_ns: int, said_ms: object) -> None:
        if self._repeats and not self._in_continuous and isinstance(said_ms, int | float):  # else nothing was returned
            self._calls.append((max(took_ns, 1) / 1e6, float(said_ms)))

    def _check_times(self) -> None:
        """Hold what a kernel of the C back end said of its time against how long its calls took.

        Raises TargetError: it is no time in milliseconds.
        """
        if not self._calls:
            return
        # That of all calls which took up most of its time: others were held up.
        took_ms, said_ms = max(self._calls, key=lambda call: call[1] / call[0])
        too_long = all(said > _MOST_SHARE * took + _SLACK_MS for took, said in self._calls)
        self._calls.clear()
        must = "it must be in milliseconds, or the kernel is repeated for as many times too long or too short"
        if too_long or not said_ms > _LEAST_SHARE * took_ms:
            msg = f"the kernel returned {said_ms:.4g} as its time, and its call took {took_ms:.4g} ms: {must}"
            raise TargetError(msg)
        if said_ms < _WARNED_SHARE * took_ms and took_ms > 1.0:
            share = "a kernel returned less than half of the time of its calls: its power is that of the rest as well"
            if share not in self._told:
                self._told.add(share)
                _log.warning("%s (%.4g of %.4g ms)", share, said_ms, took_ms)

    def _end(self) -> None:
        if self._open is not None:
            run, self._open = self._open, None
            run.__exit__(None, None, None)
            self._runs.append(run)

    def get_results(self) -> dict[str, Any]:
        """Return the means over the runs since the last call; Kernel Tuner's mark of a failure where none is known.

        Raises TargetError: the kernel is to be repeated, and what it returned is no time in milliseconds.
        """
        self._check_times()  # here its single runs are over, and the many have not begun
        return {} if self._repeats else self.results_of_runs()

    def results_of_runs(self) -> dict[str, Any]:
        """Return the same, of a kernel that was repeated too."""
        try:
            return dict(self._results())
        except CoverageError as error:
            _log.warning("this configuration counts as failed: %s", error)
            return {"__error__": RuntimeFailedConfig()}

    def _results(self) -> dict[str, float]:
        for run in self._runs:
            self._evaluate(run)
        self._runs.clear()
        measured, self._measured = self._measured, []
        keys = list(dict.fromkeys(key for one in measured for key in one))
        if not keys:
            msg = f"{self.name}: no run of the kernel was measured"
            raise CoverageError(msg)
        results: dict[str, float] = {}
        for key in keys:
            stem = f"{self.name}_{key}" if key else self.name
            found = _means(stem, [one[key] for one in measured if key in one])
            if not key or "" not in keys:  # a part that draws next to nothing is no fault of the sum
                _check_told(stem, found)
            results |= found
        return results

    def _evaluate(self, run: Region) -> None:
        """Evaluate a run: as late as possible, when slow sensors have reported, and while their rows are still kept."""
        found = dict(run.items())
        for sensor in run.sensors:
            if found[sensor.target].coverage < LEAST_COVERAGE:  # its rows may be late, on a busy machine
                found[sensor.target] = when_settled(run, sensor, acquisition_of(sensor).clock)
        self._tell(found.values())
        total = sum_up(run.sensors, found) if len(found) > 1 else next(iter(found.values()))
        own = {_identifier(target): m for target, m in found.items()} if len(found) > 1 else {}
        self._measured.append(({"": total} if total is not None else {}) | own)

    def _tell(self, measured: Iterable[Measurement]) -> None:
        """Log what a reader of the numbers must know, once each, whatever the figures in it."""
        for warning in (w for m in measured for w in m.warnings):
            kind = re.sub(r"\d[\d.e+-]*", "#", warning)
            if kind not in self._told:
                self._told.add(kind)
                _log.warning("%s", warning)


class _Continuous(ContinuousObserver):  # type: ignore[misc]
    """Measures the power while Kernel Tuner runs a kernel again and again."""

    def __init__(self, parent: EnergyObserver, seconds: float) -> None:
        super().__init__("pmt", [], parent, continuous_duration=seconds)

    def before_start(self) -> None:
        self.parent.enter_continuous()
        self.parent.before_start()

    def after_start(self) -> None:
        """Nothing to do: the run began before the launch."""

    def during(self) -> None:
        """Begin a steady run of which all kernels were launched at once; the sensor reads itself."""
        self.parent.while_running()

    def after_finish(self) -> None:
        self.parent.after_finish()
        self.parent.leave_continuous()

    def get_results(self) -> dict[str, Any]:
        """Return the results of the parent, with energies per kernel."""
        results: dict[str, Any] = self.parent.results_of_runs()
        if "__error__" in results:
            return results
        kernel_s = self.results["time"] / 1e3
        kernel_u_s = _scatter(self.results.get("times", ())) / 1e3
        for key in [k for k in results if k.endswith("_power")]:
            stem, watts = key.removesuffix("_power"), results[key]
            results[f"{stem}_energy"] = watts * kernel_s
            results[f"{stem}_energy_uncertainty"] = math.hypot(
                results[f"{key}_uncertainty"] * kernel_s, watts * kernel_u_s
            )
        results.update(self.parent.at_end())
        return results


def _tell_launches(
    dev: Any, begin: Callable[[], None], end: Callable[[], None], returned: Callable[[int, object], None]
) -> bool:
    """Have a back end of Kernel Tuner tell of launches, and of ends as soon as they are seen; say whether it can.

    ``returned`` gets how long each launch took, nanoseconds, and what it returned: on the C back end the kernel's time.

    There is no hook for it: observers are asked in the order of a list, before all of them are through. So three
    methods of this one object get a shell. Until ``stop_event`` the event that ``kernel_finished`` looks at is that of
    the run before.
    """

    def run_kernel(*args: Any, **kwargs: Any) -> Any:
        begin()
        start_ns = HOST_CLOCK.now_ns()
        result = launch(*args, **kwargs)
        returned(HOST_CLOCK.now_ns() - start_ns, result)
        return result

    def stop_event(*args: Any, **kwargs: Any) -> Any:
        result = stop(*args, **kwargs)
        if finished():
            end()
        return result

    def kernel_finished(*args: Any, **kwargs: Any) -> Any:
        done = finished(*args, **kwargs)
        if done:
            end()
        return done

    try:
        launch, stop, finished = dev.run_kernel, dev.stop_event, dev.kernel_finished
        dev.run_kernel, dev.stop_event, dev.kernel_finished = run_kernel, stop_event, kernel_finished
    except AttributeError:
        return False
    return True


def _timing(sensor: Sensor) -> Timing:
    """Return how a sensor follows time."""
    made = acquisition_of(sensor)
    profiles = made.calibration.profiles if made.calibration is not None else {}
    poll_s = 0.0 if made.intake.source.traits.streaming else made.intake.period_s
    return timing_of(made.layout.energy, poll_s, {name: profile.response for name, profile in profiles.items()})


def _identifier(target: str) -> str:
    """Return a target as the part of a name that Kernel Tuner's metrics can use: ``nvml_0`` for ``nvml:0``."""
    return re.sub(r"\W+", "_", target).strip("_")


def _means(stem: str, measured: Sequence[Measurement]) -> dict[str, float]:
    counted = [m for m in measured if m.coverage >= LEAST_COVERAGE and m.seconds > 0]
    if not counted:
        least = min((m.coverage for m in measured), default=0.0)
        msg = f"{stem}: the energy of no run of the kernel is known (of one, only {least:.0%} of it)"
        raise CoverageError(msg)
    counted = [m for m in counted if math.isfinite(m.uncertainty_joules)]
    if not counted:
        msg = f"{stem}: of no run of the kernel is known how far to trust its energy: {'; '.join(measured[0].warnings)}"
        raise CoverageError(msg)
    # Of a run, up to a twentieth may be unknown: it is taken to be like the rest.
    joules = [m.joules / m.coverage for m in counted]
    watts = [m.watts for m in counted]
    u_joules = [m.uncertainty_joules for m in counted]
    u_watts = [m.uncertainty_joules / m.seconds for m in counted]
    return {
        f"{stem}_energy": _mean(joules),
        f"{stem}_energy_uncertainty": math.hypot(_mean(u_joules), _scatter(joules)),
        f"{stem}_power": _mean(watts),
        f"{stem}_power_uncertainty": math.hypot(_mean(u_watts), _scatter(watts)),
        f"{stem}_runs": float(len(counted)),
    }


def _check_told(stem: str, found: Mapping[str, float]) -> None:
    joules, u_joules = found[f"{stem}_energy"], found[f"{stem}_energy_uncertainty"]
    if joules <= _TOLD * u_joules:
        msg = (
            f"{stem}: the energy is not told from nothing ({joules:.3g} +- {u_joules:.3g} J): a run is too short for"
            " the sensor; repeat the kernel (steady=True), take a faster sensor, or leave this one out"
        )
        raise CoverageError(msg)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _scatter(values: Sequence[float]) -> float:
    """Standard deviation of the mean."""
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
