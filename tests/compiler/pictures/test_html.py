"""The HTML timeline as people use it: in a real Chromium, which must be on the path."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drawings import plan
from playwright.sync_api import Browser, FloatRect, Locator, Page, sync_playwright

from debubble.compiler.analysis import Analysis
from debubble.compiler.errors import InputError
from debubble.compiler.pictures import html
from debubble.compiler.plan import Plan

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium with a fresh profile."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Draw plans, open the page without a network, and wait until it has painted; no script may fail."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    failures: list[str] = []

    def draw(*plans: Plan) -> Page:
        file = tmp_path / "timeline.html"
        file.write_text(html.draw(plans), encoding="utf-8")
        page = context.new_page()
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda message: message.type == "error" and failures.append(message.text))
        page.on("request", lambda request: request.url == file.as_uri() or failures.append(request.url))
        page.goto(file.as_uri())
        page.locator("#panels canvas[data-to]").last.wait_for()
        return page

    yield draw
    context.close()
    assert failures == []


def _canvas(page: Page, number: int = 0) -> Locator:
    return page.locator("#panels canvas").nth(number)


def _box(page: Page, number: int) -> FloatRect:
    """Where a canvas is in the window."""
    box = _canvas(page, number).bounding_box()
    assert box is not None
    return box


def _numbers(page: Page, number: int = 0) -> dict[str, float]:
    """Where the lanes are on a canvas, and which times they show."""
    _settle(page)
    return {key: float(value) for key, value in _canvas(page, number).evaluate("c => ({...c.dataset})").items()}


def _settle(page: Page) -> None:
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _wheel(page: Page, by: float) -> dict[str, float]:
    """Turn the wheel and wait until the page has answered; returns the times that it shows then."""
    before = _numbers(page)
    page.mouse.wheel(0, by)
    for _ in range(200):
        now = _numbers(page)
        if (now["from"], now["to"]) != (before["from"], before["to"]):
            return now
    raise AssertionError("the page does not answer the wheel")


def _place(page: Page, time: float, device: int, number: int = 0) -> tuple[float, float]:
    """The point of the window where a device is at a time."""
    _canvas(page, number).scroll_into_view_if_needed()
    box, at = _box(page, number), _numbers(page, number)
    x = at["gutter"] + (time - at["from"]) / (at["to"] - at["from"]) * at["room"]
    return box["x"] + x, box["y"] + at["top"] + (device + 0.5) * at["lane"]


def _hover(page: Page, time: float, device: int, number: int = 0) -> list[str]:
    """What the page says of the place."""
    page.mouse.move(*_place(page, time, device, number))
    _settle(page)
    assert page.locator("#detail").is_visible()
    return page.locator("#detail div").all_inner_texts()


def _colours(page: Page, number: int = 0) -> int:
    """How many different colours are on a canvas."""
    return _canvas(page, number).evaluate(
        """c => new Set(new Uint32Array(
            c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"""
    )


def test_the_page_shows_the_plan(opened: Open) -> None:
    """Name, objective, bound, bubble, memory and costs are on it, and something is drawn."""
    page = opened(plan())
    facts = dict(
        zip(page.locator("#facts th").all_inner_texts(), page.locator("#facts td").all_inner_texts(), strict=True)
    )
    assert page.locator("h1").inner_text() == "zb-h1"
    assert facts["objective"] == "makespan 283 ms (first start to last end of all devices), feasible"
    assert facts["span"] == "283 ms (first start to last end of the slowest device)"
    assert facts["lower bound"] == "232 ms (load, checked; gap 21.98%)"
    assert facts["bubble ratio"].startswith("21.98%")
    assert facts["peak memory"] == "8 GiB on device 0, cap 8 GiB"
    assert facts["link"] == "transfer 1 ms"
    assert page.locator("#legend li:visible").all_inner_texts() == [
        "F: forward 10 ms",
        "B: input gradient 11 ms",
        "W: weight gradient 8 ms",
        "critical path",
        *("warm-up", "dependency", "transfer", "memory", "order", "drain"),
    ]
    assert _colours(page) > 20


def test_it_answers_which_device_waits_most_why_and_what_would_help(opened: Open) -> None:
    """The first sentence says it, and the table shows the same time and marks one device."""
    page = opened(plan())
    answer = page.locator("#answers .first").inner_text()
    assert answer.startswith("Device 0 waits most: 51 ms of 283 ms, warm-up and drain included (as long as all others)")
    assert "Most of it, 30 ms, is memory" in answer
    assert "What would make it less: a higher cap on this device" in answer
    head = page.locator("#tables th[scope=col]").all_inner_texts()
    row = page.locator("#tables tbody tr, #tables table > tr").first.locator("td").all_inner_texts()
    assert dict(zip(head[1:] if len(head) > len(row) else head, row, strict=True))["memory"] == "30"
    assert dict(zip(head[1:] if len(head) > len(row) else head, row, strict=True))["idle"] == "51"
    assert page.locator("#tables tr td:nth-child(4).most").count() == 1
    assert page.locator("#remedies th[scope=row]").first.inner_text() == "warm-up"


def test_the_wheel_zooms_about_the_pointer(opened: Open) -> None:
    """Less time is shown, and the time under the pointer stays there."""
    page = opened(plan())
    x, y = _place(page, 100, 1)
    page.mouse.move(x, y)
    at = _wheel(page, -600)
    assert at["to"] - at["from"] < 0.5 * 283
    assert _place(page, 100, 1)[0] == pytest.approx(x, abs=1)


def test_the_wheel_zooms_out_no_farther_than_the_plan(opened: Open) -> None:
    """The farthest view is the whole plan."""
    page = opened(plan())
    page.mouse.move(*_place(page, 100, 1))
    _wheel(page, -200)
    at = _wheel(page, 2000)
    assert (at["from"], at["to"]) == (0, 283)


def test_keys_zoom_and_move(opened: Open) -> None:
    """Plus, minus, shift with an arrow, and zero for all."""
    page = opened(plan())
    _canvas(page).focus()
    page.keyboard.press("+")
    first = _numbers(page)
    assert first["to"] - first["from"] == pytest.approx(283 / 2)
    page.keyboard.press("Shift+ArrowRight")
    assert _numbers(page)["from"] > first["from"]
    page.keyboard.press("0")
    assert (_numbers(page)["from"], _numbers(page)["to"]) == (0, 283)


def test_buttons_zoom(opened: Open) -> None:
    """Nobody has to know the keys."""
    page = opened(plan())
    page.get_by_role("button", name="Zoom in").click()
    assert _numbers(page)["to"] - _numbers(page)["from"] == pytest.approx(283 / 2)
    assert page.locator("#visible").inner_text() == "70.75 to 212.25 ms of 283"
    page.get_by_role("button", name="Show all").click()
    _settle(page)
    assert page.locator("#visible").inner_text() == "0 to 283 ms of 283"


def test_dragging_pans(opened: Open) -> None:
    """The plan follows the pointer."""
    page = opened(plan())
    page.get_by_role("button", name="Zoom in").click()
    x, y = _place(page, 150, 1)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 200, y, steps=4)
    page.mouse.up()
    assert _place(page, 150, 1)[0] == pytest.approx(x + 200, abs=2)


def test_hovering_a_step_tells_its_times_what_it_waited_for_and_its_slack(opened: Open) -> None:
    """F 0 of device 1 waits for that of device 0; it is critical. F 2 of device 1 follows F 1 at once and can slip."""
    page = opened(plan())
    assert _hover(page, 15, 1) == [
        "1F0 on device 1",
        "forward of stage 1, micro-batch 0",
        "11 to 21 ms, takes 10 ms",
        "Waited 11 ms for 0F0 of device 0; it ended at 10, transfer 1",
        "No slack: on the critical path",
        "Memory during it: 2 of 8 GiB",
    ]
    lines = _hover(page, 35, 1)
    assert lines[0] == "1F2 on device 1"
    assert lines[3] == "Began as soon as 1F1 was done"
    assert lines[4] == "May start up to 26 ms later without making the makespan longer"


def test_hovering_idle_time_tells_the_cause(opened: Open) -> None:
    """After its fourth forward, device 0 could go on but for the cap: it would hold more than that allows."""
    lines = _hover(opened(plan()), 45, 0)
    assert lines[0] == "Idle on device 0: memory"
    assert "Held back by the cap: 0F4; would hold 10 of 8 GiB" in lines
    assert lines[-1] == "What would help: a higher cap on this device, or recomputation"


def test_a_step_says_what_held_it_back_as_its_gap_does(opened: Open) -> None:
    """The cap does not let the fifth forward of device 0 into the wait after the fourth."""
    drawn = plan()
    index = list(map(str, drawn.schedule.orders[0])).index("0F4")
    lines = _hover(opened(drawn), drawn.timeline.starts[0][index] + 1, 0)
    assert any(line.startswith("Held back by the cap: ready, and would have fitted into the idle") for line in lines)
    assert any(line.endswith("would hold 10 of 8 GiB") for line in lines)


def test_a_wait_that_has_slack_costs_nothing(opened: Open) -> None:
    """With twice as heavy a last stage, what the first device waits for could come later."""
    drawn = plan("1f1b", devices=2, costs=(10, 11, 8), comm=0, memory_cap=None, last=3)
    gap = next(gap for gap in Analysis(drawn).gaps[0] if gap.cause == "dependency")
    lines = _hover(opened(drawn), (gap.start + gap.end) / 2, 0)
    assert lines[-1].startswith("Costs nothing: 0")
    assert "which it delays, may start up to" in lines[-1]


def test_no_order_is_advised_where_the_plan_is_proved_optimal(opened: Open) -> None:
    """Neither above the picture nor in the table below it."""
    page = opened(plan(bound=283.0))
    assert "No order is faster" in page.locator("#answers").inner_text()
    assert "an order that" not in page.locator("body").inner_text()
    assert "nothing: it is proved that no order is faster" in page.locator("#remedies").inner_text()


def test_details_leave_the_lane_and_what_is_below_it_free(opened: Open) -> None:
    """They stand above the lane that they are about."""
    page = opened(plan())
    _hover(page, 100, 3)
    box = page.locator("#detail").bounding_box()
    assert box is not None
    top = _box(page, 0)["y"] + _numbers(page)["top"] + 3 * _numbers(page)["lane"]
    assert box["y"] + box["height"] <= top


def test_hovering_the_memory_tells_the_level(opened: Open) -> None:
    """Of the device that is picked by a click."""
    page = opened(plan())
    page.mouse.click(*_place(page, 45, 3))
    x, y = _place(page, 45, 3)
    page.mouse.move(x, y + 90)
    _settle(page)
    assert page.locator("#detail div").all_inner_texts() == ["Device 3 holds 2 of 8 GiB", "at 45 ms"]


def test_the_keyboard_reaches_every_step_and_wait(opened: Open) -> None:
    """Without a focus: arrows go along a device and to its neighbours, Home and End to the ends, Escape ends it."""
    page = opened(plan())
    names = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "End", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        names.append(page.locator("#detail div").first.inner_text())
    assert names == [
        "0F0 on device 0",
        "0F1 on device 0",
        "Idle on device 1: warm-up",
        "1F0 on device 1",
        "Idle on device 1: warm-up",
        "Idle on device 1: drain",
        "1W7 on device 1",
        "Idle on device 1: warm-up",
    ]
    assert page.locator("#detail").get_attribute("role") == "status"
    assert "Device 0 waits most" in (_canvas(page).get_attribute("aria-label") or "")
    page.keyboard.press("Escape")
    assert not page.locator("#detail").is_visible()


def test_what_scrolls_by_keys_keeps_them(opened: Open) -> None:
    """The table has the focus: arrows are its own."""
    page = opened(plan())
    page.locator("#tables .wide").focus()
    page.keyboard.press("ArrowRight")
    assert not page.locator("#detail").is_visible()


def test_a_step_outside_the_view_is_brought_into_it(opened: Open) -> None:
    """Walking along a device moves the view along."""
    page = opened(plan())
    _canvas(page).focus()
    for _ in range(5):
        page.keyboard.press("+")
    before = _numbers(page)["from"]
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert _numbers(page)["from"] > before


def test_the_critical_path_can_be_hidden(opened: Open) -> None:
    """Its black frames go with the box's tick, and with them its sign in the legend."""
    page = opened(plan())
    black = """c => new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)
        .reduce((count, pixel) => count + (pixel === 0xff000000), 0)"""
    shown = _canvas(page).evaluate(black)
    page.get_by_role("checkbox", name="Critical path").uncheck()
    _settle(page)
    assert _canvas(page).evaluate(black) < shown / 2
    assert "critical path" not in page.locator("#legend").inner_text()


def test_what_has_no_slack_can_be_outlined(opened: Open) -> None:
    """By a box or a key; the legend then says what the frames mean."""
    page = opened(plan())
    purple = """c => new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)
        .reduce((count, pixel) => count + (pixel === 0xff9a1b6a), 0)"""
    assert _canvas(page).evaluate(purple) == 0
    page.keyboard.press("s")
    _settle(page)
    assert page.get_by_role("checkbox", name="Operations without slack").is_checked()
    assert "without slack" in page.locator("#legend").inner_text()
    assert _canvas(page).evaluate(purple) > 100


def test_the_cap_is_marked_where_it_holds_steps_back(opened: Open) -> None:
    """Red in the memory of device 0, which waits for memory, and not in that of the last device, which does not."""
    page = opened(plan())
    red = """c => new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)
        .reduce((count, pixel) => count + (pixel === 0xff0028c8), 0)"""
    assert _canvas(page).evaluate(red) > 20
    page.mouse.click(*_place(page, 45, 3))
    _settle(page)
    assert _canvas(page).evaluate(red) == 0
    page.mouse.click(*_place(page, 45, 0))
    x, y = _place(page, 45, 0)
    page.mouse.move(x, y + 190)
    _settle(page)
    assert page.locator("#detail div").last.inner_text() == "The cap holds back 0F4; would hold 10 of 8 GiB"


@pytest.mark.parametrize("width", [1300, 700, 360])
def test_nothing_is_cut_in_narrow_windows(opened: Open, width: int) -> None:
    """The tables fit into the window: their columns wrap, and stand below each other where there is no room."""
    page = opened(plan())
    page.set_viewport_size({"width": width, "height": 900})
    assert page.locator(".wide").evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_nothing_is_cut_in_print(opened: Open) -> None:
    """On paper nobody can scroll."""
    page = opened(plan(devices=32, memory_cap=None))
    page.emulate_media(media="print")
    assert page.locator(".wide").evaluate_all("all => all.every(one => one.scrollHeight <= one.clientHeight)")


def test_kinds_differ_without_colour(opened: Open) -> None:
    """F, B, W and BW have different textures: where their samples in the legend are brighter than their ground."""
    page = opened(plan("dualpipe", where="bidirectional", microbatches=10, memory_cap=None))
    patterns = page.locator("#legend canvas").evaluate_all(
        """canvases => canvases.map(c => {
            const pixels = c.getContext('2d').getImageData(4, 4, 50, 24).data;
            const light = Array.from({length: pixels.length / 4}, (_, i) => pixels[4 * i + 1]);
            const low = Math.min(...light);
            return light.map(value => value > low + 8 ? '1' : '0').join('');
        })"""
    )
    assert len(set(patterns[:4])) == 4


def test_two_plans_are_compared_on_one_scale(opened: Open) -> None:
    """One sentence, both facts, and a zoom of the one is a zoom of the other."""
    page = opened(plan(), plan("1f1b"))
    assert page.locator("#comparison").inner_text() == (
        "A, zb-h1, takes 15.52% less time than B, 1f1b (makespan 283 ms against 335 ms), "
        "and holds 8 GiB against 8 GiB on the fullest device."
    )
    assert page.locator("#facts th[scope=col]").all_inner_texts()[1:] == ["A: zb-h1", "B: 1f1b"]
    page.mouse.move(*_place(page, 100, 1))
    _wheel(page, -400)
    first, second = _numbers(page, 0), _numbers(page, 1)
    assert first["to"] - first["from"] < 335
    assert (first["from"], first["to"]) == (second["from"], second["to"])
    assert _hover(page, 100, 3, number=1)[0].endswith("on device 3")


def test_two_plans_stand_side_by_side_when_asked(opened: Open) -> None:
    """At first one above the other, with the same times below each other; then next to each other."""
    page = opened(plan(), plan("1f1b"))
    above = [_box(page, number) for number in (0, 1)]
    page.get_by_label("Side by side").check()
    beside = [_box(page, number) for number in (0, 1)]
    assert above[0]["x"] == above[1]["x"]
    assert beside[0]["y"] == beside[1]["y"]
    assert beside[0]["x"] + beside[0]["width"] <= beside[1]["x"]


def test_pairs_say_both_operations_and_their_cost(opened: Open) -> None:
    """The duration of a pair is never a silent discount."""
    page = opened(plan("dualpipe", where="bidirectional", microbatches=10, memory_cap=None, overlapped_pair=0.9))
    drawn = plan("dualpipe", where="bidirectional", microbatches=10, memory_cap=None, overlapped_pair=0.9)
    index, step = next((i, s) for i, s in enumerate(drawn.schedule.orders[0]) if "+" in str(s))
    lines = _hover(page, drawn.timeline.starts[0][index] + 1, 0)
    assert lines[0] == f"{step} on device 0"
    assert "forward of stage" in lines[1]
    assert "backward of stage" in lines[1]
    assert "F with backward in 0.9 times the sum of their times" in page.locator("#legend").inner_text()


MARKUP = "</script><img src=x onerror=\"document.title='owned'\"><!--<script>{{data}}"


def test_names_with_markup_are_text(opened: Open) -> None:
    """Whatever a file says its units and its method are called, it is shown as it stands and nothing of it runs."""
    marked = plan(time_unit=MARKUP, memory_unit=f"<b>{MARKUP}", method=f"<svg onload=alert(1)>{MARKUP}")
    page = opened(marked, marked)
    assert page.locator("h1").inner_text() == " against ".join(
        f"{letter}: <svg onload=alert(1)>{MARKUP}" for letter in "AB"
    )
    assert page.locator("img, svg, b").count() == 0
    assert page.title() == f"{marked.schedule.method} against {marked.schedule.method} - debubble"
    assert _hover(page, 5, 0)[2] == f"0 to 10 {MARKUP}, takes 10 {MARKUP}"


def test_the_page_allows_no_script_but_its_own() -> None:
    """Its policy names the hash of its script, and nothing in it points to a network."""
    page = html.draw([plan()])
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    found = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{found}'" in page
    assert re.findall(r"(?:https?:)?//[a-z]", page.replace("// ", "")) == []


def test_the_same_plan_gives_the_same_page() -> None:
    """Pages under version control change only when the plan does."""
    assert html.draw([plan()]) == html.draw([plan()])


@pytest.mark.parametrize(
    "drawn",
    [
        plan(devices=1, microbatches=1),
        plan("gpipe", devices=2, microbatches=1, memory_cap=None),
        plan("interleaved", where="loop", devices=2, microbatches=2, memory_cap=None, time_unit="", memory_unit=""),
        plan(microbatches=2, costs=(10, 0, 0)),
        plan(static_memory=5, memory_cap=13),
    ],
    ids=["one device", "one micro-batch", "no units", "steps without duration", "static memory"],
)
def test_unusual_plans_are_drawn(opened: Open, drawn: Plan) -> None:
    """The first forward is where it is in all of them."""
    assert "forward of stage 0, micro-batch 0" in _hover(opened(drawn), 5, 0)


def test_a_plan_that_takes_no_time_is_drawn(opened: Open) -> None:
    """There is nothing to see, and no error."""
    page = opened(plan("gpipe", devices=2, microbatches=2, memory_cap=None, costs=(0, 0, 0), comm=0))
    assert page.locator("#answers .first").inner_text() == "No device waits."
    assert page.locator("#visible").inner_text() == "0 to 1 ms of 1"


def test_memory_counts_from_what_is_always_held(opened: Open) -> None:
    """Before its first step a device holds its static memory."""
    page = opened(plan(static_memory=5, memory_cap=13))
    page.mouse.click(*_place(page, 45, 3))
    x, y = _place(page, 5, 3)
    page.mouse.move(x, y + 90)
    _settle(page)
    assert page.locator("#detail div").first.inner_text() == "Device 3 holds 5 of 13 GiB"


def test_slack_and_idle_time_under_span(opened: Open) -> None:
    """The page says which objective slack is about, and that the ends of the picture do not count."""
    page = opened(plan(objective="span"))
    assert "warm-up and drain do not count" in page.locator("#answers").inner_text()
    assert any("without making the span longer" in line for line in _hover(page, 15, 0))


def test_plans_in_different_units_are_not_compared() -> None:
    """One axis cannot show both."""
    with pytest.raises(InputError, match="'ms', 's'"):
        html.draw([plan(), plan(time_unit="s")])


def test_lanes_of_many_devices_can_be_made_tall(opened: Open) -> None:
    """So that numbers fit in; with few devices they are tall anyway, and nothing is asked."""
    page = opened(plan(devices=64, microbatches=2, memory_cap=None))
    low = _numbers(page)["lane"]
    page.get_by_label("Tall lanes").check()
    assert low < 12 < _numbers(page)["lane"]
    assert not opened(plan()).get_by_label("Tall lanes").is_visible()


def test_two_hundred_thousand_operations_stay_usable(opened: Open) -> None:
    """64 devices and 1024 micro-batches: painted, zoomed to single steps, and each is found under the pointer."""
    drawn = plan(devices=64, microbatches=1024, memory_cap=None)
    page = opened(drawn)
    assert sum(map(len, drawn.schedule.orders)) == 196_608
    assert _colours(page) > 100
    time = drawn.timeline.starts[40][1500] + 1
    for _ in range(10):
        page.mouse.move(*_place(page, time, 40))
        at = _wheel(page, -600)
    assert at["to"] - at["from"] < 100
    assert at["from"] < time < at["to"]
    assert _hover(page, time, 40)[0] == f"{drawn.schedule.orders[40][1500]} on device 40"


def test_what_is_unpacked_is_what_was_packed(opened: Open) -> None:
    """Times keep all their digits."""
    drawn = plan()
    times = opened(drawn).evaluate("() => [...page.plans[0].start]")
    assert times == [time for starts in drawn.timeline.starts for time in starts]
