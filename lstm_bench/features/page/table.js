// A table that sorts by every column and shows one page of rows at a time, however many there are.
// A column: { label, number (right aligned), key(row) to sort by, show(row) text or node, long }.

const PAGE_ROWS = 50;
const collator = new Intl.Collator("en", { numeric: true });

// Ranks of texts, or the numbers themselves; what is missing comes last either way.
function sortKeys(rows, column) {
  const keys = rows.map(column.key);
  if (!keys.some((key) => typeof key === "string")) return keys;
  const order = [...new Set(keys.map(String))].sort(collator.compare);
  const rank = new Map(order.map((text, i) => [text, i]));
  return keys.map((key) => (key === null || key === "" ? null : rank.get(String(key))));
}

class Table {
  constructor({ caption, columns, rows, pageRows = PAGE_ROWS, what = null }) {
    this.columns = columns;
    this.pageRows = pageRows;
    this.what = what;
    this.sorted = { column: null, down: false };
    this.page = 0;
    this.body = el("tbody");
    this.heads = columns.map(({ label, number, title }, i) => {
      const click = () => this.sortBy(i);
      return el("th", { scope: "col", class: number ? "number" : null, title },
        el("button", { type: "button", class: "sort", text: label, on: { click } }));
    });
    const table = el("table", {}, el("caption", { text: caption }),
      el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    const region = { class: "scroll", tabindex: 0, role: "region", "aria-label": caption };
    this.box = el("div", region, table);
    this.makePager();
    this.node = el("div", {}, this.box, this.pager);
    this.show(rows);
  }

  makePager() {
    this.status = el("span", { class: "grow", role: "status" });
    this.number = el("input", {
      type: "number", min: 1, "aria-label": "Page",
      on: { change: () => this.turn(this.number.value - 1) },
    });
    const places = {
      First: () => 0,
      Previous: () => this.page - 1,
      Next: () => this.page + 1,
      Last: () => this.pages - 1,
    };
    this.buttons = Object.entries(places).map(([text, place]) => {
      const click = () => this.turn(place());
      return el("button", { type: "button", class: "button", text, on: { click } });
    });
    const [first, previous, next, last] = this.buttons;
    this.pager = el("div", { class: "pager" },
      this.status, first, previous, this.number, next, last);
  }

  get pages() {
    return Math.max(1, Math.ceil(this.rows.length / this.pageRows));
  }

  // Other rows, in the order that was chosen.
  show(rows) {
    this.all = rows;
    this.order();
    this.turn(0);
  }

  sortBy(index) {
    const again = this.sorted.column === index;
    this.sorted = { column: index, down: again && !this.sorted.down };
    this.heads.forEach((head, i) => {
      head.removeAttribute("aria-sort");
      if (i !== index) return;
      head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
    });
    this.order();
    this.turn(0);
  }

  order() {
    const { column, down } = this.sorted;
    this.rows = this.all;
    if (column === null) return;
    const keys = sortKeys(this.all, this.columns[column]);
    const missing = (key) => key === null || key === undefined || Number.isNaN(key);
    const places = keys.map((_, i) => i).sort((i, j) => {
      const a = keys[i], b = keys[j];
      if (missing(a) || missing(b)) return missing(a) - missing(b) || i - j;
      return (down ? b - a : a - b) || i - j;
    });
    this.rows = places.map((i) => this.all[i]);
  }

  turn(page) {
    this.page = Math.max(0, Math.min(Math.floor(page) || 0, this.pages - 1));
    const start = this.page * this.pageRows;
    const here = this.rows.slice(start, start + this.pageRows);
    replace(this.body, ...here.map((row) => this.line(row)));
    if (!here.length) {
      const nothing = el("td", { colspan: this.columns.length, text: "Nothing to show." });
      this.body.append(el("tr", {}, nothing));
    }
    const total = count(this.rows.length, this.what || "row");
    const [from, to] = [start + 1, start + here.length].map((place) => place.toLocaleString("en"));
    this.status.textContent = this.pages > 1 ? `${from} to ${to} of ${total}` : total;
    this.pager.hidden = this.pages === 1 && !this.what;
    this.number.value = this.page + 1;
    this.number.max = this.pages;
    const [first, previous, next, last] = this.buttons;
    first.disabled = previous.disabled = this.page === 0;
    next.disabled = last.disabled = this.page === this.pages - 1;
    for (const control of [this.number, ...this.buttons]) control.hidden = this.pages === 1;
    this.box.scrollTop = 0;
  }

  line(row) {
    return el("tr", {}, ...this.columns.map((column, i) => {
      const shown = column.show(row);
      const cell = el(i === 0 ? "th" : "td", {
        scope: i === 0 ? "row" : null,
        class: column.number ? "number" : column.long ? "long" : column.bad?.(row) ? "bad" : null,
      });
      cell.append(column.long ? folded(shown, column.short?.(row)) : shown);
      return cell;
    }));
  }
}

// Long text behind a shorter one, or behind its beginning.
const FOLD = 120;
function folded(text, short = text) {
  const head = short.length <= FOLD ? short : `${short.slice(0, FOLD - 20)}...`;
  return head === text ? text : el("details", {}, el("summary", { text: head }), text);
}

function numberColumn(label, value, show, title) {
  return { label, number: true, key: value, show: (row) => show(value(row)), title };
}

function textColumn(label, value, more = {}) {
  return { label, key: value, show: value, ...more };
}

// The sizes of a shape; the input's only where it is not the hidden size everywhere.
function shapeColumns(shapeOf) {
  const own = run.shapes.input_size.some((input, i) => input !== run.shapes.hidden[i]);
  const size = (axis, label) => numberColumn(label, (row) => run.shapes[axis][shapeOf(row)], String);
  const width = own ? [size("input_size", "input")] : [];
  const passes = run.shapes.training;
  const pass = textColumn("pass", (row) => (passes[shapeOf(row)] ? "training" : "inference"));
  return [...AXES.map((axis) => size(axis, axis)), ...width, ...(passes.includes(true) ? [pass] : [])];
}

// All cells: filters above, the table below.
function cellTable(place) {
  const cells = run.cells;
  const text = (column) => (row) => run.strings[cells[column][row]];
  const name = (row) => {
    const copy = cells.copy[row] > 1 ? ` #${cells.copy[row]}` : "";
    return implementationName(cells.implementation[row]) + copy;
  };
  const value = (column) => (row) => cells[column][row];
  const joined = (...parts) => parts.filter(Boolean).join("; ");
  const notes = (row) => joined(text("reason")(row), text("warnings")(row));
  // a warning starts with its kind: "capped: 3 rounds in 30 s"
  const kinds = (row) => joined(text("reason")(row), text("warnings")(row).replace(/:[^;]*/g, ""));
  const columns = [
    textColumn("implementation", name),
    ...shapeColumns((row) => cells.shape[row]),
    ...(cells.pass.some((pass) => pass > 1) ? [numberColumn("pass", value("pass"), String)] : []),
    textColumn("status", text("status"), { bad: (row) => text("status")(row) !== "ok" }),
    textColumn("precision", text("precision")),
    ...run.metrics.map(
      (metric) => numberColumn(metric, value(`${metric}_s`), seconds, METRIC_NAMES[metric])),
    numberColumn("first call", value("first_call_s"), seconds),
    numberColumn("error", value("max_abs_error"), errorSize, "against the float64 reference"),
    numberColumn("rounds", value("rounds"), String),
    textColumn("path", text("path")),
    textColumn("warnings, reason", notes, { long: true, short: kinds }),
  ];
  const all = Array.from({ length: CELLS }, (_, i) => i); // by shape, in the plan's order
  const ranks = ["shape", "implementation", "pass", "copy"].map((column) => cells[column]);
  all.sort((i, j) => ranks.reduce((sign, rank) => sign || rank[i] - rank[j], 0));
  const table = new Table({ caption: "All cells", columns, rows: all, what: "cell" });

  const wanted = {
    implementation: "", status: "", hidden: "", batch: "", timesteps: "", words: [], controls: true,
  };
  const filter = () => {
    // every text of the run once for each word, not once for each cell
    const hits = wanted.words.map((word) => ({
      strings: run.strings.map((string) => string.toLowerCase().includes(word)),
      names: run.implementations.map((row) => row.name.toLowerCase().includes(word)),
      shapes: run.shapes.hidden.map((_, shape) => shapeName(shape).split(" ").includes(word)),
    }));
    const texts = ["status", "precision", "path", "reason", "warnings"];
    const fits = (key, found) => wanted[key] === "" || found === Number(wanted[key]);
    const keeps = (row) =>
      fits("implementation", cells.implementation[row]) &&
      fits("status", cells.status[row]) &&
      AXES.every((one) => fits(one, run.shapes[one][cells.shape[row]])) &&
      (wanted.controls || cells.copy[row] === 1) &&
      hits.every((hit) => hit.names[cells.implementation[row]] ||
        hit.shapes[cells.shape[row]] ||
        texts.some((column) => hit.strings[cells[column][row]]));
    table.show(all.filter(keeps));
  };
  const select = (key, label, options) =>
    choice(label, [["", "all"], ...options], "", (chosen) => {
      wanted[key] = chosen;
      filter();
    });
  let waiting = 0;
  const search = el("input", {
    type: "search", placeholder: "words of any column",
    on: {
      input: () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => {
          wanted.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
          filter();
        }, CELLS > 5000 ? 200 : 0);
      },
    },
  });
  const controls = el("input", {
    type: "checkbox", checked: true,
    on: { change: () => { wanted.controls = controls.checked; filter(); } },
  });
  const names = run.implementations.map((row, i) => [i, row.name]);
  const statuses = [...new Set(cells.status)].map((status) => [status, run.strings[status]]);
  const twice = cells.copy.some((copy) => copy > 1);
  replace(place,
    el("div", { class: "controls" },
      select("implementation", "Implementation", names),
      select("status", "Status", statuses),
      ...AXES.map((one) => select(one, AXIS_NAMES[one], axisValues[one].map((v) => [v, v]))),
      field("Text", search),
      twice ? el("label", { class: "tick" }, controls, "A/A controls") : null),
    table.node,
    MARKS ? el("p", { class: "note", text: MARKS }) : null);
}
