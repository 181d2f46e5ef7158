// The first screen: under each sentence on what to run, the rows that it is about as bars.

const CLASSES = { "run this": "best", "C++ reference": "pale" };

function leadBars(places) {
  run.lead.cards.forEach((bars, k) => {
    const longest = Math.max(...bars.map((bar) => bar.seconds));
    const line = ({ implementation: i, role, seconds: time, gain }, place) => {
      const length = inked(el("i"), i);
      length.style.width = `${(100 * time) / longest}%`;
      const faster = gain < 1 ? `${factor(1 / gain)} slower` : `${factor(gain)} faster`;
      return el("li", { class: CLASSES[role] },
        el("span", { class: "name", text: run.implementations[i].name }),
        el("span", { class: "role", text: role }),
        el("span", { class: "track" }, length),
        el("span", { class: "time", text: seconds(time) }),
        el("span", { class: "gain", text: place ? faster : "" }));
    };
    places[k].append(el("ul", { class: "bars" }, ...bars.map(line)));
  });
}
