"""Real processes for tests: started once, then given one function after another, by file and name."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import multiprocessing
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from debubble.compiler.errors import DebubbleError

RANKS = 4


def _serve(rank: int, store: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    while True:
        file, name, arguments = connection.recv()
        try:
            connection.send((True, getattr(_module(file), name)(rank, *arguments)))
        except Exception as error:
            connection.send((False, error))


@functools.cache
def _module(file: str) -> ModuleType:
    """A test file as a module; pytest's own name for it means nothing in another process."""
    specification = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Cluster:
    """Four gloo ranks. Calling it runs `function(rank, *arguments)` on each and returns the results by rank."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        store = tempfile.mktemp(prefix="debubble-test-")
        self._ends, self._processes = [], []
        for rank in range(RANKS):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, store, there), daemon=True)
            process.start()
            self._ends.append(here)
            self._processes.append(process)

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The results by rank. Raises what the first failing rank raised."""
        answers = self._ask(function, arguments)
        for fine, answer in answers:
            if not fine:
                raise answer
        return [answer for _, answer in answers]

    def messages(self, function: Callable[..., Any], *arguments: Any) -> list[str]:
        """The messages, by rank, of the errors that every rank is to raise on purpose."""
        answers = [answer for _, answer in self._ask(function, arguments)]
        assert all(isinstance(answer, DebubbleError) for answer in answers), answers
        return list(map(str, answers))

    def _ask(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[tuple[bool, Any]]:
        for end in self._ends:
            end.send((inspect.getfile(function), function.__name__, arguments))
        return [end.recv() for end in self._ends]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
