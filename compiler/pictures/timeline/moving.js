// Zooming, moving, pointing and picking.

let active = null;  // the panel that keys act on

function show(from, to) {
  const width = Math.max(view.full * 1e-6, Math.min(view.full, to - from));
  view.from = Math.max(0, Math.min(view.full - width, from));
  view.to = view.from + width;
  redraw();
}

function zoom(factor, share = 0.5) {
  const width = (view.to - view.from) * factor, centre = view.from + (view.to - view.from) * share;
  show(centre - width * share, centre + width * (1 - share));
}

function pan(share) {
  const by = (view.to - view.from) * share;
  show(view.from + by, view.to + by);
}

/** Lines beside a point of the page and above what lies from top to bottom there; below it where there is no room. */
function say(lines, x, top, bottom) {
  const detail = $("detail");
  detail.replaceChildren(...lines.map((line) => element("div", line)));
  detail.hidden = false;
  const { width, height } = detail.getBoundingClientRect();
  detail.style.left = `${Math.max(4, Math.min(x + 10, innerWidth - width - 4))}px`;
  detail.style.top = `${top - 6 - height < 4 ? bottom + 6 : top - 6 - height}px`;
}

function listen(panel) {
  const { canvas, plan } = panel;
  let grip = null;
  canvas.addEventListener("focus", () => { active = panel; });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(sideways / panel.room);
    else zoom(Math.exp(event.deltaY * 0.0015), Math.max(0, Math.min(1, (event.offsetX - GUTTER) / panel.room)));
    hover(event);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    active = panel;
    grip = { x: event.offsetX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const still = grip && Math.abs(event.offsetX - grip.x) < 3;
    grip = null;
    const { device } = panel.at(event.offsetX, event.offsetY);
    if (still && device !== undefined) {
      panel.device = device;
      pickRow(panel);
      redraw();
    }
  });
  canvas.addEventListener("pointercancel", () => { grip = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (grip) {
      const by = (grip.x - event.offsetX) / panel.room * (grip.to - grip.from);
      show(grip.from + by, grip.to + by);
    }
    hover(event);
  });
  canvas.addEventListener("pointerleave", () => {
    panel.hovered = null;
    $("detail").hidden = true;
    redraw();
  });

  function hover(event) {
    const { item, level } = panel.at(event.offsetX, event.offsetY);
    panel.hovered = item ?? null;
    panel.selected = null;
    if (item !== undefined) panel.say(item, event.clientX);
    else if (level !== undefined) say(describeLevel(plan, panel.device, level), event.clientX, event.clientY - 4, event.clientY + 10);
    else $("detail").hidden = true;
    redraw();
  }
}

/** Keys act on the panel that was used last, wherever the focus is but in what scrolls by keys itself. */
function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(".wide, input:not([type=checkbox])")) return;
  const { from, to } = view, { plan, selected } = active;
  const chosen = selected ? (selected.start - plan.begin - from) / (to - from) : 0.5;
  const share = chosen >= 0 && chosen <= 1 ? chosen : 0.5;
  const actions = {
    "+": () => zoom(0.5, share),
    "=": () => zoom(0.5, share),
    "-": () => zoom(2, share),
    0: () => show(0, view.full),
    Home: () => along(-Infinity),
    End: () => along(Infinity),
    ArrowLeft: () => event.shiftKey ? pan(-0.2) : along(-1),
    ArrowRight: () => event.shiftKey ? pan(0.2) : along(1),
    ArrowUp: () => across(-1),
    ArrowDown: () => across(1),
    c: () => $("path").click(),
    s: () => $("tight").click(),
    Escape: () => { active.selected = null; $("detail").hidden = true; redraw(); },
  };
  if (!(event.key in actions)) return;
  event.preventDefault();
  active.hovered = null;
  actions[event.key]();
}

/** Pick what comes so many places after the picked item on its device; at first what is first visible. */
function along(places) {
  const { plan, selected } = active, items = itemsOf(plan, active.device);
  if (!items.length) return;
  const at = selected ? items.findIndex((item) => item.step === selected.step && item.gap === selected.gap) + places
    : Number.isFinite(places) ? under(items, plan.begin + view.from) : places;
  active.select(items[Math.max(0, Math.min(items.length - 1, at))]);
}

/** Pick what the device below (or above) does at the same time. */
function across(direction) {
  const { plan, selected } = active;
  const device = Math.max(0, Math.min(plan.devices.length - 1, active.device + direction));
  const items = itemsOf(plan, device);
  if (items.length) active.select(items[under(items, selected ? selected.start : plan.begin + view.from)]);
}

/** The number of the item of a device that is under way at a time. */
function under(items, time) {
  const found = items.findIndex((item) => item.end > time);
  return found < 0 ? items.length - 1 : found;
}
