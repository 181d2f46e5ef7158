// Two implementations compared. All statistics were worked out with the run: here
// they are only looked up and drawn.

const VERDICTS = { f: "faster", s: "same", u: "unsure", l: "slower" };
const WORDS = ["faster", "same", "unsure", "slower"];
const MOST_DRAWN = 3000; // marks in one figure

for (const pair of run.pairs) {
  pair.names = [pair.a, pair.b].map((i) => run.implementations[i].name);
  pair.groups = pair.groups.map(
    ([by, label, shapes, ratio, mpe, counts, clear]) => (
      { by, label, shapes, ratio, mpe, counts, clear }));
}

function pairPicker(place) {
  if (!run.pairs.length) {
    replace(place, el("p", { text: "There are no two implementations with a shape in common." }));
    return;
  }
  const found = new Map(run.pairs.map((pair) => [`${pair.a} ${pair.b}`, pair]));
  const [firsts, others] = ["a", "b"].map(
    (side) => [...new Set(run.pairs.map((pair) => pair[side]))].sort((i, j) => i - j));
  const baseline = run.pairs.filter((pair) => pair.a === run.baseline);
  const start = baseline.find((pair) => pair.names[1] === "pytorch") || baseline[0] || run.pairs[0];
  const state = { a: start.a, b: start.b };
  const headline = el("p", { class: "headline", role: "status" });
  const result = el("div");
  const options = (indices) => indices.map((i) => [i, implementationName(i)]);
  const picked = (key) => (chosen) => {
    state[key] = Number(chosen);
    show();
  };
  const a = choice("A, the baseline", options(firsts), state.a, picked("a"));
  const b = choice("B, compared with A", options(others), state.b, picked("b"));
  const swap = el("button", {
    type: "button", class: "button", text: "Swap A and B",
    on: {
      click: () => {
        [state.a, state.b] = [state.b, state.a];
        a.lastChild.value = state.a;
        b.lastChild.value = state.b;
        show();
      },
    },
  });

  function show() {
    swap.disabled = !firsts.includes(state.b) || !others.includes(state.a);
    const pair = found.get(`${state.a} ${state.b}`);
    headline.textContent = pair ? `${pair.headline}.` : whyNone(state);
    replace(result, ...(pair ? pairNodes(pair) : []));
  }

  replace(place, el("div", { class: "controls" }, a, b, swap), headline, result,
    MARKS ? el("p", { class: "note", text: MARKS }) : null);
  show();
}

function whyNone({ a, b }) {
  if (a === b) return "A and B are the same; choose two.";
  const names = `${run.implementations[a].name} and ${run.implementations[b].name}`;
  return run.pairs.every((pair) => pair.a === run.baseline)
    ? `This page holds only pairs with the baseline; for ${names} use lstm-bench compare.`
    : `No shape was measured by both ${names}.`;
}

function pairNodes(pair) {
  const [all, ...groups] = pair.groups;
  const fact = (label, ...value) => el("div", {}, el("dt", { text: label }), el("dd", {}, ...value));
  const interval = ([value, low, high], show) =>
    [show(value), " ", el("small", { text: `${show(low)} to ${show(high)}` })];
  const large = `The run is large: by size, this pair is in lstm-bench compare ${pair.names.join(" ")}.`;
  return [
    ...warnings(pair),
    el("dl", { class: "numbers" },
      fact("ratio B / A, geometric mean, 95% interval", ...interval(all.ratio, times)),
      fact("MPE, mean of (A - B) / A, 95% interval", ...interval(all.mpe, mpe)),
      fact("shapes that both have", all.shapes.toLocaleString("en")),
      fact("noise floor of latency", floorText(pair))),
    ...shares(pair),
    leftOut(pair),
    ...(groups.length
      ? [el("h3", { text: "By size" }), groupTable(pair)]
      : [el("p", { class: "note", text: large })]),
    el("h3", { text: "Shape by shape" }),
    shapeFigure(pair),
    el("details", {}, el("summary", { text: "Every shape as a table" }), shapeTable(pair)),
  ];
}

function mpe(value) {
  return known(value) ? value.toFixed(Math.abs(value) < 10 ? 2 : 1) : "-";
}

// Two that are not alike may be compared, but not in silence.
function warnings({ a, b, names, differs }) {
  return differs.map((what) => {
    const [one, other] = [a, b].map((i) => run.implementations[i][what]);
    const values = one === undefined ? "" : `: ${names[0]} ${one}, ${names[1]} ${other}`;
    const text = what === "work"
      ? `These two differ in what they compute${values}. The ratio does not say which is better.`
      : `These two differ in ${what}${values}.`;
    return el("p", { class: "warning", text });
  });
}

// The noise floor of each duration class for a pair: the larger of both, their own where they have one.
function floorsOf({ names }) {
  const every = run.noise.latency;
  return every.filter((one) => !one.implementation).map((one) => {
    const own = names.map((name) =>
      every.find((other) => other.implementation === name && other.name === one.name) ?? one);
    return { ...one, floor: Math.max(...own.map((other) => other.floor)) };
  });
}

function floorText(pair) {
  const sizes = floorsOf(pair).filter((one) => one.pairs).map((one) => one.floor);
  if (!sizes.length) return "not known";
  const low = percent(Math.min(...sizes)), high = percent(Math.max(...sizes));
  return low === high ? low : `${low} to ${high}`;
}

function shares({ groups: [{ counts }], names: [a, b] }) {
  const told = WORDS.map((word, i) => `${counts[i]} ${word}`).join(", ");
  const bar = el("div", { class: "shares", role: "img", "aria-label": `${b} against ${a}: ${told}` });
  const words = el("div", { class: "counts" });
  WORDS.forEach((word, i) => {
    const part = el("i", { class: word });
    part.style.flexGrow = counts[i];
    if (counts[i]) bar.append(part);
    const sample = svg("svg", { width: 12, height: 12, viewBox: "-6 -6 12 12", "aria-hidden": "true" },
      verdictMark(word));
    words.append(el("span", { class: "key" }, sample, el("span", { text: `${word} at ${counts[i]}` })));
  });
  return [el("p", { class: "note", text: `Against ${a}, beyond the noise, ${b} is` }), bar, words];
}

function verdictMark(word) {
  const kinds = { faster: "v", slower: "^", same: "s", unsure: "o" };
  return svg("path", { class: word, d: MARKERS[kinds[word]] });
}

function leftOut({ left_out: reasons }) {
  if (!reasons.length) return el("p", { class: "note", text: "No shape was left out." });
  const told = reasons.map(([why, number]) => `${why} at ${count(number, "shape")}`).join("; ");
  return el("p", { class: "note", text: `Left out: ${told}.` });
}

// Groups as lines of a table, each with its interval on one common scale.
function groupTable({ groups, names }) {
  const statistic = (label, key, show, title) => ({
    label, number: true, title, key: (group) => group[key][0],
    show: (group) => {
      const [value, low, high] = group[key].map(show);
      return `${value} [${low}, ${high}]`;
    },
  });
  const order = new Map(groups.map((group, i) => [group, i]));
  const picture = intervalPictures(groups);
  return new Table({
    caption: `${names[1]} against ${names[0]}, by size`,
    columns: [
      {
        label: "shapes with", key: (group) => order.get(group),
        show: ({ by, label }) => (by === "all" ? "all" : `${by} ${label}`),
      },
      numberColumn("shapes", (group) => group.shapes, String),
      statistic("ratio [95%]", "ratio", times, "geometric mean of B / A; above 1 B is slower"),
      { label: "ratio, line at 1x", key: (group) => group.ratio[0], show: picture },
      statistic("MPE [95%]", "mpe", mpe, "mean of (A - B) / A; negative: B is slower"),
      ...WORDS.map((word, i) => numberColumn(word, (group) => group.counts[i], String)),
    ],
    rows: groups, pageRows: 60,
  }).node;
}

// An interval may be very wide: it runs out of the picture rather than pressing all others flat.
function intervalPictures(groups) {
  const width = 150, height = 16;
  const values = [1, ...groups.map((group) => group.ratio[0])];
  const ends = [1, ...groups.flatMap((group) => group.ratio)];
  const low = Math.max(Math.min(...ends), Math.min(...values) / 3) / 1.05;
  const high = Math.min(Math.max(...ends), Math.max(...values) * 3) * 1.05;
  const x = (ratio) => {
    const place = 4 + ((width - 8) * Math.log(ratio / low)) / Math.log(high / low);
    return Math.max(0, Math.min(width, place));
  };
  return ({ ratio: [value, from, to], clear }) => {
    const word = !clear ? "" : value > 1 ? "slower" : "faster";
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      rule("one", x(1), 0, x(1), height),
      rule(`whisker ${word}`, x(from), height / 2, x(to), height / 2),
      svg("circle", { class: word || "unsure", cx: x(value), cy: height / 2, r: 4 }));
  };
}

// Each shape's ratio over the time of A, with the noise floor as a band around 1.
function shapeFigure(pair) {
  const drawing = el("div");
  const figure = el("figure", { class: "figure" }, drawing);
  const tip = new Tip(figure);
  const every = Math.ceil(pair.shape.length / MOST_DRAWN);
  const order = pair.shape.map((_, k) => k).filter((k) => k % every === 0)
    .sort((i, j) => pair.a_s[i] - pair.a_s[j]);
  const ratios = order.map((k) => pair.ratio[k]);
  const floors = floorsOf(pair);
  const widest = 1 + Math.max(...floors.map((one) => one.floor));
  const xRange = [pair.a_s[order[0]] / 1.2, pair.a_s[order[order.length - 1]] * 1.2];
  const yRange = [Math.min(...ratios, 1 / widest) / 1.1, Math.max(...ratios, widest) * 1.1];

  function draw(width) {
    const height = Math.round(Math.max(260, Math.min(360, width * 0.42)));
    const plot = new Plot(width, height, xRange, yRange,
      `Ratio of ${pair.names[1]} to ${pair.names[0]} at every shape. Arrow keys walk through them.`);
    floors.forEach(({ from, floor }, i) => {
      const left = Math.max(from, xRange[0]);
      const right = Math.min(floors[i + 1]?.from ?? Infinity, xRange[1]);
      if (right <= left) return;
      const top = plot.y(1 + floor), bottom = plot.y(1 / (1 + floor));
      plot.node.append(svg("rect", {
        class: "floor", x: plot.x(left), y: top,
        width: plot.x(right) - plot.x(left), height: bottom - top,
      }));
    });
    plot.rows((tick) => `${digits(tick, 2)}x`);
    plot.columns(logTicks(...xRange, Math.floor(width / 76)), seconds, "latency of A");
    plot.node.append(rule("one", plot.left, plot.y(1), plot.right, plot.y(1)));
    const marks = order.map((k) => {
      const word = VERDICTS[pair.verdict[k]], time = pair.a_s[k], ratio = pair.ratio[k];
      const mark = svg("g", { transform: `translate(${plot.x(time)},${plot.y(ratio)})` },
        verdictMark(word), svg("circle", { class: "hit", r: 10 }));
      return telling(mark, tip, [
        `${shapeName(pair.shape[k])}: ${word}`,
        `A ${seconds(time)}, B ${seconds(time * ratio)}`,
        `ratio ${times(ratio)}`,
      ]);
    });
    plot.node.append(...marks);
    walkable([marks]);
    replace(drawing, plot.node);
  }

  responsive(drawing, draw);
  const note = "B over A at every shape, by the time that A takes; above 1x B is slower. The band is"
    + " the noise floor; where that of B is wider, it counts. Shapes are hidden,batch,timesteps,"
    + " then the input size where it differs."
    + (every > 1 ? ` Of so many shapes one in ${every} is drawn.` : "");
  return el("div", {}, figure, el("p", { class: "note", text: note }));
}

function shapeTable(pair) {
  return new Table({
    caption: `${pair.names[1]} against ${pair.names[0]}, shape by shape`,
    columns: [
      ...shapeColumns((k) => pair.shape[k]),
      numberColumn("A", (k) => pair.a_s[k], seconds),
      numberColumn("B", (k) => pair.a_s[k] * pair.ratio[k], seconds),
      numberColumn("ratio", (k) => pair.ratio[k], times),
      textColumn("B is", (k) => VERDICTS[pair.verdict[k]]),
    ],
    rows: pair.shape.map((_, k) => k), what: "shape",
  }).node;
}
