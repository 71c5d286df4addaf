"""Procedures of the published evaluations of sensors, for any sensor: what a read costs, when the value is renewed, how
often the sensor samples inside, and how two sensors, or a whole and its parts, agree over workloads.

They are those of Tröpgen, Bielert, Ilsche, "Evaluating the Energy Measurements of the IBM POWER9 On-Chip Controller",
ICPE '23, doi 10.1145/3578244.3583729, with intervals. Pure mathematics on arrays; times are seconds, powers watts.
"""
