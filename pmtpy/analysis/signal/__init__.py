"""Common ground of the analyses: power traces, updates behind polls, responses, clocks, estimates."""
