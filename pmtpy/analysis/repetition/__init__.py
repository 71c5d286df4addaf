"""Measuring again and again: how often, at which instants, and what may be said of it. Pure arithmetic."""
