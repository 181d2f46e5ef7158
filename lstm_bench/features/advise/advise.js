// What to run at a shape that is typed: as measured, or worked out from the nearest measured shapes
// as `lstm-bench advise` does. Nothing is guessed beyond the measured sizes.

const ADVISED_ROWS = 6;

// The sizes that a time depends on, as doublings.
function doublings([hidden, batch, timesteps, input]) {
  return [hidden, batch, timesteps, input / hidden].map(Math.log2);
}

// The places of the nearest measured shapes and their weights; of a measured one itself.
function nearShapes(asked) {
  const { shapes, doubling, nearest, power } = run.advice;
  const at = doublings(asked);
  const far = shapes.map((shape, place) => {
    const over = doublings(shape).map((size, axis) => doubling[axis] * (size - at[axis]));
    return { place, distance: Math.hypot(...over) };
  }).sort((a, b) => a.distance - b.distance || a.place - b.place).slice(0, nearest);
  if (far[0].distance === 0) return [{ place: far[0].place, weight: 1 }];
  const sum = far.reduce((total, { distance }) => total + distance ** -power, 0);
  return far.map(({ place, distance }) => ({ place, weight: distance ** -power / sum }));
}

// A row's time there, by the formula of `seconds_at` in estimate.py; null if a shape has none.
function timeAt(row, asked, near) {
  const { rest, slope } = run.advice;
  if (near.some(({ place }) => !known(rest[row][place]))) return null;
  const grown = doublings(asked).reduce((sum, size, i) => sum + slope[i] * size, 0);
  return Math.exp(near.reduce((sum, { place, weight }) => sum + weight * rest[row][place], grown));
}

// Why a text is no shape that can be answered; empty if it can.
function shapeTrouble(asked) {
  if (!asked) return "Type hidden,batch,timesteps, such as 512,16,25; a fourth is the input size.";
  const names = ["hidden", "batch", "timesteps", "input over hidden"];
  const sizes = run.advice.shapes.map(doublings), at = doublings(asked);
  const out = names.findIndex((_, axis) => {
    const all = sizes.map((one) => one[axis]);
    return at[axis] < Math.min(...all) - 1e-9 || at[axis] > Math.max(...all) + 1e-9;
  });
  return out < 0 ? ""
    : `Outside of what was measured: ${names[out]}. Measure it: lstm-bench grid --shape ${asked}`;
}

function readShape(text) {
  if (!/^\s*[1-9]\d{0,8}(\s*,\s*[1-9]\d{0,8}){2,3}\s*$/.test(text)) return null;
  const sizes = text.split(",").map(Number);
  return sizes.length === 3 ? [...sizes, sizes[0]] : sizes;
}

function sizesName(sizes) {
  return (sizes[3] === sizes[0] ? sizes.slice(0, 3) : sizes).join(",");
}

// By how much two rows may differ and be alike: by the noise, and what the order may be off by.
function alikeBy(one, other, measured, accuracy) {
  const { floors, limits, margin } = run.advice;
  const floor = ({ row, seconds: time }) =>
    floors[row][limits.filter((limit) => time >= limit).length] ?? Infinity;
  return Math.max(floor(one), floor(other), measured ? 0 : margin[accuracy] ?? Infinity);
}

function verdictOf(speedup, most) {
  if (!(Math.abs(Math.log(speedup)) > Math.log1p(most))) return "unsure";
  return speedup > 1 ? "faster" : "slower";
}

// What to run of these rows, fastest first, and how it stands to what runs now; see `choose` in
// estimate.py, which says the same.
function chooseFrom(rows, now, alike) {
  const { order, tie } = run.advice;
  const within = (one, other) => one.seconds <= (1 + Math.min(tie, alike(one, other))) * other.seconds;
  const coarse = (one) => (order.indexOf(one.accuracy) + order.length + 1) % (order.length + 1);
  const before = (a, b) => (b.verdict === "faster") - (a.verdict === "faster")
    || coarse(a) - coarse(b) || (b.name === now.name) - (a.name === now.name)
    || a.seconds - b.seconds;
  const alikes = rows.filter((one) => within(one, rows[0]));
  const [candidate] = [...alikes].sort(before);
  const ties = alikes.filter((one) => one !== candidate);
  const states = { now: "keep", faster: "faster", slower: "slower" };
  let state = states[candidate.verdict] || "tie", advised = candidate;
  const apart = Math.max(candidate.speedup, 1 / candidate.speedup);
  if (state === "tie" && apart > 1 + Math.min(tie, alike(candidate, now))) {
    state = "unclear";
    advised = rows.find((one) => ["faster", "now"].includes(one.verdict)) || candidate;
  }
  return { advised, candidate, state, ties };
}

// The rows that may be taken, fastest first, and which of them to take.
function adviceFor(asked, accuracy) {
  const { rows, classes, order, verdict, now } = run.advice;
  const near = nearShapes(asked), measured = near[0].weight === 1;
  const allowed = accuracy === "any" ? null : order.slice(0, order.indexOf(accuracy) + 1);
  const every = rows.map((name, row) => ({
    name, row, accuracy: classes[row], seconds: timeAt(row, asked, near),
  }));
  const base = every[rows.indexOf(now)];
  const alike = (one, other) => alikeBy(one, other, measured, accuracy);
  const found = every.filter((one) => one.seconds !== null
    && (!allowed || allowed.includes(one.accuracy)));
  found.sort((a, b) => a.seconds - b.seconds);
  for (const one of found) {
    one.speedup = base.seconds === null ? null : base.seconds / one.seconds;
    one.verdict = one.name === now ? "now" : base.seconds === null ? "-"
      : measured ? verdict[one.row][near[0].place]
        : verdictOf(one.speedup, alike(one, base));
  }
  if (!found.length) return null;
  const choice = base.seconds === null
    ? { advised: found[0], candidate: found[0], state: "", ties: [] }
    : chooseFrom(found, base, alike);
  return { found, base, near, measured, ...choice };
}

// The advice in a sentence.
function adviceText({ base, candidate, state, ties, measured }) {
  const { now } = run.advice, { name } = candidate;
  const speedup = shownRatio(base.seconds, candidate.seconds);
  const pace = state ? `${measured ? "" : "about "}${speedup < 1 ? `${times(1 / speedup)} slower`
    : `${times(speedup)} faster`} than ${now}` : "";
  const words = {
    keep: `Keep ${now}`, tie: `${name}, a tie with ${now}`, faster: `${name}, ${pace}`,
    slower: `${name}, ${pace}`, unclear: `Not decided: ${name} may be ${pace}, which may be noise`,
  };
  const rivals = ties.map((one) => one.name).filter((one) => one !== now);
  const tied = rivals.length && state !== "keep" ? ` A tie with ${rivals.join(", ")}.` : "";
  return `${words[state] || name}.${tied}`;
}

function advicePicker(place) {
  const { shapes, classes, order, now, worth } = run.advice;
  const headline = el("p", { class: "answer", role: "status" });
  const result = el("div");
  const state = { accuracy: classes[run.advice.rows.indexOf(now)] };
  if (!order.includes(state.accuracy)) state.accuracy = "any";
  const typed = el("input", {
    type: "text", value: sizesName(shapes[shapes.length >> 1]), spellcheck: "false",
    on: { input: () => show() },
  });
  const offered = [...order.filter((one) => classes.includes(one)), "any"];
  const accuracy = choice("Accuracy, at least", offered.map((one) => [one, one]), state.accuracy,
    (chosen) => {
      state.accuracy = chosen;
      show();
    });

  function show() {
    const asked = readShape(typed.value), trouble = shapeTrouble(asked);
    headline.textContent = trouble;
    replace(result);
    if (trouble) return;
    const answer = adviceFor(asked, state.accuracy);
    if (!answer) {
      headline.textContent = "Nothing of that accuracy was measured there.";
      return;
    }
    const { found, advised, near, measured } = answer;
    headline.textContent = adviceText(answer);
    const measure = `Measure it: lstm-bench advise ${sizesName(asked)} --measure.`;
    const from = near.map((one) => sizesName(shapes[one.place])).join("  ");
    const note = measured
      ? `Measured. ${answer.state === "unclear" ? measure
        : `Against ${now}: verdicts respect the noise floors below.`}`
      : `${sizesName(asked)} was not measured: worked out from ${from}. ${worth[state.accuracy]}.`;
    const table = new Table({
      caption: "What can be deployed there",
      columns: [
        textColumn("implementation", (one) => one.name),
        textColumn("class", (one) => one.accuracy),
        numberColumn("latency", (one) => one.seconds, seconds),
        numberColumn("speedup", (one) => shownRatio(answer.base.seconds, one.seconds), times),
        textColumn(`against ${now}`, (one) => one === advised && answer.state !== "unclear"
          ? `${one.verdict}, advised` : one.verdict),
      ],
      rows: found, pageRows: ADVISED_ROWS,
    });
    const code = run.advice.code[advised.row];
    const region = { class: "scroll", tabindex: 0, role: "region", "aria-label": "Code" };
    replace(result, el("p", { class: "note", text: note }), table.node,
      code ? el("div", region, el("pre", {}, el("code", { text: code }))) : null);
  }

  replace(place, el("h3", { text: "At your shape" }),
    el("div", { class: "controls" }, field("Shape: hidden,batch,timesteps", typed), accuracy),
    headline, result);
  show();
}

document.querySelectorAll("#advice").forEach(advicePicker);
