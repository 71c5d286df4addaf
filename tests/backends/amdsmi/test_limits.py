"""What holds a GPU's clocks back, as the library says it."""

from __future__ import annotations

import math

from tests.backends.amdsmi.rig import Rig


def test_what_acts_at_the_moment() -> None:
    rig = Rig()
    source = rig.open()
    assert source.limits() == {}
    rig.cards[0].slowed_by = ("ppt_pwr", "hbm_thrm")
    assert source.limits() == {"power": math.inf, "heat of the memory": math.inf}
    rig.cards[0].codes["amdsmi_get_violation_status"] = 2  # an older card
    assert source.limits() == {}
    source.close()
