"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeAlias, TypeVar

import click

from ..compiler.errors import InputError
from ..compiler.placement import NAMES
from ..compiler.problem import BACKWARDS, OBJECTIVES, Problem
from ..compiler.profile import Profile
from ..request import make_problem, place

Command = TypeVar("Command", bound=Callable[..., Any])
Costs = TypeVar("Costs")
Options: TypeAlias = list[Callable[[Any], Any]]


class Numbers(click.ParamType):
    """Finite numbers of at least 0: one, or with `count` a list by commas (of that length, any length when 0).

    `signed` ones may be negative, `positive` ones may not be 0.
    """

    def __init__(self, *, count: int = 1, signed: bool = False, positive: bool = False, name: str = "number") -> None:
        self.count, self.signed, self.positive, self.name = count, signed, positive, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        words = value.split(",") if self.count != 1 else [value]
        if self.count > 1 and len(words) != self.count:
            self.fail(f"{value!r} is not {self.count} numbers with commas between them", param, ctx)
        numbers = tuple(self._number(word, param, ctx) for word in words)
        return numbers[0] if self.count == 1 else numbers

    def _number(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(word)
        except ValueError:
            self.fail(f"{word!r} is not a number", param, ctx)
        if not math.isfinite(number) or (number < 0 and not self.signed) or (number == 0 and self.positive):
            kind = "positive number" if self.positive else "number" if self.signed else "number of at least 0"
            self.fail(f"{word!r} is not a finite {kind}", param, ctx)
        return number


class Cap(Numbers):
    """A memory cap: one number, or one per device."""

    def __init__(self) -> None:
        super().__init__(count=0, name="x|x0,x1,...")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        numbers = super().convert(value, param, ctx)
        return numbers[0] if isinstance(numbers, tuple) and len(numbers) == 1 else numbers


class Listed(click.ParamType):
    """Values by commas, each read as the type `each`."""

    def __init__(self, each: click.ParamType) -> None:
        self.each = each
        self.name = f"{each.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(self.each.convert(word.strip(), param, ctx) for word in value.split(","))


class Recomputed(click.ParamType):
    """A number of micro-batches, or a word that `Problem` knows."""

    name = "none|all|n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        return int(value) if value.isdecimal() else value.lower()


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _placement(default: str) -> Callable[[Command], Command]:
    metavar = "|".join(NAMES) + "|0,1,1,0"
    return click.option("--placement", metavar=metavar, help=f"Which device owns each stage (default: {default}).")


placement_option = _placement("linear")
cap_option = click.option(
    "--memory-cap", type=Cap(), help="The most memory a device may hold: one number, or one per device."
)

objective_option = click.option("--objective", type=click.Choice(OBJECTIVES), default="makespan", show_default=True)
backward_option = click.option(
    "--backward",
    type=click.Choice(BACKWARDS),
    default="any",
    show_default=True,
    help="B and W apart, as one operation, or as the search likes.",
)
backend_option = click.option(
    "--backend", type=click.Choice(["cbc", "highs", "cp-sat"]), default="cbc", show_default=True
)
seed_option = click.option("--seed", type=int, default=0, show_default=True)


def time_limit_option(default: float) -> Callable[[Command], Command]:
    """How long a search may take."""
    return click.option(
        "--time-limit",
        type=Numbers(positive=True),
        default=default,
        show_default=True,
        help="Seconds to search at most.",
    )


def recompute_option(default: str | None) -> Callable[[Command], Command]:
    """Which micro-batches are recomputed; None leaves it to the plan at hand."""
    return click.option(
        "--recompute",
        type=Recomputed(),
        metavar="none|all|N",
        default=default,
        help="Drop activations and repeat the forward: of all micro-batches, or N of those in flight (default none).",
    )


_COSTS: Options = [
    click.argument("profiles", metavar="[PROFILE.json]", nargs=-1),
    click.option("--devices", type=int, help="Number of devices."),
    click.option("--forward", type=Numbers(), help="Duration of F of one stage, instead of a profile."),
    click.option("--backward-input", type=Numbers(), help="Duration of B of one stage."),
    click.option("--backward-weight", type=Numbers(), help="Duration of W of one stage."),
    click.option("--comm", type=Numbers(), help="Time of one transfer between devices (default 0)."),
    click.option(
        "--memory",
        type=Numbers(count=3, signed=True, name="f,b,w"),
        help="Change of the held memory at F, B and W (default 1,0,-1).",
    ),
]
_PROBLEM: Options = [
    *_COSTS,
    click.option("-m", "--microbatches", type=int, required=True, help="Number of micro-batches."),
    placement_option,
    click.option(
        "--chunks",
        type=int,
        help="Stages per device in a loop or v (default 2); cuts a profile of one per device.",
    ),
    cap_option,
    objective_option,
    backward_option,
    recompute_option("none"),
]
_SEARCH: Options = [
    backend_option,
    time_limit_option(30.0),
    seed_option,
]
_SCHEDULE_FILE: Options = [
    click.argument("file", metavar="FILE|-"),
    click.option(
        "--dialect", default="auto", show_default=True, metavar="auto|text|torch|torch-legacy|printed|megatron"
    ),
    click.option("--profile", metavar="PROFILE.json", help="The costs to judge with (default: F, B and W take 1)."),
    click.option("-m", "--microbatches", type=int, help="How many micro-batches the file must have."),
    _placement("as the file states it, else by who executes what"),
    cap_option,
    recompute_option(None),
]


def schedule_file_options(command: Command) -> Command:
    """A schedule file or plan, and what it is to be judged with: the arguments of `api.verify`."""
    return _decorate(command, _SCHEDULE_FILE)


def costs_options(command: Command) -> Command:
    """The options that describe costs; `read_costs` makes a profile of them."""
    return _decorate(command, _COSTS)


def problem_options(command: Command) -> Command:
    """The options that describe a problem; `read_problem` makes one of them."""
    return _decorate(command, _PROBLEM)


def search_options(command: Command) -> Command:
    """The options of a search."""
    return _decorate(command, _SEARCH)


def _decorate(command: Command, options: Options) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def read_problem(
    *, devices: int | None, chunks: int | None, placement: str | None, schedule: str = "auto", **rest: Any
) -> Problem:
    """The problem that the options of `problem_options` describe. Raises InputError where they contradict."""
    costs = {name: rest.pop(name) for name in _COST_NAMES}
    where: dict[str, Any] = {"placement": placement, "devices": devices, "chunks": chunks, "schedule": schedule}
    return make_problem(read_costs(**costs, stages=lambda: place(**where).stages, load=Profile.load), **where, **rest)


_COST_NAMES = ("profiles", "forward", "backward_input", "backward_weight", "comm", "memory")


def read_costs(
    *,
    profiles: tuple[str, ...],
    forward: float | None,
    backward_input: float | None,
    backward_weight: float | None,
    comm: float | None,
    memory: tuple[float, float, float] | None,
    stages: Callable[[], int],
    load: Callable[[str], Costs],
) -> Costs | Profile:
    """What `load` makes of the one file, or the profile of equal `stages` with the costs given.

    Raises InputError where both are given, or none.
    """
    costs = {
        "--forward": forward,
        "--backward-input": backward_input,
        "--backward-weight": backward_weight,
        "--comm": comm,
        "--memory": memory,
    }
    if len(profiles) > 1:
        raise InputError(f"one profile is enough, not {len(profiles)}: {', '.join(profiles)}", code="two-profiles")
    if profiles:
        given = [option for option, value in costs.items() if value is not None]
        if given:
            raise InputError(
                f"two profiles: the file {profiles[0]} and the costs of {', '.join(given)}", code="two-profiles"
            )
        return load(profiles[0])
    if forward is None or backward_input is None or backward_weight is None:
        missing = [option for option, value in list(costs.items())[:3] if value is None]
        raise InputError(f"no profile: give a file, or {', '.join(missing)}", code="no-profile")
    return Profile.uniform(
        stages=stages(),
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        comm=comm or 0.0,
        memory=memory or (1.0, 0.0, -1.0),
    )


def check_writable(path: str | None) -> None:
    """Refuse a place for the result before the work, not after it. Raises InputError."""
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    reason = None
    if os.path.isdir(path):
        reason = "it is a directory"
    elif not os.path.isdir(folder):
        reason = f"there is no directory {folder}"
    elif not os.access(folder, os.W_OK) and not os.access(path, os.W_OK):
        reason = f"the directory {folder} is not writable"
    if reason is not None:
        raise InputError(f"cannot write the file: {reason}", code="unwritable", source=path)


def require_torch(what: str) -> None:
    """Raise InputError where torch is not installed."""
    if find_spec("torch") is None:
        raise InputError(f"{what} needs torch", code="missing-package", hint="pip install 'debubble[torch]'")
