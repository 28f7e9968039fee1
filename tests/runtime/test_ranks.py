"""Ranks from the environment of torchrun and SLURM."""

from __future__ import annotations

import pytest

from debubble.compiler.errors import InputError
from debubble.runtime.ranks import Rank, first_host, rank_from_environment


def test_no_launcher() -> None:
    """An ordinary environment gives no rank."""
    assert rank_from_environment({"PATH": "/bin"}) is None


def test_torchrun() -> None:
    """torchrun's variables are taken."""
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert rank_from_environment(environment) == Rank(5, 8, 1, 4, "env://")


def test_slurm_step() -> None:
    """srun's variables are taken, the first node being the meeting point."""
    environment = {
        "SLURM_PROCID": "3",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_LOCALID": "3",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
        "SLURM_STEP_NODELIST": "gpu[003-004]",
        "SLURM_JOB_ID": "40017",
    }
    assert rank_from_environment(environment) == Rank(3, 8, 3, 4, "tcp://gpu003:20017")


def test_a_slurm_batch_script_is_no_step() -> None:
    """Outside srun SLURM's variables describe the job, not a rank of it."""
    assert rank_from_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None


@pytest.mark.parametrize(
    ("nodes", "first"), [("a", "a"), ("a,b", "a"), ("n[1,3]", "n1"), ("gpu-[003-007,9],x", "gpu-003")]
)
def test_first_host(nodes: str, first: str) -> None:
    """The first name of a node list, brackets opened."""
    assert first_host(nodes) == first


def test_a_bad_variable_is_named() -> None:
    """What is not a number is refused with the name of the variable."""
    with pytest.raises(InputError, match="WORLD_SIZE must be a number, not 'many'"):
        rank_from_environment({"RANK": "0", "WORLD_SIZE": "many"})
