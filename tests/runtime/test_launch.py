"""Whole runs in processes that `run` starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from training import named_plan

from debubble.compiler.errors import InputError, RunError
from debubble.runtime import run

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'transformer.py'}:workload"
FAILING = Path(__file__).with_name("failing.py")


def _left_running() -> str:
    """The command lines of this process's children."""
    command = ["ps", "-o", "args", "--ppid", str(os.getpid())]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module")
def example() -> dict[str, object]:
    """Three checked steps of the example on two processes."""
    result = run(named_plan("zb-h1", 2, 4), EXAMPLE, steps=3, check=True)
    assert result is not None
    return result.as_json()


def test_the_example_trains(example: dict[str, object]) -> None:
    """Every step has a loss and a time, and the gradients are those of a single process."""
    assert example["ok"] is True
    assert len(example["losses"]) == len(example["step_seconds"]) == 3  # type: ignore[arg-type]
    assert example["gradient_error"] < 1e-5  # type: ignore[operator]


def test_the_prediction_is_the_makespan(example: dict[str, object]) -> None:
    """`predicted_step` is in the units of the profile."""
    assert example["predicted_step"] == named_plan("zb-h1", 2, 4).timeline.makespan


def test_memory_is_measured_on_every_device(example: dict[str, object]) -> None:
    """What micro-batches hold is counted in bytes, device by device."""
    assert len(example["peak_memory"]) == 2  # type: ignore[arg-type]
    assert min(example["peak_memory"]) > 10_000  # type: ignore[call-overload]


def test_a_rank_that_raises_ends_the_run() -> None:
    """The message names rank, instruction and micro-batch, not the ranks that lost their peer."""
    with pytest.raises(RunError, match=r"rank 1, step 0, instruction \d+ of \d+, 1F1 \(micro-batch 1\): .*out of luck"):
        run(named_plan("1f1b", 3, 4), f"{FAILING}:raises")


def test_a_rank_that_is_killed_ends_the_run() -> None:
    """The launcher knows where a rank was that cannot speak any more."""
    with pytest.raises(RunError, match=r"rank 1, step 0, .*1F1 \(micro-batch 1\): the process was killed by SIGKILL"):
        run(named_plan("1f1b", 3, 4), f"{FAILING}:dies")


def test_a_rank_that_hangs_ends_the_run() -> None:
    """The rank that waits for nobody is named first, and no process is left."""
    with pytest.raises(RunError, match=r"no rank got on for 3 s: rank 1, step 0, .*1F1.*; rank 0, .*the transfer with"):
        run(named_plan("1f1b", 3, 4), f"{FAILING}:hangs", timeout=3)
    assert "debubble.runtime.worker" not in _left_running()


def test_bad_input_stays_bad_input() -> None:
    """What the handshake refuses is an InputError of the caller."""
    with pytest.raises(InputError, match="a batch of 3 cannot be cut into 4 micro-batches"):
        run(named_plan("1f1b", 2, 4), f"{FAILING}:lacks_rows")


def test_no_steps_are_refused() -> None:
    """A run takes at least one step."""
    with pytest.raises(InputError, match="at least 1, not 0"):
        run(named_plan("1f1b", 2, 4), EXAMPLE, steps=0)


def test_a_missing_model_is_refused_before_any_process_starts() -> None:
    """The file is looked for first."""
    with pytest.raises(InputError, match="there is no such file"):
        run(named_plan("1f1b", 2, 4), "nowhere.py:workload")


def _torchrun(directory: Path, model: str, options: str) -> subprocess.CompletedProcess[str]:
    """Two ranks under torchrun that call `run` with these options and print whether it was right."""
    named_plan("1f1b", 2, 4).save(directory / "plan.json")
    script = directory / "script.py"
    script.write_text(
        "import sys\n"
        "from debubble.compiler.plan import Plan\n"
        "from debubble.runtime import run\n"
        f"result = run(Plan.load(sys.argv[1]), sys.argv[2], {options})\n"
        "print('nothing' if result is None else result.ok)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    words = [*command, str(directory / "plan.json"), model]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_torchrun(tmp_path: Path) -> None:
    """Under torchrun every process is a rank, and rank 0 has the result."""
    assert sorted(_torchrun(tmp_path, EXAMPLE, "check=True").stdout.split()) == ["True", "nothing"]


def test_a_rank_that_hangs_under_torchrun_ends_the_job(tmp_path: Path) -> None:
    """It says itself where it hangs, and torchrun ends the other."""
    done = _torchrun(tmp_path, f"{FAILING}:hangs", "timeout=2")
    assert done.returncode != 0
    assert re.search(
        r"rank 1, step 0, instruction \d+ of \d+, 1F2 \(micro-batch 2\): did not get on for 2 s", done.stderr
    )


def test_an_interrupt_ends_every_process(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a step leaves nothing running."""
    named_plan("1f1b", 2, 4).save(tmp_path / "plan.json")
    begun = tmp_path / "begun"
    script = (
        "import sys\n"
        "from debubble.compiler.plan import Plan\n"
        "from debubble.runtime import run\n"
        "run(Plan.load(sys.argv[1]), sys.argv[2])\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "plan.json"), f"{FAILING}:hangs"]
    environment = {**os.environ, "BEGUN": str(begun)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
        while not begun.exists() or not begun.read_text():
            time.sleep(0.05)
        worker = int(begun.read_text())
        process.send_signal(signal.SIGINT)
        process.wait()
    assert process.returncode != 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
