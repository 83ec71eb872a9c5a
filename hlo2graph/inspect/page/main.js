// What pointer and keys do.

const tip = document.getElementById("tip");
const search = document.getElementById("search");
let hits = [];
let hit = -1;

function select(chosen) {
  view.selected = chosen;
  if (chosen === null) showHelp();
  else if (chosen.node !== undefined) showNode(chosen.node);
  else showEdge(chosen.edge);
  side.scrollTop = 0;
  view.refresh();
  panels.refresh();
}

function selectThunk(thunk) {
  const known = byThunk.get(thunk);
  if (!known) return;
  select({ node: known[0] });
  view.centre(known[0]);
}

function find(text) {
  const wanted = text.trim().toLowerCase();
  hits = [];
  hit = -1;
  if (wanted) {
    nodes.forEach((node, at) => {
      const texts = [node.id, ...node.lines, node.tip, ...node.names];
      if (texts.some((held) => held.toLowerCase().includes(wanted))) hits.push(at);
    });
  }
  view.found = new Set(hits);
  document.getElementById("matches").textContent = wanted ? counted(hits.length, "node") : "";
  view.refresh();
}

function nextHit(step) {
  if (!hits.length) return;
  hit = (hit + step + hits.length) % hits.length;
  document.getElementById("matches").textContent = `${hit + 1} of ${hits.length}`;
  select({ node: hits[hit] });
  view.centre(hits[hit]);
}

function hint(text, px, py) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const stage = document.getElementById("stage");
  tip.style.left = `${Math.min(px + 14, Math.max(0, stage.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.min(py + 14, Math.max(0, stage.clientHeight - tip.offsetHeight - 8))}px`;
}

// Drag, wheel and click on a canvas.
function handle(canvas, { pan, zoom, over, click }) {
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.offsetX, y: event.offsetY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) {
      over(event.offsetX, event.offsetY);
      return;
    }
    const [dx, dy] = [event.offsetX - held.x, event.offsetY - held.y];
    if (!held.moved && Math.hypot(dx, dy) < 4) return;
    held = { x: event.offsetX, y: event.offsetY, moved: true };
    canvas.classList.add("held");
    hint("");
    pan(dx, dy);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && !held.moved) click(event.offsetX, event.offsetY);
    held = null;
    canvas.classList.remove("held");
  });
  canvas.addEventListener("pointerleave", () => hint(""));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
  }, { passive: false });
}

handle(view.canvas, {
  pan(dx, dy) {
    view.x += dx;
    view.y += dy;
    view.refresh();
  },
  zoom: (factor, px, py) => view.zoom(factor, px, py),
  over(px, py) {
    const found = view.at(px, py);
    view.canvas.classList.toggle("over", found !== null);
    if (found === null) hint("");
    else if (found.node === undefined) hint(edges[found.edge].why.join("\n"), px, py);
    else hint(`${nodes[found.node].lines.join("\n")}\n${nodes[found.node].tip}`, px, py);
  },
  click: (px, py) => select(view.at(px, py)),
});

handle(panels.canvas, {
  pan: (dx, dy) => panels.pan(dx, dy),
  zoom: (factor, px) => panels.zoom(factor, px),
  over(px, py) {
    const found = panels.at(px, py);
    panels.canvas.style.cursor = found ? "pointer" : "default";
    const stage = document.getElementById("stage");
    hint(found ? found.text : "", px, stage.clientHeight);
  },
  click(px, py) {
    const found = panels.at(px, py);
    if (found) selectThunk(found.thunk);
    if (panels.name !== "curve") return;
    const near = panels.spots.findIndex(([x, y]) => Math.hypot(x - px, y - py) < 12);
    if (near >= 0) showChoice(near);
  },
});

search.addEventListener("input", () => find(search.value));
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") search.blur();
});
document.addEventListener("keydown", (event) => {
  if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
  } else if (event.key === "f") view.fit();
  else if (event.key === "Escape") select(null);
  else if (event.key === "+") view.zoom(1.25, view.canvas.clientWidth / 2, view.canvas.clientHeight / 2);
  else if (event.key === "-") view.zoom(0.8, view.canvas.clientWidth / 2, view.canvas.clientHeight / 2);
});
document.getElementById("fit").addEventListener("click", () => view.fit());

function colour(byTime) {
  view.byTime = byTime;
  document.getElementById("colour").textContent = byTime ? "Colour: time" : "Colour: kind";
  legend();
  view.refresh();
}
document.getElementById("colour").addEventListener("click", () => colour(!view.byTime));
document.getElementById("colour").hidden = data.timeline === null;

document.getElementById("title").textContent = data.caption[0];
document.getElementById("caption").textContent = data.caption.slice(1).join("  ·  ");
const tabs = document.getElementById("tabs");
const PANELS = { memory: "Memory", timeline: "Timeline", curve: "Memory against time" };
const has = { memory: data.memory && data.memory.values.length, timeline: data.timeline && data.timeline.bars.length, curve: data.curve.length > 1 };
for (const [name, label] of Object.entries(PANELS)) {
  if (!has[name]) continue;
  const button = element("button", label);
  button.type = "button";
  button.dataset.panel = name;
  button.addEventListener("click", () => panels.open(panels.name === name ? null : name));
  tabs.append(button);
}
tabs.append(element("span", ""));
document.getElementById("panels").hidden = !Object.values(has).some(Boolean);
if (has.curve) {
  const slider = document.getElementById("slider");
  slider.max = String(data.curve.length - 1);
  slider.addEventListener("input", () => showChoice(Number(slider.value)));
  showChoice(Math.max(0, data.curve.findIndex((point) => point.shown)));
}
new ResizeObserver(() => {
  view.refresh();
  panels.refresh();
}).observe(document.body);
colour(view.byTime);
select(null);
panels.open(has.memory ? "memory" : has.timeline ? "timeline" : null);
view.fit();
document.fonts.ready.then(() => view.refresh());
