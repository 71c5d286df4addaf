"""Procedures of the published evaluations of sensors, and of ``pmtpy certify``: one module each.

They ask what a read costs (``latency``), when the value is renewed (``updates``), how often the sensor samples inside
(``internal_rate``), how it answers a step (``steps``), whether it drifts (``stability``), and how two sensors, or a
whole and its parts, agree over workloads (``agreement``). They are those of Tröpgen, Bielert, Ilsche, "Evaluating the
Energy Measurements of the IBM POWER9 On-Chip Controller", ICPE '23, doi 10.1145/3578244.3583729, with intervals. Pure
mathematics on arrays; times are seconds, powers watts.
"""
