"""How a sensor behaves: its update period, its response to the load, its gradient and intercept (docs/characterise.md).

``characterise`` puts the estimators together, ``characterised`` is what it returns. ``polls`` restores what a dump left
out; ``update`` finds the publishing clock and ``track`` follows it; ``step`` describes the answer to a single jump;
``kernel`` fits the response, with ``search`` for where to begin, ``choice`` between families, the ``shapes`` found and
the ``spread`` of their parameters, and ``unmetered`` where only load stamps are known; ``transfer`` is the line between
power and reading.
"""
