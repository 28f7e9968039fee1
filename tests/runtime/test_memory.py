"""What micro-batches hold, counted on the CPU, against what plans predict."""

from __future__ import annotations

import pytest
import torch
from cluster import Cluster
from torch import nn
from training import blocks, build, plan_of

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.runtime import Pipeline, Workload
from debubble.runtime.memory import HeldMemory
from debubble.runtime.stage import Stage as Executor

DEVICES = 4


def test_a_shared_storage_counts_once() -> None:
    """Two views are one storage, whichever micro-batch holds them."""
    memory = HeldMemory([])
    tensor = torch.zeros(10)
    memory.hold((0, 0), [tensor, tensor[2:]])
    memory.hold((0, 1), [tensor.view(2, 5)])
    assert memory.current == 40
    memory.release((0, 0))
    assert memory.current == 40
    memory.release((0, 1))
    assert (memory.current, memory.peak) == (0, 40)


def test_parameters_do_not_count() -> None:
    """Static memory is not what micro-batches hold."""
    module = nn.Linear(3, 3)
    memory = HeldMemory([module])
    memory.hold((0, 0), [module.weight, module.weight.T])
    assert memory.current == 0


def test_what_is_ignored_does_not_count() -> None:
    """The batch stays for the whole step."""
    memory = HeldMemory([])
    batch = torch.zeros(8, 2)
    memory.ignore([batch])
    memory.hold((0, 0), [batch[:2]])
    assert memory.current == 0


def test_saved_tensors_are_counted_until_they_are_released() -> None:
    """A squared vector saves itself and nothing else."""
    memory = HeldMemory([])
    x = torch.ones(8, requires_grad=True)
    with memory.saving((0, 0)):
        y = x**2
    assert memory.current == 32
    y.sum().backward()
    memory.release((0, 0))
    assert memory.current == 0


def _changes(workload: Workload, stage: int) -> Memory:
    """Bytes that one micro-batch of one stage takes at F and B, measured alone."""
    module = workload.build(stage, DEVICES, seed=0)
    alone = Executor(stage, module, workload.loss if stage == DEVICES - 1 else None)
    alone.memory = memory = HeldMemory([module])
    inputs, target = workload.data(0, 1, seed=0)
    memory.ignore([inputs, target] if stage == 0 else [target])
    with alone.installed():
        wanted = (target,) if stage == DEVICES - 1 else None
        (output,) = alone.forward(0, (inputs,), differentiable=(stage > 0,), split=True, target=wanted)
        held = memory.current
        alone.backward_input(0, (torch.ones_like(output),))
        return Memory(held, memory.current - held, -memory.current)


def _peaks(rank: int, name: str, microbatches: int) -> tuple[float, float]:
    """Counted and predicted bytes of this device."""
    workload = blocks()
    stages = tuple(
        Stage(forward=1, backward_input=1, backward_weight=1, memory=_changes(workload, s)) for s in range(DEVICES)
    )
    problem = Problem(Profile(stages=stages), placement.linear(DEVICES), microbatches)
    plan = plan_of(problem, named_schedule(name, problem))
    modules = build(plan, workload, rank)
    pipeline = Pipeline(plan, modules, workload.loss)
    memory = HeldMemory(modules.values())
    pipeline.count_memory(memory)
    pipeline.step(*workload.data(0, microbatches, seed=0))
    return memory.peak, plan.timeline.peak_memory[rank]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2"])
def test_the_peak_is_the_predicted_one(cluster: Cluster, name: str) -> None:
    """Counted and predicted peaks agree within a tenth on every device."""
    for counted, predicted in cluster(_peaks, name, 8):
        assert counted == pytest.approx(predicted, rel=0.1)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2"])
def test_the_peak_does_not_grow_with_the_number_of_microbatches(cluster: Cluster, name: str) -> None:
    """Twice the micro-batches hold no more."""
    few, many = (cluster(_peaks, name, microbatches) for microbatches in (8, 16))
    assert [counted for counted, _ in few] == [counted for counted, _ in many]
