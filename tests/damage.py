"""Random damages to valid schedules, and whether they change what a reference execution does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from reference import Broken, Machine, Operation, Program, peak, program_of_orders, program_of_streams, program_of_torch

from debubble.compiler import placement
from debubble.compiler.instruction import Compute, parse
from debubble.compiler.interchange import communication, verify_file
from debubble.compiler.lowering import lower
from debubble.compiler.operation import parse_step
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.schedule import Schedule
from debubble.compiler.streams import verify_streams
from debubble.compiler.verification import verify

Rows = list[list[str]]
MEMORIES = (Memory(), Memory(2.0, -1.0, -1.0), Memory(2.0, 1.0, -3.0))
REORDERS = ("swap", "move", "swap sends", "swap receives")
_NAME = re.compile(r"(\d+)(F|BW|B|W|I|SEND_F|RECV_F|SEND_B|RECV_B|REDUCE_GRAD)(\d*)")


@dataclass(frozen=True)
class Verdict:
    """One damage: what the reference says of it, and what verification does."""

    level: str
    kind: str
    changed: bool
    accepted: bool
    rows: Rows

    @property
    def wrong(self) -> bool:
        return self.accepted if self.changed else self.kind in REORDERS and not self.accepted


def owner(problem: Problem, stage: int, microbatch: int) -> int:
    owners = problem.placement.owners(microbatch, problem.microbatches)
    if not 0 <= stage < len(owners):
        raise Broken("no such stage")
    return owners[stage]


def random_problem(rng: random.Random) -> Problem:
    devices = rng.randint(1, 4)
    place = rng.choice(
        (
            placement.linear(devices),
            placement.loop(devices),
            placement.v(devices),
            placement.bidirectional(devices),
            placement.explicit(tuple(rng.sample([*range(devices), *range(devices - 1)], 2 * devices - 1))),
        )
    )
    stage = Stage(forward=1, backward_input=1, backward_weight=1, memory=rng.choice(MEMORIES))
    return Problem(Profile(stages=(stage,) * place.stages), place, rng.randint(1, 5))


def random_orders(rng: random.Random, problem: Problem) -> Rows:
    """A random valid order of every device, with split and fused backwards and overlapped pairs."""
    rows: Rows = [[] for _ in range(problem.devices)]
    done: set[Operation] = set()
    stages, m = problem.stages, problem.microbatches
    fused = {(s, j): rng.random() < 0.4 for s in range(stages) for j in range(m)}
    left = {(kind, s, j) for s, j in fused for kind in (("F", "BW") if fused[s, j] else ("F", "B", "W"))}
    eager = rng.random()

    def ready(operation: Operation) -> bool:
        kind, s, j = operation
        if kind == "F":
            return s == 0 or ("F", s - 1, j) in done
        if kind == "W":
            return ("B", s, j) in done
        return ("F", s, j) in done and (s + 1 == stages or bool({("B", s + 1, j), ("BW", s + 1, j)} & done))

    while left:
        able = sorted(filter(ready, left))
        backwards = [operation for operation in able if operation[0] != "F"]
        kind, s, j = operation = rng.choice(backwards if backwards and rng.random() < eager else able)
        device = owner(problem, s, j)
        partners = [b for b in able if b[0] in ("B", "BW") and b[2] != j and owner(problem, b[1], b[2]) == device]
        token = f"{s}{kind}{j}"
        left.remove(operation)
        done.add(operation)
        if kind == "F" and partners and rng.random() < 0.2:
            kind, s, j = partner = rng.choice(partners)
            token += f"+{s}{kind}{j}"
            left.remove(partner)
            done.add(partner)
        rows[device].append(token)
    return rows


def peaks(problem: Problem, program: Program) -> list[float]:
    memory = problem.profile.stages[0].memory
    changes = {"F": memory.forward, "B": memory.backward_input, "W": memory.backward_weight}
    return [peak([step[1] for step in device if step[0] == "do"], changes) for device in program]


class Level:
    """A way to write a schedule down: its rows, how the reference reads them, and how the package judges them."""

    name: str

    def rows(self, problem: Problem, orders: Rows) -> Rows:
        raise NotImplementedError

    def program(self, problem: Problem, rows: Rows) -> Program:
        raise NotImplementedError

    def judge(self, problem: Problem, rows: Rows) -> bool:
        raise NotImplementedError

    def outcome(self, problem: Problem, rows: Rows) -> Any:
        program = self.program(problem, rows)
        machine = Machine(
            program,
            problem.stages,
            partial(owner, problem),
            direct=self.name == "orders",
            losses_by_arrival=self.name == "torch",
        )
        found = machine.run()
        if any(top > cap + 1e-9 for top, cap in zip(peaks(problem, program), problem.caps, strict=True)):
            raise Broken("over the cap")
        return found


class Orders(Level):
    name = "orders"

    def rows(self, problem: Problem, orders: Rows) -> Rows:
        return orders

    def program(self, problem: Problem, rows: Rows) -> Program:
        return program_of_orders(rows)

    def judge(self, problem: Problem, rows: Rows) -> bool:
        return verify(problem, schedule_of(rows)).valid


class Streams(Level):
    name = "streams"

    def rows(self, problem: Problem, orders: Rows) -> Rows:
        return [list(map(str, stream)) for stream in lower(problem, schedule_of(orders))]

    def program(self, problem: Problem, rows: Rows) -> Program:
        return program_of_streams(rows)

    def judge(self, problem: Problem, rows: Rows) -> bool:
        streams = [tuple(map(parse, row)) for row in rows]
        schedule = Schedule.of([i.step for i in stream if isinstance(i, Compute)] for stream in streams)
        return verify(problem, schedule).valid and verify_streams(problem, streams).valid


class Torch(Level):
    name = "torch"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "damaged.csv"

    def rows(self, problem: Problem, orders: Rows) -> Rows:
        text = communication.write(lower(problem, schedule_of(orders)))
        return [line.split(",") if line else [] for line in text.splitlines()]

    def program(self, problem: Problem, rows: Rows) -> Program:
        return program_of_torch(rows, partial(owner, problem))

    def judge(self, problem: Problem, rows: Rows) -> bool:
        self.path.write_text("".join(",".join(row) + "\n" for row in rows) + "\n")
        found = verify_file(
            self.path,
            profile=problem.profile,
            placement=problem.placement,
            microbatches=problem.microbatches,
            memory_cap=problem.caps,
        )
        return found.valid


def schedule_of(rows: Rows) -> Schedule:
    return Schedule.of(map(parse_step, row) for row in rows)


def damages(level: Level) -> dict[str, Callable[[random.Random, Problem, Rows], tuple[Problem, Rows] | None]]:
    """The kinds of damage that make sense at a level."""
    kinds = {"drop": drop, "double": double, "swap": swap, "move": move, "relabel": relabel, "retarget": retarget,
             "over cap": lower_cap}  # fmt: skip
    if level.name != "orders":
        kinds |= {"swap sends": swap_sends, "swap receives": swap_receives, "early reduce": early_reduce}
    return kinds


def copied(rows: Rows) -> Rows:
    return [list(row) for row in rows]


def drop(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows]:
    rows = copied(rows)
    row = rng.choice([row for row in rows if row])
    row.pop(rng.randrange(len(row)))
    return problem, rows


def double(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows]:
    rows = copied(rows)
    row = rng.choice([row for row in rows if row])
    row.insert(rng.randint(0, len(row)), rng.choice(row))
    return problem, rows


def swap(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows] | None:
    rows = copied(rows)
    row = rng.choice([row for row in rows if row])
    if len(row) < 2:
        return None
    i = rng.randrange(len(row) - 1)
    j = i + 1 if rng.random() < 0.7 else rng.randrange(len(row))
    row[i], row[j] = row[j], row[i]
    return problem, rows


def move(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows]:
    rows = copied(rows)
    row = rng.choice([row for row in rows if row])
    i = rng.randrange(len(row))
    token = row.pop(i)
    j = i + rng.randint(-3, 3) if rng.random() < 0.7 else rng.randint(0, len(row))
    row.insert(max(0, j), token)
    return problem, rows


def relabel(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows] | None:
    """Change the stage, the kind or the micro-batch of one token, or its buffer."""
    rows = copied(rows)
    row = rng.choice([row for row in rows if row])
    i = rng.randrange(len(row))
    match = rng.choice(list(_NAME.finditer(row[i])) or [None])
    slot = re.search(r"\[(\d+)\]", row[i])
    if slot and rng.random() < 0.3:
        row[i] = row[i].replace(slot[0], f"[{rng.randrange(int(slot[1]) + 2)}]")
        return problem, rows
    if match is None:
        return None
    stage, kind, microbatch = match.groups()
    what = rng.randrange(3)
    if what == 0:
        stage = str(rng.randrange(problem.stages + 1))
    elif what == 1 and microbatch:
        microbatch = str(rng.randrange(problem.microbatches + 1))
    elif kind in ("F", "B", "BW", "W", "I"):
        kinds = ["F", "B", "W", "BW", "I"]  # some of them unreadable here
        kind = rng.choice(kinds)
    else:
        kind = {"SEND_F": "SEND_B", "SEND_B": "SEND_F", "RECV_F": "RECV_B", "RECV_B": "RECV_F"}.get(kind, kind)
    row[i] = row[i][: match.start()] + stage + kind + microbatch + row[i][match.end() :]
    return problem, rows


def retarget(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows] | None:
    """Send a token to another device: its peer, or where it stands."""
    rows = copied(rows)
    row = rng.choice([row for row in rows if row])
    i = rng.randrange(len(row))
    peer = re.search(r"([<>])(\d+)", row[i])
    if peer:
        row[i] = row[i].replace(peer[0], f"{peer[1]}{rng.randrange(problem.devices + 1)}")
        return problem, rows
    others = [other for other in rows if other is not row]
    if not others:
        return None
    other = rng.choice(others)
    other.insert(rng.randint(0, len(other)), row.pop(i))
    return problem, rows


def lower_cap(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows]:
    caps = list(problem.caps)
    device = rng.randrange(len(caps))
    caps[device] *= rng.random() * 0.999
    return replace(problem, memory_cap=tuple(caps)), rows


def _swap_of(verb: str, rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows] | None:
    """Swap two neighbouring sends, or receives, of one device."""
    rows = copied(rows)
    places = []
    for d, row in enumerate(rows):
        found = [i for i, token in enumerate(row) if verb in token.lower()]
        places += [(d, i, j) for i, j in pairwise(found)]
    if not places:
        return None
    d, i, j = rng.choice(places)
    rows[d][i], rows[d][j] = rows[d][j], rows[d][i]
    return problem, rows


swap_sends = partial(_swap_of, "send")
swap_receives = partial(_swap_of, "recv")


def early_reduce(rng: random.Random, problem: Problem, rows: Rows) -> tuple[Problem, Rows] | None:
    rows = copied(rows)
    places = [(d, i) for d, row in enumerate(rows) for i, token in enumerate(row) if "reduce" in token.lower()]
    if not places:
        return None
    d, i = rng.choice(places)
    token = rows[d].pop(i)
    rows[d].insert(rng.randint(0, i), token)
    return problem, rows


def losses_in_order(problem: Problem, rows: Rows) -> bool:
    last = problem.stages - 1
    found = [int(number) for row in rows for token in row for number in re.findall(rf"\b{last}F(\d+)", token)]
    return found == sorted(found)


def trials(rng: random.Random, levels: list[Level]) -> Iterator[Verdict]:
    """Endless damages: a few of each kind to each random schedule."""
    while True:
        problem = random_problem(rng)
        orders = random_orders(rng, problem)
        problem = replace(problem, memory_cap=tuple(peaks(problem, program_of_orders(orders))))
        for level in levels:
            if level.name == "torch" and (problem.placement.bidirectional or problem.stages == 1):
                continue  # torch has no such placement; without any REDUCE_GRAD a file leaves reducing to others
            rows = level.rows(problem, orders)
            if level.name == "torch" and not losses_in_order(problem, rows):
                continue
            base = level.outcome(problem, rows)
            assert level.judge(problem, rows), (level.name, rows)
            for kind, damage in damages(level).items():
                for _ in range(3):
                    damaged = damage(rng, problem, rows)
                    if damaged is None or damaged == (problem, rows):
                        continue
                    try:
                        changed = level.outcome(*damaged) != base
                    except Broken:
                        changed = True
                    yield Verdict(level.name, kind, changed, _accepted(level, *damaged), damaged[1])


def _accepted(level: Level, problem: Problem, rows: Rows) -> bool:
    try:
        return level.judge(problem, rows)
    except ValueError:
        return False  # unreadable
