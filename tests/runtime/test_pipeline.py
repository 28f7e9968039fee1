"""The interpreter on four real gloo processes, judged by plain autograd in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from cluster import Cluster
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_module
from training import WIDTH, blocks, build, deviation, named_plan, plan_of, problem_of, reference_of

from debubble.compiler.errors import InputError, RunError
from debubble.compiler.named import NAMED, named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.plan import Plan
from debubble.compiler.schedule import Schedule
from debubble.runtime import Pipeline, Workload
from debubble.runtime.reference import gradients, relative_error

SCHEDULES = [name for name in NAMED if name not in ("dualpipe", "dualpipe-v")]


def _named(
    rank: int, name: str, microbatches: int, dtype: torch.dtype, backward: str = "any", place: str | None = None
) -> tuple[float, float]:
    return deviation(rank, named_plan(name, 4, microbatches, place=place, backward=backward), blocks(dtype))


@pytest.mark.parametrize("name", SCHEDULES)
def test_named_schedules_train_on_right_gradients(cluster: Cluster, name: str) -> None:
    """In double precision loss and gradients are those of plain autograd."""
    assert max(max(errors) for errors in cluster(_named, name, 8, torch.float64)) < 1e-10


@pytest.mark.parametrize("name", ["1f1b", "zb-h2", "interleaved"])
def test_single_precision(cluster: Cluster, name: str) -> None:
    """In single precision they agree within 1e-5."""
    assert max(max(errors) for errors in cluster(_named, name, 8, torch.float32)) < 1e-5


@pytest.mark.parametrize("name", ["dualpipe", "dualpipe-v"])
def test_overlapped_pairs(cluster: Cluster, name: str) -> None:
    """A pair runs its forward, then its backward; both directions of a bidirectional plan share one gradient."""
    microbatches = 8 if name == "dualpipe" else 16
    assert max(max(errors) for errors in cluster(_named, name, microbatches, torch.float64)) < 1e-10


def _recomputed(rank: int, name: str, recompute: str | int) -> tuple[tuple[float, float], int]:
    """The deviation with dropout, and how many forwards this rank ran."""
    plan = named_plan(name, 4, 8, recompute=recompute)
    modules, batch = build(plan, blocks(), rank), blocks().data(0, 8, seed=0)
    pipeline = Pipeline(plan, modules, blocks().loss, seed=0)
    pipeline.prepare(*batch)
    forwards: list[nn.Module] = []
    for module in modules.values():
        module.register_forward_pre_hook(lambda module, _: forwards.append(module))
    pipeline.step(*batch)
    return deviation(rank, plan, blocks(dropout=0.1)), len(forwards)


@pytest.mark.parametrize(("name", "recompute"), [("1f1b", "all"), ("zb-h1", 2), ("interleaved", 2)])
def test_recomputed_micro_batches(cluster: Cluster, name: str, recompute: str | int) -> None:
    """Gradients are those of plain autograd, and just the forwards that the plan recomputes run once more."""
    problem = named_plan(name, 4, 8, recompute=recompute).problem
    found = cluster(_recomputed, name, recompute)
    assert max(max(errors) for errors, _ in found) < 1e-10
    expected = [sum(8 + sum(problem.chosen[s]) for s in stages) for stages in problem.placement.copies]
    assert [forwards for _, forwards in found] == expected


@pytest.mark.parametrize("microbatches", [1, 2, 4])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved"])
def test_few_microbatches(cluster: Cluster, name: str, microbatches: int) -> None:
    """Fewer micro-batches than devices, or as many, work too."""
    assert max(max(errors) for errors in cluster(_named, name, microbatches, torch.float64)) < 1e-10


@pytest.mark.parametrize("place", ["v", "bidirectional", "0,1,1,2,3,0"])
def test_placements(cluster: Cluster, place: str) -> None:
    """Stages may sit anywhere, several on a device and in two directions."""
    assert max(max(e) for e in cluster(_named, "gpipe", 4, torch.float64, "split", place)) < 1e-10


def test_one_device_needs_no_processes() -> None:
    """A plan of one device runs without torch.distributed."""
    assert max(deviation(0, named_plan("1f1b", 1, 3), blocks())) < 1e-10


def _shuffled(rank: int, seed: int) -> tuple[float, float]:
    problem = problem_of(4, 6, backward="split")
    chance = random.Random(seed)
    orders = []
    for order in named_schedule("1f1b", problem).orders:
        early = [step for step in order if isinstance(step, Operation) and step.kind != "W"]
        for microbatch in range(6):
            weight = Operation("W", early[0].stage, microbatch)  # type: ignore[union-attr]
            first = early.index(weight._replace(kind="B")) + 1
            early.insert(chance.randint(first, len(early)), weight)
        orders.append(early)
    return deviation(rank, plan_of(problem, Schedule.of(orders)), blocks())


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_weight_gradients(cluster: Cluster, seed: int) -> None:
    """W may come at any time after its B."""
    assert max(max(errors) for errors in cluster(_shuffled, seed)) < 1e-10


class Sleepy(nn.Module):
    """Sleeps for a random time before each forward."""

    def __init__(self, inner: nn.Module, most: float, seed: int) -> None:
        super().__init__()
        self.inner, self._most, self._chance = inner, most, random.Random(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self._chance.uniform(0, self._most))
        return self.inner(x)


def _sleepy(rank: int, name: str, steps: int) -> list[float]:
    plan, workload = named_plan(name, 4, 8), blocks()
    modules = {s: Sleepy(module, 0.02, 9 * rank + s) for s, module in build(plan, workload, rank).items()}
    pipeline = Pipeline(plan, modules, workload.loss)
    losses = [float(pipeline.step(*workload.data(0, 8, seed=0))) for _ in range(steps)]
    expected = reference_of(plan, workload).step(*workload.data(0, 8, seed=0))
    return [abs(loss / expected - 1) for loss in losses]


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_delays_change_nothing(cluster: Cluster, name: str) -> None:
    """Ranks that are slow at random times give the same loss, and no rank hangs."""
    assert max(max(errors) for errors in cluster(_sleepy, name, 3)) < 1e-12


def _dropout(rank: int, name: str) -> float:
    plan, workload = named_plan(name, 4, 4), blocks(dropout=0.1)
    loss = Pipeline(plan, build(plan, workload, rank), workload.loss, seed=0).step(*workload.data(0, 4, seed=0))
    return float(loss)


def test_dropout_does_not_depend_on_the_order(cluster: Cluster) -> None:
    """With a seed, 1F1B and ZB-H1 draw the same random numbers."""
    assert cluster(_dropout, "1f1b") == cluster(_dropout, "zb-h1")


def _dropout_error(rank: int) -> tuple[float, float]:
    return deviation(rank, named_plan("zb-h1", 4, 4), blocks(dropout=0.1))


def test_dropout_agrees_with_the_reference(cluster: Cluster) -> None:
    """The reference draws the same random numbers as well."""
    assert max(max(errors) for errors in cluster(_dropout_error)) < 1e-10


def _two_pipelines(rank: int) -> tuple[float, float]:
    group, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
    return deviation(rank % 2, named_plan("zb-h1", 2, 3 + rank // 2), blocks(rows=1 + rank // 2), group)


def test_two_pipelines_side_by_side(cluster: Cluster) -> None:
    """Pipelines on two process groups do not disturb each other, with different numbers and sizes of micro-batches."""
    assert max(max(errors) for errors in cluster(_two_pipelines)) < 1e-10


def _uneven(rank: int, backward: str) -> tuple[float, float]:
    plan = named_plan("zb-h1" if backward == "split" else "1f1b", 4, 3)
    ordinary = blocks()

    def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(8, 3, WIDTH, dtype=torch.float64), torch.randn(8, 3, WIDTH, dtype=torch.float64)

    workload = Workload(ordinary.stage, batch, ordinary.loss)
    gradient, loss = deviation(rank, plan, workload)
    modules = [workload.build(stage, 4, seed=0) for stage in range(4)]
    inputs, targets = workload.data(0, 3, seed=0)
    whole = workload.loss(nn.Sequential(*modules)(inputs), targets)
    split = Pipeline(plan, build(plan, workload, rank), workload.loss).step(inputs, targets)
    return max(gradient, loss), abs(float(whole) / float(split) - 1)


@pytest.mark.parametrize("backward", ["fused", "split"])
def test_uneven_microbatches(cluster: Cluster, backward: str) -> None:
    """Eight rows in three micro-batches are cut 3, 3, 2, and the loss is the mean over the whole batch."""
    assert max(max(errors) for errors in cluster(_uneven, backward)) < 1e-10


def _accumulated(rank: int, name: str) -> float:
    plan, workload = named_plan(name, 4, 4), blocks()
    modules = build(plan, workload, rank)
    pipeline = Pipeline(plan, modules, workload.loss, seed=0)
    reference = reference_of(plan, workload)
    sums = [[torch.zeros_like(p) for p in module.parameters()] for module in reference.modules]
    for step in range(2):
        batch = workload.data(step, 4, seed=0)
        pipeline.step(*batch, weights=[1 / 8] * 4)
        reference.step(*batch)
        for total, module in zip(sums, reference.modules, strict=True):
            for one, gradient in zip(total, gradients(module), strict=True):
                one += gradient / 2
    return max(relative_error(gradients(modules[s]), sums[s]) for s in modules)


@pytest.mark.parametrize("name", ["zb-h1", "chimera"])
def test_rounds_of_accumulation(cluster: Cluster, name: str) -> None:
    """Two rounds of four micro-batches, each weighing 1/8, give the mean over all eight."""
    assert max(cluster(_accumulated, name)) < 1e-10


class Passing(nn.Module):
    """Between stages go a hidden state, token numbers, a mask without gradient and a running sum."""

    def __init__(self, index: int, count: int) -> None:
        super().__init__()
        self.index, self.count = index, count
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> Any:
        tokens, mask, total = rest if rest else (x[:, :2].argsort(), (x > 0).double(), x.new_zeros(len(x), 1))
        hidden = self.linear(x * mask) + tokens.double().sum(1, keepdim=True)
        total = total + hidden.sum(1, keepdim=True)
        return hidden * total if self.index == self.count - 1 else (hidden, tokens, mask, total)


def _passing(rank: int, name: str, place: str) -> tuple[float, float]:
    plan = named_plan(name, 4, 4, place=place, backward="split" if name == "gpipe" else "any")

    def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (2 * microbatches, WIDTH)
        return torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)

    return deviation(rank, plan, Workload(Passing, batch, nn.functional.mse_loss))


@pytest.mark.parametrize(("name", "place"), [("1f1b", "linear"), ("zb-h1", "linear"), ("gpipe", "v")])
def test_tuples_between_stages(cluster: Cluster, name: str, place: str) -> None:
    """Several tensors of any dtype pass, and gradients come back for those that need one."""
    assert max(max(errors) for errors in cluster(_passing, name, place)) < 1e-10


class Reshape(nn.Module):
    """A stage without parameters whose output is a view of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(len(x), -1, 2)


class Flatten(nn.Module):
    """The end of the same model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).view(len(x), -1)


def _views(rank: int, place: str) -> tuple[float, float]:
    def stage(index: int, count: int) -> nn.Module:
        if index == 0:
            return nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        return Flatten() if index == count - 1 else Reshape() if index == 1 else nn.Identity()

    def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (2 * microbatches, WIDTH)
        return torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)

    plan = named_plan("gpipe", 4, 4, place=place, backward="split")
    return deviation(rank, plan, Workload(stage, batch, nn.functional.mse_loss))


@pytest.mark.parametrize("place", ["linear", "v", "0,0,1,1,2,2,3,3"])
def test_stages_that_only_pass_on(cluster: Cluster, place: str) -> None:
    """Identities and views alias the receive buffers, which must not be reused too early."""
    assert max(max(errors) for errors in cluster(_views, place)) < 1e-10


class Scaled(nn.Module):
    """Takes a keyword that is no tensor, and one that differs by micro-batch."""

    def __init__(self, index: int, count: int) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x: torch.Tensor, *, scale: object = None, shift: float = 0.0) -> torch.Tensor:
        factor = 1.0 if scale is None else scale.factor  # type: ignore[attr-defined]
        return self.linear(x) * factor + shift


class Scale:
    """Not a tensor."""

    factor = 3.0


def _keywords(rank: int) -> float:
    plan = named_plan("zb-h1", 4, 2)
    seen = []

    def keywords(stage: int, microbatch: int) -> dict[str, Any]:
        seen.append((stage, microbatch))
        return {"scale": Scale(), "shift": float(stage * microbatch)}

    workload = Workload(Scaled, blocks().batch, nn.functional.mse_loss)
    inputs, targets = workload.data(0, 2, seed=0)
    loss = Pipeline(plan, build(plan, workload, rank), workload.loss).step(inputs, targets, keywords=keywords)
    expected = 0.0
    modules = [workload.build(stage, 4, seed=0) for stage in range(4)]
    for microbatch in range(2):
        value = inputs[microbatch : microbatch + 1]
        for stage, module in enumerate(modules):
            value = module(value, **keywords(stage, microbatch))
        expected += float(workload.loss(value, targets[microbatch : microbatch + 1])) / 2
    return abs(float(loss) / expected - 1)


def test_keyword_inputs(cluster: Cluster) -> None:
    """Every stage gets its keywords untouched."""
    assert max(cluster(_keywords)) < 1e-12


def _evaluations(rank: int, name: str) -> float:
    plan, workload = named_plan(name, 4, 8), blocks()
    pipeline = Pipeline(plan, build(plan, workload, rank), workload.loss)
    batch = workload.data(0, 8, seed=0)
    losses = {float(pipeline.evaluate(*batch)) for _ in range(10)}
    (loss,) = losses | {float(pipeline.step(*batch))}
    return loss - reference_of(plan, workload).step(*batch)


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h2", "chimera", "dualpipe-v"])
def test_evaluation_leaves_nothing_behind(cluster: Cluster, name: str) -> None:
    """Ten forward-only passes and a step after them give one loss, that of plain autograd."""
    assert max(map(abs, cluster(_evaluations, name))) < 1e-12


def _evaluated(rank: int) -> bool:
    plan, workload = named_plan("zb-h1", 4, 4), blocks()
    modules = build(plan, workload, rank)
    Pipeline(plan, modules, workload.loss).evaluate(*workload.data(0, 4, seed=0))
    return all(p.grad is None for module in modules.values() for p in module.parameters())


def test_evaluation_makes_no_gradients(cluster: Cluster) -> None:
    """Forward only means forward only."""
    assert cluster(_evaluated) == [True] * 4


def _clipped(rank: int, name: str) -> tuple[float, float]:
    plan, workload = named_plan(name, 4, 4), blocks()
    modules = build(plan, workload, rank)
    pipeline = Pipeline(plan, modules, workload.loss, seed=0)
    batch = workload.data(0, 4, seed=0)
    pipeline.step(*batch)
    norm = float(pipeline.clip_gradients(0.25))
    reference = reference_of(plan, workload)
    reference.step(*batch)
    expected = float(nn.utils.clip_grad_norm_(nn.ModuleList(reference.modules).parameters(), 0.25))
    errors = [relative_error(gradients(modules[s]), gradients(reference.modules[s])) for s in modules]
    return abs(norm / expected - 1), max(errors)


@pytest.mark.parametrize("name", ["zb-h1", "chimera", "interleaved"])
def test_clipping_by_the_global_norm(cluster: Cluster, name: str) -> None:
    """The norm is over all ranks, each weight once, as in one process."""
    assert max(max(errors) for errors in cluster(_clipped, name)) < 1e-10


def _tied(rank: int, name: str, rounds: int) -> tuple[float, float]:
    plan, workload = named_plan(name, 4, 4), blocks()
    last = plan.problem.stages - 1
    place = "linear1.weight"
    modules, whole = build(plan, workload, rank), reference_of(plan, workload)
    shared = whole.modules[0].get_parameter(place)
    whole.modules[last].linear1.weight = shared  # type: ignore[union-attr, assignment]
    if last in modules:
        with torch.no_grad():
            modules[last].get_parameter(place).copy_(shared)
    pipeline = Pipeline(plan, modules, workload.loss, seed=0, ties=[((0, place), (last, place))])
    batch = workload.data(0, 4, seed=0)
    for _ in range(rounds):
        pipeline.step(*batch)
    whole.step(*batch)
    expected = {s: [rounds * g for g in gradients(whole.modules[s])] for s in modules}
    errors = [relative_error(gradients(modules[s]), expected[s]) for s in modules]
    norm = float(pipeline.clip_gradients(1e9))
    total = rounds * float(nn.utils.get_total_norm([p.grad for p in nn.ModuleList(whole.modules).parameters()]))
    return max(errors), abs(norm / total - 1)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", ["1f1b", "zb-v", "chimera"])
def test_tied_weights(cluster: Cluster, name: str, rounds: int) -> None:
    """One weight on the first and the last stage, on two devices, on one, and in two copies of both."""
    assert max(max(errors) for errors in cluster(_tied, name, rounds)) < 1e-10


def _untied(rank: int) -> None:
    plan, workload = named_plan("1f1b", 4, 4), blocks()
    tie = ((0, "linear1.weight"), (3, "linear1.weight"))
    Pipeline(plan, build(plan, workload, rank), workload.loss, ties=[tie]).step(*workload.data(0, 4, seed=0))


def test_tied_weights_must_be_equal(cluster: Cluster) -> None:
    """Ties of different values are refused on every rank."""
    assert set(cluster.messages(_untied)) == {"rank 0: tied parameters must begin with the same values"}


def _copies(rank: int) -> None:
    plan, workload = named_plan("chimera", 4, 4), blocks()
    modules = {s: workload.build(s, 4, seed=rank // 2) for s in plan.problem.placement.copies[rank]}
    Pipeline(plan, modules, workload.loss).step(*workload.data(0, 4, seed=0))


def test_copies_of_a_stage_must_be_equal(cluster: Cluster) -> None:
    """A bidirectional plan whose two copies differ is refused on every rank, naming the parameter."""
    messages = cluster.messages(_copies)
    assert len(set(messages)) == 1
    assert "of stage 3 differs from its copy on rank 3" in messages[0]


def _updated(rank: int) -> bool:
    plan, workload = named_plan("zb-h1", 4, 4), blocks()
    modules = build(plan, workload, rank)
    seen = []
    pipeline = Pipeline(plan, modules, workload.loss)
    pipeline.step(*workload.data(0, 4, seed=0), update=lambda: seen.extend(gradients(modules[rank])))
    return all(torch.equal(a, b) for a, b in zip(seen, gradients(modules[rank]), strict=True))


def test_the_update_sees_complete_gradients(cluster: Cluster) -> None:
    """It is called once, with what the step leaves in the gradients."""
    assert cluster(_updated) == [True] * 4


def _replicas(rank: int, name: str) -> tuple[float, float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    plan, workload = named_plan(name, 2, 4), blocks()
    modules = build(plan, workload, mesh.get_local_rank("pp"))
    replicas = mesh.get_group("dp")
    pipeline = Pipeline(plan, modules, workload.loss, mesh.get_group("pp"), seed=0, data_parallel=replicas)
    for _ in range(2):
        pipeline.step(*workload.data(mesh.get_local_rank("dp"), 4, seed=0))
    return _error_of_replicas(plan, workload, modules, [gradients(modules[s]) for s in modules])


def _error_of_replicas(
    plan: Plan, workload: Workload, modules: dict[int, nn.Module], found: list[list[torch.Tensor]]
) -> tuple[float, float]:
    """Against two rounds of the mean of two batches; and the difference between the replicas."""
    reference = reference_of(plan, workload)
    expected = [[torch.zeros_like(p) for p in reference.modules[s].parameters()] for s in modules]
    for step in range(2):
        reference.step(*workload.data(step, 4, seed=0))
        for total, stage in zip(expected, modules, strict=True):
            for one, gradient in zip(total, gradients(reference.modules[stage]), strict=True):
                one += gradient
    errors = [relative_error(one, other) for one, other in zip(found, expected, strict=True)]
    sums: list[Any] = [None] * 4
    dist.all_gather_object(sums, [sorted(modules), float(sum(g.sum() for one in found for g in one))])
    return max(errors), max(abs(a[1] - b[1]) for a in sums for b in sums if a[0] == b[0])


@pytest.mark.parametrize("name", ["zb-h1", "chimera"])
def test_data_parallel_replicas_stay_equal(cluster: Cluster, name: str) -> None:
    """Two pipelines of two ranks average their gradients, which accumulate over two steps."""
    found = cluster(_replicas, name)
    assert max(error for error, _ in found) < 1e-10
    assert max(difference for _, difference in found) == 0


def _sharded(rank: int, name: str) -> tuple[float, float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    plan, workload = named_plan(name, 2, 4), blocks()
    modules = build(plan, workload, mesh.get_local_rank("pp"))
    for module in modules.values():
        fully_shard(module, mesh=mesh["dp"])
    pipeline = Pipeline(plan, modules, workload.loss, mesh.get_group("pp"), seed=0)
    for _ in range(2):
        pipeline.step(*workload.data(mesh.get_local_rank("dp"), 4, seed=0))
    whole = [[g.full_tensor() for g in gradients(modules[s])] for s in modules]  # type: ignore[attr-defined]
    return _error_of_replicas(plan, workload, modules, whole)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_fully_sharded_stages(cluster: Cluster, name: str) -> None:
    """Stages sharded by FSDP2 over two pipelines have the gradients of a mean over both."""
    assert max(max(errors) for errors in cluster(_sharded, name)) < 1e-10


def _unequal_replicas(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    plan, workload = named_plan("1f1b", 2, 4), blocks()
    stage = mesh.get_local_rank("pp")
    modules = {stage: workload.build(stage, 2, seed=rank if rank == 3 else 0)}
    groups = mesh.get_group("pp"), mesh.get_group("dp")
    Pipeline(plan, modules, workload.loss, groups[0], data_parallel=groups[1]).step(*workload.data(0, 4, seed=0))


def test_unequal_replicas_are_refused(cluster: Cluster) -> None:
    """Every rank of every pipeline is told."""
    messages = cluster.messages(_unequal_replicas)
    assert all("differs from that of the first replica" in message for message in messages)


def _wrapped(rank: int) -> None:
    plan, workload = named_plan("1f1b", 4, 4), blocks()
    modules = {rank: nn.parallel.DistributedDataParallel(workload.build(rank, 4, seed=0))}
    Pipeline(plan, modules, workload.loss)


def _spread(rank: int) -> None:
    plan, workload = named_plan("1f1b", 4, 4), blocks()
    mesh = init_device_mesh("cpu", (4,))
    Pipeline(plan, {rank: distribute_module(workload.build(rank, 4, seed=0), mesh)}, workload.loss)


def _sharded_copies(rank: int) -> None:
    plan, workload = named_plan("chimera", 4, 4), blocks()
    mesh = init_device_mesh("cpu", (4,))
    modules = build(plan, workload, rank)
    Pipeline(plan, {s: fully_shard(module, mesh=mesh) for s, module in modules.items()}, workload.loss)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_wrapped, "is wrapped in DistributedDataParallel"),
        (_spread, "has distributed parameters that are not fully_shard's"),
        (_sharded_copies, "does not compose with"),
    ],
)
def test_untested_compositions_are_refused(cluster: Cluster, function: Callable[[int], None], message: str) -> None:
    """What would train on wrong gradients, or was never tried, is refused before the first step."""
    assert all(message in found for found in cluster.messages(function))


def _misplaced(rank: int) -> None:
    plan, workload = named_plan("gpipe", 4, 2, place="v"), blocks()
    held = {0: (0, 7), 1: (1,), 2: (2, 5, 6), 3: (3, 4)}[rank]
    modules = {stage: workload.build(stage, 8, seed=0) for stage in held}
    Pipeline(plan, modules, workload.loss).step(*workload.data(0, 2, seed=0))


def test_a_stage_on_another_rank_is_refused(cluster: Cluster) -> None:
    """Every rank names the stage, where the plan puts it, and where it is."""
    messages = cluster.messages(_misplaced)
    assert messages == ["the plan puts stage 6 on rank 1, but it is on rank 2"] * 4


def _overcut(rank: int) -> None:
    plan, workload = named_plan("1f1b", 4, 2), blocks()
    modules = {stage: workload.build(stage, 8, seed=0) for stage in (rank, rank + 4)}
    Pipeline(plan, modules, workload.loss).step(*workload.data(0, 2, seed=0))


def test_a_model_cut_into_more_stages_is_refused(cluster: Cluster) -> None:
    """The message holds both counts."""
    messages = cluster.messages(_overcut)
    assert len(set(messages)) == 1
    assert "the plan has 4 stages, but the model is cut into 8" in messages[0]


def _other_plan(rank: int) -> None:
    plan, workload = named_plan("1f1b" if rank != 2 else "zb-h1", 4, 2), blocks()
    Pipeline(plan, build(plan, workload, rank), workload.loss).step(*workload.data(0, 2, seed=0))


def test_different_plans_are_refused(cluster: Cluster) -> None:
    """All ranks raise the same error when one has another plan."""
    messages = cluster.messages(_other_plan)
    assert len(set(messages)) == 1
    assert messages[0].startswith("rank 2 has another plan than rank 0")


def _short_batch(rank: int) -> None:
    plan, workload = named_plan("1f1b", 4, 8), blocks()
    inputs, targets = workload.data(0, 5, seed=0)
    Pipeline(plan, build(plan, workload, rank), workload.loss).step(inputs, targets)


def test_a_batch_smaller_than_the_number_of_microbatches_is_refused(cluster: Cluster) -> None:
    """All ranks raise the same error, with both numbers, though only some have the batch."""
    messages = cluster.messages(_short_batch)
    assert len(set(messages)) == 1
    assert "a batch of 5 cannot be cut into 8 micro-batches" in messages[0]


def test_another_number_of_ranks_is_refused() -> None:
    """A plan for four devices does not run in one process."""
    plan, workload = named_plan("1f1b", 4, 2), blocks()
    with pytest.raises(InputError, match="the plan is for 4 devices, but there are 1 ranks"):
        Pipeline(plan, build(plan, workload, 0), workload.loss)


def test_a_failing_stage_is_named() -> None:
    """The error says which instruction failed, and why."""
    plan, workload = named_plan("zb-h1", 1, 2), blocks()
    calls = iter(range(10))

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if next(calls) == 1:
            raise ValueError("no loss today")
        return workload.loss(output, target)

    pipeline = Pipeline(plan, build(plan, workload, 0), loss)
    with pytest.raises(RunError, match=r"rank 0, step 0, instruction 3 of 6, 0F1 \(micro-batch 1\): .*no loss today"):
        pipeline.step(*workload.data(0, 2, seed=0))


def test_a_changed_shape_is_refused() -> None:
    """A stage must hand on what it announced in the handshake."""
    plan = named_plan("gpipe", 1, 2, place="0,0")
    workload = blocks()
    pipeline = Pipeline(plan, build(plan, workload, 0), workload.loss)
    pipeline.step(*workload.data(0, 2, seed=0))
    with pytest.raises(RunError, match=r"the output is float64\[2, 3, 8\], but it was float64\[1, 3, 8\]"):
        pipeline.step(*workload.data(0, 4, seed=0))


def test_prepare_takes_a_new_shape() -> None:
    """After another handshake other shapes pass."""
    plan = named_plan("gpipe", 1, 2, place="0,0")
    workload = blocks()
    pipeline = Pipeline(plan, build(plan, workload, 0), workload.loss)
    pipeline.step(*workload.data(0, 2, seed=0))
    larger = workload.data(0, 4, seed=0)
    pipeline.prepare(*larger)
    pipeline.step(*larger)


def test_inputs_that_need_a_gradient_are_refused() -> None:
    """Their gradient would be lost."""
    plan, workload = named_plan("1f1b", 1, 2), blocks()
    inputs, targets = workload.data(0, 2, seed=0)
    with pytest.raises(InputError, match="the inputs need a gradient"):
        Pipeline(plan, build(plan, workload, 0), workload.loss).step(inputs.requires_grad_(), targets)


def test_the_modules_are_left_as_they_were() -> None:
    """Between steps no trace of the split backward is on the modules."""
    plan, workload = named_plan("zb-h1", 1, 2), blocks()
    modules = build(plan, workload, 0)
    Pipeline(plan, modules, workload.loss).step(*workload.data(0, 2, seed=0))
    assert not any("forward" in vars(layer) for layer in modules[0].modules())
