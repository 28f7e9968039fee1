"""The exact optimum of tiny problems, by trying every order. Slow, and simple enough to be believed.

It shares nothing with the solver: no symmetry, no relaxation, no dominance. Only an identical situation is not explored
twice, and a partial order is given up when a device that has to do the rest of its work cannot beat the best value.
"""

from __future__ import annotations

from itertools import permutations

from debubble.compiler.operation import Operation, Pair, Step, parts
from debubble.compiler.problem import Problem

NEVER = float("-inf")
Times = tuple[float, ...]
"""The longest way from each origin. Makespan has one origin, time 0; span one per device, its first start."""


def optimum(problem: Problem, situations: int = 300_000) -> float | None:
    """The least objective of all schedules, or None when there are more situations than this to look at."""
    return _Oracle(problem, situations).run()


class _TooLargeError(Exception):
    pass


class _Oracle:
    def __init__(self, problem: Problem, situations: int) -> None:
        self.problem, self.situations = problem, situations
        self.span = problem.objective == "span"
        self.origins = problem.devices if self.span else 1
        self.best = float("inf")
        self.seen: set[object] = set()
        self.ratio = min(1.0, *problem.pair_ratios)
        """No F, B or BW takes less than this share of its duration, even in a pair."""
        self.work = {
            (s, j): min(self._backward_work(s, j)) for s in range(problem.stages) for j in range(problem.microbatches)
        }

    def _backward_work(self, stage: int, microbatch: int) -> list[float]:
        b, w, bw = (self.problem.duration(Operation(kind, stage, microbatch)) for kind in ("B", "W", "BW"))
        ways = {"split": [self.ratio * b + w], "fused": [self.ratio * bw]}
        return ways.get(self.problem.backward) or ways["split"] + ways["fused"]

    def run(self) -> float | None:
        problem = self.problem
        never = (NEVER,) * self.origins
        begin = never if self.span else (0.0,)
        try:
            self._explore({}, [begin] * problem.devices, list(problem.static_memory))
        except _TooLargeError:
            return None
        return self.best

    def _explore(self, ends: dict[Operation, Times], clocks: list[Times], held: list[float]) -> None:
        """Everything that can follow: `ends` of what is done (a BW stands as B and W), devices' clocks and memory."""
        problem = self.problem
        situation = (frozenset(ends.items()), tuple(clocks))
        if situation in self.seen:
            return
        self.seen.add(situation)
        if len(self.seen) > self.situations:
            raise _TooLargeError
        if len(ends) == 3 * problem.stages * problem.microbatches:
            self.best = min(self.best, self._value(clocks))
            return
        if self._hopeless(ends, clocks):
            return
        for step in self._steps(ends):
            device = problem.device(parts(step)[0])
            rise, change = problem.memory(step)
            if rise > 0 and not problem.within_cap(device, held[device] + rise):
                continue
            start = list(clocks[device])
            for operation in parts(step):
                for need in _needs(operation, problem.stages):
                    delay = problem.transfer(
                        problem.device(need), device, min(need.stage, operation.stage), need.microbatch
                    )
                    start = [max(a, b + delay) for a, b in zip(start, ends[need], strict=True)]
            if self.span and clocks[device][device] == NEVER:
                start[device] = max(start[device], 0.0)
            end = tuple(time + problem.duration(step) for time in start)
            after = dict(ends)
            for operation in parts(step):
                for kind in "BW" if operation.kind == "BW" else operation.kind:
                    after[Operation(kind, operation.stage, operation.microbatch)] = end
            moved = [end if d == device else clock for d, clock in enumerate(clocks)]
            memory = [value + change if d == device else value for d, value in enumerate(held)]
            self._explore(after, moved, memory)

    def _steps(self, ends: dict[Operation, Times]) -> list[Step]:
        """What can be done next, wherever its inputs are made."""
        problem = self.problem
        single = []
        for stage in range(problem.stages):
            for microbatch in range(problem.microbatches):
                for kind in ("F", "B", "W", "BW"):
                    operation = Operation(kind, stage, microbatch)
                    made = Operation("B" if kind == "BW" else kind, stage, microbatch)
                    allowed = kind == "F" or problem.backward in ("any", "fused" if kind == "BW" else "split")
                    if allowed and made not in ends and all(n in ends for n in _needs(operation, problem.stages)):
                        single.append(operation)
        steps: list[Step] = list(single)
        if self.ratio < 1:
            for forward, backward in permutations(single, 2):
                if (
                    forward.kind == "F"
                    and backward.kind in ("B", "BW")
                    and forward.microbatch != backward.microbatch
                    and problem.device(forward) == problem.device(backward)
                ):
                    steps.append(Pair(forward, backward))
        return steps

    def _hopeless(self, ends: dict[Operation, Times], clocks: list[Times]) -> bool:
        """A device with the rest of its work ends no earlier than the best value."""
        problem = self.problem
        left = [0.0] * problem.devices
        for stage in range(problem.stages):
            for microbatch in range(problem.microbatches):
                forward, back, weight = (Operation(kind, stage, microbatch) for kind in "FBW")
                device = problem.device(forward)
                left[device] += 0.0 if forward in ends else self.ratio * problem.duration(forward)
                if back not in ends:
                    left[device] += self.work[stage, microbatch]
                elif weight not in ends:
                    left[device] += problem.duration(weight)
        return any(clocks[d][d if self.span else 0] + rest >= self.best - 1e-9 for d, rest in enumerate(left))

    def _value(self, clocks: list[Times]) -> float:
        """The objective of a complete order: for span, its devices' clocks may be shifted against each other.

        X is a span for all devices when each can start so that no end is X after its device's start: when no cycle of
        ways from one device's first start to another's last end has a mean above X.
        """
        if not self.span:
            return max(clock[0] for clock in clocks)
        best = 0.0
        devices = range(self.problem.devices)
        for count in range(1, self.problem.devices + 1):
            for cycle in permutations(devices, count):
                ways = (clocks[b][a] for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
                best = max(best, sum(ways) / count)
        return best


def _needs(operation: Operation, stages: int) -> list[Operation]:
    """The operations whose results this one uses."""
    kind, stage, microbatch = operation
    if kind == "F":
        return [Operation("F", stage - 1, microbatch)] if stage else []
    if kind == "W":
        return [Operation("B", stage, microbatch)]
    later = [Operation("B", stage + 1, microbatch)] if stage + 1 < stages else []
    return [Operation("F", stage, microbatch), *later]
