"""Held memory on the CPU: what autograd saves for each micro-batch, counted by storage."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator

import torch
from torch import nn

Key = tuple[int, int]
"""(stage, micro-batch)."""


class HeldMemory:
    """Bytes of the tensors that micro-batches hold between their forward and their last backward.

    A storage that several of them share counts once; parameters, buffers and what is to be ignored do not count.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._ignored: set[int] = set()
        for module in modules:
            self.ignore((*module.parameters(), *module.buffers()))
        self._held: dict[Key, dict[int, int]] = {}
        self._owners: Counter[int] = Counter()
        self.current = 0
        self.peak = 0

    def ignore(self, tensors: Iterable[torch.Tensor]) -> None:
        """Never count what these hold: the batch, which stays for the whole step."""
        self._ignored.update(tensor.untyped_storage().data_ptr() for tensor in tensors)

    @contextlib.contextmanager
    def saving(self, key: Key) -> Iterator[None]:
        """Count what autograd saves from now on."""

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            self.hold(key, [tensor])
            return tensor.detach()  # the tensor itself would be a cycle where an operation saves its output

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield

    def hold(self, key: Key, tensors: Iterable[torch.Tensor]) -> None:
        """Count some tensors for a micro-batch."""
        held = self._held.setdefault(key, {})
        for tensor in tensors:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if address in self._ignored or address in held:
                continue
            held[address] = storage.nbytes()
            if self._owners[address] == 0:
                self.current += held[address]
            self._owners[address] += 1
        self.peak = max(self.peak, self.current)

    def release(self, key: Key) -> None:
        """A micro-batch holds nothing any more."""
        for address, size in self._held.pop(key, {}).items():
            self._owners[address] -= 1
            if self._owners[address] == 0:
                self.current -= size
