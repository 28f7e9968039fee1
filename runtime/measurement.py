"""Measurement: the profile of a workload on this machine, stage by stage in one process, and of a link between two."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..compiler.errors import DebubbleError, InputError, RunError
from ..compiler.numbers import check_count
from ..compiler.profile import Link, Memory, Profile, Spread
from ..compiler.profile import Stage as Costs
from .link import measure_link
from .memory import HeldMemory
from .microbatch import Tensors, cut
from .stage import Stage
from .workload import Workload, load_workload

WARM_UP = 2
"""Repetitions that are not counted."""

MEBIBYTE = 2**20
WIDE_SPREAD = 0.2
DEAR_SPLIT = 1.25
DOMINANT = 0.8
UNEVEN = 1.5
"""From where on a measurement looks wrong: spread of times, B + W over BW, one stage's share, its ratio to the mean."""

_FIELDS = {"F": "forward", "B": "backward_input", "W": "backward_weight", "BW": "backward"}
"""What a profile calls the times of each kind of operation."""

NEGLIGIBLE = 0.01
"""The spread of operations that take less than this part of the longest one does not matter."""


@dataclass(frozen=True)
class Measurement:
    """A profile in milliseconds and MiB, which says where it was taken and how far its times vary; what looks wrong."""

    profile: Profile
    warnings: tuple[str, ...]


def measure(
    model: str, *, stages: int, microbatches: int, repeat: int = 10, seed: int = 0, device: str | None = None
) -> Measurement:
    """Measure the workload that `model` (FILE.py:FUNCTION) names, cut into `stages` stages.

    Each stage runs alone, on one micro-batch of the batch that is cut into `microbatches`: its forward, B, W and BW,
    some times for warm-up and `repeat` times for medians. Memory is what one micro-batch holds after F and after B: on
    a GPU allocated memory, on a CPU the tensors that autograd saves. Static memory is weights, buffers, gradients and
    the state of the workload's optimizer. The link is measured between two processes of this machine.
    Raises InputError when the workload cannot be loaded or cut or the device cannot be used, RunError, which names the
    stage, when the workload fails.
    """
    for what, number in (("stages", stages), ("microbatches", microbatches), ("repetitions", repeat)):
        check_count(what, number)
    workload = load_workload(model)
    place = _usable(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes of a local run have
    try:
        with _naming("the batch"):
            inputs, targets = workload.data(0, microbatches, seed=seed)
        values = tuple(tensor.to(place) for tensor in cut(inputs, microbatches, "inputs")[0])
        target = tuple(tensor.to(place) for tensor in cut(targets, microbatches, "targets")[0])
        costs: list[Costs] = []
        for index in range(stages):
            last = index == stages - 1
            with _naming(f"stage {index}"):
                module = workload.build(index, stages, seed=seed).to(place)
                stage = Stage(index, module, workload.loss if last else None)
                bench = _Bench(stage, values, target if last else None, place)
                times = bench.times(repeat)
                outputs = () if last else stage.try_forward(values, {}, place)
                costs.append(_costs(bench, times, _static(workload, stage.module), outputs))
            values = outputs
    finally:
        torch.set_num_threads(threads)
    largest = max(int(cost.output_bytes) for cost in costs)
    link = Link(**measure_link(largest)) if stages > 1 else 0.0
    profile = Profile(stages=tuple(costs), comm=link, time_unit="ms", memory_unit="MiB", machine=_machine(place))
    return Measurement(profile, tuple(_warnings(profile)))


def _usable(name: str) -> torch.device:
    """The device of that name. Raises InputError where this torch, or this machine, has none."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"the device {name!r} cannot be used: {reason}", code="bad-device") from None
    return device


@contextmanager
def _naming(part: str) -> Iterator[None]:
    """Say which part of the workload it was that failed. Raises RunError for what a user's code raises."""
    try:
        yield
    except DebubbleError:
        raise
    except Exception as error:
        raise RunError(f"{part}: {type(error).__name__}: {error}") from error


class _Bench:
    """Runs the operations of one stage on one micro-batch."""

    def __init__(self, stage: Stage, inputs: Tensors, target: Tensors | None, device: torch.device) -> None:
        self._stage, self._inputs, self._target, self._device = stage, inputs, target, device
        self._differentiable = tuple(tensor.requires_grad for tensor in inputs)
        self._gradients: Tensors = ()

    def forward(self, *, split: bool) -> None:
        outputs = self._stage.forward(
            0, self._inputs, differentiable=self._differentiable, split=split, target=self._target
        )
        if not self._gradients:
            needed = (True,) if self._target is not None else self._flags()
            pairs = zip(outputs, needed, strict=True)
            self._gradients = tuple(torch.ones_like(output) for output, flag in pairs if flag)

    def _flags(self) -> tuple[bool, ...]:
        outputs = self._stage.try_forward(self._inputs, {}, self._device)
        return tuple(output.requires_grad for output in outputs)

    def times(self, repeat: int) -> dict[str, list[float]]:
        """Seconds of F, B, W and BW, once a repetition."""
        times: dict[str, list[float]] = {"F": [], "B": [], "W": [], "BW": []}
        with self._stage.installed():
            for _ in range(WARM_UP + repeat):
                times["F"].append(self._timed(self.forward, split=True))
                times["B"].append(self._timed(self._stage.backward_input, 0, self._gradients))
                times["W"].append(self._timed(self._stage.backward_weight, 0))
                self.forward(split=False)
                times["BW"].append(self._timed(self._stage.backward, 0, self._gradients))
        return {kind: found[WARM_UP:] for kind, found in times.items()}

    def held(self) -> tuple[float, float]:
        """Bytes that a micro-batch holds after F and after B."""
        memory = HeldMemory([self._stage.module])
        memory.ignore(() if any(self._differentiable) else self._inputs)  # a part of the batch
        memory.ignore(self._target or ())
        before = self._allocated()
        self._stage.memory = None if self._device.type == "cuda" else memory
        with self._stage.installed():
            self.forward(split=True)
            after_forward = self._allocated() - before if self._device.type == "cuda" else memory.current
            self._stage.backward_input(0, self._gradients)
            after_backward = self._allocated() - before if self._device.type == "cuda" else memory.current
            self._stage.backward_weight(0)
        self._stage.memory = None
        return float(after_forward), float(after_backward)

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated(self._device) if self._device.type == "cuda" else 0

    def _timed(self, function: Callable[..., object], *arguments: Any, **options: Any) -> float:
        self._synchronize()
        start = time.perf_counter()
        function(*arguments, **options)
        self._synchronize()
        return time.perf_counter() - start

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _costs(bench: _Bench, times: dict[str, list[float]], static: int, outputs: Tensors) -> Costs:
    """Milliseconds and MiB."""
    median = {kind: 1e3 * statistics.median(found) for kind, found in times.items()}
    after_forward, after_backward = (held / MEBIBYTE for held in bench.held())
    rise = after_backward - after_forward
    return Costs(
        forward=median["F"],
        backward_input=median["B"],
        backward_weight=median["W"],
        backward=median["BW"],
        memory=Memory(after_forward, rise, -(after_forward + rise)),
        static_memory=static / MEBIBYTE,
        output_bytes=float(sum(tensor.nbytes for tensor in outputs)),
        spread=Spread(**{_FIELDS[kind]: _spread(found) for kind, found in times.items()}),
    )


def _static(workload: Workload, module: nn.Module) -> int:
    """Bytes of weights, buffers, gradients and, after one step, the optimizer's state."""
    parameters = list(module.parameters())
    size = sum(tensor.nbytes for tensor in (*parameters, *module.buffers()))
    size += sum(parameter.nbytes for parameter in parameters if parameter.requires_grad)
    if workload.optimizer is not None and parameters:
        optimizer = workload.optimizer(parameters)
        optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values()]
        size += sum(value.nbytes for value in states if isinstance(value, torch.Tensor))
    return size


def _spread(times: Sequence[float]) -> float:
    """Distance between the quartiles over the median."""
    if len(times) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle if middle > 0 else 0.0


def _machine(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return f"{name}, torch {torch.__version__}, {platform.system()}"


def _warnings(profile: Profile) -> list[str]:
    """What looks wrong."""
    warnings = []
    longest = max(max(stage.forward, stage.fused) for stage in profile.stages)
    for index, stage in enumerate(profile.stages):
        spread = {kind: getattr(stage.spread, field) for kind, field in _FIELDS.items()}
        times = {"F": stage.forward, "B": stage.backward_input, "W": stage.backward_weight, "BW": stage.fused}
        kind = max((k for k in times if times[k] >= NEGLIGIBLE * longest), key=spread.__getitem__, default="F")
        if spread[kind] > WIDE_SPREAD:
            warnings.append(
                f"stage {index}: the times of {kind} vary by {spread[kind]:.0%} around {times[kind]:.3g} ms; "
                "close other programs, or repeat more often"
            )
        if stage.backward_input + stage.backward_weight > DEAR_SPLIT * stage.fused:
            ratio = (stage.backward_input + stage.backward_weight) / stage.fused
            warnings.append(f"stage {index}: a split backward takes {ratio:.2f} times the fused one")
    whole = [stage.forward + stage.fused for stage in profile.stages]
    total, mean = sum(whole), statistics.fmean(whole)
    for index, own in enumerate(whole):
        if len(whole) > 2 and own > DOMINANT * total:
            warnings.append(f"stage {index} takes {own / total:.0%} of all time: does it load data?")
        elif own > UNEVEN * mean:
            warnings.append(f"stage {index} takes {own / mean:.1f} times the mean: cut the model in another way")
    return warnings
