"""The pages of `draw` and `step_through`: their style, body and script."""

from __future__ import annotations

from .diagram import AMBER, BACKGROUND, BLACK, BLUE, CHAR, GAP_Y, GRAY, GREEN, LIGHT, MARGIN, PAD

_COLOURS = {"green": GREEN, "blue": BLUE, "amber": AMBER, "gray": GRAY}
_VARIABLES = "; ".join([
    *[f"--{name}: {colour}; --light-{name}: {LIGHT[colour]}" for name, colour in _COLOURS.items()],
    f"--black: {BLACK}; --background: {BACKGROUND}; --edge: #c9d1da",
])
PAGE = (  # with title, style, body, data and script
    """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>%s</title>
<style>
:root { VARIABLES }
body { font: 14px system-ui, sans-serif; color: var(--black); margin: 16px; background: #fff }
button { font: inherit; padding: 4px 12px; margin-right: 6px; border: 1px solid var(--gray);
  border-radius: 6px; background: var(--background); cursor: pointer }
button:disabled { opacity: 0.4; cursor: default }
svg { display: block }
%s
</style>
%s
<script>
const data = %s;
SIZES
%s
</script>
</html>
"""
).replace("VARIABLES", _VARIABLES)
PAGE = PAGE.replace("SIZES", f"const GAP = {GAP_Y}, PAD = {PAD}, MARGIN = {MARGIN}, CHAR = {CHAR};")

# Modules that a click opens and closes.
FOLDING_STYLE = """.bar { margin-bottom: 12px }
.module > rect, .module > text { cursor: pointer }"""
FOLDING_BODY = """<div class="bar"><button id="close">Close all modules</button>
<button id="open">Open all</button> A click on a module closes or opens it.</div>
SVG"""
FOLDING_SCRIPT = """const svg = document.querySelector("svg"), boxes = new Map();
for (const g of svg.querySelectorAll("[data-box]")) {
  const [row, x, y, width, height, into, out, text] = g.dataset.at.split(" ").map(Number);
  const inside = g.querySelector(":scope > .inside"), passes = g.classList.contains("pass");
  boxes.set(g.dataset.box, {g, row, x, y, width, height, into, out, text, inside, passes, top: y});
}
// Places the boxes of a level from `top` on; returns where it ends. What is in a frame moves with it by `by`.
function place(level, top, by) {
  const rows = [], here = [...level.children].filter(g => g.dataset.box).map(g => boxes.get(g.dataset.box));
  for (const box of here) (rows[box.row] ||= []).push(box);
  let y = top;
  for (const row of rows.filter(row => row)) {
    for (const box of row) {
      box.top = y;
      box.g.setAttribute("transform", `translate(0 ${y - box.y - by})`);
      if (box.inside) frame(box);
    }
    const high = Math.max(0, ...row.filter(box => !box.passes).map(box => box.height));
    for (const box of row) { box.room = high; if (box.passes) box.height = high; }
    y += high + GAP;
  }
  for (const path of level.querySelectorAll(":scope > path"))
    path.setAttribute("d", curve(boxes.get(path.dataset.from), boxes.get(path.dataset.to), by));
  return y - GAP;
}
function frame(box) {
  const rect = box.g.querySelector("rect"), lines = box.g.querySelectorAll(":scope > text");
  const header = 17 * lines.length + 2 * PAD - 4;
  box.inside.style.display = box.closed ? "none" : "";
  box.height = box.closed ? header : place(box.inside, box.top + header, box.top - box.y) - box.top + PAD;
  const width = box.closed ? Math.min(box.width, box.text + 2 * CHAR) : box.width;
  const left = box.x + (box.width - width) / 2;
  rect.setAttribute("height", box.height); rect.setAttribute("width", width); rect.setAttribute("x", left);
  for (const line of lines) line.setAttribute("x", left + PAD);
  lines[0].textContent = (box.closed ? "▸ " : "▾ ") + lines[0].textContent.replace(/^[▸▾] /, "");
}
function curve(source, box, by) {
  const middle = b => b.x + b.width / 2, y1 = source.top + source.room - by, y2 = box.top - by;
  const x1 = source.closed ? middle(source) : source.out, x2 = box.closed ? middle(box) : box.into;
  const start = source.top - by + (source.g.classList.contains("in") ? -PAD : source.height);
  const over = box.g.classList.contains("out") ? PAD : 0;
  const end = box.passes ? ` L${x2},${y2 + box.height + over}` : "", half = (y1 + y2) / 2;
  return `M${x1},${start} L${x1},${y1} C${x1},${half} ${x2},${half} ${x2},${y2}${end}`;
}
function show() {
  const height = place(svg, MARGIN, 0) + MARGIN, width = svg.getAttribute("width");
  svg.setAttribute("height", height); svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.querySelector("rect").setAttribute("height", height);
}
const frames = [...boxes.values()].filter(box => box.inside);
function all(closed) { for (const box of frames) box.closed = closed; show(); }
for (const box of frames)
  for (const part of box.g.querySelectorAll(":scope > rect, :scope > text"))
    part.addEventListener("click", () => { box.closed = !box.closed; show(); });
document.getElementById("close").onclick = () => all(true);
document.getElementById("open").onclick = () => all(false);
document.querySelector(".bar").hidden = !frames.length;
all(boxes.size > 150);  // a large graph begins with its outermost modules"""

# The steps of a backward pass.
STEPPING_STYLE = """.box rect { fill: #fff; stroke: var(--edge) }
.now rect { fill: var(--light-green); stroke: var(--green); stroke-width: 2 }
.open rect { fill: var(--light-blue); stroke: var(--blue) }
.waits rect { fill: var(--light-amber); stroke: var(--amber) }
.done rect { fill: var(--light-gray); stroke: var(--edge) } .done text { fill: var(--gray) }
.gate { fill: var(--green) !important }
path.passed { stroke: var(--green); stroke-width: 2; marker-end: none }
path.tip { marker-start: url(#passed) }
.label { fill: var(--green); font-weight: bold; paint-order: stroke; stroke: var(--background);
  stroke-width: 4 }
main { display: flex; gap: 24px; align-items: flex-start }
#graph { overflow: auto; max-height: calc(100vh - 32px); flex: 0 1 auto; min-width: 0 }
aside { flex: 1 0 330px; max-width: 460px; line-height: 1.5 }
h1 { font-size: 18px; margin: 12px 0 4px } h2 { font-size: 14px; margin: 14px 0 2px } p { margin: 0 }
i { display: inline-block; width: 14px; height: 11px; border: 1px solid; border-radius: 3px;
  margin-right: 4px }
#key { margin-top: 14px }
#key span { white-space: nowrap; margin-right: 10px }
td { padding: 0 14px 0 0; font: 12px ui-monospace, monospace; vertical-align: top }"""
STEPPING_BODY = """<main><div id="graph">SVG</div><aside>
<button id="back">← Back</button><button id="next">Next →</button> <span id="count"></span>
<h1 id="title" aria-live="polite"></h1><p id="text"></p>
<h2>Open gates, the last runs next</h2><p id="gates"></p>
<h2>Leaves that have their gradient</h2><table id="leaves"></table>
<p id="key"><span><i style="background: var(--light-green); color: var(--green)"></i>runs now</span>
<span><i style="background: var(--light-blue); color: var(--blue)"></i>gate open</span>
<span><i style="background: var(--light-amber); color: var(--amber)"></i>waits at its gate</span>
<span><i style="background: var(--light-gray); color: var(--edge)"></i>done</span></p>
<p>●○: 1 of 2 gradients has arrived. Arrow keys step, too.</p></aside></main>"""
STEPPING_SCRIPT = """const svg = document.querySelector("svg"), element = id => document.getElementById(id);
const boxes = new Map([...svg.querySelectorAll("[data-box]")].map(g => [g.dataset.box, g]));
const paths = [...svg.querySelectorAll("path[data-to]")];
const tip = svg.querySelector("marker").cloneNode(true);
tip.id = "passed"; tip.firstElementChild.setAttribute("fill", "var(--green)"); svg.append(tip);
let at = 0;
// Finds the arrows of the edges that end in a box: for each box where they begin, its arrows from the end on.
function edges(to) {
  return paths.filter(path => path.dataset.to === to).flatMap(path => {
    const from = path.dataset.from;
    return boxes.get(from).classList.contains("pass")
      ? edges(from).map(edge => ({...edge, arrows: [path, ...edge.arrows]})) : [{from, arrows: [path]}];
  });
}
function show() {
  const step = data[at];
  for (const [number, [state, gate, grad]] of Object.entries(step.nodes)) {
    const g = boxes.get(number), lines = g.querySelectorAll("text");
    g.setAttribute("class", "box " + state);
    lines[2].textContent = gate; lines[2].setAttribute("class", "gate"); lines[3].textContent = grad;
  }
  svg.querySelectorAll(".label").forEach(label => label.remove());
  for (const path of paths) path.classList.remove("passed", "tip");
  for (const edge of step.runs === null ? [] : edges(String(step.runs))) {
    if (!(edge.from in step.passed)) continue;
    edge.arrows.forEach(path => path.classList.add("passed"));
    const last = edge.arrows.at(-1), point = last.getPointAtLength(0);
    last.classList.add("tip");
    const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
    label.setAttribute("class", "label"); label.setAttribute("text-anchor", "middle");
    label.setAttribute("x", point.x); label.setAttribute("y", point.y + 22);
    label.textContent = step.passed[edge.from];
    svg.append(label);
  }
  const shown = boxes.get(String(at ? step.runs : data[1].runs)), graph = element("graph");
  graph.scrollTo(shown.getBBox().x - graph.clientWidth / 2, shown.getBBox().y - graph.clientHeight / 2);
  element("title").textContent = step.title; element("text").textContent = step.text;
  element("count").textContent = `step ${at} of ${data.length - 1}`;
  element("gates").textContent = step.open.join(", ") || "none";
  element("leaves").replaceChildren(...Object.entries(step.leaves).map(row => {
    const line = document.createElement("tr");
    for (const text of [row[0], row[1] ? ".grad += " + row[1] : "–"])
      line.insertCell().textContent = text;
    return line;
  }));
  element("back").disabled = at === 0; element("next").disabled = at === data.length - 1;
}
function go(by) { at = Math.min(Math.max(at + by, 0), data.length - 1); show(); }
element("back").onclick = () => go(-1);
element("next").onclick = () => go(1);
addEventListener("keydown", event => {
  if (event.key === "ArrowRight") go(1); else if (event.key === "ArrowLeft") go(-1); else return;
  event.preventDefault();
});
show();"""

FOLDING = FOLDING_STYLE, FOLDING_BODY, FOLDING_SCRIPT
STEPPING = STEPPING_STYLE, STEPPING_BODY, STEPPING_SCRIPT
