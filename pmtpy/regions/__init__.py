"""Stretches of a program: what they cost, totals over sensors, decorators.

Reading order: ``region`` notes two instants, and ``pool`` has the sensors that it names; ``interval_energy`` works out
what was used between them, from what ``_kept`` has of the curve, as a record of ``measurement``. How far to trust it is
found when somebody asks (``_pending``): ``_judgement`` judges each channel, and ``_witness`` and ``_parting`` hold
channels of one part against each other. ``total`` sums sensors, ``decorators`` measure calls, and ``_synchronise``
waits for work that runs elsewhere.
"""
