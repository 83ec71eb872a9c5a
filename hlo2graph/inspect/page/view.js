// The graph on its canvas: pan, zoom, what is under the pointer.

const FONT = '11px system-ui, "Segoe UI", Helvetica, Arial, sans-serif';
const LINE = 14;
const READABLE = 0.42; // scale from which text is drawn
const NAMED = 0.13; // scale from which the name alone is drawn
const CROWD = 2500; // arrows that can be told apart
const DASHES = { solid: [], dashed: [6, 4], dotted: [1.5, 3] };

const view = {
  canvas: document.getElementById("graph"),
  scale: 1,
  x: 0,
  y: 0,
  byTime: data.colour === "time",
  selected: null, // {node} or {edge}
  found: new Set(),
  frame: 0,
  drawn: { nodes: 0, edges: 0 },

  refresh() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  },

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [across, down] = data.size;
    const scale = Math.min((width - 40) / across, (height - 40) / down, 1.25);
    this.scale = Math.max(scale, 1e-4);
    this.x = width / 2 - (across / 2) * this.scale;
    this.y = Math.max(20, height / 2 - (down / 2) * this.scale);
    this.refresh();
  },

  centre(at) {
    const [x, y, width, height] = nodes[at].box;
    const { clientWidth, clientHeight } = this.canvas;
    this.scale = Math.max(this.scale, Math.min(1, (clientWidth - 80) / width));
    this.x = clientWidth / 2 - (x + width / 2) * this.scale;
    this.y = clientHeight / 2 - (y + Math.min(height, 200) / 2) * this.scale;
    this.refresh();
  },

  zoom(factor, px, py) {
    const scale = Math.min(4, Math.max(2e-4, this.scale * factor));
    this.x = px - ((px - this.x) * scale) / this.scale;
    this.y = py - ((py - this.y) * scale) / this.scale;
    this.scale = scale;
    this.refresh();
  },

  toScreen(x, y) {
    return [x * this.scale + this.x, y * this.scale + this.y];
  },

  // The part of the graph that is on the canvas.
  window(margin) {
    const { clientWidth, clientHeight } = this.canvas;
    const m = margin / this.scale;
    return [
      -this.x / this.scale - m,
      -this.y / this.scale - m,
      (clientWidth - this.x) / this.scale + m,
      (clientHeight - this.y) / this.scale + m,
    ];
  },

  visibleNodes() {
    const [left, top, right, bottom] = this.window(4);
    const found = [];
    for (let at = 0; at < nodes.length; at += 1) {
      const box = nodes[at].box;
      if (box[0] < right && box[0] + box[2] > left && box[1] < bottom && box[1] + box[3] > top) {
        found.push(at);
      }
    }
    return found;
  },

  visibleEdges() {
    const [left, top, right, bottom] = this.window(30);
    const found = [];
    for (let at = 0; at < edges.length; at += 1) {
      const k = 4 * at;
      if (bounds[k] < right && bounds[k + 2] > left && bounds[k + 1] < bottom && bounds[k + 3] > top) {
        found.push(at);
      }
    }
    return found;
  },

  draw() {
    this.frame = 0;
    const { pen, width, height } = fitted(this.canvas);
    pen.clearRect(0, 0, width, height);
    pen.save();
    pen.translate(this.x, this.y);
    pen.scale(this.scale, this.scale);
    const shown = this.visibleNodes();
    const joined = this.visibleEdges();
    this.drawn = { nodes: shown.length, edges: joined.length };
    const owners = shown.filter((at) => nodes[at].owner);
    owners.forEach((at) => this.box(pen, at));
    data.groups.forEach((group) => this.group(pen, group));
    this.lines(pen, joined);
    shown.forEach((at) => nodes[at].owner || this.box(pen, at));
    if (this.scale > READABLE) joined.forEach((at) => this.label(pen, at));
    pen.restore();
  },

  lines(pen, joined) {
    const styles = new Map();
    const chosen = this.selected;
    for (const at of joined) {
      const edge = edges[at];
      const near = chosen && (chosen.edge === at || chosen.node === edge.src || chosen.node === edge.dst);
      const key = `${edge.colour} ${edge.dash} ${edge.critical} ${Boolean(near)}`;
      if (!styles.has(key)) styles.set(key, []);
      styles.get(key).push(at);
    }
    const thin = Math.max(1, 0.7 / this.scale);
    const thinned = Math.max(0.1, Math.min(1, CROWD / joined.length)); // so that many are no wall
    for (const [key, members] of [...styles].sort((a, b) => a[0].endsWith("true") - b[0].endsWith("true"))) {
      const edge = edges[members[0]];
      const near = key.endsWith("true");
      pen.strokeStyle = pen.fillStyle = near ? "#0969da" : edge.colour;
      pen.globalAlpha = near ? 1 : (edge.critical ? 0.9 : chosen && chosen.node !== undefined ? 0.3 : 0.6) * thinned;
      pen.lineWidth = thin * (near || edge.critical ? 2.2 : 1.1);
      pen.setLineDash(this.scale > 0.2 ? DASHES[edge.dash] : []);
      pen.beginPath();
      members.forEach((at) => this.trace(pen, at));
      pen.stroke();
      pen.setLineDash([]);
      if (this.scale > 0.25) members.forEach((at) => this.head(pen, at));
    }
    pen.globalAlpha = 1;
  },

  trace(pen, at) {
    const points = paths[at];
    pen.moveTo(points[0], points[1]);
    if (isSideways[at]) {
      pen.bezierCurveTo(points[2], points[1], points[2], points[5], points[4], points[5]);
      return;
    }
    for (let k = 2; k < points.length; k += 2) {
      const middle = (points[k - 1] + points[k + 1]) / 2;
      if (this.scale < 0.08) pen.lineTo(points[k], points[k + 1]);
      else pen.bezierCurveTo(points[k - 2], middle, points[k], middle, points[k], points[k + 1]);
    }
  },

  head(pen, at) {
    const points = paths[at];
    const [x, y] = points.slice(-2);
    pen.beginPath();
    pen.moveTo(x, y);
    if (isSideways[at]) {
      pen.lineTo(x + 8, y - 4);
      pen.lineTo(x + 8, y + 4);
    } else {
      pen.lineTo(x - 4, y - 8);
      pen.lineTo(x + 4, y - 8);
    }
    pen.fill();
  },

  label(pen, at) {
    const text = edges[at].label;
    if (!text) return;
    const [x, y] = this.middle(at);
    pen.font = `9.5px ${FONT.split("px ")[1]}`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.lineWidth = 3;
    pen.strokeStyle = "#ffffff";
    pen.strokeText(text, x + 4, y);
    pen.fillStyle = edges[at].artefact ? "#b35900" : "#59636e";
    pen.fillText(text, x + 4, y);
  },

  // Half way along the last stretch, where arrows of one source are apart.
  middle(at) {
    const points = paths[at];
    if (isSideways[at]) return [points[4] + (points[2] - points[4]) * 0.75, points[3]];
    const n = points.length;
    return [(points[n - 4] + points[n - 2]) / 2, (points[n - 3] + points[n - 1]) / 2];
  },

  group(pen, group) {
    const [x, y, width, height] = group.box;
    pen.setLineDash(group.frame ? [] : [4, 3]);
    pen.strokeStyle = group.frame ? "#57606a" : "#a0a8b0";
    pen.lineWidth = Math.max(group.frame ? 2 : 1, 0.7 / this.scale);
    if (!group.frame) {
      pen.fillStyle = "rgba(255, 255, 255, 0.75)";
      pen.fillRect(x, y, width, height);
    }
    pen.strokeRect(x, y, width, height);
    pen.setLineDash([]);
    if (this.scale < READABLE / 2) return;
    pen.font = `${group.frame ? "600 " : ""}${FONT}`;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    pen.fillStyle = "#57606a";
    pen.fillText(group.label, x + 6, y + 4, Math.max(10, width - 12));
  },

  box(pen, at) {
    const node = nodes[at];
    const [x, y, width, height] = node.box;
    const chosen = this.selected && this.selected.node === at;
    const found = this.found.has(at);
    pen.fillStyle = node.fills[this.byTime ? 1 : 0];
    pen.fillRect(x, y, width, height);
    const thin = Math.max(1, 0.7 / this.scale);
    pen.lineWidth = chosen || found ? 3 * thin : node.critical ? 2.2 * thin : thin;
    pen.strokeStyle = chosen ? "#0969da" : found ? "#bf8700" : node.critical ? "#c0392b" : "#8c959f";
    if (this.scale > 0.04 || chosen || found || node.critical) pen.strokeRect(x, y, width, height);
    if (this.scale <= NAMED) return;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    if (this.scale <= READABLE) {
      const size = Math.min(9 / this.scale, node.owner ? LINE : height * 0.6);
      pen.font = `600 ${size}px ${FONT.split("px ")[1]}`;
      pen.fillStyle = "#1f2328";
      pen.fillText(node.lines[0], x + width / 2, node.owner ? y + 5 : y + (height - size) / 2, width - 8);
      return;
    }
    node.lines.forEach((line, k) => {
      pen.font = k ? FONT : `600 ${FONT}`;
      pen.fillStyle = k ? "#424a53" : "#1f2328";
      pen.fillText(line, x + width / 2, y + 5 + k * LINE, width - 8);
    });
  },

  // The innermost node at a point of the canvas, else the nearest arrow within a few dots.
  at(px, py) {
    const [x, y] = [(px - this.x) / this.scale, (py - this.y) / this.scale];
    let best = null;
    for (const at of this.visibleNodes()) {
      const box = nodes[at].box;
      if (x < box[0] || x > box[0] + box[2] || y < box[1] || y > box[1] + box[3]) continue;
      if (best === null || box[2] * box[3] < nodes[best].box[2] * nodes[best].box[3]) best = at;
    }
    if (best !== null && !nodes[best].owner) return { node: best };
    const edge = this.edgeAt(x, y);
    if (edge !== null) return { edge };
    return best === null ? null : { node: best };
  },

  edgeAt(x, y) {
    const reach = 6 / this.scale;
    let [best, least] = [null, reach * reach];
    for (const at of this.visibleEdges()) {
      const k = 4 * at;
      if (x < bounds[k] - reach || x > bounds[k + 2] + reach) continue;
      if (y < bounds[k + 1] - reach || y > bounds[k + 3] + reach) continue;
      const far = this.distance(at, x, y);
      if (far < least) [best, least] = [at, far];
    }
    return best;
  },

  distance(at, x, y) {
    let least = Infinity;
    let last = null;
    for (const [px, py] of this.samples(at)) {
      if (last) {
        const [dx, dy] = [px - last[0], py - last[1]];
        const length = dx * dx + dy * dy || 1;
        const t = Math.min(1, Math.max(0, ((x - last[0]) * dx + (y - last[1]) * dy) / length));
        const [ox, oy] = [x - last[0] - t * dx, y - last[1] - t * dy];
        least = Math.min(least, ox * ox + oy * oy);
      }
      last = [px, py];
    }
    return least;
  },

  *samples(at) {
    const points = paths[at];
    const steps = 12;
    if (isSideways[at]) {
      for (let k = 0; k <= steps; k += 1) yield this.bezier(k / steps, points[0], points[1], points[2], points[1], points[2], points[5], points[4], points[5]);
      return;
    }
    for (let p = 2; p < points.length; p += 2) {
      const middle = (points[p - 1] + points[p + 1]) / 2;
      for (let k = 0; k <= steps; k += 1) {
        yield this.bezier(k / steps, points[p - 2], points[p - 1], points[p - 2], middle, points[p], middle, points[p], points[p + 1]);
      }
    }
  },

  bezier(t, ax, ay, bx, by, cx, cy, dx, dy) {
    const s = 1 - t;
    const [a, b, c, d] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
    return [a * ax + b * bx + c * cx + d * dx, a * ay + b * by + c * cy + d * dy];
  },
};
