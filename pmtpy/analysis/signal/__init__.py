"""Common ground of the analyses.

``trace`` is power over time with an exact integral, ``updates`` the values of a sensor and when each was shown,
``clock_fit`` and ``correlogram`` lay two curves over each other, ``estimate`` is a value with its 95 % interval.
"""
