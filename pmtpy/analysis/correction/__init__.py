"""What energy was used, from readings that are late, averaged, part-time and off by percents (docs/corrections.md).

``correct`` chooses how, for recordings, and ``live`` for regions, with ``renewed`` for the instants of their readings.
They stand on ``response``, what a profile knows of the sensor: ``bins``, ``levels`` and ``starts`` for a load that is
known, ``reconstruct``, ``window``, ``gaps`` and ``ends`` for one that is not. ``alternatives`` are corrections by other
authors, for comparison; ``energy`` holds the result beside a meter's.
"""
