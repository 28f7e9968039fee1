"""Against the installed torch: what it generates is judged right, and what debubble writes its loader accepts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.interchange import Judgement, export, verify_file
from debubble.compiler.named import named_schedule
from debubble.compiler.placement import Placement
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")

SIZES = ((1, 2), (2, 2), (2, 5), (3, 6), (4, 8))


def judge(folder: Path, name: str, devices: int, microbatches: int, chunks: int | None = None, **how: Any) -> Judgement:
    """What debubble says of a schedule that torch generates."""
    rows = visualizer.get_schedule_ops(name, devices, microbatches, chunks, **how)
    path = folder / "schedule.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["" if action is None else action for action in row] for row in rows])
    return verify_file(path)


def codes(judgement: Judgement) -> set[str]:
    return {error.code for error in judgement.report.errors}


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
@pytest.mark.parametrize(
    ("name", "chunks"),
    [("GPipe", None), ("LoopedBFS", 2), ("LoopedBFS", 3), ("ZBVZeroBubble", 2), ("DualPipeV", 2)],
)
def test_generated_orders_are_valid(
    name: str, chunks: int | None, devices: int, microbatches: int, tmp_path: Path
) -> None:
    """Orders without communication of every class but 1F1B are right."""
    if name == "DualPipeV" and microbatches < 2 * devices:
        pytest.skip("torch asks for two micro-batches per device")
    assert judge(tmp_path, name, devices, microbatches, chunks).valid


@pytest.mark.parametrize("name", ["Interleaved1F1B", "InterleavedZeroBubble"])
@pytest.mark.parametrize(("devices", "microbatches", "chunks"), [(1, 2, 2), (2, 4, 2), (2, 4, 3), (4, 8, 2)])
def test_generated_interleaved_orders_are_valid(
    name: str, devices: int, microbatches: int, chunks: int, tmp_path: Path
) -> None:
    """Interleaved orders are right."""
    assert judge(tmp_path, name, devices, microbatches, chunks).valid


@pytest.mark.parametrize(
    "name", ["LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
)
def test_generated_communication_is_valid(name: str, tmp_path: Path) -> None:
    """With the communication that torch adds by default, all of them are right."""
    found = judge(tmp_path, name, 4, 8, 2, with_comms=True)
    assert found.valid
    assert found.transfers == "rendezvous"


def test_the_broken_1f1b_is_rejected(tmp_path: Path) -> None:
    """The last device misses forward 0, has a forward beyond the last, and a backward before its forward."""
    found = judge(tmp_path, "1F1B", 4, 8)
    assert {(error.code, error.operation) for error in found.report.errors} == {
        ("missing-operation", "3F0"),
        ("microbatch-out-of-range", "3F8"),
        ("loss-order", "3F1"),
    }


@pytest.mark.parametrize("name", ["ZBVZeroBubble", "DualPipeV"])
def test_deferred_receives_are_rejected(name: str, tmp_path: Path) -> None:
    """Receives put off until their use are no longer in the order of the sends: wrong values, in silence."""
    found = judge(tmp_path, name, 4, 8, 2, with_comms=True, defer_pp_recv=True)
    assert codes(found) == {"channel-order"}


def plan(place: Placement, name: str, microbatches: int) -> Plan:
    profile = Profile.uniform(stages=place.stages, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, place, microbatches)
    bound = Certificate(lower_bound=0.0, name="none", proof="solver")
    return Plan.build(problem, named_schedule(name, problem), bound)


PLANS = [
    (placement.linear(4), "1f1b", 8),
    (placement.linear(4), "zb-h1", 3),
    (placement.loop(2), "interleaved", 4),
    (placement.v(3), "gpipe", 4),
    (placement.explicit((0, 1, 1, 0, 0)), "naive", 2),
]


@pytest.mark.parametrize("format", ["torch-csv", "torch-comms-csv"])
@pytest.mark.parametrize(("place", "name", "microbatches"), PLANS)
def test_the_loader_accepts_what_is_written(
    place: Placement, name: str, microbatches: int, format: str, tmp_path: Path
) -> None:
    """torch reads every cell, and finds every stage complete on its rank."""
    path = tmp_path / "schedule.csv"
    path.write_text(export(plan(place, name, microbatches), format))
    with path.open(newline="") as file:
        actions = {
            rank: [schedules._Action.from_str(cell) for cell in row] for rank, row in enumerate(csv.reader(file))
        }
    ranks = schedules._validate_schedule(actions, place.devices, place.stages, microbatches)
    assert tuple(ranks[stage] for stage in range(place.stages)) == place.down


@pytest.mark.parametrize(("place", "name", "microbatches"), PLANS)
def test_what_is_written_reads_back(place: Placement, name: str, microbatches: int, tmp_path: Path) -> None:
    """Orders, placement and streams come back from the CSV with communication."""
    made = plan(place, name, microbatches)
    path = tmp_path / "schedule.csv"
    path.write_text(export(made, "torch-comms-csv"))
    found = verify_file(path)
    assert found.valid, str(found)
    assert found.timeline is not None
    assert found.timeline.schedule.orders == made.schedule.orders
    assert found.timeline.problem.placement == place
