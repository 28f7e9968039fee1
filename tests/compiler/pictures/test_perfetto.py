"""Perfetto traces, read back with Perfetto's own message classes."""

from __future__ import annotations

from collections import Counter

import pytest
from drawings import plan
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from debubble.compiler.arrival import arrivals
from debubble.compiler.pictures import perfetto
from debubble.compiler.plan import Plan

PLANS = {
    "split": plan(),
    "fused": plan("1f1b", devices=3, microbatches=5),
    "two chunks": plan("interleaved", where="loop", memory_cap=None),
    "pairs": plan("dualpipe", where="bidirectional", microbatches=10, memory_cap=None),
}


def _packets(drawn: Plan) -> list[TracePacket]:
    return list(Trace.FromString(perfetto.draw(drawn.timeline)).packet)


def _events(drawn: Plan, type: int) -> list[TracePacket]:
    return [p for p in _packets(drawn) if p.HasField("track_event") and p.track_event.type == type]


@pytest.fixture(params=PLANS)
def drawn(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


def test_a_track_and_a_counter_per_device(drawn: Plan) -> None:
    """Under one track for the plan, every device has a track for steps and a counter for memory."""
    tracks = [p.track_descriptor for p in _packets(drawn) if p.HasField("track_descriptor")]
    devices = drawn.problem.devices
    assert len({track.uuid for track in tracks}) == len(tracks) == 1 + 2 * devices
    assert [track.name for track in tracks if track.HasField("counter")] == [
        f"memory of device {device}" for device in range(devices)
    ]
    assert {track.parent_uuid for track in tracks[1:]} == {tracks[0].uuid}


def test_a_slice_per_step(drawn: Plan) -> None:
    """Each step begins and ends once, on the track of its device, at its times."""
    begins, ends = _events(drawn, TrackEvent.TYPE_SLICE_BEGIN), _events(drawn, TrackEvent.TYPE_SLICE_END)
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in _packets(drawn)}
    steps = Counter({f"device {device}": len(order) for device, order in enumerate(drawn.schedule.orders)})
    assert Counter(names[event.track_event.track_uuid] for event in begins) == steps
    assert [event.timestamp for event in begins] == [1e6 * t for starts in drawn.timeline.starts for t in starts]
    assert [event.timestamp for event in ends] == [1e6 * t for ended in drawn.timeline.ends for t in ended]


def test_a_flow_per_transfer(drawn: Plan) -> None:
    """Every value that crosses devices leaves the slice that makes it and ends at the one that needs it."""
    begins = _events(drawn, TrackEvent.TYPE_SLICE_BEGIN)
    sent = {flow: event for event in begins for flow in event.track_event.flow_ids}
    received = {flow: event for event in begins for flow in event.track_event.terminating_flow_ids}
    crossing = [
        need
        for device, steps in enumerate(arrivals(drawn.timeline))
        for needs in steps
        for need in needs
        if need.device != device
    ]
    assert len(sent) == len(received) == len(crossing)
    assert sent.keys() == received.keys()
    assert all(sent[flow].track_event.track_uuid != received[flow].track_event.track_uuid for flow in sent)
    assert all(sent[flow].timestamp + 1e6 <= received[flow].timestamp for flow in sent)


def test_counters_follow_the_memory(drawn: Plan) -> None:
    """The highest value of each counter is the peak of its device, the last one is what stays."""
    counters: dict[int, list[float]] = {}
    for event in _events(drawn, TrackEvent.TYPE_COUNTER):
        counters.setdefault(event.track_event.track_uuid, []).append(event.track_event.double_counter_value)
    assert [max(levels) for levels in counters.values()] == drawn.timeline.peak_memory
    assert [levels[-1] for levels in counters.values()] == [0] * drawn.problem.devices


def test_one_sequence_that_starts_clean() -> None:
    """Perfetto drops track events without a sequence; the first packet says that nothing came before."""
    packets = _packets(plan())
    assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
    assert packets[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED


def test_slices_say_kind_stage_and_slack() -> None:
    """What Perfetto shows on a click."""
    event = _events(plan(), TrackEvent.TYPE_SLICE_BEGIN)[1].track_event
    notes = {note.name: note.string_value or note.double_value for note in event.debug_annotations}
    assert event.name == "F 1"
    assert list(event.categories) == ["F"]
    assert notes == {"forward": "stage 0, micro-batch 1", "slack": 13}


def test_pairs_are_one_slice() -> None:
    """Both halves are named."""
    names = [event.track_event.name for event in _events(PLANS["pairs"], TrackEvent.TYPE_SLICE_BEGIN)]
    assert any(name.startswith("F ") and " + BW " in name for name in names)


@pytest.mark.parametrize(("unit", "scale"), [("s", 1e9), ("us", 1e3), ("µs", 1e3), ("ns", 1), ("", 1e3), ("t", 1e3)])
def test_time_units(unit: str, scale: float) -> None:
    """Known units become nanoseconds; any other is drawn as a microsecond, and the name of the trace says so."""
    drawn = plan(time_unit=unit)
    assert _events(drawn, TrackEvent.TYPE_SLICE_END)[0].timestamp == 10 * scale
    told = "drawn as 1 us" in _packets(drawn)[0].track_descriptor.name
    assert told == (unit not in perfetto.NANOSECONDS)
