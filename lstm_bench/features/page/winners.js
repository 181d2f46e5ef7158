// Who is fastest where: hidden size by batch size, one panel for every number of timesteps.

const MOST_PANELS = 6; // of more, one is shown at a time

class WinnerFigure {
  constructor(place) {
    this.state = { metric: run.winners[0].metric, accuracy: run.winners[0].accuracy, panel: "" };
    this.width = 0;
    this.panels = el("div", { class: "panels" });
    this.figure = el("figure", { class: "figure" }, this.panels);
    this.tip = new Tip(this.figure);
    this.legend = el("ul", { class: "legend", "aria-label": "Fastest implementations" });
    this.note = el("p", { class: "note" });
    this.panelChoice = el("span", { class: "inline" });
    replace(place, el("h3", { text: "Fastest that you can deploy, at every shape" }), this.controls(), this.figure,
      this.legend, this.note);
    responsive(this.panels, (now) => {
      this.width = now;
      this.draw();
    });
  }

  controls() {
    const set = (key) => (chosen) => {
      this.state[key] = chosen;
      this.draw();
    };
    const metrics = [...new Set(run.winners.map((one) => one.metric))];
    const classes = [...new Set(run.winners.map((one) => one.accuracy))];
    const kinds = metrics.map((one) => [one, METRIC_NAMES[one]]);
    const among = classes.map((one) => [one, one]);
    return el("div", { class: "controls" },
      metrics.length > 1 ? choice("Time", kinds, this.state.metric, set("metric")) : null,
      classes.length > 1 ? choice("Accuracy", among, this.state.accuracy, set("accuracy")) : null,
      this.panelChoice);
  }

  draw() {
    this.tip.hide();
    const { metric, accuracy } = this.state;
    const won = run.winners.find((one) => one.metric === metric && one.accuracy === accuracy)
      || { shape: [], fastest: [], shared: [], verdict: [] };
    const { timesteps, hidden, input_size: input } = run.shapes;
    const byPanel = new Map(), wins = new Map();
    won.shape.forEach((shape, k) => {
      const other = input[shape] === hidden[shape] ? "" : `, input size ${input[shape]}`;
      const steps = timesteps[shape] === 1 ? "timestep" : "timesteps"; // sorted by its number
      const pass = run.shapes.training[shape] ? ", training" : "";
      const name = `${timesteps[shape]} ${steps}${other}${pass}`;
      if (!byPanel.has(name)) byPanel.set(name, []);
      byPanel.get(name).push(k);
      const beyond = won.verdict[k] === "slower" ? 1 : 0;
      for (const i of [won.fastest[k], ...won.shared[k]]) wins.set(i, (wins.get(i) || 0) + beyond);
    });
    const shown = this.choosePanels([...byPanel.keys()].sort(collator.compare));
    replace(this.panels, ...shown.map((name) => this.panel(name, won, byPanel.get(name))));
    const ranked = [...wins].sort((a, b) => b[1] - a[1]);
    replace(this.legend, ...ranked.map(([i, number]) => el("li", { class: "key" }, keySample(i),
      el("span", { text: `${implementationName(i)}: ${number}` }))));
    this.note.textContent = this.noteText(won);
  }

  choosePanels(names) {
    if (names.length <= MOST_PANELS) {
      replace(this.panelChoice);
      return names;
    }
    if (!names.includes(this.state.panel)) [this.state.panel] = names;
    const options = names.map((name) => [name, name]);
    replace(this.panelChoice, choice("Panel", options, this.state.panel, (chosen) => {
      this.state.panel = chosen;
      this.draw();
    }));
    return [this.state.panel];
  }

  noteText(won) {
    const alone = won.verdict.filter((verdict) => verdict === "alone").length;
    return [
      "In a tile: how many times slower the next one is.",
      "Pale and dashed: the first two are within noise (=), or it is unsure (?).",
      alone ? `At ${count(alone, "shape")} only one implementation was measured.` : "",
      (won.reference || []).some((i) => i !== null)
        ? "The C++ reference cannot be deployed and wins nothing; each tile tells its time." : "",
    ].filter(Boolean).join(" ");
  }

  panel(name, won, members) {
    const { hidden, batch } = run.shapes;
    const place = (shape) => `${hidden[shape]} ${batch[shape]}`;
    const at = new Map(members.map((k) => [place(won.shape[k]), k]));
    const columns = axisValues.batch, rows = axisValues.hidden;
    const left = 52, top = 6, bottom = 40;
    const room = Math.floor((Math.min(this.width, 1100) - left - 4) / columns.length);
    const wide = Math.min(64, Math.max(8, room));
    const tall = Math.min(44, Math.max(8, wide * 0.72, rows.length < 12 ? 34 : 0));
    const width = left + wide * columns.length + 4, height = top + tall * rows.length + bottom;
    const node = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": `Fastest at ${name}, by hidden size and batch size. Arrow keys walk`
        + " through it.",
    });
    const every = (size, needed) => Math.ceil(needed / size); // labels that have room
    const walk = [];
    rows.forEach((h, r) => {
      const y = top + r * tall;
      if (r % every(tall, 15) === 0) node.append(textAt(left - 6, y + tall / 2 + 4, h, "end", "muted"));
      const line = [];
      columns.forEach((b, c) => {
        const box = { x: left + c * wide + 1, y: y + 1, width: wide - 2, height: tall - 2 };
        const k = at.get(`${h} ${b}`);
        if (k === undefined) node.append(svg("rect", { class: "tile empty", ...box }));
        else line.push(this.tile(won, k, box));
      });
      node.append(...line);
      if (line.length) walk.push(line);
    });
    const base = top + tall * rows.length;
    columns.forEach((b, c) => {
      const x = left + (c + 0.5) * wide;
      if (c % every(wide, 30) === 0) node.append(textAt(x, base + 16, b, "middle", "muted"));
    });
    const turned = textAt(0, 0, "hidden size");
    turned.setAttribute("transform", `translate(11,${(top + base) / 2}) rotate(-90)`);
    node.append(turned, textAt(left + (wide * columns.length) / 2, height - 6, "batch size"));
    walkable(walk);
    return el("div", {}, el("h4", { text: name }), node);
  }

  tile(won, k, box) {
    const i = won.fastest[k], next = won.next[k];
    const sure = won.verdict[k] === "slower";
    const close = sure ? "" : " close";
    const middle = box.y + box.height / 2;
    const tile = inked(svg("g", {}, svg("rect", { class: `tile${close}`, rx: 2, ...box })), i);
    const labelled = box.width >= 42 && next !== null;
    if (box.width >= 18) {
      const x = box.x + (labelled ? 11 : box.width / 2);
      tile.append(svg("g", { transform: `translate(${x},${middle})` },
        marker(i, { class: `on-mark${close}` })));
    }
    if (labelled) {
      const ratio = won.ratio[k];
      const factor = ratio.toFixed(ratio < 1.1 ? 2 : ratio < 10 ? 1 : 0);
      const text = sure ? `${factor}x` : won.verdict[k] === "same" ? "=" : "?";
      tile.append(textAt(box.x + 19 + (box.width - 20) / 2, middle + 4, text, "middle", `on${close}`));
    }
    tile.append(svg("rect", { class: "hit", ...box }));
    return telling(tile, this.tip, this.words(won, k));
  }

  words(won, k) {
    const next = won.next[k] === null ? null : run.implementations[won.next[k]].name;
    const ratio = times(won.ratio[k]);
    const verdict = won.verdict[k];
    const shared = won.shared[k].map((i) => run.implementations[i].name).join(" and ");
    return [
      implementationName(won.fastest[k]) + (shared && `, the same code as ${shared}`),
      `${this.state.metric} ${seconds(won.fastest_s[k])} at ${shapeName(won.shape[k])},`
        + ` error ${errorSize(won.error[k])}`,
      next === null ? "nothing else was measured here"
        : verdict === "slower" ? `${next} is ${ratio} slower`
          : `${next} is ${ratio} its time: ${verdict}`,
      ...(won.reference[k] === null ? []
        : [`C++ reference ${run.implementations[won.reference[k]].name}: ${seconds(won.reference_s[k])}`]),
    ];
  }
}

function winnerFigure(place) {
  if (run.winners.length) new WinnerFigure(place);
}
