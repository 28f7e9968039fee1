"""The pipeline: an interpreter of one rank's instruction stream, and nothing else.

Order is data (the plan), communication is instructions (put in by lowering), and what is left is execution: nothing
here decides what comes first.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn

from ..compiler.errors import InputError, RunError
from ..compiler.instruction import Compute, Instruction, Receive, Reduce, Send, Stream, Wait
from ..compiler.operation import Operation, parts
from ..compiler.plan import Plan
from .buffer import receive_buffers
from .composition import check_composition
from .copies import Copies, Tie, channels
from .handshake import Form, Forms, agree, learn_forms
from .memory import HeldMemory
from .microbatch import Tensors, cut, seeded, shares
from .progress import OUTSIDE, Progress, describe
from .stage import Stage
from .trace import Event
from .transport import Transport
from .watchdog import Watchdog

Keywords: TypeAlias = Mapping[str, Any] | Callable[[int, int], Mapping[str, Any]]
"""Keyword inputs of the stages: the same for all, or made for each (stage, micro-batch)."""

Program: TypeAlias = Sequence[tuple[int, Callable[[Any], None], Any]]
"""By instruction, its number in the stream, and a function with its argument that executes it."""


_AS_EVER = contextlib.nullcontext()


class Pipeline:
    """Trains the stages of this rank as the plan says.

    `stages` are this rank's modules by stage number (or `Stage`s, to execute them in another way), and
    `loss_fn(output, target)` is the mean loss of a micro-batch. Devices are ranks of `group` (None: the default group;
    a plan of one device needs none).

    seed: every forward draws its random numbers (dropout) from a generator of its own, made from this number, the step,
        the stage and the micro-batch, so that they do not depend on the order of execution.
    ties: pairs of parameters, each as (stage, name), that are one weight in two places; their gradients are summed.
    data_parallel: the ranks that hold this rank's stages in other pipelines; gradients are averaged over them at the
        end of each step, losses stay those of each pipeline's own batch.
    timeout: seconds after which this process is ended when one instruction does not end; a rank that waits for another
        one gets 5 s more, so that the one that hangs is named first. None: the time-out of the process group holds.
    progress: is told where the rank is.

    Before the first step all ranks compare the plan, the placement, the shapes and the values of weights that have
    copies; where they differ every rank raises the same InputError.
    """

    def __init__(
        self,
        plan: Plan,
        stages: Mapping[int, nn.Module | Stage],
        loss_fn: Callable[[Any, Any], torch.Tensor],
        group: dist.ProcessGroup | None = None,
        *,
        seed: int | None = None,
        ties: Sequence[Tie] = (),
        data_parallel: dist.ProcessGroup | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        problem = plan.problem
        ranks = dist.get_world_size(group) if dist.is_initialized() else 1
        if ranks != problem.devices:
            raise InputError(
                f"the plan is for {problem.devices} devices, but there are {ranks} ranks", code="rank-count"
            )
        modules = {number: stage.module if isinstance(stage, Stage) else stage for number, stage in stages.items()}
        copied = bool(ties) or data_parallel is not None or problem.placement.bidirectional
        check_composition(modules, copied=copied)
        self.plan = plan
        self.losses: dict[int, torch.Tensor] = {}
        """The losses of the last step by micro-batch, of those whose last stage is on this rank."""
        self.events: list[Event] | None = None
        """Where it is set, every instruction is recorded here, and on a GPU waited for."""
        self._memory: HeldMemory | None = None
        self._m = problem.microbatches
        self._last = problem.stages - 1
        self._seed = seed
        self._stages = {
            number: stage
            if isinstance(stage, Stage)
            else Stage(number, stage, loss_fn if number == self._last else None)
            for number, stage in stages.items()
        }
        self.transport = Transport(group, channels(plan, ties), _device(modules.values()))
        self.rank = self.transport.rank
        self._copies = Copies(plan, modules, ties, data_parallel, self.transport)
        self._ready = False
        self.steps = 0
        """Steps taken. Set it when training resumes: with the seed it decides the random numbers of the next step."""
        self._progress: Progress = [0, OUTSIDE] if progress is None else progress
        self._watchdog = None if timeout is None else Watchdog(plan, self.rank, self._progress, timeout)
        if self._watchdog is not None:
            weakref.finalize(self, self._watchdog.stop)
        self._operations: dict[str, Callable[[Operation], None]] = {
            "F": self._forward,
            "B": self._backward_input,
            "W": self._backward_weight,
            "BW": self._backward,
        }
        stream = plan.streams[self.rank]
        self._program = self._bound(enumerate(stream))
        self._forwards = self._bound(forward_only(stream))
        executed = [operation for i in stream if isinstance(i, Compute) for operation in parts(i.step)]
        self._split = {(stage, microbatch) for kind, stage, microbatch in executed if kind == "B"}
        self._installed = [self._stages[stage] for stage in sorted({stage for stage, _ in self._split} & set(stages))]
        self._forms: dict[tuple[int, int], Forms] = {}
        self._buffers: dict[Operation, Tensors] = {}
        self._values: dict[Operation, Tensors] = {}
        self._inputs: list[Tensors] | None = None
        self._targets: list[Tensors] | None = None
        self._weights: Sequence[float] = ()
        self._keywords: Keywords = {}

    def step(
        self,
        inputs: Any = None,
        targets: Any = None,
        *,
        weights: Sequence[float] | None = None,
        keywords: Keywords | None = None,
        update: Callable[[], object] | None = None,
    ) -> torch.Tensor:
        """Train on one global batch: accumulate the gradients, and return the loss on every rank.

        `inputs` are needed on ranks that own stage 0 and `targets` where the last stage is; both are cut into
        micro-batches along the first dimension, sizes differing by at most one. The loss of the batch is the sum of
        the micro-batches' losses times `weights`, by default their shares of the rows: the mean over the batch.
        Gradients are scaled by that alone, once, and add to what the parameters hold; zeroing them is the caller's.
        `update`, such as an optimizer's step, is called when the gradients of this rank are complete, before it waits
        for the loss: with it, the time until a rank can go on is its span, not the makespan.
        Raises RunError that names rank and instruction when anything fails on the way.
        """
        self._begin(inputs, targets, weights, keywords)
        self._copies.begin()
        with contextlib.ExitStack() as stack:
            for stage in self._installed:
                stack.enter_context(stage.installed())
            loss = self._execute(self._program, update)
        self.steps += 1
        self._progress[0] = self.steps
        return loss

    def prepare(self, inputs: Any = None, targets: Any = None, *, keywords: Keywords | None = None) -> None:
        """Do now what the first step would do first: compare the ranks, learn the shapes, and allocate the buffers.

        After a change of shapes all ranks must call it again.
        """
        self._ready = False
        self._begin(inputs, targets, None, keywords)

    @torch.no_grad()
    def evaluate(
        self,
        inputs: Any = None,
        targets: Any = None,
        *,
        weights: Sequence[float] | None = None,
        keywords: Keywords | None = None,
    ) -> torch.Tensor:
        """The loss of one global batch, on every rank, with the forwards of the plan alone.

        Takes what `step` takes. Whether modules are in evaluation mode is the caller's to say.
        """
        self._begin(inputs, targets, weights, keywords)
        return self._execute(self._forwards, None)

    def clip_gradients(self, most: float) -> torch.Tensor:
        """Scale all gradients, on all ranks, so that their global norm is at most `most`; returns the norm before.

        Every weight counts once, however many copies it has. All ranks must call it, and it waits for all.
        """
        own = [p.grad for p in self._copies.counted() if p.grad is not None]
        total = torch.zeros((), dtype=torch.float64, device=self.transport.device)
        for gradient in own:
            total += torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32)) ** 2
        self.transport.sum(total)
        norm = total.sqrt()
        factor = torch.clamp(most / (norm + 1e-6), max=1.0)
        for stage in self._stages.values():
            for parameter in {id(p): p for p in stage.module.parameters()}.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor.to(parameter.grad.dtype))
        return norm

    def _execute(self, program: Program, update: Callable[[], object] | None) -> torch.Tensor:
        """Interpret instructions, finish the gradients of copies, let the caller update, and sum the loss."""
        progress = self._progress
        progress[0] = self.steps
        if self._watchdog is not None:
            self._watchdog.executions += 1
        try:
            for number, execute, argument in program:
                progress[1] = number
                if self.events is None:
                    execute(argument)
                else:
                    self._record(number, execute, argument)
            progress[1] = len(self._program)
            if torch.is_grad_enabled():
                self._copies.finish()
            if update is not None:
                update()
            loss = self._total_loss()
        except Exception as error:
            place = describe(self.plan, self.rank, progress[0], progress[1])
            raise RunError(f"{place}: {_described(error)}") from error
        progress[1] = OUTSIDE
        return loss

    def _record(self, number: int, execute: Callable[[Any], None], argument: Any) -> None:
        """Execute one instruction and note when it began and ended; on a GPU, when its work did."""
        assert self.events is not None
        start = time.monotonic()
        execute(argument)
        if self.transport.device.type == "cuda":
            torch.cuda.synchronize(self.transport.device)
        self.events.append((number, start, time.monotonic()))

    def count_memory(self, memory: HeldMemory | None) -> None:
        """Count what micro-batches hold from the next step on, or stop counting. It costs time."""
        self._memory = memory
        for stage in self._stages.values():
            stage.memory = memory

    def _begin(self, inputs: Any, targets: Any, weights: Sequence[float] | None, keywords: Keywords | None) -> None:
        """Cut the batch; before the first step also the handshake and the buffers."""
        trouble = None
        self._keywords = {} if keywords is None else keywords
        try:
            self._inputs = self._cut_inputs(inputs)
            self._targets = self._cut_targets(targets, weights)
        except InputError as error:
            if self._ready:
                raise
            trouble = str(error)
        if not self._ready:
            agree(self.plan, self.transport, list(self._stages), trouble)
            self._copies.check()
            self._forms = learn_forms(self.plan, self.transport, self._try_forward, self._inputs)
            self._buffers = receive_buffers(self.plan.streams[self.rank], self._forms, self.transport.device)
            self._ready = True
        if self._memory is not None:
            self._memory.ignore(t for part in (*(self._inputs or ()), *(self._targets or ())) for t in part)
        self._values.clear()
        self.losses = {}

    def _cut_inputs(self, inputs: Any) -> list[Tensors] | None:
        if 0 not in self._stages:
            return None
        if inputs is None:
            raise InputError("this rank owns stage 0, so it needs the inputs")
        found = cut(inputs, self._m, "inputs")
        if any(tensor.requires_grad for tensor in found[0]):
            raise InputError("the inputs need a gradient, which stage 0 does not give", hint="make them its parameters")
        return found

    def _cut_targets(self, targets: Any, weights: Sequence[float] | None) -> list[Tensors] | None:
        if self._last not in self._stages:
            return None
        if targets is None:
            raise InputError(f"this rank owns stage {self._last}, the last one, so it needs the targets")
        found = cut(targets, self._m, "targets")
        if weights is not None and len(weights) != self._m:
            raise InputError(f"{len(weights)} weights for {self._m} micro-batches")
        self._weights = shares(found) if weights is None else weights
        return found

    def _try_forward(self, stage: int, microbatch: int, inputs: Tensors) -> Tensors:
        return self._stages[stage].try_forward(inputs, self._keywords_of(stage, microbatch), self.transport.device)

    def _keywords_of(self, stage: int, microbatch: int) -> Mapping[str, Any]:
        return self._keywords(stage, microbatch) if callable(self._keywords) else self._keywords

    def _bound(self, instructions: Iterable[tuple[int, Instruction]]) -> Program:
        """What executes each instruction, looked up once.

        The sends of a group start before its receives: with gloo a send that finds its receive posted is written at
        once by the calling thread, under a lock on which gloo's own thread spins meanwhile.
        """
        execute: dict[type[Instruction], Callable[[Any], None]] = {
            Compute: self._compute,
            Send: self._send,
            Receive: self._receive,
            Wait: self._wait,
            Reduce: self._reduce,
        }
        program: list[tuple[int, Callable[[Any], None], Any]] = []
        for group, members in groupby(instructions, key=lambda numbered: getattr(numbered[1], "group", None)):
            for number, instruction in members if group is None else sorted(members, key=_receives):
                if isinstance(instruction, Compute) and isinstance(instruction.step, Operation):
                    program.append((number, self._operations[instruction.step.kind], instruction.step))
                else:
                    program.append((number, execute[type(instruction)], instruction))
        return program

    def _compute(self, instruction: Compute) -> None:
        """Both operations of a pair, one after the other."""
        for operation in parts(instruction.step):
            self._operations[operation.kind](operation)

    def _forward(self, operation: Operation) -> None:
        _, stage, microbatch = operation
        if stage > 0:
            inputs = self._values.pop(Operation("F", stage - 1, microbatch))
            differentiable = tuple([form.differentiable for form in self._forms[stage - 1, microbatch]])
        else:
            assert self._inputs is not None  # _begin made sure
            inputs = self._inputs[microbatch]
            differentiable = (False,) * len(inputs)
        target = self._targets[microbatch] if stage == self._last and self._targets is not None else None
        with _AS_EVER if self._seed is None else self._random(self._seed, stage, microbatch):
            outputs = self._stages[stage].forward(
                microbatch,
                inputs,
                differentiable=differentiable,
                split=(stage, microbatch) in self._split,
                target=target,
                keywords=self._keywords_of(stage, microbatch),
                recompute=self.plan.problem.recomputes(stage, microbatch),
            )
        if target is None:
            _check_forms(outputs, self._forms[stage, microbatch])
            self._values[operation] = outputs
        else:
            self.losses[microbatch] = outputs[0]

    def _backward(self, operation: Operation) -> None:
        _, stage, microbatch = operation
        found = self._stages[stage].backward(microbatch, self._gradients(stage, microbatch))
        self._values[Operation("B", stage, microbatch)] = found

    def _backward_input(self, operation: Operation) -> None:
        _, stage, microbatch = operation
        self._values[operation] = self._stages[stage].backward_input(microbatch, self._gradients(stage, microbatch))

    def _backward_weight(self, operation: Operation) -> None:
        self._stages[operation.stage].backward_weight(operation.microbatch)

    def _random(self, seed: int, stage: int, microbatch: int) -> contextlib.AbstractContextManager[None]:
        return seeded(seed, self.steps, stage, microbatch, self.transport.device)

    def _gradients(self, stage: int, microbatch: int) -> Tensors:
        """The gradients of the outputs of a stage: what came back, or the weight of the loss."""
        if stage == self._last:
            return (torch.full_like(self.losses[microbatch], self._weights[microbatch]),)
        return self._values.pop(Operation("B", stage + 1, microbatch))

    def _send(self, instruction: Send) -> None:
        self.transport.send(instruction.value, self._values.pop(instruction.value), instruction.peer)

    def _receive(self, instruction: Receive) -> None:
        self.transport.receive(instruction.value, self._buffers[instruction.value], instruction.peer)

    def _wait(self, instruction: Wait) -> None:
        tensors = self.transport.wait(instruction.value)
        if instruction.value in self._buffers:
            self._values[instruction.value] = tensors

    def _reduce(self, instruction: Reduce) -> None:
        self._copies.reduce(instruction.stage, instruction.peer)

    def _total_loss(self) -> torch.Tensor:
        """The sum of the weighted losses, in double precision, on every rank."""
        total = torch.zeros((), dtype=torch.float64, device=self.transport.device)
        for microbatch, loss in sorted(self.losses.items()):
            total += loss.double() * self._weights[microbatch]
        placement = self.plan.problem.placement
        if placement.bidirectional:
            self.transport.sum(total)
        else:
            self.transport.share(total, placement.down[-1])
        return total


def forward_only(stream: Stream) -> Iterator[tuple[int, Instruction]]:
    """What is left of a stream without its backwards, with the numbers in it.

    It is safe where the whole is: what an instruction waits for is on the side of forwards when the instruction is.
    """
    for number, instruction in enumerate(stream):
        if isinstance(instruction, Compute):
            for operation in parts(instruction.step):
                if operation.kind == "F":
                    yield number, Compute(operation)
        elif isinstance(instruction, Send | Receive | Wait) and instruction.value.kind == "F":
            yield number, instruction


def _receives(numbered: tuple[int, Instruction]) -> bool:
    return isinstance(numbered[1], Receive)


def _device(modules: Any) -> torch.device:
    """Where the parameters are; the CPU for a rank without any."""
    return next((parameter.device for module in modules for parameter in module.parameters()), torch.device("cpu"))


def _check_forms(outputs: Tensors, forms: Forms) -> None:
    """What a stage hands on must be what the next one was told to expect."""
    if len(outputs) != len(forms) or any(
        output.shape != form.shape or output.dtype != form.dtype for output, form in zip(outputs, forms, strict=False)
    ):
        found = ", ".join(str(Form.of(output)) for output in outputs)
        expected = ", ".join(map(str, forms))
        raise RunError(
            f"the output is {found}, but it was {expected} in the handshake; where shapes change, call prepare again "
            "on all ranks"
        )


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, RunError | InputError) else f"{type(error).__name__}: {error}"
