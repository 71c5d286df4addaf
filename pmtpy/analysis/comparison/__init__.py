"""Whether sensors that watched the same power agree (docs/compare.md).

Reading order: ``results`` holds what goes in and what comes out; ``compare`` holds any number of traces against one of
them, and ``_pairwise`` treats one pair.
"""
