"""Stretches of a program: what they cost, totals over sensors, decorators."""
