// The page: one answer and what the reader has opened, drawn anew whenever either changes.
//
// All text of the answer reaches the document through textContent and attributes, never as markup.

const STATES = [
  { key: "running_ns", label: "running", of: (split) => split.running_ns },
  { key: "waiting_ns", label: "waiting for a CPU", of: (split) => split.waiting_ns },
  ...["disk", "network", "lock", "timer", "pipe", "child", "other"].map((cause) => ({
    key: `blocked_${cause}_ns`,
    label: cause === "other" ? "blocked: other" : `blocked: ${cause}`,
    short: cause,
    of: (split) => split.blocked_ns[cause],
  })),
  { key: "unknown_ns", label: "unknown", of: (split) => split.unknown_ns },
];
const SORTS = [
  { key: "wall_ns", label: "wall time", of: (request) => num(request.wall_ns) },
  { key: "begin_ns", label: "start", of: (request) => request.offset_ns },
  { key: "id", label: "id", of: (request) => num(request.id) },
  { key: "blocked_ns", label: "blocked", of: (request) => Object.values(request.blocked_ns).reduce((all, ns) => all + num(ns), 0) },
  ...STATES.map(({ key, label, of }) => ({ key, label, of: (request) => num(of(request)) })),
];
// Losses by the answer's names: events that are missing, and events that are there but have no place in the figures.
const LOST = {
  events_discarded: "discarded by the tracer", packets_lost: "missing packets", gaps: "missing stretches of time",
  backward_times: "events with a time before their stream's last",
};
const LOOSE = {
  unmatched_span_ends: "ends of spans without a begin", abandoned_phases: "phases without an end", phases_outside_requests: "phases outside of requests",
  calls_without_begin: "calls begun before the recording", bytes_without_begin: "bytes that those moved", uncertain_calls: "calls that events are missing in",
  ring_operations: "operations of io_uring rings", without_thread: "calls and spans of an unknown thread",
};
// The states of a critical path that are none of a thread's own time in a request have other names there.
const PATH_STATES = { running: "running_ns", waiting: "waiting_ns", interrupt: "interrupt_ns", unknown: "unknown_ns" };
const BETWEEN = "(between)"; // the row of the answer for request time in no phase
const PAGE_OF_REQUESTS = 200;
const PAGE_OF_FILES = 25;
const FILES_OF_CALL = 3;
const POLL_MS = 2000;
const POLL_ENDED_MS = 10000;

const view = {
  unit: "total",
  phases: new Set(), // names of open phases
  requests: new Set(), // keys of open requests
  calls: new Set(), // "phase/call" whose files are all listed
  sort: "wall_ns",
  descending: true,
  filter: "",
  range: null, // the chosen column of a chart: which chart, its least and greatest nanosecond
  requestsShown: PAGE_OF_REQUESTS,
  filesShown: PAGE_OF_FILES,
};
let answer = null;
let status = null;
const splitOfBar = new WeakMap();
const narrow = matchMedia("(max-width: 640px)"); // as in the style: the list of requests then has three columns

// ---- drawing ----

function draw() {
  const focused = document.activeElement?.dataset?.focus;
  const empty = num(answer.requests.complete) === 0;
  find("empty").hidden = !empty || live.shown;
  find("answer-view").hidden = empty || live.shown;
  if (live.shown) return;
  drawHead();
  drawNotices();
  if (empty) drawEmpty();
  else {
    drawTiles();
    drawCharts();
    drawPhases();
    drawPhaseTable();
    drawRequests();
    drawFiles();
  }
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function drawHead() {
  const { host, begin_ns, end_ns } = answer;
  const covered = BigInt(end_ns) > BigInt(begin_ns);
  document.title = host ? `${nameText(host)} – Throughline` : "Throughline";
  const children = [];
  if (host) children.push(el("strong", { "data-key": "host" }, nameText(host)));
  if (covered) {
    const time = (ns) => el("time", { title: timeText(ns, true), "data-ns": ns }, timeText(ns, false));
    const length = BigInt(end_ns) - BigInt(begin_ns);
    children.push(el("span", {}, time(begin_ns), " – ", time(end_ns), " UTC"), el("span", { title: exactNs(length) }, durationText(length)));
  }
  find("cover").replaceChildren(...children);
}

function drawNotices() {
  const counted = (labels) => Object.entries(labels).filter(([key]) => num(answer.loss[key]) > 0)
    .map(([key, label]) => `${label}: ${countText(answer.loss[key])}`).join(", ");
  const lost = counted(LOST);
  const loose = counted(LOOSE);
  const notices = [];
  const notice = (kind, id, strong, text) => notices.push(el("p", { class: `notice ${kind}`, id }, el("strong", {}, strong), ` ${text}`));
  if (lost) notice("warn", "loss", "Events were lost:", `${lost}. Times and counts below are of what was recorded.`);
  if (status?.kernel?.state === "missing") {
    notice("warn", "kernel-missing", "The kernel is not traced:", `${nameText(status.kernel.reason)}. States of threads are unknown and no system calls are seen.`);
  }
  if (status?.kernel?.state === "not_started" && status.sessions.length) {
    notice("note", "kernel-not-started", "The kernel is not traced yet:", `throughline capture kernel --to ${relayUrl()}`);
  }
  if (status?.missing?.length) {
    const named = status.missing.slice(0, 5).map((chunk) => `${nameText(chunk.name)} (${nameText(chunk.reason)})`).join("; ");
    const more = status.missing.length > 5 ? `; and ${status.missing.length - 5} more` : "";
    notice("warn", "chunks-missing", `${status.missing.length} missing chunk${status.missing.length > 1 ? "s" : ""}:`, `${named}${more}`);
  }
  if (loose) notice("note", "loose-ends", "Left out of the figures:", `${loose}.`);
  find("notices").replaceChildren(...notices);
}

function drawTiles() {
  const { requests, request_list: list } = answer;
  const tile = (label, key, text, attributes, below) =>
    el("div", {}, el("dt", {}, label), el("dd", { "data-key": key, ...attributes }, text), below && el("dd", { class: "below" }, below));
  const ns = (figure) => ({ "data-ns": figure, title: exactNs(figure) });
  const whole = wholeSplit();
  const wall = num(whole.wall_ns);
  const largest = STATES.reduce((most, state) => (num(state.of(whole)) > num(most.of(whole)) ? state : most));
  const partial = num(requests.partial);
  const tiles = [
    tile("requests", "requests", countText(requests.complete), { "data-count": requests.complete }, partial ? `and ${countText(partial)} seen in part` : "seen whole"),
    tile("total wall time", "wall_ns", durationText(requests.wall_ns), ns(requests.wall_ns), "of all requests"),
  ];
  if (num(requests.complete) > 0) {
    tiles.push(tile("mean per request", "mean_ns", durationText(num(requests.wall_ns) / num(requests.complete)), {}, null));
  }
  for (const { percent, high_ns } of answer.durations?.percentiles ?? []) {
    tiles.push(tile(`${percent} % within`, `p${percent}_ns`, durationText(high_ns), ns(high_ns), null));
  }
  if (list.length) tiles.push(tile("slowest", "slowest_ns", durationText(list[0].wall_ns), ns(list[0].wall_ns), requestName(list[0])));
  if (wall > 0) tiles.push(tile("mostly", "mostly", shareText(num(largest.of(whole)), wall), {}, largest.label));
  find("tiles").replaceChildren(...tiles);
}

// All phases together, exactly.
const wholeSplit = () => ({ spans: String(sum(answer.phases.map((phase) => phase.spans))), ...together(answer.phases) });

// The times of several rows, added up exactly.
function together(splits) {
  const total = (of) => String(sum(splits.map(of)));
  const blocked_ns = {};
  for (const cause of Object.keys(splits[0]?.blocked_ns ?? { disk: 0, network: 0, lock: 0, timer: 0, pipe: 0, child: 0, other: 0 })) {
    blocked_ns[cause] = total((split) => split.blocked_ns[cause]);
  }
  return {
    wall_ns: total((split) => split.wall_ns),
    running_ns: total((split) => split.running_ns),
    waiting_ns: total((split) => split.waiting_ns),
    blocked_ns,
    unknown_ns: total((split) => split.unknown_ns),
  };
}

// A figure in the unit the reader chose; `whole` is what a share is of.
function figureText(figure, whole) {
  if (view.unit === "share") return shareText(num(figure), num(whole));
  if (view.unit === "mean") {
    const complete = num(answer.requests.complete);
    return complete ? durationText(num(figure) / complete) : "–";
  }
  return durationText(figure);
}

function bar(split, scale, name) {
  const wall = num(split.wall_ns);
  const parts = STATES.filter((state) => num(state.of(split)) > 0);
  const spoken = parts.map((state) => `${state.label} ${shareText(num(state.of(split)), wall)}`).join(", ");
  const element = el("div", { class: "bar", role: "img", "aria-label": `${name}: ${durationText(wall)}${spoken ? `; ${spoken}` : ""}` });
  for (const state of parts) {
    const segment = el("span", { class: "segment", "data-state": state.key });
    segment.style.width = `${(100 * num(state.of(split))) / scale}%`;
    element.append(segment);
  }
  splitOfBar.set(element, { name, split });
  return element;
}

const largestWall = (splits) => splits.reduce((most, split) => Math.max(most, num(split.wall_ns)), 1);
const scaleOf = (split, largest) => (view.unit === "share" ? Math.max(num(split.wall_ns), 1) : largest);

function drawPhases() {
  const largest = largestWall(answer.phases);
  const rows = answer.phases.flatMap((phase) => {
    const open = view.phases.has(phase.name);
    const name = nameText(phase.name);
    const button = el("button", {
      type: "button", class: "opener", "aria-expanded": String(open), "data-focus": `phase ${phase.name}`,
      title: phase.name === BETWEEN ? "time of requests in no phase" : null, onclick: () => toggle(view.phases, phase.name),
    }, el("bdi", {}, name));
    const wall = view.unit === "share" ? shareText(num(phase.wall_ns), num(wholeSplit().wall_ns)) : figureText(phase.wall_ns);
    const row = el("div", { class: "phase", "data-phase": phase.name },
      button, bar(phase, scaleOf(phase, largest), name), el("span", { class: "figure", title: exactNs(phase.wall_ns) }, wall));
    return open ? [row, phaseDetail(phase)] : [row];
  });
  find("phase-bars").replaceChildren(...rows);
}

function phaseDetail(phase) {
  const calls = el("div", {}, el("h3", {}, "System calls"), callTable(phase.syscalls, phase.name));
  const holders = el("div", {}, el("h3", {}, "Who had the CPU while it waited"), holderTable(phase));
  return el("div", { class: "detail", "data-detail": phase.name }, calls, holders);
}

function figureCells(row) {
  const errors = num(row.errors);
  return [
    el("td", { "data-key": "ns", "data-ns": row.ns, title: exactNs(row.ns) }, durationText(row.ns)),
    el("td", { "data-key": "calls", "data-count": row.calls }, countText(row.calls)),
    el("td", { "data-key": "bytes", "data-bytes": row.bytes, title: `${countText(row.bytes)} bytes` }, num(row.bytes) ? bytesText(row.bytes) : "–"),
    el("td", { "data-key": "errors", "data-count": row.errors, class: errors ? "errors" : null }, errors ? countText(row.errors) : "–"),
  ];
}

// The calls of a phase with their files, or of a request, where the answer names no files.
function callTable(calls, phaseName) {
  if (!calls.length) return el("p", { class: "quiet" }, "None were seen.");
  const head = el("thead", {}, el("tr", {}, ...["call", "time", "calls", "bytes", "errors"].map((label, index) => el("th", { class: index ? null : "name" }, label))));
  const rows = calls.flatMap((call) => [
    el("tr", { "data-call": call.name }, el("td", { class: "name" }, el("code", {}, nameText(call.name))), ...figureCells(call)),
    ...fileRowsOfCall(call, phaseName),
  ]);
  return el("div", { class: "scroll" }, el("table", { class: "calls" }, head, el("tbody", {}, ...rows)));
}

function fileRowsOfCall(call, phaseName) {
  const files = call.files ?? [];
  const key = `${phaseName}/${call.name}`;
  const shown = view.calls.has(key) ? files : files.slice(0, FILES_OF_CALL);
  const rows = shown.map((file) => el("tr", { class: "file", "data-file": file.name }, fileName(file), ...figureCells(file)));
  if (shown.length < files.length) {
    const more = el("button", { type: "button", class: "link", "data-focus": `files ${key}`, onclick: () => toggle(view.calls, key) }, `${files.length - shown.length} more files`);
    rows.push(el("tr", { class: "file" }, el("td", { class: "name", colspan: 5 }, more)));
  }
  return rows;
}

function fileName(file) {
  return el("td", { class: "name path", title: nameText(file.name) }, el("bdi", {}, nameText(file.name)));
}

function holderTable(phase) {
  if (!phase.waited_for.length) return el("p", { class: "quiet" }, "It never waited for a CPU, or nobody is known to have had it.");
  const waiting = num(phase.waiting_ns);
  const rows = phase.waited_for.map((holder) => {
    const meter = el("span", { class: "meter" });
    meter.style.width = `${Math.min(100, (100 * num(holder.ns)) / Math.max(waiting, 1))}%`;
    return el("tr", { "data-tid": holder.tid },
      el("td", { class: "name" }, el("bdi", {}, nameText(holder.comm)), el("span", { class: "quiet" }, ` ${holder.tid}`)),
      el("td", { "data-key": "ns", "data-ns": holder.ns, title: exactNs(holder.ns) }, durationText(holder.ns)),
      el("td", {}, shareText(num(holder.ns), waiting)),
      el("td", { class: "meter-cell" }, meter));
  });
  return el("div", { class: "scroll" }, el("table", { class: "holders" }, el("tbody", {}, ...rows)));
}

function drawPhaseTable() {
  const table = find("phase-table");
  const blocked = STATES.filter((state) => state.short).length;
  const plain = (label) => el("th", { rowspan: 2, scope: "col" }, label);
  table.tHead.replaceChildren(
    el("tr", {}, el("th", { class: "name", rowspan: 2, scope: "col" }, "phase"), plain("spans"), plain("wall"), plain("running"), plain("waiting"),
      el("th", { colspan: blocked, scope: "colgroup", class: "group" }, "blocked"), plain("unknown")),
    el("tr", {}, ...STATES.filter((state) => state.short).map((state) => el("th", { scope: "col" }, state.short))));
  const whole = wholeSplit();
  const cells = (split) => [
    el("td", { "data-key": "spans", "data-count": split.spans }, countText(split.spans)),
    nsCell("wall_ns", split.wall_ns, whole.wall_ns),
    ...STATES.map((state) => nsCell(state.key, state.of(split), split.wall_ns)),
  ];
  table.tBodies[0].replaceChildren(
    ...answer.phases.map((phase) => el("tr", { "data-phase": phase.name }, el("th", { class: "name", scope: "row" }, el("bdi", {}, nameText(phase.name))), ...cells(phase))),
    el("tr", { class: "whole", "data-whole": true }, el("th", { class: "name", scope: "row" }, "all"), ...cells(whole)));
}

function nsCell(key, figure, whole) {
  return el("td", { "data-key": key, "data-ns": figure, title: exactNs(figure), class: num(figure) ? null : "zero" }, num(figure) ? figureText(figure, whole) : "0");
}

// ---- requests and files ----

const requestKey = (request) => `${request.tid}-${request.begin_ns}`;
const requestName = (request) => `${nameText(request.name)}${request.id === null ? "" : ` ${request.id}`}`;

function chosenRequests() {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (request) => {
    const text = `${request.id ?? ""} ${request.name} ${request.process} ${request.tid}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const { of } = SORTS.find((sort) => sort.key === view.sort);
  const sign = view.descending ? -1 : 1;
  return answer.request_list.filter(isInRange).filter(matches).sort((a, b) => sign * (of(a) - of(b)));
}

function drawRequests() {
  const chosen = chosenRequests();
  const shown = chosen.slice(0, view.requestsShown);
  const largest = largestWall(answer.request_list);
  const { listed, unlisted } = answer.requests;
  const slowest = num(unlisted) ? `, the slowest of ${countText(num(listed) + num(unlisted))}` : "";
  find("request-count").textContent = view.filter || view.range ? `${countText(chosen.length)} of ${countText(listed)}${slowest}` : `${countText(listed)}${slowest}`;
  find("request-table").tBodies[0].replaceChildren(...shown.flatMap((request) => requestRows(request, largest)));
  drawRange();
  const more = find("more-requests");
  more.hidden = shown.length === chosen.length;
  more.textContent = `show ${countText(Math.min(PAGE_OF_REQUESTS, chosen.length - shown.length))} more of ${countText(chosen.length - shown.length)}`;
  find("request-sort").value = view.sort;
  find("request-direction").textContent = view.descending ? "↓ largest first" : "↑ smallest first";
}

function requestRows(request, largest) {
  const key = requestKey(request);
  const open = view.requests.has(key);
  const name = requestName(request);
  const opener = el("button", {
    type: "button", class: "opener", "aria-expanded": String(open), "data-focus": `request ${key}`, onclick: () => toggle(view.requests, key),
  }, el("bdi", {}, nameText(request.name)), request.id === null ? null : el("span", { class: "id" }, String(request.id)));
  const row = el("tr", { "data-request": key, "data-id": request.id },
    el("td", { class: "name" }, opener),
    el("td", { class: "process" }, el("bdi", {}, nameText(request.process)), el("span", { class: "quiet" }, ` ${request.tid}`)),
    el("td", { class: "start", title: timeText(request.begin_ns, true), "data-ns": request.begin_ns }, `+${durationText(request.offset_ns)}`),
    el("td", { class: "wall", "data-key": "wall_ns", "data-ns": request.wall_ns, title: exactNs(request.wall_ns) }, durationText(request.wall_ns)),
    el("td", { class: "bars" }, bar(request, scaleOf(request, largest), name)));
  return open ? [row, el("tr", { class: "detail-row" }, el("td", { colspan: narrow.matches ? 3 : 5 }, requestDetail(request)))] : [row];
}

function requestDetail(request) {
  const scale = largestWall(request.phases);
  const phases = request.phases.map((phase) => el("div", { class: "phase", "data-phase": phase.name },
    el("bdi", { class: "label" }, nameText(phase.name)), bar(phase, scaleOf(phase, scale), nameText(phase.name)),
    el("span", { class: "figure", "data-ns": phase.wall_ns, title: exactNs(phase.wall_ns) }, durationText(phase.wall_ns))));
  return el("div", { class: "detail" },
    el("div", {}, el("h3", {}, "Phases"), ...phases), el("div", {}, el("h3", {}, "System calls"), callTable(request.syscalls, null)), pathLanes(request));
}

// The critical path over time: a lane for each thread that it goes through, and a line where one woke the next.
function pathLanes(request) {
  const path = request.critical_path;
  if (!path) return null;
  const lanes = new Map();
  for (const hop of path.hops) {
    if (!lanes.has(hop.tid)) lanes.set(hop.tid, { name: `${nameText(hop.comm)} (${hop.tid})`, hops: [], links: [] });
    lanes.get(hop.tid).hops.push(hop);
  }
  const order = [...lanes.keys()];
  path.hops.forEach((hop, index) => {
    const before = path.hops[index - 1];
    if (!hop.woken_by || !before) return;
    const [upper, lower] = [order.indexOf(before.tid), order.indexOf(hop.tid)].sort((one, other) => one - other);
    lanes.get(order[upper]).links.push({ at: hop.offset_ns, lanes: lower - upper });
  });
  const wall = Math.max(num(request.wall_ns), 1);
  const share = (ns) => `${(100 * num(ns)) / wall}%`;
  const rows = [...lanes].map(([tid, lane]) => {
    const track = el("div", { class: "track" }, ...lane.hops.map((hop) => pathSegment(hop, share)));
    for (const link of lane.links) {
      const line = el("span", { class: "wake" });
      line.style.left = share(link.at);
      line.style.height = `calc(${link.lanes} * var(--lane))`;
      track.append(line);
    }
    const ns = sum(path.totals.filter((total) => total.tid === tid).map((total) => total.ns));
    return el("div", { class: "lane", "data-tid": tid }, el("bdi", { class: "label", title: lane.name }, lane.name), track,
      el("span", { class: "figure", "data-ns": String(ns), title: exactNs(ns) }, durationText(ns)));
  });
  const states = new Map();
  for (const total of path.totals) states.set(total.state, (states.get(total.state) ?? 0n) + BigInt(total.ns));
  const sums = [...states].map(([state, ns]) => el("li", { "data-path-state": state, "data-ns": String(ns), title: exactNs(ns) },
    el("span", { class: "swatch", "data-state": pathState(state) }), `${state} ${durationText(ns)} (${shareText(num(ns), wall)})`));
  const earlier = path.is_longer ? el("p", { class: "quiet" }, "The path has more stretches before these; the sums hold all of it.") : null;
  return el("div", { class: "path-lanes" }, el("h3", {}, "Critical path: what it waited for, through all threads"), earlier, ...rows, el("ul", { class: "sums" }, ...sums));
}

const pathState = (state) => PATH_STATES[state] ?? `blocked_${state}_ns`;

function pathSegment(hop, share) {
  const by = hop.woken_by ? `; woken by ${nameText(hop.woken_by)}` : hop.ended_by ? `; ended by ${nameText(hop.ended_by)}` : "";
  const segment = el("span", {
    class: "hop", "data-state": pathState(hop.state), "data-ns": hop.ns,
    title: `${hop.state} ${durationText(hop.ns)} after ${durationText(hop.offset_ns)}${by}`,
  });
  segment.style.left = share(hop.offset_ns);
  segment.style.width = share(hop.ns);
  return segment;
}

function drawFiles() {
  const shown = answer.files.slice(0, view.filesShown);
  const longest = answer.files.reduce((most, file) => Math.max(most, num(file.ns)), 1);
  find("file-count").textContent = `${countText(answer.files.length)} by time in calls`;
  find("file-table").tBodies[0].replaceChildren(...shown.map((file) => {
    const name = fileName(file);
    const meter = el("span", { class: "meter", hidden: 200 * num(file.ns) < longest });
    meter.style.width = `${(100 * num(file.ns)) / longest}%`;
    name.append(meter);
    return el("tr", { "data-file": file.name }, name, ...figureCells(file));
  }));
  const more = find("more-files");
  more.hidden = shown.length === answer.files.length;
  more.textContent = `show ${countText(Math.min(PAGE_OF_FILES, answer.files.length - shown.length))} more of ${countText(answer.files.length - shown.length)}`;
}

// ---- nothing to draw yet ----

function drawEmpty() {
  const [what, why, command] = missingStep();
  find("empty").replaceChildren(el("h2", {}, what), el("p", {}, why), el("pre", {}, el("code", {}, command)));
}

const relayUrl = () => status?.relay_url ?? "net://127.0.0.1";

function missingStep() {
  const partial = num(answer.requests.partial);
  if (partial) {
    return [`${countText(partial)} request${partial > 1 ? "s" : ""}, none seen whole`, "The begin or the end of each lies outside of the recording, or was lost. Record for longer than one request takes:",
      "lttng enable-rotation --timer 2s"];
  }
  if (!status) {
    return ["No request in this trace", "It holds no pair of events X_begin and X_end of one thread. Record the application's events too, then ask again:",
      "throughline analyze phases DIR… --format html"];
  }
  if (!status.sessions.length) {
    return ["Waiting for a trace", "No tracer has connected yet. Start a recording session that sends here:",
      `lttng create app --set-url=${relayUrl()}\nlttng enable-event --userspace --all\nlttng enable-rotation --timer 2s\nlttng start`];
  }
  if (!num(status.chunks_sealed)) {
    return ["Waiting for the first sealed chunk", "A tracer is connected; its events are read chunk by chunk, when it rotates:", "lttng enable-rotation --timer 2s"];
  }
  return ["No request seen yet", "Chunks arrive, but no thread in them has a pair of events X_begin and X_end. Enable the application's tracepoints and send it a request:",
    "lttng enable-event --userspace --all"];
}

// ---- what the reader does ----

function toggle(set, key) {
  if (!set.delete(key)) set.add(key);
  saveView();
  draw();
}

// What is open and how figures are shown stands in the address, so that it can be sent to somebody.
function saveView() {
  const parameters = new URLSearchParams();
  if (view.unit !== "total") parameters.set("unit", view.unit);
  for (const name of view.phases) parameters.append("phase", name);
  for (const key of view.requests) parameters.append("request", key);
  if (view.sort !== "wall_ns") parameters.set("sort", view.sort);
  if (!view.descending) parameters.set("order", "up");
  if (view.filter) parameters.set("filter", view.filter);
  saveRange(parameters);
  saveLive(parameters);
  history.replaceState(null, "", `#${parameters}`);
}

function loadView() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const unit = parameters.get("unit");
  if (["total", "mean", "share"].includes(unit)) view.unit = unit;
  view.phases = new Set(parameters.getAll("phase"));
  view.requests = new Set(parameters.getAll("request"));
  if (SORTS.some((sort) => sort.key === parameters.get("sort"))) view.sort = parameters.get("sort");
  view.descending = parameters.get("order") !== "up";
  view.filter = parameters.get("filter") ?? "";
  loadRange(parameters);
  loadLive(parameters);
}

function change(apply) {
  apply();
  saveView();
  if (answer) draw();
}

function listen() {
  for (const input of document.querySelectorAll("#unit input")) {
    input.checked = input.value === view.unit;
    input.addEventListener("change", () => change(() => { view.unit = input.value; }));
  }
  const sort = find("request-sort");
  sort.replaceChildren(...SORTS.map(({ key, label }) => el("option", { value: key }, label)));
  sort.addEventListener("change", () => change(() => { view.sort = sort.value; }));
  find("request-direction").addEventListener("click", () => change(() => { view.descending = !view.descending; }));
  const filter = find("request-filter");
  filter.value = view.filter;
  filter.addEventListener("input", () => change(() => { view.filter = filter.value; view.requestsShown = PAGE_OF_REQUESTS; }));
  find("request-range").addEventListener("click", () => change(() => { view.range = null; }));
  find("charts").addEventListener("keydown", walkColumns);
  find("more-requests").addEventListener("click", () => change(() => { view.requestsShown += PAGE_OF_REQUESTS; }));
  find("more-files").addEventListener("click", () => change(() => { view.filesShown += PAGE_OF_FILES; }));
  find("legend").replaceChildren(...STATES.map((state) => el("li", {}, el("span", { class: "swatch", "data-state": state.key }), state.label)));
  narrow.addEventListener("change", () => { if (answer) draw(); });
  document.addEventListener("pointermove", showTip);
  document.addEventListener("pointerleave", () => { find("tip").hidden = true; });
}

// The exact figures of the bar under the pointer.
function showTip(event) {
  const tip = find("tip");
  const element = event.target.closest?.(".bar, .column");
  const about = element && splitOfBar.get(element);
  tip.hidden = !about;
  if (!about) return;
  const { name, split } = about;
  const line = (state, label, figure) => el("tr", { class: event.target.dataset.state === state && state ? "under" : null },
    el("td", {}, state ? el("span", { class: "swatch", "data-state": state }) : null, label), el("td", {}, exactNs(figure)), el("td", {}, shareText(num(figure), num(split.wall_ns))));
  tip.replaceChildren(el("strong", {}, name), el("table", {}, el("tbody", {},
    line(null, "wall", split.wall_ns), ...STATES.filter((state) => num(state.of(split)) > 0).map((state) => line(state.key, state.label, state.of(split))))));
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18;
  const top = below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 12 : below;
  tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
}

// ---- the answer, from the page or the server ----

function accept(next) {
  const base = BigInt(next.begin_ns);
  for (const request of next.request_list) request.offset_ns = Number(BigInt(request.begin_ns) - base);
  answer = next;
}

const tags = new Map();

// The document at a path, or undefined when it is still the one that we have.
async function fetchChanged(path) {
  const headers = tags.has(path) ? { "If-None-Match": tags.get(path) } : {};
  const response = await fetch(path, { headers, cache: "no-store" });
  if (response.status === 304) return undefined;
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  const document = parseAnswer(await response.text());
  tags.set(path, response.headers.get("ETag"));
  return document;
}

function drawLive(connected) {
  const live = find("live");
  if (!connected) live.textContent = "no connection, trying again";
  else {
    const chunks = `${countText(status.chunks_sealed)} chunks sealed, ${countText(status.windows_mapped)} windows mapped`;
    live.textContent = `${status.recording ? "recording" : "not recording"}: ${chunks}`;
  }
  live.dataset.state = connected ? (status.recording ? "recording" : "ended") : "lost";
}

// Where the store's page is: on this host, at a port of its own.
function drawProfiles() {
  const link = find("profiles");
  link.hidden = !status?.profiles_port;
  if (!link.hidden) link.href = `${location.protocol}//${location.hostname}:${status.profiles_port}/`;
}

async function poll() {
  const started = performance.now();
  let wait = POLL_MS;
  try {
    // Drawing anew would drop the reader's selected text.
    if (!getSelection().isCollapsed) {
      find("live").textContent = "paused while text is selected";
    } else {
      const [nextStatus, nextAnswer] = await Promise.all([fetchChanged("api/v1/status"), fetchChanged("api/v1/phases")]);
      if (nextStatus) status = nextStatus;
      drawProfiles();
      if (nextAnswer) accept(nextAnswer);
      if (nextStatus || nextAnswer) draw();
      drawLive(true);
      if (!status.recording) wait = POLL_ENDED_MS;
    }
  } catch (error) {
    console.warn(error);
    tags.clear(); // one document may have come and the other not: ask for both again
    drawLive(false);
  }
  // At most a quarter of the time goes into reading and drawing, however large the answer is.
  setTimeout(poll, Math.max(wait, 3 * (performance.now() - started)));
}

function start() {
  loadView();
  listen();
  const embedded = find("answer").textContent;
  if (!embedded.trim()) {
    listenLive();
    poll();
    return;
  }
  try {
    accept(parseAnswer(embedded));
  } catch (error) {
    find("notices").replaceChildren(el("p", { class: "notice warn", id: "unreadable" }, `The answer in this page cannot be read: ${error.message}`));
    return;
  }
  draw();
}

start();
