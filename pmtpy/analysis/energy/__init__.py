"""What energy was used, from readings that are late, averaged, part-time and off by percents (docs/corrections.md).

``estimate`` answers, for recordings and for live regions (``live``) alike; ``beside_meter`` holds the answer beside a
meter's, and beside what holding each poll gives. ``posterior`` finds the power behind the readings in
the ``cells`` of a grid, ``stamped`` says what a load adds that is known to have been on and off, ``blocks`` solves.
"""
