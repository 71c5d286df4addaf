"""What corrects a sensor: curves, how it follows time, the profile that holds both, and whose profile it is."""
