"""DualPipe and DualPipeV (DeepSeek-AI 2024): forwards overlapped with backwards of the other direction or chunk."""

from __future__ import annotations

from collections import deque

from ..errors import InputError
from ..operation import Operation, Pair, Step
from ..placement import bidirectional, v
from ..problem import Problem
from ..schedule import Schedule


def dualpipe(problem: Problem) -> Schedule:
    """Two directions at once, with two copies of every stage.

    Needs p even, m even and m >= 2p, on a bidirectional placement.
    Idle time (p/2 - 1)(FB + BW - 3W) with FB the overlapped pair, where F = B and FB = F + BW.
    """
    p, m = problem.devices, problem.microbatches
    if problem.placement.down != bidirectional(p).down or not problem.placement.bidirectional:
        raise InputError(
            f"dualpipe needs a bidirectional placement, not {problem.placement}", hint="use --placement bidirectional"
        )
    if p % 2 or m % 2 or m < 2 * p:
        raise InputError(f"dualpipe needs an even p, an even m and m >= 2p, not p = {p}, m = {m}")
    _refuse_split(problem, "dualpipe")
    half, each = p // 2, m // 2
    orders = []
    for device in range(p):
        near = min(device, p - 1 - device)
        own, other = (0, each) if device < half else (each, 0)
        device_order = _Order((near, own), (p - 1 - near, other))
        orders.append(_eight_steps(device_order, half, near, each - p + near + 1, near == half - 1))
    return Schedule.of(orders, "dualpipe")


def dualpipe_v(problem: Problem) -> Schedule:
    """DualPipe folded into a V: device r holds stages r and 2p - 1 - r.

    Needs m >= 2p, on a v placement of two chunks.
    """
    p, m = problem.devices, problem.microbatches
    if problem.placement.down != v(p).down or problem.placement.bidirectional:
        raise InputError(
            f"dualpipe-v needs a v placement of two chunks, not {problem.placement}", hint="use --placement v"
        )
    if m < 2 * p:
        raise InputError(f"dualpipe-v needs m >= 2p, not p = {p}, m = {m}")
    _refuse_split(problem, "dualpipe-v")
    orders = [_eight_steps(_Order((r, 0), (2 * p - 1 - r, 0)), p, r, m - 2 * p + r + 1, r == p - 1) for r in range(p)]
    return Schedule.of(orders, "dualpipe-v")


def _refuse_split(problem: Problem, name: str) -> None:
    if problem.backward != "any":
        raise InputError(f"{name} mixes split and fused backwards", hint="use --backward any")


class _Order:
    """The order of one device, written as the papers do: chunk 0 is the own direction, 1 the other.

    `chunks` gives stage and first micro-batch of either; every kind of operation takes its micro-batches in order.
    """

    def __init__(self, *chunks: tuple[int, int]) -> None:
        self.steps: list[Step] = []
        self._stages = [stage for stage, _ in chunks]
        self._forwards = [first for _, first in chunks]
        self._backwards = [first for _, first in chunks]
        self._weights: deque[Operation] = deque()

    def _forward(self, chunk: int) -> Operation:
        self._forwards[chunk] += 1
        return Operation("F", self._stages[chunk], self._forwards[chunk] - 1)

    def _backward(self, chunk: int, kind: str) -> Operation:
        self._backwards[chunk] += 1
        return Operation(kind, self._stages[chunk], self._backwards[chunk] - 1)

    def forward(self, chunk: int) -> None:
        self.steps.append(self._forward(chunk))

    def fused(self, chunk: int) -> None:
        self.steps.append(self._backward(chunk, "BW"))

    def split(self, chunk: int) -> None:
        operation = self._backward(chunk, "B")
        self.steps.append(operation)
        self._weights.append(Operation("W", operation.stage, operation.microbatch))

    def weight(self) -> None:
        self.steps.append(self._weights.popleft())

    def pair(self, chunk: int) -> None:
        """A forward of `chunk` overlapped with a backward of the other."""
        self.steps.append(Pair(self._forward(chunk), self._backward(1 - chunk, "BW")))


def _eight_steps(order: _Order, half: int, near: int, rounds: int, middle: bool) -> list[Step]:
    """The eight phases of DualPipe on the device `near` places from its end, of `half` places."""
    for _ in range(2 * (half - near - 1)):
        order.forward(0)
    for _ in range(near + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(half - near - 1):
        order.split(1)
        order.weight()
        order.forward(1)
    for number in range(rounds):
        if number == 0 and middle:
            order.forward(0)
            order.fused(1)
        else:
            order.pair(0)
        order.pair(1)
    for _ in range(half - near - 1):
        order.fused(1)
        order.pair(1)
    for number in range(2 * (near + 1)):
        chunk = 1 - number % 2
        if number >= near + 1:
            order.split(chunk)
        else:
            order.fused(chunk)
    for _ in range(half - near - 1):
        order.weight()
        order.split(0)
    for _ in range(near + 1):
        order.weight()
    return order.steps
