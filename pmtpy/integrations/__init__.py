"""Faces for other programs: the modules of PMT and PowerSensor3, Kernel Tuner, and old names of ours."""
