"""Which GPUs a process may see. Where one reads for all of a node, a number must mean the same GPU to each. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# Where Slurm closes the other GPUs to a task (ConstrainDevices), CUDA's number is 0 in each; Slurm's is the node's.
_LIMITS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "SLURM_STEP_GPUS")


def limits(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what limits the GPUs that a process sees, and gives each a number of its own."""
    return tuple(f"{name}={environment[name]}" for name in _LIMITS if name in environment)


def numbered(targets: Sequence[str]) -> bool:
    """Whether a GPU is named by its number, or as the first that is seen."""
    return any(re.fullmatch(r"(nvml|amdsmi)(:\d+)?", target) for target in targets)


def differ(of_ranks: Sequence[tuple[int | None, tuple[str, ...]]]) -> str:
    """Say in what ranks differ from the first, which reads for all; empty: in nothing."""
    first = of_ranks[0]
    for other in of_ranks[1:]:
        if other[1] != first[1]:
            what = " and ".join(f"rank {rank} has {' '.join(said) or 'no such limit'}" for rank, said in (first, other))
            return (
                f"one rank of a node reads for all, but the number of a GPU means another one to each ({what}): name"
                " on each all GPUs of the node, by UUID or PCI address, and let the one that reads open them (Slurm:"
                " --gpus-per-node, not --gpus-per-task)"
            )
    return ""
