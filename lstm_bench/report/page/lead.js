// The one picture of the first screen: how many times slower what you can deploy is.

function leadFigure(place) {
  const { axis, groups, bars, base } = run.lead;
  if (!bars.length) return;
  const drawing = el("div", {});
  const keys = bars.map(({ implementation: i }) => el("li", { class: "key" },
    inked(svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
      svg("rect", { class: "tile", width: 14, height: 14, rx: 2 })), i),
    el("span", { text: implementationName(i) })));
  const title = `How many times slower than ${base}`;
  replace(place, el("h2", { text: title }), el("figure", { class: "figure" }, drawing),
    el("ul", { class: "legend", "aria-label": "Implementations" }, ...keys));
  const highest = Math.max(2, ...bars.flatMap((bar) => bar.ratios.filter(known)));
  responsive(drawing, (width) => {
    const height = 300, left = 44, top = 22, bottom = height - 42;
    const y = (ratio) => bottom - ((bottom - top) * Math.log(Math.max(ratio, 1))) / Math.log(highest);
    const wide = (width - left) / groups.length, thick = Math.min(56, (wide - 18) / bars.length);
    const words = bars.map(({ implementation: i, ratios }) => `${implementationName(i)}: ${
      ratios.map((ratio, g) => `${times(ratio)} at ${axis} ${groups[g]}`).join(", ")}`);
    const node = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${title}. ${words.join("; ")}`,
    });
    for (const tick of logTicks(1, highest, 6)) {
      node.append(rule("grid", left, y(tick), width, y(tick)),
        textAt(left - 6, y(tick) + 4, `${digits(tick, 2)}x`, "end", "muted"));
    }
    groups.forEach((label, g) => {
      const middle = left + (g + 0.5) * wide;
      bars.forEach(({ implementation: i, ratios }, b) => {
        if (!known(ratios[g])) return;
        const x = middle + (b - bars.length / 2) * thick, high = Math.max(2, bottom - y(ratios[g]));
        node.append(inked(svg("g", {}, svg("rect", {
          class: "tile", x: x + 1, y: bottom - high, width: thick - 2, height: high,
        })), i));
        if (thick < 26) return;
        const ratio = ratios[g], shown = ratio.toFixed(ratio < 1.995 ? 2 : ratio < 9.95 ? 1 : 0);
        node.append(textAt(x + thick / 2, bottom - high - 5, `${shown}x`));
      });
      if (axis) node.append(textAt(middle, bottom + 18, `${axis} ${label}`, "middle", "muted"));
    });
    node.append(rule("axis", left, bottom, width, bottom));
    replace(drawing, node);
  });
}
