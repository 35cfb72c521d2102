// What is shown, as it stands in the address: whoever opens the address sees the same.
//
// A side is a selection in a time. A time is "now", "now-15m" or milliseconds since the epoch.

const AMOUNTS = { s: 1000, m: 60e3, h: 3600e3, d: 86400e3 };
const LAST = ["5m", "15m", "1h", "3h", "6h", "12h", "24h"];
const SORTS = ["name", "self", "total", "base_self", "base_total", "self_change", "total_change"];

const asked = {
  tenant: "",
  type: "",
  now: { service: null, labels: "", from: "now-1h", until: "now" },
  base: null, // the side that it is compared with
  compare: "", // by which rule the base follows the other side: before, hour, day; same and other: not at all
  view: "difference",
  by: "", // the label whose values have colours of their own over time
  search: "",
  sort: "",
  up: false,
  frames: [], // the zoomed stack, root first
};

const SIDE_FIELDS = ["service", "labels", "from", "until"];

function loadAddress() {
  const parameters = new URLSearchParams(location.search);
  const text = (name, otherwise) => parameters.get(name) ?? otherwise;
  asked.tenant = text("tenant", "");
  asked.type = text("type", "");
  asked.now = { service: text("service", null), labels: text("labels", ""), from: text("from", "now-1h"), until: text("until", "now") };
  asked.compare = text("compare", "");
  asked.base = asked.compare ? Object.fromEntries(SIDE_FIELDS.map((field) => [field, text(`base-${field}`, asked.now[field])])) : null;
  asked.by = text("by", "");
  asked.view = text("view", "difference");
  asked.search = text("search", "");
  asked.sort = SORTS.includes(text("sort", "")) ? text("sort") : "";
  asked.up = text("order", "") === "up";
  asked.frames = parameters.getAll("frame");
}

function saveAddress(isStep = false) {
  const parameters = new URLSearchParams();
  const set = (name, value, otherwise = "") => { if (value !== otherwise) parameters.set(name, value); };
  set("tenant", asked.tenant);
  if (asked.now.service !== null) set("service", asked.now.service, null); // empty: all services; none: the first one
  set("type", asked.type);
  set("labels", asked.now.labels);
  set("from", asked.now.from, "now-1h");
  set("until", asked.now.until, "now");
  set("compare", asked.compare);
  if (asked.base) for (const field of SIDE_FIELDS) set(`base-${field}`, asked.base[field], asked.now[field]);
  set("by", asked.by);
  set("view", asked.view, "difference");
  set("search", asked.search);
  set("sort", asked.sort);
  set("order", asked.up ? "up" : "");
  for (const frame of asked.frames) parameters.append("frame", frame);
  const address = parameters.size ? `?${parameters}` : location.pathname;
  if (address === (location.search || location.pathname)) return;
  history[isStep ? "pushState" : "replaceState"](null, "", address);
}

const milliseconds = (text) => { const [, count, unit] = /^(\d+)([smhd])$/.exec(text) ?? []; return count ? Number(count) * AMOUNTS[unit] : NaN; };

// Milliseconds since the epoch, or NaN.
function timeOf(text, now) {
  const trimmedText = text.trim();
  if (trimmedText === "now") return now;
  if (trimmedText.startsWith("now-")) return now - milliseconds(trimmedText.slice(4));
  if (/^\d{10,}$/.test(trimmedText)) return Number(trimmedText);
  return Date.parse(`${trimmedText.replace(" ", "T")}${/Z$|[+-]\d\d:\d\d$/.test(trimmedText) ? "" : "Z"}`);
}

// As a person reads and writes it, in UTC.
function timeWords(text) {
  return /^\d{10,}$/.test(text) ? new Date(Number(text)).toISOString().replace("T", " ").replace(/(\.000)?Z$/, "") : text;
}

function rangeOf(side, now) {
  const [start, end] = [timeOf(side.from, now), timeOf(side.until, now)];
  if (Number.isNaN(start)) throw new Error(`“${side.from}” is no time: write now-15m or 2026-01-31 09:30`);
  if (Number.isNaN(end)) throw new Error(`“${side.until}” is no time: write now or 2026-01-31 09:30`);
  if (start >= end) throw new Error("the time ends before it starts");
  return { start: Math.floor(start), end: Math.floor(end) };
}

// A selector of Pyroscope: the service and what the reader wrote.
function selectorOf(side) {
  const matchers = side.service ? [`service_name=${JSON.stringify(side.service)}`] : [];
  const labels = side.labels.trim().replace(/^\{(.*)\}$/s, "$1").replace(/,\s*$/, "");
  if (labels) matchers.push(labels);
  return `{${matchers.join(",")}}`;
}

// Where the base is, when it follows the other side.
function follow(now) {
  if (asked.compare === "same") asked.base = { ...asked.base, from: asked.now.from, until: asked.now.until };
  if (!asked.base || !["before", "hour", "day"].includes(asked.compare)) return;
  const { start, end } = rangeOf(asked.now, now);
  const back = { before: end - start, hour: AMOUNTS.h, day: AMOUNTS.d }[asked.compare];
  asked.base = { ...asked.base, service: asked.now.service, labels: asked.now.labels, from: String(start - back), until: String(end - back) };
}
