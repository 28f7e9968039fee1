"""Stream verification: every way to break a small exchange is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from debubble.compiler import placement
from debubble.compiler.instruction import Stream, parse
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.streams import verify_streams

PROFILE = Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1)
PROBLEM = Problem(PROFILE, placement.bidirectional(2), 2)


def exchange(*, group: str = "") -> list[list[str]]:
    """Micro-batch 0 goes down, 1 goes up: both devices send, then receive."""
    return [
        [
            own, f"send {own} >{peer}{group}", f"recv {other} <{peer} [0]{group}", f"wait {other}", turn, back,
            f"send {gradient} >{peer} ~9", f"recv {returned} <{peer} [0] ~9", f"wait {returned}", last,
            f"wait {own}", f"wait {gradient}", f"reduce 0 >{peer}", f"reduce 1 >{peer}",
        ]
        for peer, own, other, turn, back, gradient, returned, last in (
            (1, "0F0", "0F1", "1F1", "1BW1", "1B1", "1B0", "0BW0"),
            (0, "0F1", "0F0", "1F0", "1BW0", "1B0", "1B1", "0BW1"),
        )
    ]  # fmt: skip


def codes(streams: list[list[str]], transfers: str = "rendezvous") -> set[str]:
    parsed: list[Stream] = [tuple(map(parse, stream)) for stream in streams]
    return {diagnostic.code for diagnostic in verify_streams(PROBLEM, parsed, transfers=transfers).errors}


def test_send_first_on_both_sides_stalls() -> None:
    """Two ranks that each send before they receive stall when a send waits for its receive."""
    assert codes(exchange()) == {"stall"}


def test_the_stall_names_both_devices() -> None:
    """The message says where each device is stuck."""
    report = verify_streams(PROBLEM, [tuple(map(parse, stream)) for stream in exchange()])
    assert "device 0 is stuck at send 0F0 >1" in report.errors[0].message
    assert "device 1 is stuck at send 0F1 >0" in report.errors[0].message


def test_grouped_or_buffered_exchange_runs() -> None:
    """The same exchange as one group, or with buffered sends, is fine."""
    assert codes(exchange(group=" ~3")) == set()
    assert codes(exchange(), "buffered") == set()


def swap(streams: list[list[str]], device: int, i: int, j: int) -> None:
    streams[device][i], streams[device][j] = streams[device][j], streams[device][i]


DAMAGES: dict[str, tuple[str, Callable[[list[list[str]]], object]]] = {
    "dropped send": ("unmatched-receive", lambda s: s[0].pop(1)),
    "dropped receive": ("unmatched-send", lambda s: s[0].pop(2)),
    "dropped wait": ("use-before-receive", lambda s: s[0].pop(3)),
    "wait after use": ("use-before-receive", lambda s: swap(s, 0, 3, 4)),
    "send before value": ("send-before-value", lambda s: swap(s, 0, 0, 1)),
    "doubled send": ("duplicate-send", lambda s: s[0].insert(2, s[0][1])),
    "doubled receive": ("duplicate-receive", lambda s: s[0].insert(3, s[0][2])),
    "doubled compute": ("duplicate-operation", lambda s: s[0].insert(1, s[0][0])),
    "unknown peer": ("bad-peer", lambda s: s[0].__setitem__(1, "send 0F0 >7")),
    "sent to itself": ("bad-peer", lambda s: s[0].__setitem__(1, "send 0F0 >0")),
    "missing reduce": ("missing-reduce", lambda s: s[0].pop()),
    "doubled reduce": ("extra-reduce", lambda s: s[0].append("reduce 1 >1")),
    "early reduce": ("early-reduce", lambda s: swap(s, 0, 9, 12)),
    "reduces crossed": ("stall", lambda s: swap(s, 0, 12, 13)),
    "wait for nothing": ("wait-for-nothing", lambda s: s[0].insert(0, "wait 1B0")),
    "never waited": ("never-waited", lambda s: (s[0].insert(9, "recv 0B1 <1 [1]"), s[1].insert(10, "send 0B1 >0"))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_found(damage: str) -> None:
    """Each damage to a valid exchange is reported by its own code."""
    code, apply = DAMAGES[damage]
    streams = exchange(group=" ~3")
    apply(streams)
    assert code in codes(streams)


def test_swapped_sends_are_found() -> None:
    """Two sends in an order that differs from their receives would hand over wrong values in silence."""
    problem = Problem(Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1), placement.linear(2), 2)
    first = ["0F0", "0F1", "send 0F1 >1", "send 0F0 >1", "recv 1B0 <1 [0]", "recv 1B1 <1 [1]", "wait 1B0", "0BW0",
             "wait 1B1", "0BW1", "wait 0F0", "wait 0F1"]  # fmt: skip
    second = ["recv 0F0 <0 [0]", "recv 0F1 <0 [1]", "wait 0F0", "1F0", "1BW0", "send 1B0 >0", "wait 0F1", "1F1", "1BW1",
              "send 1B1 >0", "wait 1B0", "wait 1B1"]  # fmt: skip
    report = verify_streams(problem, [tuple(map(parse, first)), tuple(map(parse, second))])
    assert [d.code for d in report.errors] == ["channel-order"]


def test_overwritten_buffer_is_found() -> None:
    """A slot that is received into before its micro-batch's backward is done would corrupt the weight gradient."""
    problem = Problem(Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1), placement.linear(2), 2)
    second = ["recv 0F0 <0 [0]", "wait 0F0", "1F0", "recv 0F1 <0 [0]", "wait 0F1", "1F1", "1BW0", "1BW1"]
    report = verify_streams(problem, [(), tuple(map(parse, second))])
    assert "slot-overwritten" in {d.code for d in report.errors}
