// A side: which samples, chosen by service, labels and time, and how much there was over time.

const COLUMNS = 120;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900];
// Values of a label with colours of their own, and what the others are called.
const GROUPS = 7;
const OTHERS = "all others";
const panels = new Map();

function panelOf(key) {
  const id = (name) => `${key}-${name}`;
  const field = (name, label, control) => el("label", { class: `of-${name}` }, `${label} `, control);
  const service = el("select", { id: id("service") });
  const labels = el("input", { id: id("labels"), type: "search", placeholder: 'pod="a", region=~"eu.*"', spellcheck: "false", autocomplete: "off" });
  const name = el("select", { id: id("label"), "aria-label": "Add a label" });
  const value = el("select", { id: id("value"), "aria-label": "Value of the label", hidden: true });
  const last = el("select", { id: id("last") });
  const [from, until] = ["from", "until"].map((end) => el("input", { id: id(end), type: "search", class: "time", spellcheck: "false", autocomplete: "off", title: "now-15m, or a time in UTC" }));
  const plot = el("div", { class: "plot", role: "group" });
  const ticks = el("div", { class: "ticks", "aria-hidden": "true" });
  const note = el("p", { class: "quiet", id: id("note") });
  const wider = el("button", { type: "button" }, "wider");
  const by = el("select", { id: id("by") });
  const legend = el("ul", { class: "sums" });
  const section = el("section", { class: "side", "data-side": key, "aria-label": key === "base" ? "Baseline" : "Selection" },
    el("div", { class: "choices" }, key === "base" ? el("h2", {}, "Baseline") : el("h2", { class: "when-compared" }, "Selection"), field("service", "Service", service), field("labels", "Labels", labels), name, value,
      field("last", "Time", last), from, el("span", { class: "quiet" }, "–"), until, wider, field("by", "By", by), note), plot, ticks, legend);
  const panel = { key, section, service, labels, name, value, last, from, until, plot, ticks, note, by, legend, columns: [] };
  panels.set(key, panel);

  const change = (fields) => {
    if (key === "base") { asked.compare = fields.from || fields.until ? "other" : asked.compare === "same" ? "same" : "other"; }
    Object.assign(asked[key], fields);
    reload();
  };
  service.addEventListener("change", () => change({ service: service.value, labels: "" }));
  labels.addEventListener("change", () => { if (labels.value !== asked[key].labels) change({ labels: labels.value }); });
  name.addEventListener("change", () => offerValues(panel));
  value.addEventListener("change", () => {
    const matcher = `${name.value}=${JSON.stringify(value.value)}`;
    change({ labels: [asked[key].labels.trim().replace(/,$/, ""), matcher].filter(Boolean).join(",") });
  });
  last.addEventListener("change", () => { if (last.value) change({ from: `now-${last.value}`, until: "now" }); });
  for (const end of ["from", "until"]) {
    panel[end].addEventListener("change", () => {
      const text = panel[end].value.trim();
      if (text === timeWords(asked[key][end])) return;
      const time = timeOf(text, Date.now());
      change({ [end]: text.startsWith("now") || Number.isNaN(time) ? text : String(time) });
    });
  }
  by.addEventListener("change", () => { asked.by = by.value; reload(); });
  wider.addEventListener("click", () => {
    const { start, end } = rangeOf(asked[key], Date.now());
    const more = Math.floor((end - start) / 2);
    change({ from: String(start - more), until: String(Math.min(end + more, Date.now())) });
  });
  watchDrag(panel, (first, second) => change({ from: String(first.from), until: String(second.until) }));
  return panel;
}

async function offerValues(panel) {
  const { name, value, key } = panel;
  value.hidden = !name.value;
  if (!name.value) return;
  value.replaceChildren(el("option", { value: "" }, "…"));
  try {
    const values = await labelValues(name.value, [selectorOf({ ...asked[key], labels: "" })], rangeOf(asked[key], Date.now()));
    value.replaceChildren(el("option", { value: "" }, "value…"), ...values.map((one) => el("option", { value: one }, nameText(one))));
    value.focus();
  } catch (error) {
    tell(error);
  }
}

function drawChoices(panel, services, names) {
  const side = asked[panel.key];
  const known = services.includes(side.service) || !side.service ? services : [side.service, ...services];
  panel.service.replaceChildren(el("option", { value: "" }, "all services"), ...known.map((service) => el("option", { value: service }, nameText(service))));
  panel.service.value = side.service ?? "";
  panel.labels.value = side.labels;
  panel.name.replaceChildren(el("option", { value: "" }, "add…"), ...names.map((name) => el("option", { value: name }, nameText(name))));
  panel.value.hidden = true;
  panel.by.replaceChildren(el("option", { value: "" }, "nothing"), ...[...new Set(["service_name", ...names, ...(asked.by ? [asked.by] : [])])].map((name) => el("option", { value: name }, nameText(name))));
  panel.by.value = asked.by;
  const isLast = side.until === "now" && side.from.startsWith("now-");
  const given = isLast ? side.from.slice(4) : "";
  panel.last.replaceChildren(el("option", { value: "" }, isLast && !LAST.includes(given) ? `last ${given}` : "fixed"), ...LAST.map((length) => el("option", { value: length }, `last ${length.replace("m", " min").replace("h", " h")}`)));
  panel.last.value = LAST.includes(given) ? given : "";
  panel.from.value = timeWords(side.from);
  panel.until.value = timeWords(side.until);
}

// ---- over time ----

// The querier's point covers the step that ends with it. A column has a value for each of the groups, the largest first.
async function columnsOf(side, { start, end }) {
  const step = STEPS_S.find((seconds) => (end - start) / 1000 / seconds <= COLUMNS) ?? Math.ceil((end - start) / 1000 / COLUMNS);
  const stepMs = step * 1000;
  const { series = [] } = await ask("SelectSeries", { ...questionOf(side, { start: start + stepMs, end: end + stepMs }), step, groupBy: asked.by ? [asked.by] : [] });
  const groups = series.map(({ labels = [], points = [] }) => {
    const byTime = new Map(points.map(({ timestamp, value }) => [Number(timestamp), Number(value ?? 0)]));
    return { name: labels[0]?.value ?? "", byTime, total: [...byTime.values()].reduce((all, value) => all + value, 0) };
  }).sort((a, b) => b.total - a.total);
  const names = groups.slice(0, GROUPS).map(({ name }) => name);
  if (groups.length > GROUPS) names.push(OTHERS);
  const columns = Array.from({ length: Math.max(1, Math.ceil((end - start) / stepMs)) }, (_, n) => {
    const from = start + n * stepMs;
    const values = names.map(() => 0);
    groups.forEach(({ byTime }, at) => { values[Math.min(at, GROUPS)] += byTime.get(from + stepMs) ?? 0; });
    return { from, until: Math.min(from + stepMs, end), stepMs, values, value: values.reduce((all, value) => all + value, 0) };
  });
  return { columns, groups: names.map((name, at) => ({ name, total: groups.slice(at, at === GROUPS ? undefined : at + 1).reduce((all, { total }) => all + total, 0) })) };
}

function drawColumns(panel, { columns, groups }, total) {
  panel.columns = columns;
  const highest = Math.max(...columns.map((column) => column.value), 1e-9);
  const [first, last] = [columns[0], columns[columns.length - 1]];
  const words = (at) => timeText(BigInt(Math.round(at)) * 1000000n, false).slice(0, 19);
  const drawn = columns.map((column, n) => {
    const parts = column.values.map((value, group) => {
      const part = el("span", { class: "part", "data-group": asked.by ? group : null });
      part.style.height = `${(100 * value) / highest}%`;
      return part;
    });
    const about = `${words(column.from)} UTC: ${rateText(column.value, column.stepMs)}`;
    const split = asked.by ? groups.map(({ name }, group) => `\n${nameText(name)}: ${rateText(column.values[group], column.stepMs)}`).join("") : "";
    return el("button", { type: "button", class: "column", "data-value": column.value, tabindex: n === 0 ? "0" : "-1", title: about + split, "aria-label": about }, ...parts);
  });
  panel.plot.replaceChildren(el("span", { class: "most" }, rateText(highest, first.stepMs)), ...drawn);
  panel.plot.setAttribute("aria-label", "Over time. Drag, or Enter on a first and a last column, chooses a time.");
  const labels = Array.from({ length: 5 }, (_, n) => {
    const at = first.from + ((last.until - first.from) * n) / 5;
    const label = el("span", {}, last.until - first.from > AMOUNTS.d ? words(at).slice(5, 16) : words(at).slice(11, 19));
    label.style.left = `${20 * n}%`;
    return label;
  });
  panel.ticks.replaceChildren(...labels);
  drawLegend(panel, groups);
  const length = last.until - first.from;
  panel.note.replaceChildren(el("strong", { "data-total": String(total), title: exactText(total) }, amountText(total)),
    ` in ${durationText(length * 1e6)}${unitOf(asked.type) === "nanoseconds" ? `, ${rateText(total, length)}` : ""}`);
}

// Each value with its share; one that is pressed is the only one from then on.
function drawLegend({ key, legend }, groups) {
  legend.hidden = !asked.by;
  if (!asked.by) return;
  const all = groups.reduce((sum, { total }) => sum + total, 0);
  const only = (name) => {
    if (asked.by === "service_name") asked[key].service = name;
    else asked[key].labels = [asked[key].labels.trim().replace(/,$/, ""), `${asked.by}=${JSON.stringify(name)}`].filter(Boolean).join(",");
    if (key === "base") asked.compare = "other";
    reload();
  };
  legend.replaceChildren(...groups.map(({ name, total }, group) => {
    const text = group < GROUPS ? el("button", { type: "button", class: "link", title: "only this", onclick: () => only(name) }, name === "" ? "(none)" : nameText(name)) : OTHERS;
    return el("li", { "data-value": total }, el("span", { class: "swatch", "data-group": group }), text, ` ${shareText(total, all)}`);
  }));
}

function watchDrag(panel, choose) {
  let begin = null;
  const { plot } = panel;
  const columnAt = (x) => {
    const { left, width } = plot.getBoundingClientRect();
    return Math.min(panel.columns.length - 1, Math.max(0, Math.floor(((x - left) / width) * panel.columns.length)));
  };
  const buttons = () => [...plot.querySelectorAll(".column")];
  const mark = (a, b) => buttons().forEach((button, n) => button.setAttribute("aria-pressed", String(n >= Math.min(a, b) && n <= Math.max(a, b))));
  const done = (a, b) => {
    begin = null;
    choose(panel.columns[Math.min(a, b)], panel.columns[Math.max(a, b)]);
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !panel.columns.length) return;
    begin = columnAt(event.clientX);
    mark(begin, begin);
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => { if (begin !== null && event.buttons) mark(begin, columnAt(event.clientX)); });
  plot.addEventListener("pointerup", (event) => { if (begin !== null) done(begin, columnAt(event.clientX)); });
  plot.addEventListener("pointercancel", () => { begin = null; mark(-1, -1); });
  plot.addEventListener("keydown", (event) => {
    const at = buttons().indexOf(event.target);
    if (at < 0) return;
    if (event.key === "Escape") { begin = null; mark(-1, -1); return; }
    if (event.key === "Enter" || event.key === " ") {
      if (begin === null) { begin = at; mark(at, at); } else done(begin, at);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const next = buttons()[at + (event.key === "ArrowLeft" ? -1 : 1)];
      next?.focus();
      if (next && begin !== null) mark(begin, buttons().indexOf(next));
    } else return;
    event.preventDefault();
  });
}
