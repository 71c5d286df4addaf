"""What a user holds: acquisition, history, poller, lifecycle, registry, combinations of sensors.

Reading order: ``registry`` turns a name into an opened source and a ``sensor``, which is what a user may do.
``acquisition`` is the curve behind it: ``_intake`` reads the source, ``_curve`` integrates its rows, ``history`` keeps
them, ``_states`` answers at once, ``_demand`` says who needs rows and how often, and ``_watch`` has the ``poller`` read
for them. ``combine`` makes several rails one sensor, ``profile_store`` has calibrations of this user's devices,
``load_stamps`` tells when the device worked, and ``lifecycle`` ends what nobody closed.
"""
