"use strict";
// What the page shows, as arrays that can be gone through for every frame.

const data = JSON.parse(document.getElementById("data").textContent);
const nodes = data.nodes;
const edges = data.edges;
const INTO = nodes.map(() => []);
const OUT = nodes.map(() => []);
const byThunk = new Map();

edges.forEach((edge, at) => {
  OUT[edge.src].push(at);
  INTO[edge.dst].push(at);
});
nodes.forEach((node, at) => {
  for (const thunk of node.thunks) {
    if (!byThunk.has(thunk)) byThunk.set(thunk, []);
    byThunk.get(thunk).push(at);
  }
});

// Points of each arrow from the lower edge of one box to the upper edge of the other.
const paths = edges.map((edge) => {
  const [ax, ay, aw, ah] = nodes[edge.src].box;
  const [bx, by, bw, bh] = nodes[edge.dst].box;
  if (edge.back || by < ay + ah) {
    const side = Math.max(ax + aw, bx + bw) + 26;
    return [ax + aw, ay + ah / 2, side, (ay + ah / 2 + by + bh / 2) / 2, bx + bw, by + bh / 2];
  }
  return [ax + aw / 2, ay + ah, ...edge.way, bx + bw / 2, by];
});
const isSideways = edges.map((edge) => {
  const a = nodes[edge.src].box;
  return edge.back || nodes[edge.dst].box[1] < a[1] + a[3];
});

// Left, top, right, bottom of each arrow, one behind the other.
const bounds = new Float64Array(4 * edges.length);
paths.forEach((points, at) => {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < points.length; k += 2) {
    left = Math.min(left, points[k]);
    right = Math.max(right, points[k]);
    top = Math.min(top, points[k + 1]);
    bottom = Math.max(bottom, points[k + 1]);
  }
  bounds.set([left, top, right, bottom], 4 * at);
});

function bytesText(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 999.5 && at < units.length - 1) {
    count /= 1000;
    at += 1;
  }
  return at ? `${Number(count.toPrecision(3))} ${units[at]}` : `${count} B`;
}

function timeText(seconds) {
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]]) {
    if (seconds >= size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  }
  return `${Number((seconds * 1e9).toPrecision(3))} ns`;
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// A canvas as large as its place on the page, in the screen's own dots.
function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { pen, width, height };
}
