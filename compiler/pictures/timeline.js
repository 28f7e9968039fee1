"use strict";
// Draws the plans of the page's data: a canvas each with the devices' lanes, an axis and the memory of one device.
// Steps are numbered through all devices; times in the data are the plan's, on the screen they count from its begin.

const GUTTER = 52, RIGHT = 10, TOP = 4, AXIS = 24, MEMORY = 96, MEMORY_HEAD = 20, BOTTOM = 8;
const LANES = 620, LEAST_LANE = 8, TALL_LANE = 24, MOST_LANE = 30;
const COARSE = 2.5;  // Below so many pixels a step on average, a lane is drawn as a blend of colours, not as boxes;
const MOST_BOXES = 6000;  // and so are all lanes when more steps than these are visible, to stay smooth.
const MOST_CURVES = 16;  // With more devices than these, the memory of one alone is drawn.
const FAR = 20000;
const LIGHTER = 16;  // The bit of a kind that says that the step is drawn in the lighter shade.
const FONT = '11px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif';

const page = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const view = { from: 0, to: 1, full: 1 };
const panels = [];

/* ---------------------------------------------------------------- data */

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

/* ---------------------------------------------------------------- words */

function number(value) {
  return Number(value.toPrecision(7)).toString();
}

function amount(value, unit) { return unit ? `${number(value)} ${unit}` : number(value); }

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
  lines.push(`${number(start - plan.begin)} to ${amount(end - plan.begin, unit)}, takes ${amount(end - start, unit)}`);
  const awaited = plan.awaited[step];
  if (awaited >= 0) {
    const free = step > plan.first[device] ? plan.end[step - 1] : plan.begin;
    const transfer = start - plan.end[awaited];
    lines.push(`Waited ${amount(start - free, unit)} for ${nameOf(plan, awaited)} of device ${deviceOf(plan, awaited)}, ` +
      `which ended at ${number(plan.end[awaited] - plan.begin)}; transfer ${number(transfer)}`);
  } else if (step > plan.first[device]) {
    lines.push(`Waited for nothing: began as soon as ${nameOf(plan, step - 1)} was done`);
  } else {
    lines.push("Waited for nothing");
  }
  const slack = plan.slack[step];
  if (slack > 0) lines.push(`Slack ${amount(slack, unit)}: so late it may be without harm to the ${plan.objective}`);
  else lines.push(plan.isCritical[step] ? "No slack: on the critical path" : "No slack");
  lines.push(`Memory during it: ${held(plan, device, plan.during[step])}`);
  return lines;
}

function held(plan, device, level) {
  const cap = plan.devices[device].cap;
  return amount(level, plan.memoryUnit) + (cap === null ? "" : ` of a cap of ${number(cap)}`);
}

function describeGap(plan, gap) {
  const device = after(plan.firstGap, 0, plan.firstGap.length, gap) - 1;
  const cause = page.causes[plan.gapCause[gap]], step = plan.gapStep[gap];
  const start = plan.gapStart[gap] - plan.begin, end = plan.gapEnd[gap] - plan.begin;
  const lines = [`Idle on device ${device}: ${cause.name}`, cause.meaning];
  lines.push(`${number(start)} to ${amount(end, plan.unit)}, lasts ${amount(end - start, plan.unit)}`);
  if (step >= 0) {
    const name = nameOf(plan, step), owner = deviceOf(plan, step);
    lines.push(owner === device ? `Held back: ${name}` : `Waits for ${name} of device ${owner}`);
  }
  lines.push(`What would help: ${cause.remedy}`);
  return lines;
}

/* ---------------------------------------------------------------- drawing */

function rgb(colour) { return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); }

const blends = page.kinds.map((kind) => kind.colours.map(rgb));
const causeBlends = page.causes.map((cause) => rgb(cause.colour));

/** By kind, a texture that tells it apart without colour: F plain, B rising lines, W dots, BW crossing lines. */
function textures(context) {
  const strokes = { B: [[0, 8, 8, 0]], W: [], BW: [[0, 8, 8, 0], [0, 0, 8, 8]] };
  return page.kinds.map((kind) => {
    if (kind.name === "F") return null;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.strokeStyle = pen.fillStyle = "rgba(255, 255, 255, 0.28)";
    pen.beginPath();
    for (const [x0, y0, x1, y1] of strokes[kind.name]) { pen.moveTo(x0, y0); pen.lineTo(x1, y1); }
    pen.stroke();
    if (kind.name === "W") for (const [x, y] of [[1, 1], [5, 5]]) pen.fillRect(x, y, 2, 2);
    return context.createPattern(tile, "repeat");
  });
}

function box(context, textured, code, x, y, width, height) {
  context.fillStyle = coloursOf(code)[0];
  context.fillRect(x, y, width, height);
  const texture = textured[code & ~LIGHTER];
  if (texture && width > 5 && height > 12) {
    context.fillStyle = texture;
    context.fillRect(x, y, width, height);
  }
}

class Panel {
  constructor(plan, letter) {
    this.plan = plan;
    this.hovered = this.selected = -1;
    this.widths = new Map();
    this.device = fullest(plan);
    this.element = document.createElement("div");
    const title = document.createElement("h2");
    title.textContent = `${letter}${plan.name}`;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "timeline");
    this.canvas.setAttribute("aria-label", `Timeline of ${letter}${plan.name}. ${plan.answer.join(" ")}`);
    this.canvas.setAttribute("aria-describedby", "help");
    this.element.append(title, this.canvas);
    this.context = this.canvas.getContext("2d");
    this.textures = textures(this.context);
    listen(this);
  }

  /** Fit the canvas to the width it has on the page. */
  resize() {
    const count = this.plan.devices.length;
    this.lane = Math.max($("tall").checked ? TALL_LANE : LEAST_LANE, Math.min(MOST_LANE, Math.floor(LANES / count)));
    this.bottom = TOP + this.lane * count;
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.bottom + AXIS + MEMORY_HEAD + MEMORY + BOTTOM;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.room = Math.max(1, this.width - GUTTER - RIGHT);
    Object.assign(this.canvas.dataset, { gutter: GUTTER, room: this.room, top: TOP, lane: this.lane });
  }

  /** Where a time is; never so far outside that a canvas's single precision would move what is inside. */
  x(time) {
    const x = GUTTER + (time - this.plan.begin - view.from) / (view.to - view.from) * this.room;
    return Math.max(-FAR, Math.min(FAR, x));
  }

  time(x) { return this.plan.begin + view.from + (x - GUTTER) / this.room * (view.to - view.from); }

  y(device) { return TOP + device * this.lane; }

  draw() {
    const { context, plan } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.drawLanes();
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.room, this.height);
    context.clip();
    if ($("path").checked) this.drawPath();
    this.drawChosen();
    context.restore();
    this.drawNames();
    this.drawAxis();
    this.drawMemory();
    Object.assign(this.canvas.dataset, { from: view.from, to: view.to, device: this.device });
  }

  /** The steps and gaps of every device. `coarse[device]`: they are too many for boxes. */
  drawLanes() {
    const { plan } = this;
    const steps = plan.devices.map((_, device) =>
      visible(plan, plan.start, plan.end, plan.first[device], plan.first[device + 1]));
    const counts = steps.map(([low, high]) => high - low);
    const many = counts.reduce((sum, count) => sum + count, 0) > MOST_BOXES;
    this.coarse = counts.map((count) => many || count * COARSE > this.room);
    this.coarse.forEach((coarse, device) => {
      const gaps = visible(plan, plan.gapStart, plan.gapEnd, plan.firstGap[device], plan.firstGap[device + 1]);
      if (coarse) this.drawBlend(device, steps[device], gaps); else this.drawBoxes(device, steps[device], gaps);
    });
  }

  /** Each column of pixels in the mean colour of what happens in its time. */
  drawBlend(device, steps, gaps) {
    const { plan } = this;
    const left = Math.round(GUTTER * this.ratio), columns = Math.round(this.room * this.ratio);
    const scale = columns / (view.to - view.from), begin = plan.begin + view.from;
    const sums = new Float32Array(4 * columns);
    const add = (start, end, [red, green, blue]) => {
      const from = Math.max(0, (start - begin) * scale), to = Math.min(columns, (end - begin) * scale);
      for (let column = Math.floor(from); column < to; column++) {
        const share = Math.min(to, column + 1) - Math.max(from, column);
        sums[4 * column] += share * red;
        sums[4 * column + 1] += share * green;
        sums[4 * column + 2] += share * blue;
        sums[4 * column + 3] += share;
      }
    };
    for (let step = steps[0]; step < steps[1]; step++) {
      const first = blends[plan.kind[step] & ~LIGHTER][plan.kind[step] & LIGHTER ? 1 : 0];
      const pair = plan.pairOf.size ? plan.pairOf.get(step) : undefined;
      if (pair === undefined) { add(plan.start[step], plan.end[step], first); continue; }
      const second = blends[plan.pairKind[pair] & ~LIGHTER][plan.pairKind[pair] & LIGHTER ? 1 : 0];
      add(plan.start[step], plan.end[step], first.map((channel, at) => (channel + second[at]) / 2));
    }
    const causes = $("causes").checked;
    for (let gap = gaps[0]; causes && gap < gaps[1]; gap++) {
      add(plan.gapStart[gap], plan.gapEnd[gap], causeBlends[plan.gapCause[gap]]);
    }
    const top = Math.round(this.y(device) * this.ratio);
    const height = Math.round((this.y(device) + this.lane - 1) * this.ratio) - top;
    const image = this.context.createImageData(columns, height);
    for (let column = 0; column < columns; column++) {
      const rest = 242 * Math.max(0, 1 - sums[4 * column + 3]);
      for (let channel = 0; channel < 3; channel++) {
        image.data[4 * column + channel] = sums[4 * column + channel] + rest;
      }
      image.data[4 * column + 3] = 255;
    }
    for (let row = 1; row < height; row++) image.data.copyWithin(4 * columns * row, 0, 4 * columns);
    this.context.putImageData(image, left, top);
  }

  drawBoxes(device, steps, gaps) {
    const { context, plan } = this;
    const top = this.y(device), height = this.lane - (this.lane > 12 ? 2 : 1);
    context.save();
    context.beginPath();
    context.rect(GUTTER, top, this.room, this.lane);
    context.clip();
    context.fillStyle = "#f2f2f2";
    context.fillRect(GUTTER, top, this.room, height);
    context.textAlign = "center";
    const causes = $("causes").checked;
    for (let gap = gaps[0]; causes && gap < gaps[1]; gap++) {
      const left = this.x(plan.gapStart[gap]), right = this.x(plan.gapEnd[gap]), cause = page.causes[plan.gapCause[gap]];
      context.fillStyle = cause.colour;
      context.fillRect(left, top, right - left, height);
      this.write([cause.name, cause.name.slice(0, 3)], left, right, top + height / 2, "#444444");
    }
    for (let step = steps[0]; step < steps[1]; step++) {
      const left = this.x(plan.start[step]), right = Math.max(left + 1, this.x(plan.end[step]));
      const found = operations(plan, step), part = height / found.length;
      found.forEach(([kind, , microbatch], row) => {
        const upper = top + row * part;
        box(context, this.textures, kind, left, upper, right - left, part);
        const names = [`${kindOf(kind).name}${microbatch}`, `${microbatch}`];
        this.write(names, left, right, upper + part / 2, coloursOf(kind)[1], part);
      });
      if (right - left > 3) {
        context.strokeStyle = found.length > 1 ? "#000000" : "#ffffff";
        context.lineWidth = found.length > 1 ? 1.2 : 0.8;
        context.strokeRect(left + 0.5, top + 0.5, right - left - 1, height - 1);
      }
    }
    context.restore();
  }

  /** The first of the texts that fits between left and right, if any. */
  write(texts, left, right, y, colour, height = this.lane) {
    if (height < 11 || right - left < 7) return;
    left = Math.max(left, GUTTER);
    right = Math.min(right, GUTTER + this.room);
    const text = texts.find((text) => this.widthOf(text) + 4 <= right - left);
    if (text === undefined) return;
    this.context.fillStyle = colour;
    this.context.fillText(text, (left + right) / 2, y + 0.5);
  }

  /** Measuring is slow, and texts repeat. */
  widthOf(text) {
    if (!this.widths.has(text)) this.widths.set(text, this.context.measureText(text).width);
    return this.widths.get(text);
  }

  /** Critical steps in a frame (narrow ones: as a line), and lines where the path changes its device. */
  drawPath() {
    const { context, plan } = this;
    let before = -1, device = 0;
    context.strokeStyle = "#000000";
    for (const step of plan.critical) {
      const left = this.x(plan.start[step]), right = this.x(plan.end[step]);
      const last = device;
      if (step < plan.first[device] || step >= plan.first[device + 1]) device = deviceOf(plan, step);
      if (right >= GUTTER && left <= GUTTER + this.room) {
        const middle = this.y(device) + this.lane / 2;
        context.beginPath();
        context.lineWidth = 2;
        if (this.coarse[device] || right - left < 8) {
          context.moveTo(left, middle);
          context.lineTo(right, middle);
        } else {
          context.rect(left + 1, this.y(device) + 1, Math.max(1, right - left - 2), this.lane - 3);
        }
        if (before >= 0 && last !== device) {
          context.moveTo(this.x(plan.end[before]), this.y(last) + this.lane / 2);
          context.lineTo(left, middle);
        }
        context.stroke();
      }
      before = step;
    }
  }

  /** The step under the pointer or the keyboard's, and a line from what it waited for. */
  drawChosen() {
    const { context, plan } = this;
    const step = this.hovered >= 0 ? this.hovered : this.selected;
    if (step < 0) return;
    const device = deviceOf(plan, step), left = this.x(plan.start[step]), right = this.x(plan.end[step]);
    const awaited = plan.awaited[step];
    for (const [colour, width] of [["#ffffff", 5], ["#b3006b", 2.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.rect(left, this.y(device), Math.max(2, right - left), this.lane - 1);
      if (awaited >= 0) {
        context.moveTo(this.x(plan.end[awaited]), this.y(deviceOf(plan, awaited)) + this.lane / 2);
        context.lineTo(left, this.y(device) + this.lane / 2);
      }
      context.stroke();
    }
  }

  drawNames() {
    const { context } = this;
    context.textAlign = "right";
    const every = Math.ceil(11 / this.lane);
    this.plan.devices.forEach((_, device) => {
      if (device % every && device !== this.device) return;
      context.font = device === this.device ? `bold ${FONT}` : FONT;
      context.fillStyle = "#1a1a1a";
      context.fillText(`${device === this.device ? "\u25b8 " : ""}${device}`, GUTTER - 6, this.y(device) + this.lane / 2);
    });
    context.font = FONT;
  }

  drawAxis() {
    const { context, plan } = this;
    const step = roundStep((view.to - view.from) / Math.max(2, this.room / 110));
    const y = this.bottom + 4;
    context.strokeStyle = context.fillStyle = "#595959";
    context.lineWidth = 1;
    context.textAlign = "center";
    for (let count = Math.ceil(view.from / step); count * step <= view.to; count++) {
      const x = this.x(plan.begin + count * step);
      context.beginPath();
      context.moveTo(x, y - 4);
      context.lineTo(x, y);
      context.stroke();
      if (x < this.width - 30) context.fillText(number(count * step), x, y + 8);
    }
    context.textAlign = "right";
    context.fillText(plan.unit ? `time (${plan.unit})`.slice(0, 30) : "time", this.width - RIGHT, y + 22);
  }

  /** The most held in each column of pixels by a device. */
  levels(device) {
    const { plan } = this, columns = Math.ceil(this.room), scale = columns / (view.to - view.from);
    const levels = new Float64Array(columns), begin = plan.begin + view.from;
    const fill = (start, end, level) => {
      const from = Math.max(0, Math.floor((start - begin) * scale)), to = Math.min(columns, Math.ceil((end - begin) * scale));
      for (let column = from; column < Math.max(to, from + 1) && column < columns; column++) {
        if (level > levels[column]) levels[column] = level;
      }
    };
    const first = plan.first[device], beyond = plan.first[device + 1], end = plan.begin + plan.makespan;
    const idle = plan.devices[device].static;
    const [low, high] = visible(plan, plan.start, plan.end, first, beyond);
    fill(plan.begin, first < beyond ? plan.start[first] : end, idle);
    for (let step = Math.max(first, low - 1); step < Math.min(high + 1, beyond); step++) {
      if (plan.end[step] >= begin) fill(plan.start[step], plan.end[step], plan.during[step]);
      const next = step + 1 < beyond ? plan.start[step + 1] : end;
      if (next > Math.max(plan.end[step], begin)) fill(plan.end[step], next, plan.after[step]);
    }
    return levels;
  }

  drawMemory() {
    const { context, plan } = this, top = this.bottom + AXIS + MEMORY_HEAD, floor = top + MEMORY;
    const { cap, peak } = plan.devices[this.device];
    const most = 1.08 * Math.max(...plan.devices.map((device) => Math.max(device.peak, device.cap ?? 0))) || 1;
    const y = (level) => floor - level / most * MEMORY;
    const outline = (levels) => {
      context.beginPath();
      context.moveTo(GUTTER, y(levels[0]));
      levels.forEach((level, column) => { context.lineTo(GUTTER + column, y(level)); context.lineTo(GUTTER + column + 1, y(level)); });
    };
    context.lineWidth = 1;
    if (plan.devices.length <= MOST_CURVES) {
      context.strokeStyle = "#c4c4c4";
      plan.devices.forEach((_, device) => { outline(this.levels(device)); context.stroke(); });
    }
    outline(this.levels(this.device));
    context.strokeStyle = "#333333";
    context.lineWidth = 1.5;
    context.stroke();
    context.lineTo(GUTTER + this.room, floor);
    context.lineTo(GUTTER, floor);
    context.fillStyle = "rgba(60, 60, 60, 0.16)";
    context.fill();
    context.strokeStyle = "#595959";
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(GUTTER, top);
    context.lineTo(GUTTER, floor);
    context.lineTo(GUTTER + this.room, floor);
    context.stroke();
    context.fillStyle = "#595959";
    context.textAlign = "right";
    const step = roundStep(most / 4);
    for (let level = 0; level <= most; level += step) context.fillText(number(level), GUTTER - 6, y(level));
    if (cap !== null) {
      context.strokeStyle = context.fillStyle = "#a33c00";
      context.setLineDash([6, 4]);
      context.beginPath();
      context.moveTo(GUTTER, y(cap));
      context.lineTo(GUTTER + this.room, y(cap));
      context.stroke();
      context.setLineDash([]);
      context.fillText(`cap ${number(cap)}`, this.width - RIGHT - 2, y(cap) - 7);
    }
    context.fillStyle = "#1a1a1a";
    context.textAlign = "left";
    const others = plan.devices.length > 1 && plan.devices.length <= MOST_CURVES ? " (grey: the others)" : "";
    context.fillText(`Memory of device ${this.device}: peak ${held(plan, this.device, peak)}${others}`, GUTTER, top - 11);
  }

  /** What lies at a point of the canvas: { step }, { gap }, { level } or nothing. */
  at(x, y) {
    const { plan } = this, time = this.time(x);
    if (x < GUTTER || x > GUTTER + this.room) return {};
    const device = Math.floor((y - TOP) / this.lane);
    if (y >= this.bottom + AXIS) return { level: time };
    if (device < 0 || device >= plan.devices.length) return {};
    const step = after(plan.start, plan.first[device], plan.first[device + 1], time) - 1;
    if (step >= plan.first[device] && time <= plan.end[step]) return { step, device };
    const gap = after(plan.gapStart, plan.firstGap[device], plan.firstGap[device + 1], time) - 1;
    return gap >= plan.firstGap[device] && time <= plan.gapEnd[gap] ? { gap, device } : { device };
  }

  describeLevel(time) {
    const { plan } = this, first = plan.first[this.device];
    const step = after(plan.start, first, plan.first[this.device + 1], time) - 1;
    const level = step < first ? plan.devices[this.device].static : time < plan.end[step] ? plan.during[step] : plan.after[step];
    return [`Device ${this.device} holds ${held(plan, this.device, level)}`, `at ${amount(time - plan.begin, plan.unit)}`];
  }

  /** Pick a step with the keyboard: show it and say what it is. */
  select(step) {
    this.selected = step;
    this.device = deviceOf(this.plan, step);
    const start = this.plan.start[step] - this.plan.begin, end = this.plan.end[step] - this.plan.begin;
    const width = view.to - view.from;
    if (start < view.from || end > view.to) show((start + end - width) / 2, (start + end + width) / 2);
    const bounds = this.canvas.getBoundingClientRect();
    say(describeStep(this.plan, step), bounds.left + this.x(this.plan.end[step]), bounds.top + this.y(this.device) + this.lane);
    pickRow(this);
    redraw();
  }
}

function fullest(plan) {
  const peaks = plan.devices.map((device) => device.cap === null ? device.peak : device.peak / (device.cap || 1));
  return peaks.indexOf(Math.max(...peaks));
}

/** The smallest 1, 2 or 5 times a power of ten that is at least this. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9));
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    panels.forEach((panel) => panel.draw());
    $("visible").textContent = `${number(view.from)} to ${amount(view.to, page.plans[0].unit)} of ${number(view.full)}`;
  });
}

/* ---------------------------------------------------------------- moving */

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

function say(lines, x, y) {
  const detail = $("detail");
  detail.replaceChildren(...lines.map((line) => element("div", line)));
  detail.hidden = false;
  const { width, height } = detail.getBoundingClientRect();
  detail.style.left = `${Math.max(4, x + 14 + width > innerWidth ? x - 14 - width : x + 14)}px`;
  detail.style.top = `${Math.max(4, y + 14 + height > innerHeight ? y - 14 - height : y + 14)}px`;
}

function listen(panel) {
  const { canvas, plan } = panel;
  let grip = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(sideways / panel.room);
    else zoom(Math.exp(event.deltaY * 0.0015), Math.max(0, Math.min(1, (event.offsetX - GUTTER) / panel.room)));
    hover(event);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
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
    panel.hovered = -1;
    $("detail").hidden = true;
    redraw();
  });

  function hover(event) {
    const { step, gap, level } = panel.at(event.offsetX, event.offsetY);
    panel.hovered = step ?? -1;
    panel.selected = -1;
    if (step !== undefined) say(describeStep(plan, step), event.clientX, event.clientY);
    else if (gap !== undefined) say(describeGap(plan, gap), event.clientX, event.clientY);
    else if (level !== undefined) say(panel.describeLevel(level), event.clientX, event.clientY);
    else $("detail").hidden = true;
    redraw();
  }

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { from, to } = view;
    const chosen = panel.selected >= 0 ? (plan.start[panel.selected] - plan.begin - from) / (to - from) : 0.5;
    const share = chosen >= 0 && chosen <= 1 ? chosen : 0.5;
    const actions = {
      "+": () => zoom(0.5, share),
      "=": () => zoom(0.5, share),
      "-": () => zoom(2, share),
      0: () => show(0, view.full),
      Home: () => show(0, view.full),
      ArrowLeft: () => event.shiftKey ? pan(-0.2) : beside(-1),
      ArrowRight: () => event.shiftKey ? pan(0.2) : beside(1),
      ArrowUp: () => below(-1),
      ArrowDown: () => below(1),
      c: () => { $("path").checked = !$("path").checked; redraw(); },
      Escape: () => { panel.selected = -1; $("detail").hidden = true; redraw(); },
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    panel.hovered = -1;
    actions[event.key]();
  });

  /** The step after (or before) the chosen one on its device; at first the first that is visible. */
  function beside(direction) {
    const device = panel.selected >= 0 ? deviceOf(plan, panel.selected) : panel.device;
    const [low, high] = [plan.first[device], plan.first[device + 1]];
    if (low === high) return;
    const next = panel.selected >= 0 ? panel.selected + direction : nearest(device, plan.begin + view.from);
    panel.select(Math.max(low, Math.min(high - 1, next)));
  }

  /** The step at about the same time on the device below (or above). */
  function below(direction) {
    const time = panel.selected >= 0 ? plan.start[panel.selected] : plan.begin + view.from;
    const from = panel.selected >= 0 ? deviceOf(plan, panel.selected) : panel.device;
    const device = Math.max(0, Math.min(plan.devices.length - 1, from + direction));
    if (plan.steps[device]) panel.select(nearest(device, time));
  }

  function nearest(device, time) {
    return Math.min(after(plan.end, plan.first[device], plan.first[device + 1], time), plan.first[device + 1] - 1);
  }
}

/* ---------------------------------------------------------------- the page around the canvases */

function element(tag, text = "", classes = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

function row(cells, header = "td") {
  const made = document.createElement("tr");
  made.append(...cells.map((cell, at) => {
    const [text, classes] = Array.isArray(cell) ? cell : [cell, ""];
    const tag = element(at ? header : "th", text, classes);
    if (tag.tagName === "TH") tag.scope = header === "th" ? "col" : "row";
    return tag;
  }));
  return made;
}

function legend() {
  for (const { kind, text } of page.legend) {
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
    } else if (kind === "path") {
      context.lineWidth = 2;
      context.strokeRect(1, 1, 28, 14);
    } else if (kind === "pair") {
      box(context, textured, 0, 0, 0, 30, 8);
      box(context, textured, page.kinds.findIndex((known) => known.name === "BW"), 0, 8, 30, 8);
      context.strokeRect(0.5, 0.5, 29, 15);
    } else {
      context.moveTo(2, 13);
      context.lineTo(28, 3);
      context.stroke();
    }
    item.append(sample, element("span", code >= 0 ? `${kind}: ${text}` : text));
    $("legend").append(item);
  }
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
  const caption = element("caption", ["The most of each column is marked", ...units].join("; "));
  const head = ["device", "stages", "busy", "idle", "idle share", ...causes.map(([name]) => name), "waits most for", "peak memory", "cap"];
  const top = document.createElement("thead");
  top.append(row(head, "th"));
  table.append(caption, top);
  const idle = plan.devices.map((device) => device.idle.reduce((sum, time) => sum + time, 0));
  const most = (values) => Math.max(...values);
  const tops = causes.map(([, at]) => most(plan.devices.map((device) => device.idle[at])));
  const mark = (value, top) => [number(value), value === 0 ? "none" : value >= top * (1 - 1e-9) ? "most" : ""];
  plan.devices.forEach((device, at) => {
    const share = plan.makespan ? `${(100 * idle[at] / plan.makespan).toFixed(1)} %` : "-";
    const waits = device.for ? `device ${device.for[0]} (${number(device.for[1])})` : "-";
    const made = row([
      `${at}`, device.stages, number(device.busy), mark(idle[at], most(idle)), share,
      ...causes.map(([, cause], column) => mark(device.idle[cause], tops[column])),
      waits, number(device.peak), device.cap === null ? "none" : number(device.cap),
    ]);
    made.addEventListener("click", () => { panel.device = at; pickRow(panel); redraw(); });
    table.append(made);
  });
  panel.rows = [...table.querySelectorAll("tr")].slice(1);
  const sum = (values) => number(values.reduce((total, value) => total + value, 0));
  const total = row([
    "all", "", sum(plan.devices.map((device) => device.busy)), sum(idle), "",
    ...causes.map(([, cause]) => sum(plan.devices.map((device) => device.idle[cause]))), "", "", "",
  ]);
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
  $("remedies").append(row(["cause", ...letters, ["what it means", "text"], ["what would help", "text"]], "th"));
  const order = page.causes.map((_, cause) => cause).sort((a, b) => sums[0][b] - sums[0][a]);
  for (const cause of order) {
    const { name, meaning, remedy, colour } = page.causes[cause];
    const made = row([name, ...sums.map((sum) => number(sum[cause])), [meaning, "text"], [remedy, "text"]]);
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
  $("path").addEventListener("change", redraw);
  $("causes").addEventListener("change", redraw);
  $("talls").hidden = panels.every((panel) => panel.plan.devices.length * TALL_LANE <= LANES);
  $("tall").addEventListener("change", resize);
  $("beside").addEventListener("change", () => {
    $("panels").classList.toggle("beside", $("beside").checked);
    resize();
  });
  resize();
}

start();
