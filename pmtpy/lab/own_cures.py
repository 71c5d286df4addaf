"""What would help where this program itself recorded: estimators speak to whoever made the load and the polls.

An estimator that declines ends with what would help: to poll otherwise, or to use another load. Who lets
``certify`` or ``characterise TARGET`` record can do neither, since both make a pseudo-random load and poll at uneven
times; there is more of both to be had, by options. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from pmtpy.analysis.characterisation.results import Characterisation
from pmtpy.errors import Reason


def own_cures(found: Characterisation) -> Characterisation:
    """Return what was found, with what helps who has no other say in load and polls."""
    kernel = found.kernel
    return replace(
        found,
        declined={name: _own(why) for name, why in found.declined.items()},
        kernel=None if kernel is None else replace(kernel, reason=_own(kernel.reason)),
    )


def _own(why: str) -> Reason:
    reason = why if isinstance(why, Reason) else Reason(why)
    return Reason(
        reason.why,
        polls=reason.polls and "--interval polls it more often, as far as it answers so fast",
        load=reason.load and "more of the load may tell (--duration)",
    )
