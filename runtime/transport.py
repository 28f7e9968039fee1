"""Transport: moving tensors between the ranks of one pipeline, over torch.distributed.

Nothing here decides an order. Every instruction starts its operations at once and none blocks before `wait`, so the
members of a group in a plan start together without a call of their own. Matching is by order alone, per ordered pair of
devices, as the plan's verification assumes.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from ..compiler.errors import RunError
from ..compiler.operation import Operation
from .microbatch import Tensors

Channel = tuple[int, int]
"""(sending device, receiving device)."""


class TransferError(RunError):
    """A transfer broke, most likely because of what happened on another rank."""


class Transport:
    """The channels of one rank. Devices are numbered as ranks of `group` (None: the default group).

    With gloo the messages of one process group do not wait for each other. NCCL executes the operations of one
    communicator in the order of their calls, so that a receive posted early would hold up a send; there every channel
    gets a communicator of its own.
    """

    def __init__(self, group: dist.ProcessGroup | None, channels: Iterable[Channel], device: torch.device) -> None:
        self.group = group
        self.device = device
        self.rank = dist.get_rank(group) if dist.is_initialized() else 0
        self._groups: dict[Channel, tuple[dist.ProcessGroup, int]] = {}
        """By channel, the process group that carries it and the peer's number there."""
        self._pending: dict[Operation, tuple[list[dist.Work], Tensors, int]] = {}
        for channel in sorted(channels):
            if self.rank not in channel:
                continue
            peer = channel[1] if channel[0] == self.rank else channel[0]
            own = dist.group.WORLD if group is None else group
            assert own is not None  # torch.distributed is initialized where there are channels
            if dist.get_backend(group) == "nccl":
                members = [device if group is None else dist.get_global_rank(group, device) for device in channel]
                own = dist.new_group(members, backend="nccl", use_local_synchronization=True)
                peer = dist.get_group_rank(own, members[channel.index(peer)])
            self._groups[channel] = own, peer

    def isend(self, tensor: torch.Tensor, peer: int) -> dist.Work:
        """Start one message; the tensor must be contiguous and stay as it is until the work is done.

        What `dist.isend` does around the group's own call costs as much as the call.
        """
        group, number = self._groups[self.rank, peer]
        try:
            return group.send([_real(tensor)], number, 0)
        except RuntimeError as error:
            raise _broken(peer, error) from error

    def irecv(self, tensor: torch.Tensor, peer: int) -> dist.Work:
        """Post the receive of one message."""
        group, number = self._groups[peer, self.rank]
        try:
            return group.recv([_real(tensor)], number, 0)
        except RuntimeError as error:
            raise _broken(peer, error) from error

    def send(self, value: Operation, tensors: Tensors, peer: int) -> None:
        """Start sending a value. Its tensors are kept until it is waited for."""
        tensors = tuple([tensor.contiguous() for tensor in tensors])
        self._pending[value] = ([self.isend(tensor, peer) for tensor in tensors], tensors, peer)

    def receive(self, value: Operation, buffers: Tensors, peer: int) -> None:
        """Post the receive of a value into its buffers."""
        self._pending[value] = ([self.irecv(buffer, peer) for buffer in buffers], buffers, peer)

    def wait(self, value: Operation) -> Tensors:
        """Block until the send or receive of a value is complete (with NCCL: the current stream), and return its
        tensors."""
        works, tensors, peer = self._pending.pop(value)
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise _broken(peer, error) from error
        return tensors

    def exchange(self, tensor: torch.Tensor, peer: int) -> torch.Tensor:
        """Send a tensor to a peer that sends one of the same form; returns the peer's."""
        other = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        works = self.irecv(other, peer), self.isend(tensor.contiguous(), peer)
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise _broken(peer, error) from error
        return other

    def share(self, tensor: torch.Tensor, source: int) -> None:
        """Give the tensor of one rank to all."""
        if dist.is_initialized() and dist.get_world_size(self.group) > 1:
            try:
                dist.broadcast(tensor, group=self.group, group_src=source)
            except RuntimeError as error:
                raise _broken(source, error) from error

    def sum(self, tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        """Replace the tensor of every rank of the group (default: this pipeline's) by the sum of all."""
        group = self.group if group is None else group
        if dist.is_initialized() and dist.get_world_size(group) > 1:
            try:
                dist.all_reduce(tensor, group=group)
            except RuntimeError as error:
                raise TransferError(f"the sum over all ranks broke: {error}") from error


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as a real one of the same memory: backends send no others."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _broken(peer: int, error: RuntimeError) -> TransferError:
    return TransferError(f"the transfer with rank {peer} broke: {error}")
