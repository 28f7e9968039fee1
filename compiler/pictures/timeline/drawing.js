// A canvas of one plan: the devices' lanes, an axis, and the memory of one device.

const GUTTER = 52, RIGHT = 10, TOP = 4, AXIS = 24, MEMORY = 96, MEMORY_HEAD = 20, BOTTOM = 8;
const LANES = 620, LEAST_LANE = 8, TALL_LANE = 24, MOST_LANE = 30;
const COARSE = 2.5;  // Below so many pixels a step on average, a lane is drawn as a blend of colours, not as boxes;
const MOST_BOXES = 6000;  // and so are all lanes when more steps than these are visible, to stay smooth.
const FAR = 20000;
const TIGHT = "#6a1b9a", CHOSEN = "#b3006b";
const FONT = '11px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif';

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
    this.hovered = this.selected = null;  // items: what the pointer is on, and what the keyboard has picked
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
    if ($("tight").checked) this.drawTight();
    this.drawChosen();
    context.restore();
    this.drawNames();
    this.drawAxis();
    drawMemory(this);
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
      this.write([cause.name], left, right, top + height / 2, "#444444");
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

  /** The steps without slack in dashed frames (narrow ones: above a line). */
  drawTight() {
    const { context, plan } = this;
    context.save();
    context.beginPath();
    plan.devices.forEach((_, device) => {
      const [low, high] = visible(plan, plan.start, plan.end, plan.first[device], plan.first[device + 1]);
      const y = this.y(device);
      let drawn = 0;
      for (let step = low; step < high; step++) {
        if (plan.slack[step] > 0) continue;
        const left = this.x(plan.start[step]), right = this.x(plan.end[step]);
        if (!this.coarse[device] && right - left >= 10 && this.lane > 12) {
          context.rect(left + 3, y + 3, right - left - 6, this.lane - 8);
        } else if (right - drawn > 0.5) {
          context.moveTo(Math.max(left, drawn), y + this.lane - 2);
          context.lineTo(right, y + this.lane - 2);
          drawn = right;
        }
      }
    });
    for (const [colour, width, dash] of [["#ffffff", 3.5, []], [TIGHT, 2, [4, 2]]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.stroke();
    }
    context.restore();
  }

  /** What is under the pointer or picked by the keyboard, and a line from what it waited for. */
  drawChosen() {
    const { context, plan } = this, chosen = this.hovered ?? this.selected;
    if (chosen === null) return;
    const { step, gap, device, start, end } = chosen, left = this.x(start), right = this.x(end);
    const awaited = step === undefined ? plan.gapStep[gap] : plan.awaited[step];
    const owner = awaited < 0 ? device : deviceOf(plan, awaited);
    for (const [colour, width] of [["#ffffff", 5], [CHOSEN, 2.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.rect(left, this.y(device), Math.max(2, right - left), this.lane - 1);
      if (owner !== device) {
        context.moveTo(this.x(plan.end[awaited]), this.y(owner) + this.lane / 2);
        context.lineTo(step === undefined ? right : left, this.y(device) + this.lane / 2);
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
      if (x < this.width - 30) context.fillText(moment(count * step), x, y + 8);
    }
    context.textAlign = "right";
    context.fillText(plan.unit ? `time (${plan.unit})`.slice(0, 30) : "time", this.width - RIGHT, y + 22);
  }

  /** What lies at a point of the canvas: a device with its step or gap, a time of the memory's curve, or nothing. */
  at(x, y) {
    const { plan } = this, time = this.time(x);
    if (x < GUTTER || x > GUTTER + this.room) return {};
    const device = Math.floor((y - TOP) / this.lane);
    if (y >= this.bottom + AXIS) return { level: time };
    if (device < 0 || device >= plan.devices.length) return {};
    const step = after(plan.start, plan.first[device], plan.first[device + 1], time) - 1;
    if (step >= plan.first[device] && time <= plan.end[step]) return { device, item: itemOf(plan, { step, device }) };
    const gap = after(plan.gapStart, plan.firstGap[device], plan.firstGap[device + 1], time) - 1;
    const idle = gap >= plan.firstGap[device] && time <= plan.gapEnd[gap];
    return idle ? { device, item: itemOf(plan, { gap, device }) } : { device };
  }

  /** Pick a step or gap with the keyboard: show it and say what it is. */
  select(item) {
    this.selected = item;
    this.device = item.device;
    const start = item.start - this.plan.begin, end = item.end - this.plan.begin, width = view.to - view.from;
    if (start < view.from || end > view.to) show((start + end - width) / 2, (start + end + width) / 2);
    this.say(item, this.canvas.getBoundingClientRect().left + this.x(item.end));
    pickRow(this);
    redraw();
  }

  /** Say what an item is, above its lane. */
  say({ step, gap, device }, x) {
    const top = this.canvas.getBoundingClientRect().top + this.y(device);
    say(step === undefined ? describeGap(this.plan, gap) : describeStep(this.plan, step), x, top, top + this.lane);
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
    $("visible").textContent = 
      `${moment(view.from)} to ${amount(moment(view.to), page.plans[0].unit)} of ${number(view.full)}`;
  });
}
