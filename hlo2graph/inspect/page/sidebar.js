// What is known of the selected node or arrow. All text goes in as text, never as HTML.

const side = document.getElementById("side");

function element(tag, text, ...children) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function link(at) {
  const button = element("button", nodes[at].lines[0]);
  button.type = "button";
  button.addEventListener("click", () => {
    select({ node: at });
    view.centre(at);
  });
  return button;
}

function section(title, held) {
  if (typeof held !== "number") return [element("h3", title), ...held.map((line) => element("p", line))];
  const fold = element("details", null, element("summary", title), element("pre", data.texts[held]));
  fold.open = title !== "CUDA C++";
  fold.className = title.replace(/\W+/g, "-").toLowerCase();
  return [element("h3", null), fold];
}

function neighbours(title, list, end) {
  if (!list.length) return [];
  const rows = list.slice(0, 200).map((at) => {
    const why = element("button", edges[at].label || edges[at].reason);
    why.type = "button";
    why.addEventListener("click", () => select({ edge: at }));
    return element("li", null, link(edges[at][end]), why);
  });
  const more = list.length > 200 ? [element("p", `and ${list.length - 200} more`)] : [];
  return [element("h3", `${title} (${list.length})`), element("ul", null, ...rows), ...more];
}

function showNode(at) {
  const node = nodes[at];
  side.replaceChildren(
    element("h2", node.lines[0]),
    ...node.about.flatMap(([title, held]) => section(title, held)),
    ...neighbours("Waits for", INTO[at], "src"),
    ...neighbours("Before", OUT[at], "dst"),
  );
}

function showEdge(at) {
  const edge = edges[at];
  const lines = edge.why.map((line) => element("p", line));
  if (edge.artefact) lines[lines.length - 1].className = "artefact";
  side.replaceChildren(
    element("h2", edge.label || edge.reason),
    element("p", null, link(edge.src), " → ", link(edge.dst)),
    element("h3", "Why"),
    ...lines,
  );
}

function showHelp() {
  const keys = [
    ["drag", "move"],
    ["wheel", "zoom"],
    ["click", "a node for its code and bytes, an arrow for its reason"],
    ["/", "search"],
    ["f", "whole graph"],
    ["Esc", "select nothing"],
  ];
  side.replaceChildren(
    element("h2", data.caption[0]),
    ...data.caption.slice(1).map((line) => element("p", line)),
    element("h3", "How to look around"),
    ...keys.map(([key, does]) => element("p", null, element("kbd", key), ` ${does}`)),
  );
}

function legend() {
  const kinds = new Map();
  nodes.forEach((node) => kinds.set(node.kind, node.fills[0]));
  const reasons = new Map();
  edges.forEach((edge) => reasons.set(edge.reason, edge));
  const place = document.getElementById("legend");
  const entries = [];
  if (!view.byTime) {
    for (const [kind, fill] of kinds) {
      const swatch = element("i", null);
      swatch.style.background = fill;
      entries.push(element("span", null, swatch, kind));
    }
  } else entries.push(element("span", "darker takes longer"));
  for (const [reason, edge] of reasons) {
    const swatch = element("i", null);
    swatch.className = "edge";
    swatch.style.borderColor = edge.colour;
    swatch.style.borderTopStyle = edge.dash;
    entries.push(element("span", null, swatch, reason));
  }
  place.replaceChildren(...entries);
}
