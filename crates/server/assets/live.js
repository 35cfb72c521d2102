// The live view: the sessions that are being recorded, and the events of one of them as they come.
//
// Rows are only ever added at the bottom and taken away at the top. What the page holds is bounded: the newest ROWS events,
// drawn or, while paused, waiting; what falls out of the waiting ones is counted and said.

const ROWS = 2000;
const DRAW_MS = 100; // at most so often are events drawn, and at most a quarter of the time
const LOOK_MS = 2000; // how often the list of sessions is asked for
const AGAIN_MS = 2000; // how long after a lost connection the next is tried
const BEGINS = [["now", "now"], ["60", "1 minute ago"], ["300", "5 minutes ago"], ["1800", "30 minutes ago"], ["beginning", "the beginning"]];
const RATE_MS = 5000; // figures are means over so long, lines show SPARKS seconds
const SPARKS = 60;

const live = {
  shown: false,
  sessions: [],
  asked: { host: "", session: "", begin: "60", names: "", where: "" },
  tail: null,
};

// One connection after the other for what is asked; all that it came to is in here.
function newTail() {
  return {
    abort: new AbortController(),
    status: "connecting", // connecting, following, lost, ended, refused
    why: "",
    note: "",
    paused: false,
    waiting: [], // rows that are not drawn yet: events and { gap: count, why }
    waitingEvents: 0,
    missed: 0, // events that fell out while paused
    drawn: 0, // events in the table
    newest: null, // time of the last of them
    received: 0,
    leftOut: 0, // events that the server did not send, or that fell out here
    state: null,
    rates: new Map(), // by stream path: [{ at, events }], one a second
    timer: null,
    rest: DRAW_MS,
  };
}

// ---- sessions ----

async function lookForSessions() {
  try {
    const next = await fetchChanged("api/v1/live/sessions");
    if (next) {
      live.sessions = next.sessions;
      live.problem = next.problem;
    }
    find("views").hidden = false;
    drawSessions();
  } catch (error) {
    if (String(error.message).endsWith(": 404")) return; // this server has no live view
    tags.delete("api/v1/live/sessions");
  }
  setTimeout(lookForSessions, LOOK_MS);
}

function drawSessions() {
  find("live-count").textContent = live.sessions.length ? String(live.sessions.length) : "";
  if (!live.shown) return;
  const focused = document.activeElement?.dataset?.focus;
  find("session-count").textContent = live.problem ? nameText(live.problem) : live.sessions.length ? "" : "no session is being recorded";
  find("session-table").hidden = !live.sessions.length;
  find("session-help").hidden = live.sessions.length > 0 || live.tail !== null;
  find("session-hint").hidden = !live.sessions.length || live.tail !== null;
  find("session-help").querySelector("code").textContent = `lttng create app --live --set-url=${relayUrl()}\nlttng enable-event --userspace --all\nlttng start`;
  find("session-table").tBodies[0].replaceChildren(...live.sessions.map(sessionRow));
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function sessionRow(session) {
  const { host, session: name } = live.asked;
  const isChosen = live.tail !== null && session.host === host && session.name === name;
  const since = Math.max(0, Date.now() - num(session.since_ms));
  const opener = el("button", {
    type: "button", class: "link", "data-focus": `session ${session.host}/${session.name}`, "aria-pressed": String(isChosen),
    onclick: () => ask({ host: session.host, session: session.name }),
  }, el("bdi", {}, nameText(session.name)));
  return el("tr", { class: isChosen ? "chosen" : null, "data-session": session.name, "data-host": session.host },
    el("td", { class: "name" }, opener),
    el("td", { class: "name" }, el("bdi", {}, nameText(session.host))),
    el("td", { "data-key": "streams" }, countText(session.streams)),
    el("td", { "data-key": "viewers" }, countText(session.viewers)),
    el("td", { "data-key": "live_timer" }, num(session.live_timer_us) ? durationText(1000 * num(session.live_timer_us)) : "none"),
    el("td", {}, session.format),
    el("td", { title: `${timeText(BigInt(Math.round(num(session.since_ms))) * 1000000n, false)} UTC` }, durationText(since < 60000 ? 1e9 * Math.round(since / 1000) : 1e6 * since)));
}

// ---- following ----

// Follows anew, with what is asked differently.
function ask(changed) {
  Object.assign(live.asked, changed);
  saveView();
  follow(live.asked.begin);
}

function follow(begin) {
  live.tail?.abort.abort();
  clearTimeout(live.tail?.timer);
  live.tail = newTail();
  find("tail-table").tBodies[0].replaceChildren();
  find("stream-table").tBodies[0].replaceChildren();
  live.sticks = true;
  drawSessions();
  drawTail();
  connect(live.tail, begin);
}

async function connect(tail, begin) {
  const { host, session, names, where } = live.asked;
  const query = new URLSearchParams({ host, session, begin, names, where });
  try {
    const response = await fetch(`api/v1/live/tail?${query}`, { cache: "no-store", signal: tail.abort.signal });
    if (!response.ok) {
      const why = (await response.text()).trim();
      return settle(tail, "refused", why);
    }
    settle(tail, "following", "");
    await readMessages(response.body, (kind, data) => take(tail, kind, data));
    if (tail.status === "ended") return;
  } catch (error) {
    if (tail.abort.signal.aborted) return;
    console.warn(error);
  }
  settle(tail, "lost", "no connection, trying again");
  setTimeout(() => {
    if (tail !== live.tail) return;
    if (!endsWithGap(tail)) push(tail, [{ gap: 0, why: "the connection was lost: events may be missing here" }]);
    tail.rates.clear();
    connect(tail, "now");
  }, AGAIN_MS);
}

// Attempts in vain leave one row.
function endsWithGap(tail) {
  if (tail.waiting.length) return tail.waiting.at(-1).gap !== undefined;
  return find("tail-table").tBodies[0].lastElementChild?.dataset.gap !== undefined;
}

function settle(tail, status, why) {
  tail.status = status;
  tail.why = why;
  schedule(tail);
}

// Server-sent events, read as fast as they are taken: what does not fit between is the server's to bound.
async function readMessages(body, message) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const messages = text.split("\n\n");
    text = messages.pop();
    for (const lines of messages.map((all) => all.split("\n"))) {
      const field = (name) => lines.find((line) => line.startsWith(`${name}:`))?.slice(name.length + 1).trimStart();
      if (field("data")) message(field("event"), JSON.parse(field("data")));
    }
  }
}

function take(tail, kind, data) {
  if (kind === "events") {
    const rows = data.events;
    if (data.left_out) rows.unshift({ gap: data.left_out, why: "left out: more came than this page could take" });
    tail.received += data.events.length - (data.left_out ? 1 : 0);
    tail.leftOut += data.left_out;
    push(tail, rows);
  } else if (kind === "state") {
    tail.state = data;
    noteRates(tail, data);
    drawStreams(tail);
  } else if (kind === "note") {
    tail.note = data.text;
  } else if (kind === "end") {
    settle(tail, "ended", data.text);
  }
  schedule(tail);
}

function push(tail, rows) {
  for (const row of rows) {
    tail.waiting.push(row);
    if (row.gap === undefined) tail.waitingEvents += 1;
  }
  let from = 0;
  for (; tail.waitingEvents > ROWS; from += 1) {
    const row = tail.waiting[from];
    if (row.gap === undefined) tail.waitingEvents -= 1;
    if (tail.paused) {
      tail.missed += row.gap ?? 1;
      if (row.gap === undefined) tail.leftOut += 1;
    }
  }
  if (from) tail.waiting.splice(0, from);
}

function pause(paused) {
  const { tail } = live;
  if (!tail || tail.paused === paused) return;
  tail.paused = paused;
  if (!paused && tail.missed) {
    tail.waiting.unshift({ gap: tail.missed, why: "left out while paused" });
    tail.missed = 0;
  }
  drawTail();
}

// ---- drawing ----

function schedule(tail) {
  if (tail.timer !== null || tail !== live.tail) return;
  tail.timer = setTimeout(() => {
    tail.timer = null;
    const begin = performance.now();
    drawTail();
    tail.rest = Math.max(DRAW_MS, 3 * (performance.now() - begin));
  }, tail.rest);
}

const TAIL_STATES = { connecting: "other", following: "recording", lost: "lost", ended: "ended", refused: "lost" };

function drawTail() {
  const { tail, asked } = live;
  find("tail").hidden = tail === null;
  find("streams").hidden = tail === null || tail.status === "refused";
  if (tail === null || !live.shown) return;
  document.title = `${nameText(asked.session)} – Throughline`;
  const pauseButton = find("tail-pause");
  find("tail-title").replaceChildren(el("bdi", {}, nameText(asked.host)), el("span", { class: "quiet" }, " / "), el("bdi", {}, nameText(asked.session)));
  const said = find("tail-status");
  said.dataset.state = tail.paused && tail.status === "following" ? "paused" : TAIL_STATES[tail.status];
  said.textContent = tail.status === "ended" ? nameText(tail.why) : tail.status === "lost" ? tail.why : tail.paused ? "paused" : tail.status;
  find("tail-error").hidden = tail.status !== "refused";
  find("tail-error").textContent = tail.status === "refused" ? nameText(tail.why) : "";
  find("tail-note").hidden = !tail.note;
  find("tail-note").textContent = nameText(tail.note);
  pauseButton.setAttribute("aria-pressed", String(tail.paused));
  pauseButton.disabled = tail.status === "refused";
  const missed = tail.missed ? `, ${countText(tail.missed)} left out` : "";
  pauseButton.textContent = tail.paused ? `Resume (${countText(tail.waitingEvents)} new${missed})` : "Pause";
  if (!tail.paused) drawRows(tail);
  drawFoot(tail);
}

function drawRows(tail) {
  const body = find("tail-table").tBodies[0];
  const scroll = find("tail-scroll");
  if (tail.waiting.length) {
    const rows = tail.waiting.map(row);
    tail.drawn += tail.waitingEvents;
    tail.newest = tail.waiting.findLast((event) => event.t !== undefined)?.t ?? tail.newest;
    tail.waiting = [];
    tail.waitingEvents = 0;
    body.append(...rows);
    while (tail.drawn > ROWS) {
      if (body.firstElementChild.dataset.t !== undefined) tail.drawn -= 1;
      body.firstElementChild.remove();
    }
  }
  if (live.sticks) scroll.scrollTop = scroll.scrollHeight;
  find("tail-newest").hidden = live.sticks;
  find("tail-empty").hidden = body.childElementCount > 0 || tail.status === "refused";
  find("tail-empty").textContent = tail.status === "ended" ? "no event fits" : tail.state && num(tail.state.events) > 0 ? `none of the ${countText(tail.state.events)} events so far fits` : "no event yet";
}

function row(event) {
  if (event.gap !== undefined) {
    const text = event.gap ? `${countText(event.gap)} ${event.gap === 1 ? "event" : "events"} ${event.why}` : event.why;
    return el("tr", { class: "gap", "data-gap": event.gap }, el("td", { colspan: 4 }, text));
  }
  return el("tr", { "data-t": event.t },
    el("td", { class: "at", title: `${timeText(event.t, true)}` }, clockText(event.t)),
    el("td", { class: "from" }, nameText(event.s)),
    el("td", { class: "what", title: nameText(event.n) }, el("bdi", {}, nameText(event.n))),
    el("td", { class: "fields" }, event.f === "" ? "" : nameText(event.f), event.c === "" ? null : el("span", { class: "context" }, nameText(event.c))));
}

// "20:01:02.123456" in UTC.
function clockText(epochNs) {
  return timeText(epochNs, true).slice(11, 26);
}

function drawFoot(tail) {
  const { state } = tail;
  const parts = [];
  const part = (key, count, text) => parts.push(el("span", { "data-key": key, "data-count": count }, text));
  part("shown", tail.drawn, `${countText(tail.drawn)} shown, the newest ${countText(ROWS)} are kept`);
  if (tail.newest !== null && tail.status === "following") {
    const age = Math.max(0, Math.round(Date.now() / 1000 - Number(BigInt(tail.newest) / 1000000000n)));
    parts.push(el("span", {}, age < 1 ? "the newest from just now" : `the newest from ${durationText(1e9 * age)} ago`));
  }
  if (state) {
    part("matched", state.matched, `${countText(state.matched)} matched of ${countText(state.events)}`);
    if (num(state.late)) part("late", state.late, `${countText(state.late)} came too late for the order of time`);
    if (num(state.unreadable)) part("unreadable", state.unreadable, `${countText(state.unreadable)} packets could not be read`);
  }
  if (tail.leftOut) part("left_out", tail.leftOut, `${countText(tail.leftOut)} left out: more than the page could hold`);
  find("tail-foot").replaceChildren(...parts);
}

// ---- streams ----

function noteRates(tail, state) {
  const all = { path: "", events: state.events };
  for (const stream of [all, ...state.streams]) {
    const marks = tail.rates.get(stream.path) ?? [];
    const last = marks.at(-1);
    // What was there before the page came arrives at once and says nothing of the rate.
    if (state.at_ms < 1500) continue;
    if (!last || state.at_ms - last.at >= 950) marks.push({ at: state.at_ms, events: num(stream.events) });
    if (marks.length > SPARKS + 1) marks.shift();
    tail.rates.set(stream.path, marks);
  }
  // Of streams that are not told any more nothing is kept.
  const told = new Set(["", ...state.streams.map((stream) => stream.path)]);
  for (const path of tail.rates.keys()) if (!told.has(path)) tail.rates.delete(path);
}

// Events a second, over the last seconds.
function rateOf(marks) {
  const last = marks.at(-1);
  const first = marks.find((mark) => last.at - mark.at <= RATE_MS + 500);
  return last.at > first.at ? (1000 * (last.events - first.events)) / (last.at - first.at) : 0;
}

function rateText(rate) {
  return rate === 0 ? "0" : rate < 9.95 ? rate.toFixed(1) : countText(Math.round(rate));
}

const WIDTH = 84;
const HEIGHT = 16;

// The events of each of the last seconds, newest at the right, as high as its own highest.
function spark(marks) {
  const rates = marks.slice(1).map((mark, at) => (mark.events - marks[at].events) / (mark.at - marks[at].at));
  const most = Math.max(...rates, 1e-9);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const x = (at) => WIDTH - ((rates.length - 1 - at) * WIDTH) / (SPARKS - 1);
  line.setAttribute("points", rates.map((rate, at) => `${x(at).toFixed(1)},${(HEIGHT - 1 - (rate / most) * (HEIGHT - 2)).toFixed(1)}`).join(" "));
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  svg.append(line);
  return svg;
}

function drawStreams(tail) {
  if (tail !== live.tail || !live.shown) return;
  const { state } = tail;
  const { lost } = state;
  const all = { path: "", events: state.events, lost_events: lost.events, lost_packets: lost.packets, lost_packets_network: lost.packets_network };
  const streams = [...state.streams].sort((a, b) => a.path.localeCompare(b.path, "en", { numeric: true }));
  const more = num(state.more_streams) ? [el("tr", {}, el("td", { class: "name quiet", colspan: 7 }, `${countText(state.more_streams)} more streams with fewer events`))] : [];
  find("stream-table").tBodies[0].replaceChildren(streamRow(tail, all, "all"), ...streams.map((stream) => streamRow(tail, stream, null)), ...more);
}

function streamRow(tail, stream, label) {
  const marks = tail.rates.get(stream.path) ?? [];
  const tracerPackets = Math.max(0, num(stream.lost_packets) - num(stream.lost_packets_network));
  const lost = (key, count) => el("td", { "data-key": key, "data-count": count, class: num(count) ? "errors" : "zero" }, countText(count));
  const name = label ?? stream.path.split("/").at(-1);
  return el("tr", { class: label ? "whole" : null, "data-stream": label ? "" : stream.path },
    el("td", { class: "name", title: nameText(stream.path) }, el("bdi", {}, nameText(name))),
    el("td", { "data-key": "rate" }, marks.length ? rateText(rateOf(marks)) : "–"),
    el("td", { class: "spark-cell" }, marks.length > 2 ? spark(marks) : null),
    el("td", { "data-key": "events", "data-count": stream.events }, countText(stream.events)),
    lost("lost_events", stream.lost_events),
    lost("lost_packets", tracerPackets),
    lost("lost_packets_network", stream.lost_packets_network));
}

// ---- what the reader does ----

function showLive(shown) {
  live.shown = shown;
  document.body.dataset.view = shown ? "live" : "analysis";
  find("live-view").hidden = !shown;
  find("notices").hidden = shown;
  for (const link of document.querySelectorAll("#views a")) {
    if ((link.dataset.view === "live") === shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  find("title").textContent = shown ? "What is being recorded" : "Where the requests’ time went";
  find("cover").hidden = shown;
  document.title = "Throughline";
  drawSessions();
  drawTail();
  if (shown && live.tail?.state) drawStreams(live.tail);
}

function saveLive(parameters) {
  if (!live.shown) return;
  parameters.set("view", "live");
  if (!live.asked.session) return;
  for (const [key, value] of Object.entries(live.asked)) if (value) parameters.set(`live-${key}`, value);
}

function loadLive(parameters) {
  for (const key of Object.keys(live.asked)) live.asked[key] = parameters.get(`live-${key}`) ?? live.asked[key];
  if (!BEGINS.some(([value]) => value === live.asked.begin)) live.asked.begin = "60";
  live.shown = parameters.get("view") === "live";
}

function listenLive() {
  const { asked } = live;
  const begin = find("tail-begin");
  begin.replaceChildren(...BEGINS.map(([value, label]) => el("option", { value }, label)));
  begin.value = asked.begin;
  begin.addEventListener("change", () => ask({ begin: begin.value }));
  find("tail-names").value = asked.names;
  find("tail-where").value = asked.where;
  find("tail-filter").addEventListener("submit", (event) => {
    event.preventDefault();
    ask({ names: find("tail-names").value.trim(), where: find("tail-where").value.trim() });
  });
  for (const id of ["tail-names", "tail-where"]) {
    // The cross of a search field empties it without a submit.
    find(id).addEventListener("search", () => find("tail-filter").requestSubmit());
  }
  find("tail-pause").addEventListener("click", () => pause(!live.tail?.paused));
  find("tail-wrap").addEventListener("change", (event) => find("tail-table").classList.toggle("wrapped", event.target.checked));
  const scroll = find("tail-scroll");
  scroll.addEventListener("scroll", () => {
    live.sticks = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 30;
    find("tail-newest").hidden = live.sticks;
  });
  find("tail-table").tBodies[0].addEventListener("click", (event) => {
    if (getSelection().isCollapsed) event.target.closest("tr").classList.toggle("open");
  });
  find("tail-newest").addEventListener("click", () => {
    live.sticks = true;
    drawTail();
  });
  for (const link of document.querySelectorAll("#views a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      showLive(link.dataset.view === "live");
      saveView();
      if (answer) draw();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (!live.shown || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "p") pause(!live.tail?.paused);
    else if (event.key === "/" && live.tail) find("tail-names").focus();
    else return;
    event.preventDefault();
  });
  showLive(live.shown);
  lookForSessions();
  if (live.shown && asked.session) follow(asked.begin);
}
