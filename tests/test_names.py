"""Constants are called by what they bound, not by how much of it that is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pmtpy"
_SIZES = "FEW FEWEST MANY MOST LEAST MUCH FAR NEAR WIDE WIDEST LONG LONGEST SHORT SHORTEST LARGEST SMALLEST"
_MANNERS = "ALIKE AGAIN WORTH HARDLY SELDOM OFTEN SURE CLEAR SETTLED ENOUGH UNSEEN STRANGE PATIENCE SOON"
_BARE = re.compile(rf"_?({'|'.join([*_SIZES.split(), *_MANNERS.split()])})(_(S|NS|W|J|V|A))?")


def test_no_constant_is_called_by_a_bare_size_or_manner() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            found += [f"{path.relative_to(PACKAGE)}: {name}" for name in names if _BARE.fullmatch(name)]
    assert not found, "call each by what it bounds, as in _MIN_UPDATES or _CLOCK_RATE_SD"
