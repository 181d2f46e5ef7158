// Time against an axis of the grid, one line per implementation.

// For each implementation a map of shapes: the median over passes and both ends of its interval.
const measured = new Map();
function timesOf(metric) {
  if (measured.has(metric)) return measured.get(metric);
  const { cells, strings } = run;
  const found = run.implementations.map(() => new Map());
  for (let row = 0; row < CELLS; row += 1) {
    const value = cells[`${metric}_s`][row];
    if (cells.copy[row] !== 1 || strings[cells.status[row]] !== "ok" || !known(value)) continue;
    const mine = found[cells.implementation[row]], shape = cells.shape[row];
    if (!mine.has(shape)) mine.set(shape, []);
    const ends = ["low", "high"].map((end) => value * (cells[`${metric}_${end}`][row] ?? 1));
    mine.get(shape).push([value, ...ends]);
  }
  for (const mine of found) {
    for (const [shape, passes] of mine) {
      mine.set(shape, [0, 1, 2].map((i) => median(passes.map((pass) => pass[i]))));
    }
  }
  measured.set(metric, found);
  return found;
}

// What must be equal along a line, so that it shows the axis and nothing else.
function otherSizes(shape, axis) {
  const { hidden, input_size: input } = run.shapes;
  const rest = AXES.filter((other) => other !== axis).map((other) => run.shapes[other][shape]);
  const own = input[shape] === hidden[shape] ? "=" : input[shape];
  return [...rest, own, run.shapes.training[shape]].join(",");
}

// The shapes that are not fixed away, by their value on the axis.
function shapesAlong(axis, fixed) {
  const found = new Map();
  const others = AXES.filter((other) => other !== axis && fixed[other] !== "");
  for (let shape = 0; shape < SHAPES; shape += 1) {
    if (others.some((other) => run.shapes[other][shape] !== Number(fixed[other]))) continue;
    const value = run.shapes[axis][shape];
    if (!found.has(value)) found.set(value, []);
    found.get(value).push(shape);
  }
  return found;
}

// The median of every shown row at every value of the axis, over the shapes that all of them have;
// a row without any result at a value has no say there. Sizes that every value has come first.
function linePoints({ metric, axis, bars, fixed, shown }) {
  const of = timesOf(metric);
  const byValue = shapesAlong(axis, fixed);
  const shared = new Map();
  for (const [value, shapes] of byValue) {
    const present = shown.filter((i) => shapes.some((shape) => of[i].has(shape)));
    const everybody = shapes.filter((shape) => present.every((i) => of[i].has(shape)));
    if (present.length && everybody.length) shared.set(value, everybody);
  }
  const sizes = [...shared.values()].map(
    (shapes) => new Set(shapes.map((shape) => otherSizes(shape, axis))));
  const common = sizes.length ? [...sizes[0]].filter((one) => sizes.every((set) => set.has(one))) : [];
  const along = new Set(common);
  const points = [];
  for (const [value, everybody] of [...shared].sort((a, b) => a[0] - b[0])) {
    const shapes = everybody.filter((shape) => !along.size || along.has(otherSizes(shape, axis)));
    for (const i of shown) {
      const mine = shapes.filter((shape) => of[i].has(shape)).map((shape) => of[i].get(shape));
      if (!mine.length) continue;
      const ends = { rounds: overRounds, shapes: overShapes, none: () => null }[bars](mine);
      const time = median(mine.map(([middle]) => middle));
      points.push({ i, value, time, ends, shapes: mine.length });
    }
  }
  const sameAlong = along.size > 0 || shared.size < 2;
  return { points, sameAlong, missing: byValue.size - shared.size };
}

// The interval of just these measurements: the median of the cells' own ends.
function overRounds(mine) {
  return [1, 2].map((end) => median(mine.map((one) => one[end])));
}

// The interval of the median over shapes, by order statistics; none of fewer than six.
function overShapes(mine) {
  const ordered = mine.map(([middle]) => middle).sort((a, b) => a - b);
  const ranks = medianRanks(mine.length);
  return ranks && ranks.map((rank) => ordered[rank]);
}

const BARS = {
  rounds: "Bars: 95% interval of just these measurements, from the rounds; where none is seen it is"
    + " smaller than the mark.",
  shapes: "Bars: 95% interval of the median over shapes, by order statistics; none of fewer than six.",
  none: "",
};

class LineFigure {
  constructor(place) {
    this.state = {
      metric: run.metrics[0],
      axis: ["batch", "timesteps", "hidden"].find((axis) => axisValues[axis].length > 1) || "batch",
      bars: "rounds",
      fixed: { hidden: "", batch: "", timesteps: "" },
    };
    this.off = new Set(this.rows.filter((i) => !run.drawn.includes(i))); // not shown
    this.width = 0;
    this.title = el("h3");
    this.drawing = el("div");
    this.figure = el("figure", { class: "figure" }, this.drawing);
    this.tip = new Tip(this.figure);
    this.legend = el("ul", { class: "legend", "aria-label": "Implementations shown" });
    this.note = el("p", { class: "note" });
    this.numbers = el("div");
    this.fixedChoices = el("span", { class: "inline" });
    this.sizes();
    this.keys();
    replace(place, this.title, this.controls(), this.figure, this.legend, this.toggles(), this.note,
      el("details", {}, el("summary", { text: "These numbers as a table" }), this.numbers));
    responsive(this.drawing, (now) => {
      this.width = now;
      this.draw();
    });
  }

  get rows() {
    return run.implementations.map((_, i) => i).filter((i) => timesOf(this.state.metric)[i].size);
  }

  controls() {
    const { metric, axis, bars } = this.state;
    const set = (key, after = () => {}) => (chosen) => {
      this.state[key] = chosen;
      after();
      this.draw();
    };
    const named = (keys, names) => keys.map((key) => [key, names[key]]);
    const kinds = { rounds: "from rounds", shapes: "over shapes", none: "none" };
    return el("div", { class: "controls" },
      choice("Time", named(run.metrics, METRIC_NAMES), metric, set("metric", () => this.keys())),
      choice("Along", named(AXES, AXIS_NAMES), axis, set("axis", () => this.sizes())),
      this.fixedChoices,
      choice("Bars", Object.entries(kinds), bars, set("bars")));
  }

  // Choices for the axes that a point is the median over.
  sizes() {
    const { axis, fixed } = this.state;
    fixed[axis] = "";
    const rest = AXES.filter((other) => other !== axis && axisValues[other].length > 1);
    replace(this.fixedChoices, ...rest.map((other) => {
      const options = [["", "all (median)"], ...axisValues[other].map((value) => [value, value])];
      return choice(AXIS_NAMES[other], options, fixed[other], (chosen) => {
        fixed[other] = chosen;
        this.draw();
      });
    }));
  }

  toggles() {
    const button = (text, off) => el("button", {
      type: "button", class: "button", text,
      on: {
        click: () => {
          this.off = new Set(off());
          this.keys();
          this.draw();
        },
      },
    });
    return el("p", { class: "controls" },
      button("Show all", () => []), button("Hide all", () => this.rows));
  }

  keys() {
    replace(this.legend, ...this.rows.map((i) => {
      const raise = () => this.off.has(i) || this.raise(i);
      const button = el("button", {
        type: "button", class: "key", "aria-pressed": String(!this.off.has(i)),
        title: run.implementations[i].note,
        on: {
          click: () => {
            if (!this.off.delete(i)) this.off.add(i);
            button.setAttribute("aria-pressed", String(!this.off.has(i)));
            this.draw();
          },
          pointerenter: raise, focus: raise,
          pointerleave: () => this.raise(null), blur: () => this.raise(null),
        },
      }, keySample(i), el("span", { text: implementationName(i) }));
      return el("li", {}, button);
    }));
  }

  // One line before all others; none: all alike.
  raise(i) {
    for (const group of this.drawing.querySelectorAll(".series")) {
      group.classList.toggle("raised", group.dataset.i === String(i));
      group.classList.toggle("faded", i !== null && group.dataset.i !== String(i));
    }
  }

  draw() {
    const { metric, axis } = this.state;
    const shown = this.rows.filter((i) => !this.off.has(i));
    const found = linePoints({ ...this.state, shown });
    this.title.textContent = `${metric[0].toUpperCase()}${metric.slice(1)} by ${AXIS_NAMES[axis]}`;
    this.tip.hide();
    replace(this.drawing, found.points.length
      ? this.lines(found.points, shown) : el("p", { text: LineFigure.whyEmpty(shown) }));
    this.note.textContent = this.noteText(found);
    replace(this.numbers, this.table(found.points, shown));
  }

  static whyEmpty(shown) {
    return shown.length
      ? "No shape was measured by all implementations that are shown. Hide one, or free a size."
      : "Choose an implementation below to draw it.";
  }

  noteText({ points, sameAlong, missing }) {
    const parts = [];
    if (points.length) {
      const counts = points.map((point) => point.shapes);
      const low = Math.min(...counts), high = Math.max(...counts);
      const shapes = low === high ? count(low, "shape") : `${low} to ${high} shapes`;
      const some = this.off.size ? `${this.rows.length - this.off.size} of ` : "";
      parts.push(`${some}${count(this.rows.length, "row")} drawn; click a name for more or fewer.`,
        `A point is the median over ${shapes} that all rows shown have there.`);
    }
    if (!sameAlong) {
      parts.push("The grid is not complete: along a line the other sizes change too, so compare"
        + " rows at one place, not places along a row.");
    }
    if (missing) {
      const have = missing === 1 ? "has" : "have";
      parts.push(`${count(missing, "place")} on the axis ${have} no shape that all rows have.`);
    }
    parts.push(BARS[this.state.bars], MARKS);
    return parts.filter(Boolean).join(" ");
  }

  lines(points, shown) {
    const { axis, bars } = this.state;
    const values = [...new Set(points.map((point) => point.value))];
    const ends = points.flatMap((point) => [point.time, ...(point.ends || [])]);
    const [first, last] = [values[0], values[values.length - 1]];
    const margin = first === last ? 2 : (last / first) ** 0.04;
    const height = Math.round(Math.max(300, Math.min(480, this.width * 0.56)));
    const plot = new Plot(this.width, height, [first / margin, last * margin],
      [Math.min(...ends) / 1.15, Math.max(...ends) * 1.15],
      `${this.title.textContent}: ${count(shown.length, "line")}. Arrow keys walk through the`
      + " points; the same numbers are in a table below.");
    plot.rows(seconds);
    plot.columns(values, String, AXIS_NAMES[axis]);
    // wide bars would hide each other: they stand side by side
    const room = Math.min(...values.slice(1).map((value, k) => plot.x(value) - plot.x(values[k])), 160);
    const wide = bars === "shapes" && points.some((point) => point.ends);
    const step = wide ? Math.min(5, (0.6 * room) / shown.length) : 0;
    const walk = [];
    shown.forEach((i, k) => {
      const mine = points.filter((point) => point.i === i);
      if (!mine.length) return;
      const shift = step * (k - (shown.length - 1) / 2);
      const at = (point) => [plot.x(point.value) + shift, plot.y(point.time)];
      const group = inked(svg("g", { class: "series", "data-i": i },
        svg("polyline", {
          class: "line", points: mine.map(at).join(" "), "stroke-dasharray": dashes(i, 1.8),
        })), i);
      for (const point of mine.filter((one) => one.ends)) {
        const [x] = at(point), [low, high] = point.ends.map((end) => plot.y(end));
        group.append(rule("bar", x, low, x, high));
      }
      const marks = mine.map((point) => telling(
        svg("g", { transform: `translate(${at(point)})` },
          marker(i, { class: "mark" }), svg("circle", { class: "hit", r: 11 })),
        this.tip, this.words(point), () => this.raise(i), () => this.raise(null)));
      group.append(...marks);
      walk.push(marks);
      plot.node.append(group);
    });
    walkable(walk);
    return plot.node;
  }

  words({ i, value, time, ends, shapes }) {
    const { axis, bars } = this.state;
    const basis = bars === "shapes" ? "over shapes" : "from rounds";
    return [
      implementationName(i),
      `${AXIS_NAMES[axis]} ${value}: ${seconds(time)}`,
      ...(ends ? [`95% interval ${basis}: ${seconds(ends[0])} to ${seconds(ends[1])}`] : []),
      `median over ${count(shapes, "shape")}`,
    ];
  }

  table(points, shown) {
    const values = [...new Set(points.map((point) => point.value))];
    const found = new Map(points.map((point) => [`${point.i} ${point.value}`, point.time]));
    const at = (value) => (i) => found.get(`${i} ${value}`) ?? null;
    const { axis } = this.state;
    return new Table({
      caption: this.title.textContent,
      columns: [
        textColumn("implementation", implementationName),
        ...values.map((value) => numberColumn(`${axis} ${value}`, at(value), seconds)),
      ],
      rows: shown,
    }).node;
  }
}

function lineFigure(place) {
  if (run.metrics.length) return new LineFigure(place);
  return replace(place, el("p", { text: "No cell has a time, so there is nothing to draw." }));
}
