"""What a user holds: acquisition, history, poller, lifecycle, registry, combinations of sensors."""
