"""Corrected energies in their places; the estimator is :mod:`pmtpy.analysis.energy`.

``energy`` holds the result beside a meter's and beside what holding each poll gives; ``live`` corrects a region of a
program.
"""
