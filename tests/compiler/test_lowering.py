"""Lowering: streams that compute the orders, move every value once, and never stall."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.instruction import Compute, Receive, Reduce, Send, Stream, Wait, grouped, parse
from debubble.compiler.lowering import lower
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.streams import verify_streams

derandomized = settings(derandomize=True, deadline=None, max_examples=60)


def lowered(name: str, p: int, m: int, comm: float = 0) -> tuple[Stream, ...]:
    profile = Profile.uniform(stages=p, forward=1, backward_input=1, backward_weight=1, comm=comm)
    problem = Problem(profile, placement.linear(p), m)
    return lower(problem, named_schedule(name, problem))


@derandomized
@given(problem=problems())
def test_streams_never_stall(problem: Problem) -> None:
    """Whatever the costs, zero included, the streams run under both assumptions on transfers."""
    for name in ("gpipe", "naive"):
        streams = lower(problem, named_schedule(name, problem))
        for transfers in ("rendezvous", "buffered"):
            assert verify_streams(problem, streams, transfers=transfers).errors == []


@derandomized
@given(problem=problems())
def test_streams_compute_the_orders(problem: Problem) -> None:
    """Lowering adds communication and changes nothing else."""
    schedule = named_schedule("gpipe", problem)
    streams = lower(problem, schedule)
    assert tuple(tuple(i.step for i in s if isinstance(i, Compute)) for s in streams) == schedule.orders


@derandomized
@given(problem=problems())
def test_every_value_crosses_once_and_is_waited_for_on_both_sides(problem: Problem) -> None:
    """Sends and receives are the boundaries between devices, each with one wait on either side."""
    streams = lower(problem, named_schedule("gpipe", problem))
    crossing = Counter()
    for microbatch in range(problem.microbatches):
        owners = problem.placement.owners(microbatch, problem.microbatches)
        for stage in range(1, problem.stages):
            if owners[stage - 1] != owners[stage]:
                crossing[Operation("F", stage - 1, microbatch)] += 1
                crossing[Operation("B", stage, microbatch)] += 1
    flat = [i for stream in streams for i in stream]
    for kind in (Send, Receive):
        assert Counter(i.value for i in flat if isinstance(i, kind)) == crossing
    assert Counter(i.value for i in flat if isinstance(i, Wait)) == crossing + crossing


def test_instructions_round_trip_as_text() -> None:
    """Every instruction reads back from its text."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.bidirectional(4), 8)
    for stream in lower(problem, named_schedule("gpipe", problem)):
        assert tuple(parse(str(instruction)) for instruction in stream) == stream


@pytest.mark.parametrize(
    "text",
    ["", "F0", "0F", "0F0 ", "0X0", "0F0+1F1", "send 0F0", "send 0F0 <1", "recv 0F0 <1", "recv 0W0 <1 [0]",
     "wait 0F0 >1", "reduce 0", "reduce 0F0 >1", "send 0F0 >1 [0]", "send 0F0 >1 ~", "reduce 0 >1 ~3", "\u0661F0"],
)  # fmt: skip
def test_malformed_instructions_are_refused(text: str) -> None:
    """Anything but the grammar is a ValueError."""
    with pytest.raises(ValueError, match=r".*"):
        parse(text)


def test_steady_state_of_1f1b_exchanges_in_groups() -> None:
    """In 1F1B's steady state the forward send and the backward receive of neighbours form one group on both sides."""
    for p in (2, 4):
        streams = lowered("1f1b", p, 8)
        for device in range(p - 1):
            down = _groups(streams[device], device + 1)
            up = _groups(streams[device + 1], device)
            assert down == up
            assert len(down) >= 8 - p + device


def _groups(stream: Stream, peer: int) -> list[set[Operation]]:
    """The values of every group of two with this peer."""
    groups = [block for block in grouped(stream) if len(block) == 2]
    return [{i.value for i in block} for block in groups if {i.peer for i in block} == {peer}]  # type: ignore[union-attr]


def test_a_group_never_costs_planned_time() -> None:
    """With a transfer time nothing is put off to form a group: the last device receives while it computes."""
    stream = lowered("1f1b", 2, 8, comm=1)[1]
    kinds = [str(instruction).split(" ~")[0].split(" [")[0] for instruction in stream]
    assert kinds.index("recv 0F1 <0") < kinds.index("1BW0")


def test_buffers_are_reused() -> None:
    """1F1B needs as many activation slots as it holds micro-batches, however many there are."""
    for device, stream in enumerate(lowered("1f1b", 4, 32)):
        slots = {i.slot for i in stream if isinstance(i, Receive) and i.value.kind == "F"}
        assert len(slots) <= 4 - device + 1


def test_sends_are_released_in_steady_state() -> None:
    """1F1B never keeps more than a few sends open, whatever the number of micro-batches."""
    for stream in lowered("1f1b", 4, 64):
        open_sends, most = set(), 0
        for i in stream:
            if isinstance(i, Send):
                open_sends.add(i.value)
            elif isinstance(i, Wait):
                open_sends.discard(i.value)
            most = max(most, len(open_sends))
        assert most <= 10


def test_both_copies_reduce_in_one_order() -> None:
    """A bidirectional plan sums each stage's gradients between its two devices at the end."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.bidirectional(4), 4)
    streams = lower(problem, named_schedule("gpipe", problem))
    assert streams[0][-2:] == (Reduce(0, 3), Reduce(3, 3))
    assert streams[3][-2:] == (Reduce(0, 0), Reduce(3, 0))
