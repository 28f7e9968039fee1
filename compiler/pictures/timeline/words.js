// What the page says in words.

/** A quantity with five significant digits. */
function number(value) { return Number(value.toPrecision(5)).toString(); }

/** A point of time, counted from the plan's begin: the closer the view, the more digits. */
function moment(time) {
  const digits = 5 - Math.floor(Math.log10(view.to - view.from));
  return Number(time.toFixed(Math.max(0, Math.min(12, digits)))).toString();
}

function amount(value, unit) {
  const text = typeof value === "number" ? number(value) : value;
  return unit ? `${text} ${unit}` : text;
}

function operations(plan, step) {
  const found = [[plan.kind[step], plan.stage[step], plan.microbatch[step]]];
  const pair = plan.pairOf.get(step);
  if (pair !== undefined) found.push([plan.pairKind[pair], plan.pairStage[pair], plan.pairMicrobatch[pair]]);
  return found;
}

function kindOf(code) { return page.kinds[code & ~LIGHTER]; }

function coloursOf(code) {
  const kind = kindOf(code), shade = code & LIGHTER ? 1 : 0;
  return [kind.colours[shade], kind.inks[shade]];
}

function nameOf(plan, step) {
  return operations(plan, step).map(([kind, stage, microbatch]) => `${stage}${kindOf(kind).name}${microbatch}`).join("+");
}

function describeStep(plan, step) {
  const device = deviceOf(plan, step), start = plan.start[step], end = plan.end[step], unit = plan.unit;
  const what = operations(plan, step)
    .map(([kind, stage, microbatch]) => `${kindOf(kind).meaning} of stage ${stage}, micro-batch ${microbatch}`);
  const lines = [`${nameOf(plan, step)} on device ${device}`, what.join(" with ")];
  lines.push(`${moment(start - plan.begin)} to ${moment(end - plan.begin)}${unit && ` ${unit}`}, takes ${amount(end - start, unit)}`);
  const awaited = plan.awaited[step];
  if (awaited >= 0) {
    const free = step > plan.first[device] ? plan.end[step - 1] : plan.begin;
    lines.push(`Waited ${amount(start - free, unit)} for ${source(plan, awaited, device)}; ` +
      `it ended at ${moment(plan.end[awaited] - plan.begin)}, transfer ${number(start - plan.end[awaited])}`);
  } else {
    lines.push(step > plan.first[device] ? `Began as soon as ${nameOf(plan, step - 1)} was done` : "Waited for nothing");
  }
  const [gap, ...more] = plan.heldBack.get(step) ?? [];
  if (gap !== undefined) {
    const times = `${moment(plan.gapStart[gap] - plan.begin)} to ${moment(plan.gapEnd[gap] - plan.begin)}`;
    lines.push(`Held back by the ${nameOfCause(plan, gap)}: ready, and would have fitted into the idle time from ${times}` +
      `${more.length ? ` and ${more.length} more` : ""}${level(plan, gap, device)}`);
  }
  lines.push(plan.slack[step] > 0
    ? `May start up to ${amount(plan.slack[step], unit)} later without making the ${plan.objective} longer`
    : `No slack${plan.isCritical[step] ? ": on the critical path" : ""}`);
  lines.push(`Memory during it: ${held(plan, device, plan.during[step])}`);
  return lines;
}

/** What is awaited, and for which device that means to wait in the end. */
function source(plan, step, device) {
  const owner = deviceOf(plan, step), root = plan.root[step];
  const end = root === owner ? "" : `, in the end for ${root === device ? "its own earlier work" : `device ${root}`}`;
  return `${nameOf(plan, step)} of device ${owner}${end}`;
}

function nameOfCause(plan, gap) {
  return page.causes[plan.gapCause[gap]].name === "memory" ? "cap" : "order";
}

/** What a device would hold with the step that its cap holds back. */
function level(plan, gap, device) {
  return Number.isNaN(plan.gapLevel[gap]) ? "" : `; would hold ${held(plan, device, plan.gapLevel[gap])}`;
}

function held(plan, device, level) {
  const cap = plan.devices[device].cap;
  return amount(cap === null ? level : `${number(level)} of ${number(cap)}`, plan.memoryUnit);
}

function describeGap(plan, gap) {
  const device = gapDeviceOf(plan, gap), unit = plan.unit;
  const cause = page.causes[plan.gapCause[gap]], step = plan.gapStep[gap], delayed = plan.gapDelayed[gap];
  const start = plan.gapStart[gap] - plan.begin, end = plan.gapEnd[gap] - plan.begin;
  const lines = [`Idle on device ${device}: ${cause.name}`, cause.meaning];
  lines.push(`${moment(start)} to ${moment(end)}${unit && ` ${unit}`}, lasts ${amount(end - start, unit)}`);
  if (step >= 0) {
    lines.push(deviceOf(plan, step) === device
      ? `Held back by the ${nameOfCause(plan, gap)}: ${nameOf(plan, step)}${level(plan, gap, device)}`
      : `Waits for ${source(plan, step, device)}`);
  }
  lines.push(delayed >= 0 && plan.slack[delayed] > 0
    ? `Costs nothing: ${nameOf(plan, delayed)}, which it delays, may start up to ${amount(plan.slack[delayed], unit)} later still`
    : `What would help: ${plan.remedies[plan.gapCause[gap]]}`);
  return lines;
}

function describeLevel(plan, device, time) {
  const first = plan.first[device], gap = after(plan.gapStart, plan.firstGap[device], plan.firstGap[device + 1], time) - 1;
  const step = after(plan.start, first, plan.first[device + 1], time) - 1;
  const now = step < first ? plan.devices[device].static : time < plan.end[step] ? plan.during[step] : plan.after[step];
  const lines = [`Device ${device} holds ${held(plan, device, now)}`, `at ${amount(moment(time - plan.begin), plan.unit)}`];
  if (gap >= plan.firstGap[device] && time <= plan.gapEnd[gap] && !Number.isNaN(plan.gapLevel[gap])) {
    lines.push(`The cap holds back ${nameOf(plan, plan.gapStep[gap])}${level(plan, gap, device)}`);
  }
  return lines;
}
