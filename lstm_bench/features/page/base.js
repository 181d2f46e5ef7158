"use strict";

// The run, small helpers, numbers as people read them. Text of the run only ever becomes a text
// node or an attribute that is no address and no script: nothing in it can act.

const run = JSON.parse(document.getElementById("data").textContent);
const AXES = ["hidden", "batch", "timesteps"];
const AXIS_NAMES = { hidden: "hidden size", batch: "batch size", timesteps: "timesteps" };
const METRIC_NAMES = {
  latency: "latency (one call)",
  throughput: "throughput (queued)",
  device: "device (busy)",
};
const CELLS = run.cells.implementation.length;
const SHAPES = run.shapes.hidden.length;

// Every axis with its values in order.
const axisValues = Object.fromEntries(
  AXES.map((axis) => [axis, [...new Set(run.shapes[axis])].sort((a, b) => a - b)]));

function shapeName(shape) {
  const { hidden, batch, timesteps, input_size: input } = run.shapes;
  const base = `${hidden[shape]},${batch[shape]},${timesteps[shape]}`;
  const sizes = input[shape] === hidden[shape] ? base : `${base},${input[shape]}`;
  return run.shapes.training[shape] ? `${sizes} training` : sizes;
}

// Properties are attributes, except text, on (listeners) and what is the element's own state.
const STATE = ["disabled", "hidden", "value", "checked"];
function make(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (STATE.includes(name)) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, properties = {}, ...children) {
  return make(document.createElement(tag), properties, children);
}

function svg(tag, properties = {}, ...children) {
  return make(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Gives a node the colours of an implementation, for both backgrounds.
function inked(node, index) {
  const { light, dark } = run.implementations[index];
  node.classList.add("ink");
  node.style.setProperty("--light", light[0]);
  node.style.setProperty("--on-light", light[1]);
  node.style.setProperty("--dark", dark[0]);
  node.style.setProperty("--on-dark", dark[1]);
  return node;
}

function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function digits(value, count) {
  return String(Number(value.toPrecision(count)));
}

function seconds(value) {
  if (!known(value)) return "-";
  for (const [factor, unit] of [[1, "s"], [1e3, "ms"], [1e6, "us"], [1e9, "ns"]]) {
    const scaled = Number((value * factor).toPrecision(3)); // rounded first: 999.7 us is 1 ms
    if (scaled >= 1) return `${scaled} ${unit}`;
  }
  return "0 s";
}

function times(value) {
  if (!known(value)) return "-";
  if (value < 0.1) return `${digits(value, 2)}x`;
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)}x`;
}

// The ratio of two times as `seconds` shows them.
function shownRatio(a, b) {
  return known(a) && known(b) ? Number(a.toPrecision(3)) / Number(b.toPrecision(3)) : null;
}

// A factor with two digits, as sentences have it: 1.07x, 8.1x, 33x.
function factor(value) {
  return `${value.toFixed(value < 1.995 ? 2 : value < 9.95 ? 1 : 0)}x`;
}

function bytes(value) {
  const powers = [[30, "GiB"], [20, "MiB"], [10, "KiB"]];
  const [power, unit] = powers.find(([p]) => value >= 2 ** p * 0.9995) || [0, "B"];
  return `${digits(value / 2 ** power, 3)} ${unit}`;
}

function errorSize(value) {
  return known(value) ? value.toExponential(0) : "-";
}

function percent(value) {
  return known(value) ? `${digits(100 * value, 2)}%` : "-";
}

function count(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

function median(values) {
  if (!values.length) return NaN;
  const ordered = [...values].sort((a, b) => a - b);
  const half = ordered.length >> 1;
  return ordered.length % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) / 2;
}

// The places of the 95% interval of a median among n ordered values; none below six.
function medianRanks(n) {
  if (n < 6) return null;
  let term = 0.5 ** n, tail = term, rank = 0;
  while (rank + 1 < n >> 1) {
    term *= (n - rank) / (rank + 1);
    if (tail + term > 0.025) break;
    tail += term;
    rank += 1;
  }
  return [rank, n - 1 - rank];
}

// A control with its label above it.
let fields = 0;
function field(label, control) {
  control.id = `field-${fields += 1}`;
  const text = label[0].toUpperCase() + label.slice(1);
  return el("div", { class: "field" }, el("label", { for: control.id, text }), control);
}

// A choice with a label; options are [value, text].
function choice(label, options, value, changed) {
  const select = el("select", { on: { change: () => changed(select.value) } },
    ...options.map(([key, text]) => el("option", { value: key, text })));
  select.value = value;
  return field(label, select);
}

function implementationName(index) {
  const { name, work, default: unasked } = run.implementations[index];
  const marks = `${work === "lstm" ? "" : "*"}${unasked ? "+" : ""}`;
  return marks ? `${name} ${marks}` : name;
}

const MARKS = [
  run.implementations.some((row) => row.work !== "lstm")
    ? "* does not do the same work: the input projection is left out." : "",
  run.implementations.some((row) => row.default)
    ? "+ what its framework does unless you change a setting." : "",
].filter(Boolean).join(" ");

// Markers as Matplotlib names them, around 0,0, about 8 units wide.
const MARKERS = {
  o: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z",
  s: "M-3.5,-3.5H3.5V3.5H-3.5Z",
  v: "M-4.4,-3.4H4.4L0,4.4Z",
  "^": "M-4.4,3.4H4.4L0,-4.4Z",
  D: "M0,-4.8L4.8,0L0,4.8L-4.8,0Z",
  d: "M0,-5L3.2,0L0,5L-3.2,0Z",
  "*": "M0,-5.6L1.4,-1.8L5.4,-1.7L2.2,.7L3.4,4.6L0,2.3L-3.4,4.6L-2.2,.7L-5.4,-1.7L-1.4,-1.8Z",
  P: "M-1.7,-4.6H1.7V-1.7H4.6V1.7H1.7V4.6H-1.7V1.7H-4.6V-1.7H-1.7Z",
  X: "M-4.5,-2.3L-2.3,-4.5L0,-2.2L2.3,-4.5L4.5,-2.3L2.2,0L4.5,2.3L2.3,4.5L0,2.2L-2.3,4.5L-4.5,2.3L-2.2,0Z",
};

function marker(index, properties = {}) {
  return svg("path", { d: MARKERS[run.implementations[index].marker] || MARKERS.o, ...properties });
}

function dashes(index, width) {
  return run.implementations[index].dash.map((length) => length * width).join(" ") || null;
}

// The sample of an implementation beside its name.
function keySample(index) {
  const width = 1.8;
  return inked(svg("svg", { width: 30, height: 14, viewBox: "-15 -7 30 14", "aria-hidden": "true" },
    svg("path", { class: "line", d: "M-15,0H15", "stroke-dasharray": dashes(index, width) }),
    marker(index, { class: "mark" })), index);
}

// A note that follows the pointer, the focus or a finger; one for each figure.
class Tip {
  constructor(figure) {
    this.figure = figure;
    this.box = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    figure.append(this.box);
    figure.addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
    figure.addEventListener("pointerleave", () => this.hide());
    document.addEventListener("pointerdown", (event) => {
      if (!event.target.closest?.(".point")) this.hide();
    });
  }

  show(near, [title, ...lines]) {
    replace(this.box, el("b", { text: title }), ...lines.map((text) => el("span", { text })));
    this.box.hidden = false;
    const mark = near.getBoundingClientRect(), frame = this.figure.getBoundingClientRect();
    const box = this.box.getBoundingClientRect();
    const left = mark.left + mark.width / 2 - frame.left - box.width / 2;
    const above = mark.top - frame.top - box.height - 8;
    this.box.style.left = `${Math.max(0, Math.min(left, frame.width - box.width))}px`;
    this.box.style.top = `${above < 0 ? mark.bottom - frame.top + 8 : above}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}

// Marks that the arrow keys walk through, as one stop of the tab key; `rows` is a list of lists.
function walkable(rows) {
  const all = rows.flat();
  const stop = (node) => {
    for (const other of all) other.setAttribute("tabindex", other === node ? 0 : -1);
  };
  if (all.length) stop(all[0]);
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  rows.forEach((row, y) => row.forEach((node, x) => {
    node.addEventListener("focus", () => stop(node));
    node.addEventListener("keydown", (event) => {
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const line = rows[(y + step[0] + rows.length) % rows.length];
      line[Math.max(0, Math.min(x + step[1], line.length - 1))].focus();
    });
  }));
}

// Draws again when the room changes; the first time at once, and for paper at its width.
const PAPER = 680;
function responsive(node, draw) {
  let width = 0;
  addEventListener("beforeprint", () => node.isConnected && draw(PAPER));
  addEventListener("afterprint", () => node.isConnected && width && draw(width));
  new ResizeObserver(() => {
    const now = Math.floor(node.clientWidth);
    if (now && now !== width) {
      width = now;
      draw(now);
    }
  }).observe(node);
}

// Round numbers on a logarithmic axis, about as many as there is room for.
function logTicks(low, high, most) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  let best = [];
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = from; power <= to; power += 1) {
      for (const step of steps) found.push(step * 10 ** power);
    }
    best = found.filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
    if (best.length <= most) return best;
  }
  const every = Math.ceil(best.length / most);
  return best.filter((_, i) => i % every === 0);
}

function rule(kind, x1, y1, x2, y2) {
  return svg("line", { class: kind, x1, y1, x2, y2 });
}

function textAt(x, y, text, anchor = "middle", kind = null) {
  return svg("text", { class: kind, x, y, text, "text-anchor": anchor });
}

// A drawing with two logarithmic axes; ranges are [low, high].
class Plot {
  constructor(width, height, xRange, yRange, label) {
    this.left = 62;
    this.right = width - 16;
    this.top = 12;
    this.base = height - 46;
    this.ranges = [xRange, yRange];
    this.node = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label,
    });
  }

  x(value) {
    const [low, high] = this.ranges[0];
    return this.left + ((this.right - this.left) * Math.log(value / low)) / Math.log(high / low);
  }

  y(value) {
    const [low, high] = this.ranges[1];
    return this.base - ((this.base - this.top) * Math.log(value / low)) / Math.log(high / low);
  }

  rows(show) {
    const most = Math.max(4, Math.floor((this.base - this.top) / 34));
    for (const tick of logTicks(...this.ranges[1], most)) {
      const y = this.y(tick);
      this.node.append(rule("grid", this.left, y, this.right, y),
        textAt(this.left - 8, y + 4, show(tick), "end", "muted"));
    }
  }

  // Labels that would run into the last one are left out.
  columns(ticks, show, title) {
    let last = -Infinity;
    for (const tick of ticks) {
      const x = this.x(tick), text = show(tick);
      if (x - last < 12 + 7.5 * text.length) continue;
      last = x;
      this.node.append(rule("axis", x, this.base, x, this.base + 5),
        textAt(x, this.base + 19, text, "middle", "muted"));
    }
    this.node.append(rule("axis", this.left, this.base, this.right, this.base),
      textAt((this.left + this.right) / 2, this.base + 40, title));
  }
}

// A mark that says its words to the pointer, to the keyboard and to a finger.
function telling(mark, tip, words, entered = () => {}, left = () => {}) {
  mark.setAttribute("role", "img");
  mark.setAttribute("aria-label", words.join(", "));
  mark.classList.add("point");
  for (const event of ["pointerenter", "focus", "click"]) {
    mark.addEventListener(event, () => { tip.show(mark, words); entered(); });
  }
  for (const event of ["pointerleave", "blur"]) {
    mark.addEventListener(event, () => { tip.hide(); left(); });
  }
  return mark;
}
