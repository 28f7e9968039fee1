"""`debubble balance`: layers into stages."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from debubble.balancing import balance
from debubble.compiler.errors import InfeasibleError
from debubble.compiler.interchange import layout
from debubble.compiler.layers import Layer, Layers
from debubble.compiler.placement import linear
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile
from debubble.solver.search import search


def _model(blocks: int = 6) -> Layers:
    """An embedding, blocks, and a loss head of twice a block."""
    names = [("embedding", "E", 0.3), *((f"block.{n}", "t", 1.0) for n in range(blocks)), ("loss", "L", 2.0)]
    return Layers(
        layers=tuple(
            Layer(
                name=name,
                letter=letter,
                forward=cost,
                backward_input=cost,
                backward_weight=cost,
                memory=Memory(cost, 0, -cost),
                static_memory=1.0,
            )
            for name, letter, cost in names
        )
    )


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The same model as CSV."""
    rows = [f"{x.name},{x.forward},{x.backward_input},{x.backward_weight},{x.letter}" for x in _model().layers]
    path = tmp_path / "layers.csv"
    path.write_text("name,forward,backward_input,backward_weight,letter\n" + "\n".join(rows) + "\n")
    return str(path)


def test_every_layer_is_in_one_stage_in_its_order() -> None:
    """None is lost, doubled or moved, on any placement."""
    for name in ("linear", "loop", "v", "bidirectional"):
        found = balance(_model(), microbatches=4, devices=2, placement=name, time_limit=1)
        assert [layer for stage in found.modules for layer in stage] == [layer.name for layer in _model().layers]


def test_boundaries_are_moved_where_that_saves_time() -> None:
    """The shortest longest stage is 4 blocks long either way; where it lies matters."""
    found = balance(_model(8), microbatches=6, devices=3, time_limit=3)
    assert found.plan.value < found.first
    assert found.tried > 1


def test_the_split_with_the_best_schedule_is_found() -> None:
    """Among all splits of a small model into two stages, searched each by itself."""
    model = _model(4)
    best = min(search(Problem(model.profile((end, 6)), linear(2), 4), time_limit=1).value for end in range(1, 6))
    assert balance(model, microbatches=4, devices=2, time_limit=6).plan.value == pytest.approx(best)


def test_stages_fit_the_caps() -> None:
    """The second device has room for two layers' weights and little else."""
    found = balance(_model(), microbatches=4, devices=2, memory_cap=(30.0, 5.0), time_limit=2)
    assert len(found.modules[1]) <= 2
    assert found.plan.timeline.peak_memory[1] <= 5


def test_caps_that_no_split_fits() -> None:
    """As compile says it."""
    with pytest.raises(InfeasibleError):
        balance(_model(), microbatches=4, devices=2, memory_cap=3.0, time_limit=1)


def test_a_table_becomes_a_profile(debubble: Any, table: str, tmp_path: Path) -> None:
    """Which compile takes, with as many stages as devices."""
    path = tmp_path / "profile.json"
    found = debubble("balance", table, "--devices", 2, "-m", 4, "--time-limit", 1, "-o", path, "--json").json
    assert found["profile"] == str(path)
    assert sum(stage.forward for stage in Profile.load(path).stages) == pytest.approx(8.3)


def test_the_layout_is_what_megatron_reads(debubble: Any, table: str) -> None:
    """Its letters, stage by stage, are those of the layers."""
    found = debubble("balance", table, "--devices", 2, "-m", 4, "--time-limit", 1, "--json").json
    assert [len(stage) for stage in layout.read(found["layout"])] == [len(stage) for stage in found["modules"]]
    assert "".join(layout.read(found["layout"])) == "EttttttL"


def test_the_text_shows_stages_and_layout(debubble: Any, table: str) -> None:
    """A line for each stage, the plan, and the layout."""
    out = debubble("balance", table, "--devices", 2, "-m", 4, "--time-limit", 1).out
    assert "embedding to block." in out
    assert "makespan" in out
    assert "layout       Et*" in out


def test_a_link_is_given_on_the_command_line(debubble: Any, table: str, tmp_path: Path) -> None:
    """Tables have none."""
    path = tmp_path / "profile.json"
    words = ("balance", table, "--devices", 2, "-m", 4, "--time-limit", 1, "-o", path)
    debubble(*words, "--comm", 0.5)
    assert Profile.load(path).comm == 0.5
    debubble(*words, "--comm", 0.5, "--bandwidth", 100)
    assert '"bandwidth": 100.0' in path.read_text()


def test_more_stages_than_layers_are_refused(debubble: Any, table: str) -> None:
    """With both numbers."""
    result = debubble("balance", table, "--devices", 9, "-m", 4)
    assert result.status == 2
    assert "9 stages cannot be made of 8 layers" in result.err


def test_a_map_of_replicated_stages_is_refused(debubble: Any, tmp_path: Path) -> None:
    """As PipeDream's hybrid plans are."""
    path = tmp_path / "hybrid_conf.json"
    path.write_text('{"module_to_stage_map": [0, 1, 1], "stage_to_rank_map": {"0": [0, 1, 2], "1": [3]}}')
    result = debubble("balance", path, "--devices", 2, "-m", 4)
    assert result.status == 2
    assert "replicated stages are not supported" in result.err


def test_a_map_without_costs_says_how_to_use_it(debubble: Any, tmp_path: Path) -> None:
    """It is a placement."""
    path = tmp_path / "mp_conf.json"
    path.write_text('{"module_to_stage_map": [0, 1], "stage_to_rank_map": {"0": [0], "1": [1]}}')
    assert "--placement 0,1" in debubble("balance", path, "--devices", 2, "-m", 4).err


@pytest.mark.parametrize(
    "content", ["{", "[1]", '{"format": "debubble.layers/1"}', '{"format": 3}', "\n", "a,b\n1,2\n"]
)
def test_files_that_cannot_be_understood(debubble: Any, tmp_path: Path, content: str) -> None:
    """Are refused by name, whatever they hold."""
    path = tmp_path / "layers"
    path.write_text(content)
    result = debubble("balance", path, "--devices", 2, "-m", 4)
    assert result.status == 2
    assert str(path) in result.err


def test_an_interrupt_keeps_the_best_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan says that it was interrupted."""
    import debubble.balancing as module

    real, calls = module.search, []

    def interrupted(*arguments: Any, **options: Any) -> Plan:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, "search", interrupted)
    found = balance(_model(8), microbatches=6, devices=3, time_limit=2)
    assert found.tried == 1
    assert "interrupted" in found.plan.warnings[0]


@pytest.mark.parametrize("placement", ["linear", "v"])
def test_the_command_for_the_profile_works(debubble: Any, table: str, tmp_path: Path, placement: str) -> None:
    """It compiles the problem that was balanced."""
    path = tmp_path / "profile.json"
    words = ("--devices", 2, "-m", 4, "--placement", placement, "--memory-cap", 12, "--time-limit", 1)
    out = debubble("balance", table, *words, "-o", path).out
    command = shlex.split(out.splitlines()[-1].partition("debubble ")[2])
    plan = debubble(*command, "--time-limit", 1, "-o", tmp_path / "plan.json")
    assert plan.status == 0
    assert Plan.load(tmp_path / "plan.json").problem.placement.kind == placement


def test_a_bandwidth_that_plays_no_part_is_said(debubble: Any, table: str) -> None:
    """Where no layer tells how much it sends."""
    words = ("balance", table, "--devices", 2, "-m", 4, "--time-limit", 1)
    assert "no layer says its output_bytes" in debubble(*words, "--bandwidth", 5).out
    assert "output_bytes" not in debubble(*words, "--comm", 5).out


def test_a_balance_is_printed_as_the_command_prints_it() -> None:
    """Not as the layers it is made of."""
    shown = str(balance(_model(), microbatches=4, devices=2, time_limit=1))
    assert shown.startswith("stage  layers")
    assert "Layer(" not in shown
