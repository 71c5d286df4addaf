"""Pure mathematics on recorded curves: arrays in, results with intervals out. No files, no devices, no time."""
