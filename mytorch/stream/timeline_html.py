"""Writes a timeline as one HTML page: the wheel zooms, dragging moves, hovering explains."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

from ..utils.atomic import atomic_write
from .timeline import COLOURS, LANES, PHASE_COLOURS, Timeline

_PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>TITLE</title>
<style>
  body { font: 14px system-ui, sans-serif; color: #333; margin: 20px; }
  h1 { font-size: 18px; font-weight: 600; margin: 0 0 4px; }
  #key { margin: 8px 0; } #key i { display: inline-block; width: 11px; height: 11px; margin: 0 5px 0 14px; }
  canvas { width: 100%; cursor: grab; display: block; }
  #tip { position: fixed; display: none; background: #222e; color: #fff; padding: 7px 10px;
         border-radius: 5px; white-space: pre; font: 12px ui-monospace, monospace; pointer-events: none; }
  p { color: #777; margin: 4px 0; }
</style>
<h1>TITLE</h1><p>Wheel: zoom. Drag: move. Double click: everything.</p>
<canvas id="view"></canvas><div id="key"></div><div id="tip"></div>
<script>
const data = DATA;
const view = document.getElementById("view"), tip = document.getElementById("tip");
const LEFT = 150, RIGHT = 80, LANE = 44, GAP = 6, BAND = 26, SCALE = devicePixelRatio || 1;
const BEGIN = data.begin, END = data.begin + data.seconds;  // in seconds since the first operation
let from = BEGIN, to = END, drag = null, tops = {}, y = 4;
for (const rank of data.ranks) {
  y += BAND;
  for (const lane of data.lanes) { tops[rank + lane] = y; y += LANE + GAP; }
}
const height = y + 26;
document.getElementById("key").innerHTML = data.kinds.map(
  ([kind, share]) => `<i style="background:${data.colours[kind]}"></i>${kind} ${share}`).join("");
const x = t => LEFT + (t - from) / (to - from) * (view.clientWidth - LEFT - RIGHT);
const box = b => {
  const row = LANE / b.rows, size = row * b.height;
  return [x(b.start), tops[b.rank + b.lane] + b.row * row + (row - size) / 2,
          Math.max(1, x(b.end) - x(b.start)), size];
};
function draw() {
  const width = view.clientWidth;
  view.width = width * SCALE; view.height = height * SCALE; view.style.height = height + "px";
  const g = view.getContext("2d");
  g.scale(SCALE, SCALE); g.clearRect(0, 0, width, height);
  for (const rank of data.ranks) for (const lane of data.lanes) {
    const top = tops[rank + lane];
    g.fillStyle = "#f6f6f6"; g.fillRect(LEFT, top, width - LEFT - RIGHT, LANE);
    g.fillStyle = "#333"; g.textBaseline = "middle"; g.font = "13px system-ui"; g.textAlign = "right";
    g.fillText(lane, LEFT - 8, top + LANE / 2);
    g.textAlign = "left"; g.fillText(data.idle[rank + lane], width - RIGHT + 8, top + LANE / 2);
    if (lane === data.lanes[0]) { g.font = "600 14px system-ui"; g.fillText("rank " + rank, 0, top - 10); }
  }
  g.save(); g.beginPath(); g.rect(LEFT, 0, width - LEFT - RIGHT, height); g.clip();
  for (const p of data.phases) {
    g.fillStyle = data.phaseColours[p.phase] || "#f6f6f6";
    g.fillRect(x(p.start), tops[p.rank + data.lanes[0]], x(p.end) - x(p.start), LANE);
  }
  for (const b of data.bars) if (b.end >= from && b.start <= to) {
    const [left, top, w, h] = box(b);
    g.fillStyle = data.colours[b.kind]; g.fillRect(left, top, w, h);
    if (b.hatched) {
      g.save(); g.beginPath(); g.rect(left, top, w, h); g.clip(); g.beginPath();
      for (let s = Math.max(left, LEFT) - h; s < Math.min(left + w, width); s += 8) {
        g.moveTo(s, top + h); g.lineTo(s + h, top);
      }
      g.strokeStyle = "#fff"; g.stroke(); g.restore();
    }
    if (w > 60) {
      g.fillStyle = "#fff"; g.font = "11px system-ui"; g.textAlign = "left";
      g.fillText(b.text.split("  (")[0], Math.max(left, LEFT) + 4, top + h / 2, w - 8);
    }
  }
  g.strokeStyle = g.fillStyle = "#333";
  for (const [a, b] of data.arrows) {
    const s = box(data.bars[a]), e = box(data.bars[b]), ex = e[0] + e[2], ey = e[1] + e[3] / 2;
    g.beginPath(); g.moveTo(s[0], s[1] + s[3] / 2); g.lineTo(ex, ey); g.stroke();
    g.beginPath(); g.arc(ex, ey, 3, 0, 7); g.fill();
  }
  g.restore();
  const step = 10 ** Math.floor(Math.log10((to - from) / 4)), unit = to - from < 0.01 ? 1e6 : 1e3;
  g.fillStyle = "#777"; g.font = "12px system-ui"; g.textAlign = "center";
  for (let t = Math.ceil(from / step) * step; t <= to; t += step)
    if ((to - from) / step < 12 || Math.round(t / step) % 5 === 0)
      g.fillText((t * unit).toFixed(Math.max(0, -Math.floor(Math.log10(step * unit))))
                 + (unit === 1e3 ? " ms" : " us"), x(t), height - 12);
}
const time = e => from + (e.offsetX - LEFT) / (view.clientWidth - LEFT - RIGHT) * (to - from);
view.onwheel = e => {
  e.preventDefault();
  const t = time(e), k = Math.exp(e.deltaY / 500);
  from = Math.max(BEGIN, t - (t - from) * k); to = Math.min(END, t + (to - t) * k); draw();
};
view.onmousedown = e => { drag = time(e); };
onmouseup = () => { drag = null; };
view.ondblclick = () => { from = BEGIN; to = END; draw(); };
view.onmousemove = e => {
  if (drag !== null) {
    const by = Math.min(Math.max(drag - time(e), BEGIN - from), END - to);
    from += by; to += by; draw(); return;
  }
  const hit = data.bars.find(b => {
    const [left, top, w, h] = box(b);
    return e.offsetX >= left && e.offsetX <= left + w && e.offsetY >= top && e.offsetY <= top + h;
  });
  tip.style.display = hit ? "block" : "none";
  if (hit) {
    tip.textContent = hit.text;
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 10) + "px";
    tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 10) + "px";
  }
};
onresize = draw; draw();
</script>
</html>
"""


def write_timeline(line: Timeline, path: str | os.PathLike, title: str = "") -> None:
    """Writes a timeline as an HTML page."""
    bars, numbers = [], {}
    for (rank, lane), found in line.bars.items():
        for bar in found:
            numbers[id(bar)] = len(bars)
            bars.append({
                "rank": rank, "lane": lane, "kind": bar.instruction.kind, "start": round(bar.start, 7),
                "end": round(bar.end, 7), "row": bar.row, "rows": bar.rows, "height": round(bar.height, 3),
                "text": bar.text, "hatched": bar.is_hatched,
            })
    times = line.seconds_by_kind()
    whole = sum(times.values()) or 1.0
    lanes = [lane for lane in LANES if any((rank, lane) in line.bars for rank in line.ranks)]
    data = {
        "seconds": line.seconds, "begin": line.begin, "ranks": line.ranks, "lanes": lanes, "bars": bars,
        "arrows": [(numbers[id(a.late)], numbers[id(a.waiting)]) for a in line.arrows],
        "idle": {f"{r}{lane}": f"{line.idle(r, lane):.0%} idle" for r in line.ranks for lane in lanes},
        "phases": [{"rank": r, "phase": p, "start": a, "end": b}
                   for r, phases in line.phases.items() for p, a, b in phases],
        "kinds": [(kind, f"{t / whole:.1%}") for kind, t in times.items()],
        "colours": COLOURS, "phaseColours": PHASE_COLOURS,
    }
    text = json.dumps(data).replace("<", "\\u003c")  # no name in it may end the script
    with atomic_write(path) as file:
        page = _PAGE.replace("= DATA;", f"= {text};", 1).replace("TITLE", html.escape(title), 2)
        Path(file).write_text(page, "utf-8")
