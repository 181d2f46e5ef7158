// The rest of the page, and its start.

function overviewTable(place) {
  const { rows, over, shapes } = run.overview;
  if (!rows.length) return;
  const index = new Map(run.implementations.map((row, i) => [row.name, i]));
  const device = run.metrics.includes("device");
  const baseline = run.baseline === null ? null : run.implementations[run.baseline].name;
  const named = (row) => {
    const i = index.get(row.implementation);
    const size = { width: 16, height: 12, viewBox: "-8 -6 16 12", "aria-hidden": "true" };
    const sample = inked(svg("svg", size, marker(i, { class: "mark" })), i);
    return el("span", {}, sample, implementationName(i));
  };
  // a row that cannot run half of the shapes has a median of its own
  const overShapes = (label, value, title) => ({
    ...numberColumn(label, value, seconds, title),
    show: (row) => seconds(value(row)) + (row.shapes && row.shapes !== shapes ? ` at ${row.shapes}` : ""),
  });
  const table = new Table({
    caption: "Implementations",
    columns: [
      { label: "implementation", key: (row) => row.implementation, show: named },
      overShapes("latency", (row) => row.latency_s, METRIC_NAMES.latency),
      numberColumn(`vs ${baseline}`, (row) => row.ratio, times),
      numberColumn("fastest", (row) => row.fastest, (number) => count(number, "shape")),
      numberColumn("error", (row) => row.max_abs_error, errorSize),
      textColumn("precision", (row) => row.precision),
      {
        label: "with a time", number: true, key: (row) => row.ok,
        show: (row) => `${row.ok} of ${row.cells}`,
      },
      overShapes("throughput", (row) => row.throughput_s, METRIC_NAMES.throughput),
      ...(device ? [numberColumn("device", (row) => row.device_s, seconds, METRIC_NAMES.device)] : []),
      numberColumn("first call", (row) => row.first_call_s, seconds),
    ],
    rows, pageRows: 100,
  });
  const note = [
    `Times: median over ${over}.`,
    baseline === null ? ""
      : `vs ${baseline}: latency over its latency, geometric mean over the same shapes.`,
    "Fastest: at how many shapes it is the fastest that you can deploy in its class of accuracy.",
    "Error: largest difference from float64.",
    MARKS,
  ].filter(Boolean).join(" ");
  replace(place, el("h3", { text: "Implementations" }), table.node,
    el("p", { class: "note", text: note }));
}

const LONG_TEXT = 30; // folds in its cell

// Further tables, such as kernels or memory: a cell is a text, or a text and what it is sorted by.
function extraSections(place) {
  const links = [];
  replace(place, ...run.sections.map(({ title, notes, columns, rows }, number) => {
    const shown = (cell) => [cell].flat()[0], key = (cell) => [cell].flat().at(-1);
    const table = new Table({
      caption: title,
      columns: columns.map(([label, number], c) => ({
        label, number, key: (row) => key(row[c]),
        long: !number && rows.some((row) => shown(row[c]).length > LONG_TEXT),
        short: (row) => shown(row[c]).split(/(?<=^.{20,}), /)[0],
        show: (row) => shown(row[c]),
      })),
      rows,
    });
    const id = `extra-${number}`;
    links.push(el("a", { href: `#${id}`, text: title }));
    return el("section", { "aria-labelledby": id }, el("h2", { id, text: title }),
      table.node, ...notes.map((text) => el("p", { class: "note", text })));
  }));
  document.querySelector("nav a[href='#pairs']").after(...links);
}

function noiseTable(place) {
  const rows = Object.entries(run.noise).flatMap(([metric, classes]) => classes
    .filter((one) => one.pairs || !one.implementation).map((one) => ({ metric, ...one })));
  if (!rows.length) return;
  const pairs = new Set(rows.filter((row) => row.pairs).map((row) => row.metric));
  const order = new Map(rows.map((row, i) => [row, i]));
  const table = new Table({
    caption: "Noise floors",
    columns: [
      textColumn("time", (row) => row.metric),
      ...(rows.some((row) => row.implementation)
        ? [textColumn("implementation", (row) => row.implementation ?? "all")] : []),
      { label: "length of a call", key: (row) => order.get(row), show: (row) => row.name },
      numberColumn("A/A pairs", (row) => row.pairs, String),
      numberColumn("95% differ by less than", (row) => row.own, percent),
      {
        label: "noise floor used", number: true, key: (row) => row.floor,
        show: (row) => (pairs.has(row.metric) ? percent(row.floor) : "not known"),
      },
      numberColumn("wrongly called different", (row) => row.different, String),
    ],
    rows,
  });
  replace(place, el("h3", { text: "Noise floors" }), table.node, el("p", {
    class: "note",
    text: "An A/A pair is the same implementation measured twice: 95% of pairs differ by less than"
      + " the noise floor. A class with fewer than five pairs uses the largest floor of the run;"
      + " an implementation with ten pairs or more has floors of its own.",
  }));
}

function factLists(place) {
  const pair = ([label, value]) => [el("dt", { text: label }), el("dd", { text: value })];
  replace(place, el("div", { class: "facts" }, ...run.facts.map(([title, facts]) =>
    el("div", {}, el("h3", { text: title }), el("dl", {}, ...facts.flatMap(pair))))));
}

// Cells as plain rows: what a download holds.
function plainCells() {
  const { cells, strings, shapes, implementations } = run;
  const numbers = [
    ...run.metrics.map((metric) => `${metric}_s`),
    ...["first_call_s", "max_abs_error", "tolerance", "rounds"],
  ];
  const columns = [
    ["implementation", (row) => implementations[cells.implementation[row]].name],
    ...[...AXES, "input_size"].map((axis) => [axis, (row) => shapes[axis][cells.shape[row]]]),
    ["pass_number", (row) => cells.pass[row]],
    ["copy", (row) => cells.copy[row]],
    ["status", (row) => strings[cells.status[row]]],
    ["precision", (row) => strings[cells.precision[row]]],
    ["computes", (row) => implementations[cells.implementation[row]].work],
    ...numbers.map((name) => [name, (row) => cells[name][row]]),
    ["path", (row) => strings[cells.path[row]]],
    ["reason", (row) => strings[cells.reason[row]]],
    ["warnings", (row) => strings[cells.warnings[row]]],
  ];
  const rows = Array.from({ length: CELLS }, (_, row) => columns.map(([, value]) => value(row)));
  return { names: columns.map(([name]) => name), rows };
}

// Text that a spreadsheet would take for a formula gets an apostrophe; numbers stay numbers.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function cellsAsCsv() {
  const { names, rows } = plainCells();
  return [names, ...rows].map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

function cellsAsJson() {
  const { names, rows } = plainCells();
  const named = (row) => Object.fromEntries(names.map((name, i) => [name, row[i]]));
  return JSON.stringify(rows.map(named), null, 1);
}

function downloads(place) {
  const stem = run.name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+/, "") || "run";
  const json = "application/json";
  const files = [
    ["Cells as CSV", `${stem}-cells.csv`, "text/csv;charset=utf-8", cellsAsCsv],
    ["Cells as JSON", `${stem}-cells.json`, json, cellsAsJson],
    ["Manifest", `${stem}-manifest.json`, json, () => JSON.stringify(run.manifest, null, 1)],
  ];
  replace(place, ...files.map(([text, name, type, content]) => el("button", {
    type: "button", class: "button", text,
    on: {
      click: () => {
        const address = URL.createObjectURL(new Blob([content()], { type }));
        el("a", { href: address, download: name }).click();
        setTimeout(() => URL.revokeObjectURL(address), 60000);
      },
    },
  })));
}

const byId = (id) => document.getElementById(id);
leadBars(document.querySelectorAll("#lead .cards > li"));
overviewTable(byId("overview"));
lineFigure(byId("lines"));
winnerFigure(byId("winners"));
cellTable(byId("cell-table"));
pairPicker(byId("picker"));
extraSections(byId("extra"));
noiseTable(byId("noise"));
factLists(byId("facts"));
downloads(byId("downloads"));
