"""What was found of one channel in an interval, or in a stretch of it: its energy, and how far to trust that. Pure."""

from __future__ import annotations

from typing import NamedTuple

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, uncertainty_budget
from pmtpy.analysis.uncertainty.interval import IntervalStatistics
from pmtpy.analysis.uncertainty.interval_statistics import lag_corrected
from pmtpy.core.channel import Channel

LAG_CORRECTED = "lag corrected"
_LOAD_INFORMED = "load-informed"  # as pmtpy.analysis.energy.estimate calls it, which only those who have a profile load


class Found(NamedTuple):
    """The energy of one channel and its judgement."""

    channel: Channel
    joules: float
    uncovered_s: float
    budget: UncertaintyBudget
    corrected: str = ""

    @classmethod
    def judged(cls, channel: Channel, as_shown: IntervalStatistics) -> Found:
        """Judge what was seen of a channel."""
        one = lag_corrected(as_shown)
        corrected = "" if one is as_shown else LAG_CORRECTED
        return cls(channel, one.joules, one.uncovered_s, uncertainty_budget(channel, one), corrected)

    @property
    def method(self) -> str:
        """How it was come by."""
        own = self.channel.energy_method.value
        return f"{own}, {self.corrected}" if self.corrected else own

    @property
    def load_informed(self) -> bool:
        """Whether stamps of the load took part, which tell what fell between the readings."""
        return self.corrected.startswith(_LOAD_INFORMED)

    def warned(self, warning: str) -> Found:
        """Say one thing more of it."""
        budget = self.budget._replace(warnings=(*self.budget.warnings, warning))
        return self._replace(budget=budget)

    def contradicted(self, joules: float, warning: str = "") -> Found:
        """Make it as uncertain as what contradicts it, and say so."""
        warnings = (*self.budget.warnings, warning) if warning else self.budget.warnings
        return self._replace(
            budget=UncertaintyBudget.of([("contradiction", joules), *self.budget.components], warnings)
        )
