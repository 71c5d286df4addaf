"""Energy of a kernel configuration at clocks at which it was not measured (docs/frequency.md)."""
