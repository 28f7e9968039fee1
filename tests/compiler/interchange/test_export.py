"""Writing: formats, and plans that a format has no words for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from damage import schedule_of

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.errors import InputError
from debubble.compiler.interchange import export
from debubble.compiler.placement import Placement
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile


def plan(place: Placement, *rows: Sequence[str]) -> Plan:
    profile = Profile.uniform(stages=place.stages, forward=1, backward_input=1, backward_weight=1)
    bound = Certificate(lower_bound=0.0, name="none", proof="solver")
    return Plan.build(Problem(profile, place, 2), schedule_of(list(map(list, rows))), bound)


DOWN = plan(placement.linear(2), ("0F0", "0F1", "0B0", "0W0", "0BW1"), ("1F0", "1F1+1BW0", "1BW1"))


def test_compute_only() -> None:
    """Today's letters, one line a rank."""
    assert export(DOWN, "torch-csv") == "0F0,0F1,0I0,0W0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n"


def test_communication() -> None:
    """Sends, posted receives, and one reduction of each stage after its last weight gradient."""
    assert export(DOWN, "torch-comms-csv") == (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0I0,0RECV_B1,0W0,0B1,0REDUCE_GRAD\n"
        "1RECV_F0,1RECV_F1,1F0,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD\n"
    )


def test_text() -> None:
    """Stages are written out, and the placement and the micro-batches stated."""
    assert export(DOWN, "text") == ("# placement: 0,1\n# microbatches: 2\n0F0 0F1 0B0 0W0 0BW1\n1F0 1F1+1BW0 1BW1\n")


def test_unknown_format() -> None:
    """A format that does not exist is refused by name."""
    with pytest.raises(InputError, match="unknown format 'yaml'"):
        export(DOWN, "yaml")


@pytest.mark.parametrize("format", ["torch-csv", "torch-comms-csv"])
def test_what_torch_cannot_hold(format: str) -> None:
    """Two copies of a stage, and a last stage whose losses come out of order."""
    both = plan(placement.bidirectional(2), ("0F0", "1F1", "1BW1", "0BW0"), ("0F1", "1F0", "1BW0", "0BW1"))
    with pytest.raises(InputError, match="bidirectional"):
        export(both, format)
    with pytest.raises(InputError, match="out of order"):
        export(plan(placement.linear(1), ("0F1", "0F0", "0BW0", "0BW1")), format)
