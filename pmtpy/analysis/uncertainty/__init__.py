"""How far an energy can be trusted, by the law of propagation of uncertainty (JCGM 100:2008, docs/uncertainty.md).

Reading order: ``interval`` holds what is asked of an interval and what was seen in it; ``interval_statistics`` finds
the latter, with the help of ``_moves``, ``_drop_outs``, ``_skipped`` and ``ahead``; ``budget`` judges it, in the named
``components`` that ``_causes`` works out, with the ``notices`` that a reader must have; ``in_step`` says where the
energy lies if the load repeats in step with the sensor; ``recorded`` does all of that for the rows of a recording.
"""
