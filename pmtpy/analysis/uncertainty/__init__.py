"""How far an energy can be trusted: what was seen around an interval, and the budget made of it (JCGM 100:2008)."""
