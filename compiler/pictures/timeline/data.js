"use strict";
// The data of the page: one or two plans, with an item per step and per gap (idle time of one device with one cause).
// Steps are numbered through all devices; times in the data are the plan's, on the screen they count from its begin.

const LIGHTER = 16;  // The bit of a kind that says that the step is drawn in the lighter shade.

const page = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const view = { from: 0, to: 1, full: 1 };
const panels = [];

async function unpack(plan) {
  const text = atob(plan.data);
  plan.data = "";
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const types = { Float64Array, Int32Array, Uint32Array, Uint8Array };
  let offset = 0;
  for (const [name, type, length] of plan.layout) {
    plan[name] = new types[type](buffer, offset, length);
    offset += plan[name].byteLength;
  }
  plan.first = running(plan.steps);
  plan.firstGap = running(plan.gaps);
  plan.isCritical = new Uint8Array(plan.start.length);
  for (const step of plan.critical) plan.isCritical[step] = 1;
  plan.pairOf = new Map();
  plan.pair.forEach((step, number) => plan.pairOf.set(step, number));
  plan.heldBack = new Map();  // the gaps into which the cap or the order does not let a step, in order
  plan.gapCause.forEach((cause, gap) => {
    if (!["memory", "order"].includes(page.causes[cause].name)) return;
    const step = plan.gapStep[gap];
    if (!plan.heldBack.has(step)) plan.heldBack.set(step, []);
    plan.heldBack.get(step).push(gap);
  });
}

function running(counts) {
  const sums = [0];
  for (const count of counts) sums.push(sums[sums.length - 1] + count);
  return sums;
}

/** The first index in [low, high) whose value is more than the limit; values ascend. */
function after(values, low, high, limit) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

function deviceOf(plan, step) { return after(plan.first, 0, plan.first.length, step) - 1; }

/** The indices [low, high) of what lies in the visible time. */
function visible(plan, starts, ends, low, high) {
  return [after(ends, low, high, plan.begin + view.from), after(starts, low, high, plan.begin + view.to)];
}


function gapDeviceOf(plan, gap) { return after(plan.firstGap, 0, plan.firstGap.length, gap) - 1; }

/** What a device does, in order: each a { device, start, end } with its step or gap. */
function itemsOf(plan, device) {
  const items = [];
  for (let step = plan.first[device]; step < plan.first[device + 1]; step++) items.push(itemOf(plan, { step, device }));
  for (let gap = plan.firstGap[device]; gap < plan.firstGap[device + 1]; gap++) items.push(itemOf(plan, { gap, device }));
  return items.sort((a, b) => a.start - b.start || a.end - b.end);
}

function itemOf(plan, { step, gap, device }) {
  return step === undefined
    ? { gap, device, start: plan.gapStart[gap], end: plan.gapEnd[gap] }
    : { step, device, start: plan.start[step], end: plan.end[step] };
}
