"""What would help where this program itself recorded: estimators speak to whoever made the load and the polls.

An estimator that declines ends with what would help: to poll otherwise, or to use another load. Who lets
``certify`` or ``characterise TARGET`` record can do neither, since both make a pseudo-random load and poll at uneven
times; there is more of both to be had, by options. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pmtpy.analysis.characterisation.results import Characterisation

_OF_POLLS = re.compile(r"[;:] poll (?:at|as) [^;]*$"), "; --interval polls it more often, as far as it answers so fast"
_OF_THE_LOAD = re.compile(r"; use (?:a|another) [^;]*$"), "; more of the load may tell (--duration)"


def own_cures(found: Characterisation) -> Characterisation:
    """Return what was found, with what helps who has no other say in load and polls."""
    kernel = found.kernel
    return replace(
        found,
        declined={name: _own(why) for name, why in found.declined.items()},
        kernel=None if kernel is None else replace(kernel, reason=_own(kernel.reason)),
    )


def _own(why: str) -> str:
    for cure, own in (_OF_POLLS, _OF_THE_LOAD):
        why = cure.sub(own, why)
    return why
