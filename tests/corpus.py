"""A small file of every kind that debubble reads, and pieces to damage them with."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile

SCHEDULES = {
    "text": "# placement: linear\n# microbatches: 2\nF0 F1 . BW0 BW1\n. F0 BW0 F1 B1 W1\n",
    "pairs": "0F0 3F0 0F1+3BW0 3F1 3BW1 0BW0 0BW1\n1F0 2F0 1F1 2F1 2BW0 1BW0 2BW1 1BW1\n",
    "torch": "0F0,,0F1,1F0,1F1,1I0,1W0,1B1,0B0,0B1\r\n",
    "communication": (
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"
    ),
    "overlap": "0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1\n",
    "printed": "        Rank 0 Rank 1\nStep 0: F0_s0  None\nStep 1:        F0_s1\nStep 2: None   B0_s1\nStep 3: B0_s0",
    "megatron": "[1, 1, 2, 2, -2, -2, -1, -1]\n[1, 1, 2, 2, -2, -2, -1, -1]\n",
}
PIECES = (
    "0F0", "1F0", "F0", "2B1", "0W1", "0BW0", "0I0", "0F0+1B1", "(0F0;0B1)OVERLAP_F_B", "0SEND_F0", "1RECV_F0",
    "1SEND_B0", "0RECV_B0", "0UNSHARD", "0RESHARD", "0REDUCE_GRAD", "F0_s1", "None", "1", "-1", "999999999F999999999",
    "7F7", "Rank 0", "Step 0:", "# placement: ", "# microbatches: ", "v", "loop", "0,1,0", "a|(b", "{", '"', "\x00",
    "é", "\u2028",
)  # fmt: skip
SEPARATORS = (" ", ",", "\n", "\r\n", "\t", ";", "", ".", ", ")
WORDS_OF_JSON = (
    "[", "]", "{", "}", ":", ",", "null", "true", "-1", "1e999", "0.5", "99999999999999999999", "1e308", "\\u0000",
    '"send 0F0 >1"', '"recv 0F0 <0 [0]"', '"reduce 0 >1"', "~1", '"wait 1B0"', '"format"', '"digest"', '"device"',
    "[" * 300, "NaN", "-0.0",
)  # fmt: skip


def profile_file() -> str:
    """A profile with every key."""
    profile = Profile.uniform(
        stages=2, forward=1, backward_input=1.5, backward_weight=0.5, comm=0.25, memory=(1, 0.5, -1.5)
    )
    return msgspec.json.encode(profile).decode()


def plan_file() -> str:
    """A bidirectional plan, which has every kind of instruction."""
    profile = Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.bidirectional(2), 2)
    witness = Certificate(lower_bound=6.0, name="work", proof="checked", witness={"device": 0})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        Plan.build(problem, named_schedule("chimera", problem), witness).save(path)
        return path.read_text()
