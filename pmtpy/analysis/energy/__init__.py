"""What energy was used, from readings that are late, averaged, part-time and off by percents (docs/corrections.md).

Reading order: ``estimate`` answers, for recordings and for live regions (``live``) alike, by what explains readings
best, ``_without_stamps`` of the load or ``_by_stamps``; ``_posterior`` finds the power behind the readings on a grid
(``_cells``), ``_stamped`` says what a load adds that is known to have been on and off, and ``_blocks`` solves for many
of them at linear cost. ``beside_meter`` holds the answer beside a meter's, and beside what holding each poll gives.
"""
