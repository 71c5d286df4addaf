"""Whether sensors that watched the same power agree (docs/compare.md).

``compare`` holds any number of traces against one of them, ``compared`` is what it returns; ``against`` treats one
pair, and ``align`` lays one curve over another.
"""
