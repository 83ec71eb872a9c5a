// Below the graph: memory over program order, lanes over time, memory against concurrency.

const EDGE = { left: 64, right: 14, top: 10, bottom: 22 };

const panels = {
  canvas: document.getElementById("plot"),
  name: null,
  from: 0, // what is shown of the horizontal axis, as fractions
  to: 1,
  up: 0, // how far lanes are moved up, in dots
  choice: 0,
  frame: 0,
  spots: [], // of the curve's points: x, y

  open(name) {
    this.name = name;
    [this.from, this.to, this.up] = [0, 1, 0];
    document.getElementById("curve").hidden = name !== "curve";
    for (const button of document.querySelectorAll("#tabs button")) {
      button.setAttribute("aria-pressed", String(button.dataset.panel === name));
    }
    document.getElementById("panels").classList.toggle("closed", name === null);
    const how = { memory: memoryText, timeline: timelineText, curve: () => "arena size against time" }[name];
    document.querySelector("#tabs span").textContent = how ? how() : "";
    this.refresh();
    view.refresh();
  },

  refresh() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  },

  draw() {
    this.frame = 0;
    if (this.name === null) return;
    const { pen, width, height } = fitted(this.canvas);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    this.area = { width: width - EDGE.left - EDGE.right, height: height - EDGE.top - EDGE.bottom };
    ({ memory: drawMemory, timeline: drawTimeline, curve: drawCurve })[this.name](pen, this.area);
  },

  x(fraction) {
    return EDGE.left + ((fraction - this.from) / (this.to - this.from)) * this.area.width;
  },

  fractionAt(px) {
    return this.from + ((px - EDGE.left) / this.area.width) * (this.to - this.from);
  },

  zoom(factor, px) {
    if (this.name === "curve") return;
    const middle = this.fractionAt(px);
    const span = Math.min(1, Math.max(1e-4, (this.to - this.from) / factor));
    this.from = Math.min(1 - span, Math.max(0, middle - ((px - EDGE.left) / this.area.width) * span));
    this.to = this.from + span;
    this.refresh();
  },

  pan(dx, dy) {
    const step = Math.min(1 - this.to, Math.max(-this.from, (-dx / this.area.width) * (this.to - this.from)));
    this.from += step;
    this.to += step;
    if (this.name === "timeline") {
      const all = laneHeight() * data.timeline.lanes;
      this.up = Math.min(Math.max(0, all - this.area.height), Math.max(0, this.up - dy));
    }
    this.refresh();
  },

  // The thunk and the words for what is at a point.
  at(px, py) {
    if (!this.area) return null;
    if (this.name === "memory") return valueAt(px, py);
    if (this.name === "timeline") return barAt(px, py);
    return null;
  },
};

function tint(id) {
  let hash = 7;
  for (const char of id) hash = (hash * 31 + char.charCodeAt(0)) >>> 0;
  return `hsl(${(hash * 137) % 360} 55% 76%)`;
}

function isChosen(thunk) {
  const chosen = view.selected && view.selected.node;
  return chosen !== undefined && chosen !== null && nodes[chosen].thunks.includes(thunk);
}

function axis(pen, area, top, bottom) {
  pen.strokeStyle = "#d1d9e0";
  pen.lineWidth = 1;
  pen.strokeRect(EDGE.left, EDGE.top, area.width, area.height);
  pen.fillStyle = "#59636e";
  pen.textAlign = "right";
  pen.fillText(top, EDGE.left - 6, EDGE.top + 5);
  pen.fillText(bottom, EDGE.left - 6, EDGE.top + area.height - 5);
}

function under(pen, area, left, right) {
  pen.fillStyle = "#59636e";
  pen.textAlign = "left";
  pen.fillText(left, EDGE.left, EDGE.top + area.height + 12);
  pen.textAlign = "right";
  pen.fillText(right, EDGE.left + area.width, EDGE.top + area.height + 12);
}

function within(pen, area) {
  pen.save();
  pen.beginPath();
  pen.rect(EDGE.left, EDGE.top, area.width, area.height);
  pen.clip();
}

// ***** memory *****

function memoryText() {
  const peak = data.memory.live.reduce((a, b) => Math.max(a, b), 0);
  return `${counted(data.memory.values.length, "value")} in ${bytesText(data.memory.bytes)}; at most ${bytesText(peak)} live at once (line)`;
}

function valueBox(value) {
  const { bytes, order } = data.memory;
  const [offset, size, first, last] = value;
  const { area } = panels;
  const left = panels.x(first / order.length);
  const right = panels.x((last + 1) / order.length);
  const low = EDGE.top + area.height * (1 - offset / bytes);
  const high = EDGE.top + area.height * (1 - (offset + size) / bytes);
  const tall = Math.max(3, low - high);
  return [left, low - tall, Math.max(1, right - left), tall];
}

function drawMemory(pen, area) {
  const { bytes, order, values, live } = data.memory;
  within(pen, area);
  for (const value of values) {
    const [x, y, width, height] = valueBox(value);
    if (x > EDGE.left + area.width || x + width < EDGE.left) continue;
    const chosen = isChosen(value[4]);
    pen.fillStyle = chosen ? "#0969da" : tint(value[4]);
    pen.fillRect(x, y, width, height);
    if (width > 3 && height > 3) {
      pen.strokeStyle = "rgba(31, 35, 40, 0.35)";
      pen.lineWidth = 0.5;
      pen.strokeRect(x, y, width, height);
    }
    if (width > 50 && height > 12) {
      pen.fillStyle = chosen ? "#ffffff" : "#1f2328";
      pen.textAlign = "left";
      pen.fillText(nameOf(value[4]), x + 4, y + height / 2, width - 8);
    }
  }
  pen.strokeStyle = "#1f2328";
  pen.lineWidth = 1.5;
  pen.beginPath();
  live.forEach((count, at) => {
    const y = EDGE.top + area.height * (1 - count / Math.max(1, bytes));
    pen.lineTo(panels.x(at / order.length), y);
    pen.lineTo(panels.x((at + 1) / order.length), y);
  });
  pen.stroke();
  pen.restore();
  axis(pen, area, bytesText(bytes), "0 B");
  const [first, last] = [Math.floor(panels.from * order.length), Math.ceil(panels.to * order.length)];
  under(pen, area, `program order, from thunk ${first + 1}`, `to ${last}`);
}

function valueAt(px, py) {
  for (const value of [...data.memory.values].reverse()) {
    const [x, y, width, height] = valueBox(value);
    if (px < x || px > x + width || py < y || py > y + height) continue;
    const [offset, size, first, last, thunk] = value;
    const order = data.memory.order;
    return {
      thunk,
      text: `${nameOf(thunk)}\n${bytesText(size)} at ${offset}\nfrom thunk ${first + 1} to ${last + 1} (${nameOf(order[last])})`,
    };
  }
  return null;
}

function nameOf(thunk) {
  const known = byThunk.get(thunk);
  return known ? nodes[known[0]].lines[0] : thunk;
}

// ***** timeline *****

function timelineText() {
  const { how, span, lanes } = data.timeline;
  return `${timeText(span)}, ${counted(lanes, "lane")}; ${how}`;
}

function laneHeight() {
  return Math.min(20, Math.max(4, panels.area.height / Math.max(1, data.timeline.lanes)));
}

function barBox(bar) {
  const [, start, end, lane] = bar;
  const span = data.timeline.span || 1;
  const left = panels.x(start / span);
  return [left, EDGE.top + lane * laneHeight() - panels.up, Math.max(1, panels.x(end / span) - left), laneHeight() - 1];
}

function drawTimeline(pen, area) {
  within(pen, area);
  for (const bar of data.timeline.bars) {
    const [x, y, width, height] = barBox(bar);
    if (x > EDGE.left + area.width || x + width < EDGE.left || y > EDGE.top + area.height || y + height < EDGE.top) continue;
    pen.fillStyle = isChosen(bar[0]) ? "#0969da" : tint(bar[0]);
    pen.fillRect(x, y, Math.max(1, width - 0.5), height);
    if (width > 40 && height > 9) {
      pen.fillStyle = isChosen(bar[0]) ? "#ffffff" : "#1f2328";
      pen.textAlign = "left";
      pen.fillText(nameOf(bar[0]), x + 3, y + height / 2, width - 6);
    }
  }
  pen.restore();
  axis(pen, area, "lane 1", data.timeline.lanes > 1 ? `lane ${data.timeline.lanes}` : "");
  const span = data.timeline.span;
  under(pen, area, timeText(panels.from * span), timeText(panels.to * span));
}

function barAt(px, py) {
  for (const bar of data.timeline.bars) {
    const [x, y, width, height] = barBox(bar);
    if (px < x || px > x + width || py < y || py > y + height) continue;
    return { thunk: bar[0], text: `${nameOf(bar[0])}\n${timeText(bar[2] - bar[1])}, from ${timeText(bar[1])}` };
  }
  return null;
}

// ***** curve *****

function drawCurve(pen, area) {
  const points = data.curve;
  const room = { width: Math.max(120, area.width - 370), height: area.height };
  const most = Math.max(...points.map((p) => p.bytes), 1);
  const slowest = Math.max(...points.map((p) => p.seconds), 1e-12);
  panels.spots = points.map((p) => [
    EDGE.left + (p.bytes / most) * room.width * 0.94,
    EDGE.top + room.height * (1 - (p.seconds / slowest) * 0.9),
  ]);
  axis(pen, room, timeText(slowest / 0.9), "0");
  under(pen, room, "arena 0 B", bytesText(most / 0.94));
  pen.strokeStyle = "#8c959f";
  pen.lineWidth = 1.2;
  pen.beginPath();
  panels.spots.forEach(([x, y]) => pen.lineTo(x, y));
  pen.stroke();
  panels.spots.forEach(([x, y], at) => {
    pen.beginPath();
    pen.arc(x, y, at === panels.choice ? 6 : 4, 0, 7);
    pen.fillStyle = at === panels.choice ? "#0969da" : points[at].shown ? "#1f2328" : "#ffffff";
    pen.fill();
    pen.stroke();
  });
}

function showChoice(at) {
  panels.choice = at;
  const p = data.curve[at];
  document.getElementById("slider").value = String(at);
  document.getElementById("choice").textContent =
    `${p.label}${p.shown ? " (shown above)" : ""}\narena ${bytesText(p.bytes)}, width ${p.width}, critical path ${p.path}\n` +
    `${p.edges}, ${p.added} only to save memory; about ${timeText(p.seconds)} on an ${p.device.toUpperCase()}`;
  panels.refresh();
}
