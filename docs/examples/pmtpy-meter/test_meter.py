"""The meter keeps the contract of a source and tells the truth, through its wraps."""

from pmtpy_meter import open_virtual

from pmtpy.testing import check_source

LOAD = "square:low=30,high=90,hz=0.5"


def test_the_meter_keeps_the_contract_and_tells_the_truth() -> None:
    # A counter that is renewed every 10 ms: up to 0.9 J too little at either end of 20 s at a mean of 60 W.
    check_source(lambda clock: open_virtual("virtual", clock=clock, load=LOAD), LOAD, relative=1e-3)
