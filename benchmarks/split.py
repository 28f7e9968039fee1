"""Time and memory of a split backward (B + W) against a fused one, on the transformer blocks of one stage.

    python benchmarks/split.py [--device cpu|cuda] [--dtype float32|bfloat16] [--width 256 ...] [--save]

For each number of blocks it prints the medians of interleaved repetitions: F, BW, B, W, the ratio (B + W) / BW, the
time the host spends in W per linear layer, and the bytes that a micro-batch holds after F and after B.
"""

from __future__ import annotations

import statistics
import time

import torch
from common import Table, arguments, save
from torch import nn
from torch.nn import functional

from debubble.runtime.memory import HeldMemory
from debubble.runtime.stage import Stage


class Block(nn.Module):
    """A causal transformer block with four linear layers."""

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = self.project(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*split.unbind(0), is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


COLUMNS = ["blocks", "F ms", "BW ms", "B ms", "W ms", "(B+W)/BW", "W host us/layer", "MiB after F", "MiB after B"]


def measure(
    blocks: int, shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype, repeat: int, table: Table
) -> None:
    """One row for a stage of this many blocks."""
    torch.manual_seed(0)
    module = nn.Sequential(*(Block(shape[-1]) for _ in range(blocks))).to(device, dtype)
    stage = Stage(1, module)
    x, gradient = torch.randn(shape, device=device, dtype=dtype), torch.randn(shape, device=device, dtype=dtype)
    times: dict[str, list[float]] = {"F": [], "BW": [], "B": [], "W": [], "W host": []}

    clock = time.perf_counter if device.type == "cuda" else time.thread_time  # other programs do not count

    def timed(name: str, function: object, *arguments: object, **options: object) -> None:
        synchronize(device)
        start = clock()
        function(*arguments, **options)  # type: ignore[operator]
        if name == "W":
            times["W host"].append(clock() - start)
        synchronize(device)
        times[name].append(clock() - start)

    with stage.installed():
        for _ in range(repeat):
            timed("F", stage.forward, 0, (x,), differentiable=(True,), split=False)
            timed("BW", stage.backward, 0, (gradient,))
            stage.forward(0, (x,), differentiable=(True,), split=True)
            timed("B", stage.backward_input, 0, (gradient,))
            timed("W", stage.backward_weight, 0)
        held = HeldMemory([module])
        stage.memory = held
        stage.forward(0, (x,), differentiable=(True,), split=True)
        after_forward = held.current
        stage.backward_input(0, (gradient,))
        after_backward = held.current
    median = {name: statistics.median(found[2:]) for name, found in times.items()}
    ratio = statistics.median((b + w) / bw for b, w, bw in zip(times["B"], times["W"], times["BW"], strict=True))
    milliseconds = [f"{1e3 * median[name]:.2f}" for name in ("F", "BW", "B", "W")]
    host = f"{1e6 * median['W host'] / (4 * blocks):.0f}"
    held = [f"{size / 2**20:.1f}" for size in (after_forward, after_backward)]
    table.row(blocks, *milliseconds, f"{ratio:.3f}", host, *held)


def main() -> None:
    parser = arguments(__doc__ or "", "split")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--width", type=int, nargs="+", default=[256])
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = []
    for width in options.width:
        tables.append(Table(f"Width {width}, {options.dtype}, {options.device}", COLUMNS))
        for blocks in options.blocks:
            shape = (options.rows, options.length, width)
            dtype = getattr(torch, options.dtype)
            measure(blocks, shape, torch.device(options.device), dtype, options.repeat, tables[-1])
    if options.save:
        save("split", tables)


if __name__ == "__main__":
    main()
