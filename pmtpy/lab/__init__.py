"""Procedures with a device: make a load, record it, fit a profile. Bench scripts and the command line call these."""
