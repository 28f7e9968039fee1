"""A small transformer that learns to copy its input one place on, cut into stages for `debubble run`:

    debubble run plan.json --model examples/transformer.py:workload --steps 5 --check

Embedding and head are on the first and the last stage; the blocks in between are spread evenly.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from debubble.runtime import Workload

BLOCKS, WIDTH, HEADS, WORDS, LENGTH, ROWS = 8, 64, 4, 97, 32, 2
"""ROWS is the number of sequences in a micro-batch."""


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each behind a norm and around a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        heads = self.project(self.norm1(x)).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class Embedding(nn.Module):
    """Words and their places as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.words(tokens) + self.places.weight


def stage(index: int, count: int) -> nn.Module:
    """Stage `index` of `count`: its share of the blocks, with the embedding or the head at the ends."""
    layers: list[nn.Module] = [Block() for _ in range(BLOCKS * index // count, BLOCKS * (index + 1) // count)]
    if index == 0:
        layers.insert(0, Embedding())
    if index == count - 1:
        layers += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)]
    return nn.Sequential(*layers)


def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random words; the target at each place is the word before it."""
    tokens = torch.randint(WORDS, (ROWS * microbatches, LENGTH))
    return tokens, tokens.roll(1, dims=1)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def workload() -> Workload:
    return Workload(stage, batch, loss, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3))
