"""The split backward of one stage, judged by plain autograd on the same module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from debubble.compiler.errors import RunError
from debubble.runtime.microbatch import as_tuple
from debubble.runtime.split import Splitter
from debubble.runtime.stage import Stage

WIDTH = 6


def _linear(bias: bool = True) -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH, bias=bias, dtype=torch.float64)


class Plain(nn.Module):
    """What the others are built on: two layers with something between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _linear(), _linear(bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(functional.gelu(self.first(x)))


class Twice(Plain):
    """One weight used twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(self.first(x))


class Tied(Plain):
    """One weight in two layers, and in an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.second.weight = self.first.weight
        self.words = nn.Embedding(WIDTH, WIDTH, dtype=torch.float64)
        self.words.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x) + self.words(torch.arange(3)))


class Frozen(Plain):
    """A frozen layer before a trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)


class OnlyBias(Plain):
    """A frozen weight with a trained bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first.weight.requires_grad_(False)


class FrozenBias(Plain):
    """A trained weight with a frozen bias."""

    def __init__(self) -> None:
        super().__init__()
        assert self.first.bias is not None
        self.first.bias.requires_grad_(False)


class Adapted(nn.Module):
    """LoRA: a frozen layer with a trained detour of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = _linear().requires_grad_(False)
        self.down = nn.Linear(WIDTH, 2, bias=False, dtype=torch.float64)
        self.up = nn.Linear(2, WIDTH, bias=False, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


class Viewed(Plain):
    """An output that is a view."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).view(x.size(0), -1)


class Unused(Plain):
    """A layer that takes no part."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x)


class Outputs(Plain):
    """A second output with a parameter behind it alone, and one without gradient."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.first(x), self.second(x).sum(), (x > 0).double()


class Doubled(torch.autograd.Function):
    """A custom function that counts its backwards."""

    backwards = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Doubled.backwards += 1
        return 2 * gradient


class Custom(Plain):
    """A custom function between the layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(Doubled.apply(self.first(x)))


class Experts(nn.Module):
    """A mixture whose last expert is never chosen; it gets no rows, but takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.router = _linear()
        self.experts = nn.ModuleList(_linear() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        choice = self.router(x).softmax(-1)[..., :2]
        chosen = choice.argmax(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            picked = chosen == number
            weight = choice[picked][:, min(number, 1), None]
            result = result.index_put((picked,), expert(x[picked]) * weight)
        return result


class Normed(nn.Module):
    """Weight norm the old way: the layer's weight is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.weight_norm(_linear())
        self.second = nn.utils.parametrizations.weight_norm(_linear())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Attention(nn.Module):
    """A whole layer of torch's own, which reads some weights without calling their modules."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 9, dropout=0.0, batch_first=True, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Functional(Plain):
    """A module called with parameters that are not its own."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = {name: value * self.factor for name, value in self.first.named_parameters()}
        return torch.func.functional_call(self.first, scaled, (x,)) + self.second(x)


class Patched(Plain):
    """A layer whose forward the user replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.first.forward = _tripled  # type: ignore[method-assign]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def _tripled(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


class Special(nn.Linear):
    """A kind of linear layer that computes something else."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) ** 2


class Subclass(nn.Module):
    """Holds one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Special(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Checkpointed(Plain):
    """Recomputes in its backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.forwards = 0

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        return super().forward(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(self.inner, x, use_reentrant=self.reentrant)  # type: ignore[operator]


KINDS: list[Callable[[], nn.Module]] = [
    Plain,
    Twice,
    Tied,
    Frozen,
    OnlyBias,
    FrozenBias,
    Adapted,
    Viewed,
    Unused,
    Outputs,
    Custom,
    Experts,
    Normed,
    Attention,
    Functional,
    Patched,
    Subclass,
    lambda: Checkpointed(True),
    lambda: Checkpointed(False),
]
NAMES = [kind.__name__ for kind in KINDS[:-2]] + ["Reentrant", "NonReentrant"]


def _split(module: nn.Module, x: torch.Tensor, gradients: list[torch.Tensor], microbatches: int = 1) -> torch.Tensor:
    """Forward, B and W of some micro-batches, all forwards first; the gradient of the last input."""
    stage = Stage(1, module)
    with stage.installed():
        for microbatch in range(microbatches):
            stage.forward(microbatch, (x,), differentiable=(True,), split=True)
        for microbatch in range(microbatches):
            (found,) = stage.backward_input(microbatch, tuple(gradients))
        for microbatch in range(microbatches):
            stage.backward_weight(microbatch)
    return found


def _plain(module: nn.Module, x: torch.Tensor, gradients: list[torch.Tensor] | None) -> tuple[Any, Any]:
    """The input's gradient by plain autograd, and the output gradients that were used."""
    leaf = x.clone().requires_grad_()
    roots = [output for output in as_tuple(module(leaf), "output") if output.requires_grad]
    gradients = [torch.randn_like(root) for root in roots] if gradients is None else gradients
    torch.autograd.backward(roots, gradients)
    return leaf.grad, gradients


def _twins(kind: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Two modules with the same weights, and nothing shared."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one = kind()
    torch.manual_seed(0)
    return one, kind()


def _assert_same(module: nn.Module, other: nn.Module) -> None:
    for (name, one), two in zip(module.named_parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), name
        if one.grad is not None and two.grad is not None:
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_gradients_are_those_of_plain_autograd(kind: Callable[[], nn.Module]) -> None:
    """Whatever a stage contains, B and W together give what one backward gives."""
    module, other = _twins(kind)
    x = torch.randn(4, 3, WIDTH, dtype=torch.float64)
    expected, gradients = _plain(module, x, None)
    torch.testing.assert_close(_split(other, x, gradients), expected, rtol=1e-12, atol=1e-12)
    _assert_same(other, module)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_several_microbatches_accumulate(kind: Callable[[], nn.Module]) -> None:
    """Three micro-batches in flight add up."""
    module, other = _twins(kind)
    x = torch.randn(4, 3, WIDTH, dtype=torch.float64)
    _, gradients = _plain(module, x, None)
    for _ in range(2):
        _plain(module, x, gradients)
    _split(other, x, gradients, microbatches=3)
    _assert_same(other, module)


def test_published_numbers_of_a_weight_used_twice() -> None:
    """x W W summed, for numbers that a public report of double counting gives."""
    layer = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.4, -0.2], [0.7, 0.3]]).T)
    x = torch.tensor([[1.1, -0.7]], dtype=torch.float64)
    found = _split(nn.Sequential(layer, layer), x, [torch.ones(1, 2, dtype=torch.float64)])
    torch.testing.assert_close(found, torch.tensor([[-0.12, 0.44]], dtype=torch.float64), atol=1e-7, rtol=0)
    expected = torch.tensor([[0.17, 1.05], [-0.57, -1.13]], dtype=torch.float64)
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad.T, expected, atol=1e-7, rtol=0)


def test_weight_gradients_wait_for_w() -> None:
    """After B the linear layers have no gradient, and what is not linear has."""
    stage = Stage(1, nn.Sequential(nn.LayerNorm(WIDTH, dtype=torch.float64), _linear()))
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    with stage.installed():
        stage.forward(0, (x,), differentiable=(True,), split=True)
        stage.backward_input(0, (torch.ones_like(x),))
    assert [p.grad is None for p in stage.module.parameters()] == [False, False, True, True]


def test_without_input_gradient_w_is_the_whole_backward() -> None:
    """B computes nothing where no input needs a gradient."""
    stage = Stage(0, nn.Sequential(nn.LayerNorm(WIDTH, dtype=torch.float64), _linear()))
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    with stage.installed():
        stage.forward(0, (x,), differentiable=(False,), split=True)
        assert stage.backward_input(0, (torch.ones_like(x),)) == ()
        assert all(p.grad is None for p in stage.module.parameters())
        stage.backward_weight(0)
    assert all(p.grad is not None for p in stage.module.parameters())


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_recomputes_once(reentrant: bool) -> None:
    """One forward and one recomputation, however B and W share the work."""
    module, x = Checkpointed(reentrant), torch.randn(4, WIDTH, dtype=torch.float64)
    _split(module, x, [torch.ones_like(x)])
    assert module.forwards == 2


def test_a_custom_backward_runs_once() -> None:
    """No part of the graph is walked twice."""
    Doubled.backwards = 0
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    _split(Custom(), x, [torch.ones_like(x)])
    assert Doubled.backwards == 1


def test_hooks_of_parameters_run_once_with_the_gradient() -> None:
    """Tensor hooks and hooks after accumulation see W's gradient, and nothing in B."""
    module, x = Plain(), torch.randn(4, WIDTH, dtype=torch.float64)
    seen: list[str] = []
    module.first.weight.register_hook(lambda gradient: seen.append(f"gradient {tuple(gradient.shape)}"))
    module.first.weight.register_post_accumulate_grad_hook(lambda weight: seen.append("accumulated"))
    _split(module, x, [torch.ones_like(x)])
    assert seen == [f"gradient {(WIDTH, WIDTH)}", "accumulated"]


def test_hooks_on_the_accumulating_node_run_once() -> None:
    """The older way to be told of a gradient, which keeps the node that accumulates it, works too."""
    module, x = Plain(), torch.randn(4, WIDTH, dtype=torch.float64)
    seen: list[tuple[int, ...]] = []
    node = torch.autograd.graph.get_gradient_edge(module.second.weight).node
    node.register_prehook(lambda gradients: seen.append(tuple(gradients[0].shape)))
    _split(module, x, [torch.ones_like(x)])
    assert seen == [(WIDTH, WIDTH)]


def test_autocast() -> None:
    """Under autocast the products are taken in the lower precision, as by autograd."""
    torch.manual_seed(0)

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.layers(x)

    module, x = Cast(), torch.randn(4, 8)
    other = copy.deepcopy(module)
    expected, gradients = _plain(module, x, None)
    torch.testing.assert_close(_split(other, x, gradients), expected, rtol=0, atol=0)
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(two.grad, one.grad, rtol=1e-2, atol=1e-2)


def test_a_compiled_stage_keeps_its_gradients() -> None:
    """What torch.compile has traced is differentiated whole, in B."""
    module, x = Plain(), torch.randn(4, WIDTH, dtype=torch.float64)
    other = copy.deepcopy(module)
    expected, gradients = _plain(module, x, None)
    compiled = torch.compile(other, backend="aot_eager")
    torch.testing.assert_close(_split(compiled, x, gradients), expected, rtol=1e-12, atol=1e-12)  # type: ignore[arg-type]
    _assert_same(other, module)


def test_a_backward_inside_a_forward_is_refused() -> None:
    """Such a gradient would be put off and lost, so it is an error."""

    class Inner(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            return y + torch.autograd.grad(y.sum(), x, retain_graph=True)[0]

    x = torch.randn(4, WIDTH, dtype=torch.float64)
    with pytest.raises(RunError, match="must not differentiate its linear layers in its forward"):
        _split(Inner(), x, [torch.ones_like(x)])


def test_a_fused_backward_is_plain() -> None:
    """A forward that BW will follow leaves the linear layers to autograd."""
    module, x = Plain(), torch.randn(4, WIDTH, dtype=torch.float64)
    stage = Stage(1, module)
    with stage.installed():
        stage.forward(0, (x,), differentiable=(True,), split=False)
        stage.backward(0, (torch.ones_like(x),))
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_a_copy_does_not_carry_the_replacement() -> None:
    """A module that is copied between steps computes with its own weights."""
    module = Plain()
    with Splitter(module).installed():
        pass
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.first.weight.zero_()
    x = torch.ones(1, WIDTH, dtype=torch.float64)
    assert not torch.equal(other(x), module(x))
