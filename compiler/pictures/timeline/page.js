// The page around the canvases.

function element(tag, text = "", classes = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

/** A row of a table; its cells know their columns' names, for windows too narrow for columns. */
function row(cells, header = "td", names = []) {
  const made = document.createElement("tr");
  made.append(...cells.map((cell, at) => {
    const [text, classes] = Array.isArray(cell) ? cell : [cell, ""];
    const tag = element(at ? header : "th", text, classes);
    if (names[at]) tag.dataset.name = Array.isArray(names[at]) ? names[at][0] : names[at];
    if (tag.tagName === "TH") tag.scope = header === "th" ? "col" : "row";
    return tag;
  }));
  return made;
}

function legend() {
  const causes = page.causes.filter((_, cause) => page.plans.some((plan) => plan.devices.some((device) => device.idle[cause] > 0)));
  for (const { kind, text, colour } of [...page.legend, ...causes.map(({ name, colour }) => ({ kind: "causes", text: name, colour }))]) {
    const item = document.createElement("li");
    const sample = document.createElement("canvas");
    [sample.width, sample.height] = [60, 32];
    sample.setAttribute("aria-hidden", "true");
    const context = sample.getContext("2d");
    context.scale(2, 2);
    const textured = textures(context), code = page.kinds.findIndex((known) => known.name === kind);
    if (code >= 0) {
      box(context, textured, code, 0, 0, 30, 16);
    } else if (kind === "chunks") {
      page.kinds.forEach((_, at) => box(context, textured, at + LIGHTER, 8 * at, 0, 8, 16));
    } else if (kind === "pair") {
      box(context, textured, 0, 0, 0, 30, 8);
      box(context, textured, page.kinds.findIndex((known) => known.name === "BW"), 0, 8, 30, 8);
      context.strokeRect(0.5, 0.5, 29, 15);
    } else if (kind === "causes") {
      context.fillStyle = colour;
      context.fillRect(0, 0, 30, 16);
    } else {
      context.lineWidth = 2;
      if (kind === "tight") {
        context.strokeStyle = TIGHT;
        context.setLineDash([4, 2]);
      }
      context.strokeRect(1, 1, 28, 14);
    }
    if ($(kind)) item.dataset.shows = kind;  // the box whose tick shows it
    item.append(sample, element("span", code >= 0 ? `${kind}: ${text}` : text));
    $("legend").append(item);
  }
}

/** The legend explains what is drawn only. */
function toggled() {
  for (const item of document.querySelectorAll("#legend li[data-shows]")) item.hidden = !$(item.dataset.shows).checked;
  redraw();
}

function facts() {
  const labels = [...new Set(page.plans.flatMap((plan) => plan.facts.map(([label]) => label)))];
  const table = $("facts");
  if (page.plans.length > 1) table.append(row(["", ...page.plans.map((plan, at) => [`${"AB"[at]}: ${plan.name}`, "text"])], "th"));
  for (const label of labels) {
    const texts = page.plans.map((plan) => plan.facts.filter((fact) => fact[0] === label).map((fact) => fact[1]).join("; "));
    table.append(row([label, ...texts]));
  }
}

function idleTable(panel, letter) {
  const { plan } = panel, table = document.createElement("table");
  const used = page.causes.map((_, cause) => plan.devices.some((device) => device.idle[cause] > 0));
  const causes = page.causes.map((cause, at) => [cause.name, at]).filter(([, at]) => used[at]);
  const units = [plan.unit && `times in ${plan.unit}`, plan.memoryUnit && `memory in ${plan.memoryUnit}`].filter(Boolean);
  const caption = element("caption", ["The most of each column is marked, the first where devices tie", "idle counts warm-up and drain", ...units].join("; "));
  const head = ["device", "stages", "busy", "idle", "idle share", ...causes.map(([name]) => name), "waits in the end for", "no slack", "peak memory", "cap"];
  const top = document.createElement("thead");
  top.append(row(head, "th"));
  table.append(caption, top);
  const idle = plan.devices.map((device) => device.idle.reduce((sum, time) => sum + time, 0));
  const most = (values) => values.findIndex((value) => value >= Math.max(...values) * (1 - 1e-9));
  const tops = causes.map(([, at]) => most(plan.devices.map((device) => device.idle[at])));
  const mark = (value, marked) => [number(value), value === 0 ? "none" : marked ? "most" : ""];
  plan.devices.forEach((device, at) => {
    const share = plan.makespan ? `${(100 * idle[at] / plan.makespan).toFixed(1)} %` : "-";
    const waits = device.for ? `device ${device.for[0]} (${number(device.for[1])})` : "-";
    const made = row([
      `${at}`, device.stages, number(device.busy), mark(idle[at], at === most(idle)), share,
      ...causes.map(([, cause], column) => mark(device.idle[cause], at === tops[column])),
      waits, device.tight, number(device.peak), device.cap === null ? "none" : number(device.cap),
    ], "td", head);
    made.addEventListener("click", () => { panel.device = at; pickRow(panel); redraw(); });
    table.append(made);
  });
  panel.rows = [...table.querySelectorAll("tr")].slice(1);
  const sum = (values) => number(values.reduce((total, value) => total + value, 0));
  const total = row([
    "all", "", sum(plan.devices.map((device) => device.busy)), sum(idle), "",
    ...causes.map(([, cause]) => sum(plan.devices.map((device) => device.idle[cause]))), "", "", "", "",
  ], "td", head);
  total.className = "total";
  table.append(total);
  const section = document.createElement("section"), wide = element("div", "", "wide");
  wide.tabIndex = 0;  // so that the keyboard can scroll it
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", "Idle time of each device by cause");
  wide.append(table);
  section.append(element("h2", `Idle time of each device by cause${letter ? `, ${letter}${plan.name}` : ""}`), wide);
  return section;
}

function pickRow(panel) {
  panel.rows.forEach((made, device) => made.classList.toggle("picked", device === panel.device));
}

function remedies() {
  const sums = page.plans.map((plan) => page.causes.map((_, cause) => plan.devices.reduce((sum, device) => sum + device.idle[cause], 0)));
  const letters = page.plans.length > 1 ? page.plans.map((_, at) => `idle, ${"AB"[at]}`) : ["idle"];
  const help = (cause) => {
    const texts = page.plans.map((plan) => plan.remedies[cause]);
    return new Set(texts).size === 1 ? texts[0] : texts.map((text, at) => `${"AB"[at]}: ${text}`).join("; ");
  };
  const costly = letters.map((letter) => letter.replace("idle", "without slack"));
  const head = ["cause", ...letters, ...costly, ["what it means", "text"], ["what would help", "text"]];
  const top = document.createElement("thead");
  top.append(row(head, "th"));
  $("remedies").append(top);
  const order = page.causes.map((_, cause) => cause).sort((a, b) => sums[0][b] - sums[0][a]);
  for (const cause of order) {
    const { name, meaning, colour } = page.causes[cause];
    const tight = page.plans.map((plan) => plan.costly[cause] === null ? "-" : number(plan.costly[cause]));
    const made = row([name, ...sums.map((sum) => number(sum[cause])), ...tight, [meaning, "text"], [help(cause), "text"]], "td", head);
    made.firstChild.style.background = colour;
    $("remedies").append(made);
  }
}

async function start() {
  const two = page.plans.length > 1, letters = page.plans.map((_, at) => two ? `${"AB"[at]}: ` : "");
  $("title").textContent = page.plans.map((plan, at) => letters[at] + plan.name).join(" against ");
  $("comparison").textContent = page.comparison;
  $("comparison").hidden = $("besides").hidden = !two;
  document.body.classList.toggle("two", two);
  page.plans.forEach((plan, at) => {
    const block = document.createElement("div");
    if (two) block.append(element("h2", letters[at] + plan.name));
    block.append(...plan.answer.map((text, line) => element("p", text, line ? "" : "first")));
    $("answers").append(block);
  });
  facts();
  legend();
  await Promise.all(page.plans.map(unpack));
  view.full = view.to = Math.max(...page.plans.map((plan) => plan.makespan)) || 1;
  page.plans.forEach((plan, at) => {
    const panel = new Panel(plan, letters[at]);
    panels.push(panel);
    $("panels").append(panel.element);
    $("tables").append(idleTable(panel, letters[at]));
    pickRow(panel);
  });
  remedies();
  const resize = () => { panels.forEach((panel) => panel.resize()); redraw(); };
  addEventListener("resize", resize);
  $("in").addEventListener("click", () => zoom(0.5));
  $("out").addEventListener("click", () => zoom(2));
  $("all").addEventListener("click", () => show(0, view.full));
  for (const box of ["path", "tight", "causes"]) $(box).addEventListener("change", toggled);
  active = panels[0];
  addEventListener("keydown", press);
  $("talls").hidden = panels.every((panel) => panel.plan.devices.length * TALL_LANE <= LANES);
  $("tall").addEventListener("change", resize);
  $("beside").addEventListener("change", () => {
    $("panels").classList.toggle("beside", $("beside").checked);
    resize();
  });
  toggled();
  resize();
}

start();
