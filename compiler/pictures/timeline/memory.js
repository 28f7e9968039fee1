// The memory that one device holds over time, below the lanes of a panel.

/** The most held in each column of pixels by a device. */
function levels(panel, device) {
  const { plan, room } = panel, columns = Math.ceil(room), scale = columns / (view.to - view.from);
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

function drawMemory(panel) {
  const { context, plan, device, room } = panel, top = panel.bottom + AXIS + MEMORY_HEAD, floor = top + MEMORY;
  const { cap, peak } = plan.devices[device];
  const most = 1.08 * Math.max(...plan.devices.map((device) => Math.max(device.peak, device.cap ?? 0))) || 1;
  const y = (level) => floor - level / most * MEMORY;
  context.beginPath();
  context.moveTo(GUTTER, y(0));
  levels(panel, device).forEach((level, column) => {
    context.lineTo(GUTTER + column, y(level));
    context.lineTo(GUTTER + column + 1, y(level));
  });
  context.strokeStyle = "#333333";
  context.lineWidth = 1.5;
  context.stroke();
  context.lineTo(GUTTER + room, floor);
  context.lineTo(GUTTER, floor);
  context.fillStyle = "rgba(60, 60, 60, 0.16)";
  context.fill();
  context.strokeStyle = "#595959";
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(GUTTER, top);
  context.lineTo(GUTTER, floor);
  context.lineTo(GUTTER + room, floor);
  context.stroke();
  context.fillStyle = "#595959";
  context.textAlign = "right";
  const step = roundStep(most / 4);
  for (let level = 0; level <= most; level += step) context.fillText(number(level), GUTTER - 6, y(level));
  if (cap !== null) drawCap(panel, cap, y(cap), floor);
  const highest = highestStep(plan, device);
  const when = highest < 0 ? "" : ` at ${amount(moment(plan.start[highest] - plan.begin), plan.unit)} (triangle)`;
  if (highest >= 0) mark(context, panel.x(plan.start[highest]), y(peak));
  context.fillStyle = "#1a1a1a";
  context.textAlign = "left";
  const binds = blocked(plan, device).length ? "; red: the cap holds a step back" : "";
  const short = `Memory of device ${device}: peak ${held(plan, device, peak)}`;
  const texts = [short + when + binds, short + when, short];
  context.fillText(texts.find((text) => panel.widthOf(text) < room - 60) ?? short, GUTTER, top - 11);
}

/** The cap of the device, and where it holds steps back. */
function drawCap(panel, cap, y, floor) {
  const { context, plan, room } = panel;
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, room, panel.height);
  context.clip();
  for (const gap of blocked(plan, panel.device)) {
    const left = panel.x(plan.gapStart[gap]), width = Math.max(1, panel.x(plan.gapEnd[gap]) - left);
    context.fillStyle = "rgba(200, 40, 0, 0.14)";
    context.fillRect(left, y, width, floor - y);
    context.fillStyle = "#c82800";
    context.fillRect(left, y - 2, width, 4);
  }
  context.restore();
  context.strokeStyle = context.fillStyle = "#a33c00";
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(GUTTER, y);
  context.lineTo(GUTTER + room, y);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "right";
  context.fillText(`cap ${number(cap)}`, panel.width - RIGHT - 2, y - 7);
}

/** The gaps in which the cap of a device holds a step back. */
function blocked(plan, device) {
  const gaps = [];
  for (let gap = plan.firstGap[device]; gap < plan.firstGap[device + 1]; gap++) {
    if (!Number.isNaN(plan.gapLevel[gap])) gaps.push(gap);
  }
  return gaps;
}

/** The first step during which a device holds most; -1 where nothing is held on top of what always is. */
function highestStep(plan, device) {
  let highest = -1, most = plan.devices[device].static;
  for (let step = plan.first[device]; step < plan.first[device + 1]; step++) {
    if (plan.during[step] > most) [highest, most] = [step, plan.during[step]];
  }
  return highest;
}

function mark(context, x, y) {
  if (x < GUTTER) return;
  context.fillStyle = "#333333";
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 4, y - 7);
  context.lineTo(x + 4, y - 7);
  context.fill();
}
