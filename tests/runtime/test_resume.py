"""The example that goes on after a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from training import named_plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "resume.py"


def _losses(directory: Path, fail_at: str) -> dict[str, str]:
    """The loss that each step printed last."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    words = [*launcher, str(EXAMPLE), str(directory / "plan.json"), str(directory / fail_at), "4"]
    environment = {**os.environ, "FAIL_AT": fail_at}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("step ")]
    return {line[1]: line[3] for line in lines}


def test_the_losses_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """A job that fails once has the loss curve of one that does not."""
    named_plan("zb-h1", 2, 4).save(tmp_path / "plan.json")
    undisturbed = _losses(tmp_path, "never")
    assert sorted(undisturbed) == ["0", "1", "2", "3"]
    assert _losses(tmp_path, "2") == undisturbed
