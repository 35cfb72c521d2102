// Two charts of all complete requests: by when they ended, and by how long they took. Who chooses a column sees its requests
// in the list.

const TICKS = 5;

// Slots from the first to the last, those without requests too.
function timelineColumns() {
  const { slot_ns, slots } = answer.timeline ?? { slots: [] };
  if (!slots.length) return [];
  const width = BigInt(slot_ns);
  const first = BigInt(slots[0].begin_ns);
  const last = BigInt(slots[slots.length - 1].begin_ns);
  const bySlot = new Map(slots.map((slot) => [String(slot.begin_ns), slot]));
  return Array.from({ length: Number((last - first) / width) + 1 }, (_, n) => {
    const begin = first + BigInt(n) * width;
    const slot = bySlot.get(String(begin));
    const name = `ended from ${timeText(begin, false)} UTC, within ${durationText(slot_ns)}`;
    const longest = slot && `${countOf(slot)}, the slowest took ${durationText(slot.longest_ns)}`;
    return { low: begin, high: begin + width - 1n, name, about: longest, split: slot, requests: num(slot?.requests), height: slot ? heightOf(slot) : 0 };
  });
}

// How high a column is that shows time, in the unit the reader chose.
function heightOf({ requests, wall_ns }) {
  if (view.unit === "share") return 1;
  return view.unit === "mean" ? num(wall_ns) / Math.max(num(requests), 1) : num(wall_ns);
}

const countOf = ({ requests }) => `${countText(requests)} request${num(requests) === 1 ? "" : "s"}`;

// Four columns an octave, each a quarter of it wide: the buckets of the answer never lie across their borders.
const columnOf = (ns) => {
  const octave = Math.floor(Math.log2(Math.max(ns, 1)));
  return 4 * (octave + ns / 2 ** octave - 1);
};
const columnBegin = (column) => 2 ** Math.floor(column / 4) * (1 + (column % 4) / 4);

function durationColumns() {
  const { buckets } = answer.durations ?? { buckets: [] };
  if (!buckets.length) return [];
  const byColumn = new Map();
  for (const bucket of buckets) {
    const column = Math.floor(columnOf(num(bucket.low_ns)));
    byColumn.set(column, [...(byColumn.get(column) ?? []), bucket]);
  }
  const first = Math.min(...byColumn.keys());
  const last = Math.max(...byColumn.keys());
  return Array.from({ length: last - first + 1 }, (_, n) => {
    const inside = byColumn.get(first + n) ?? [];
    const [begin, end] = [columnBegin(first + n), columnBegin(first + n + 1)];
    const name = `took ${durationText(begin)} to ${durationText(end)}`;
    const column = { begin, low: BigInt(Math.ceil(begin)), high: BigInt(Math.ceil(end)) - 1n, name, requests: 0, height: 0 };
    if (!inside.length) return column;
    const requests = inside.reduce((all, bucket) => all + num(bucket.requests), 0);
    return { ...column, about: countOf({ requests }), split: together(inside), requests, height: requests };
  });
}

function drawCharts() {
  const timeline = timelineColumns();
  const durations = durationColumns();
  find("charts").hidden = !timeline.length && !durations.length;
  if (timeline.length) {
    const highest = Math.max(...timeline.map((column) => column.height));
    const base = BigInt(answer.begin_ns);
    const what = { total: "their time", mean: "their mean time", share: "shares of their time" }[view.unit];
    find("timeline-note").textContent = `requests that ended within ${durationText(answer.timeline.slot_ns)} each; ${what}`;
    drawChart("timeline", timeline, view.unit === "share" ? "100 %" : durationText(highest), timeTicks(timeline, base));
  }
  if (durations.length) {
    const highest = Math.max(...durations.map((column) => column.height));
    find("durations-note").textContent = "number of requests, by state as their time is";
    const from = Math.floor(columnOf(num(answer.durations.buckets[0].low_ns)));
    drawChart("durations", durations, countText(highest), durationTicks(from, durations.length));
    const marks = answer.durations.percentiles.map(({ percent, high_ns }) => {
      const mark = el("span", { class: "mark", "data-percent": percent, "data-ns": high_ns, title: `${percent} % of requests within ${durationText(high_ns)}` }, el("span", {}, `p${percent}`));
      mark.style.left = `${(100 * (columnOf(num(high_ns)) - from)) / durations.length}%`;
      return mark;
    });
    find("durations-chart").querySelector(".plot").append(...marks);
  }
}

// Where a label stands, as a share of the chart's width, and its text.
function timeTicks(columns, base) {
  const every = Math.max(1, Math.ceil(columns.length / TICKS));
  return columns.flatMap(({ low }, n) => (n % every ? [] : [{ at: n / columns.length, text: `+${durationText(low - base)}` }]));
}

// Powers of ten; where there are few of them also their double and fivefold.
function durationTicks(from, count) {
  const places = (factors) => Array.from({ length: 20 }, (_, power) => factors.map((factor) => factor * 10 ** power)).flat()
    .map((ns) => ({ at: (columnOf(ns) - from) / count, text: durationText(ns) })).filter(({ at }) => at >= 0 && at < 0.97);
  const powers = places([1]);
  return powers.length < 3 ? places([1, 2, 5]) : powers;
}

// One chart: columns on a common scale, all of which one press of the tab key reaches and the arrow keys walk through.
function drawChart(by, columns, most, ticks) {
  const highest = Math.max(...columns.map((column) => column.height), 1e-9);
  const chosen = columns.findIndex((column) => isChosen(by, column));
  const entry = chosen >= 0 ? chosen : columns.findIndex((column) => column.requests > 0);
  const drawn = columns.map((column, n) => {
    const element = el("button", {
      type: "button", class: "column", "data-focus": `${by} ${column.low}`, "data-count": column.requests, tabindex: n === entry ? "0" : "-1", disabled: column.requests === 0,
      "aria-pressed": String(n === chosen), "aria-label": `${column.name}: ${column.about ?? "no request"}`, onclick: () => choose(by, column),
    });
    if (!column.requests) return element;
    const wall = Math.max(num(column.split.wall_ns), 1);
    for (const state of STATES.filter((state) => num(state.of(column.split)) > 0)) {
      const segment = el("span", { class: "part", "data-state": state.key });
      segment.style.height = `${(100 * column.height * num(state.of(column.split))) / (wall * highest)}%`;
      element.append(segment);
    }
    splitOfBar.set(element, { name: `${column.name}: ${column.about}`, split: column.split });
    return element;
  });
  const labels = ticks.map(({ at, text }) => {
    const label = el("span", {}, text);
    label.style.left = `${100 * at}%`;
    return label;
  });
  find(`${by}-chart`).replaceChildren(
    el("div", { class: "plot", role: "group", "aria-label": find(`${by}-title`).textContent }, el("span", { class: "most" }, most), ...drawn),
    el("div", { class: "ticks", "aria-hidden": "true" }, ...labels));
}

// ---- the chosen column ----

const isChosen = (by, { low, high }) => view.range?.by === by && view.range.low === low && view.range.high === high;

function choose(by, column) {
  const { low, high } = column;
  change(() => {
    view.range = isChosen(by, column) ? null : { by, low, high };
    view.requestsShown = PAGE_OF_REQUESTS;
  });
}

function isInRange(request) {
  if (!view.range) return true;
  const figure = BigInt(view.range.by === "timeline" ? request.end_ns : request.wall_ns);
  return view.range.low <= figure && figure <= view.range.high;
}

function drawRange() {
  const button = find("request-range");
  button.hidden = !view.range;
  if (!view.range) return;
  const { by, low, high } = view.range;
  const base = BigInt(answer.begin_ns);
  const [from, to] = by === "timeline" ? [`ended +${durationText(low - base)}`, `+${durationText(high + 1n - base)}`] : [`took ${durationText(low)}`, durationText(high + 1n)];
  button.textContent = `${from} to ${to} ✕`;
}

function saveRange(parameters) {
  if (view.range) parameters.set("range", `${view.range.by} ${view.range.low} ${view.range.high}`);
}

function loadRange(parameters) {
  const [, by, low, high] = /^(timeline|durations) (-?\d{1,19}) (-?\d{1,19})$/.exec(parameters.get("range") ?? "") ?? [];
  view.range = by ? { by, low: BigInt(low), high: BigInt(high) } : null;
}

// The arrow keys move among the columns of a chart.
function walkColumns(event) {
  const step = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[event.key];
  if (!step || !event.target.classList?.contains("column")) return;
  let column = event.target[step];
  while (column && !column.matches(".column:enabled")) column = column[step];
  column?.focus();
  event.preventDefault();
}
