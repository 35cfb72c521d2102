// The page: the address says what is asked, the querier's answers are drawn, and what the reader does changes the address.
//
// All text of answers reaches the document through textContent and attributes, never as markup.

const PREFERRED = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
let turn = 0; // of questions: answers to earlier ones are dropped

function tell(error) {
  const refused = error instanceof Refused;
  const strong = refused ? `${error.method}: ${error.code ?? error.status}` : error instanceof TypeError ? "The store does not answer." : "This cannot be shown.";
  find("notices").replaceChildren(el("p", { class: "notice warn", id: "error" }, el("strong", {}, strong), ` ${nameText(error.message)}`));
  find("live").dataset.state = "lost";
  find("live").textContent = "";
  if (refused && error.status === 401) {
    find("choices").hidden = find("tenant-choice").hidden = false;
    find("tenant").focus();
  }
}

async function reload(isStep = true) {
  const mine = ++turn;
  const now = Math.floor(Date.now() / 1000) * 1000;
  find("live").textContent = "asking…";
  find("live").dataset.state = "recording";
  try {
    follow(now);
    const done = await load(now, () => mine === turn);
    if (mine !== turn || !done) return;
    await loadRules();
    saveAddress(isStep);
    find("notices").replaceChildren();
    find("live").dataset.state = "ended";
    find("live").textContent = `asked at ${timeText(BigInt(now) * 1000000n, false).slice(11, 19)} UTC`;
  } catch (error) {
    if (mine !== turn) return;
    console.warn(error);
    saveAddress(isStep);
    drawSides();
    tell(error);
  }
}

// False when somebody has asked for something else meanwhile.
async function load(now, isCurrent) {
  const range = rangeOf(asked.now, now);
  const baseRange = asked.base && rangeOf(asked.base, now);
  const [{ profileTypes: everywhere = [] }, services] = await Promise.all([ask("ProfileTypes", { start: 0, end: 0 }), labelValues("service_name", [], widest(range, baseRange))]);
  if (!isCurrent()) return false;
  find("tenant-choice").hidden = !asked.tenant;
  find("tenant").value = asked.tenant;
  if (!everywhere.length) {
    drawEmpty();
    return true;
  }
  find("empty").hidden = true;
  find("choices").hidden = false;
  if (asked.now.service === null && services.length) asked.now.service = services[0];
  const matchers = [selectorOf(asked.now)];
  const [types, names] = await Promise.all([labelValues("__profile_type__", matchers, range), ask("LabelNames", { matchers, ...range })]);
  if (!isCurrent()) return false;
  const all = everywhere.map((type) => type.ID);
  if (!asked.type) asked.type = [PREFERRED, ...types.filter((type) => type.includes(":cpu:")), ...types].find((type) => types.includes(type)) ?? all[0];
  drawTypes(types.length ? types : all);
  const offered = (names.names ?? []).filter((name) => !name.startsWith("__") && name !== "service_name");
  drawSides();
  for (const panel of shownPanels()) drawChoices(panel, services, offered);
  const sides = [...(asked.base ? [[asked.base, baseRange]] : []), [asked.now, range]];
  const [graph, ...columns] = await Promise.all([graphOf(sides), ...sides.map(([side, time]) => columnsOf(side, time))]);
  if (!isCurrent()) return false;
  drawAnswer(sides, graph, columns);
  return true;
}

const widest = (range, other) => (other ? { start: Math.min(range.start, other.start), end: Math.max(range.end, other.end) } : range);

// The flame graph of a selection, or how two differ, as nodes; and the sum of each side.
async function graphOf(sides) {
  const questions = sides.map(([side, range]) => questionOf(side, range));
  if (questions.length === 1) {
    const { flamegraph = {} } = await ask("SelectMergeStacktraces", questions[0]);
    return { nodes: nodesOf(flamegraph, false), wholes: [BigInt(flamegraph.total ?? 0)] };
  }
  const { flamegraph = {} } = await ask("Diff", { left: questions[0], right: questions[1] });
  return { nodes: nodesOf(flamegraph, true), wholes: [BigInt(flamegraph.leftTicks ?? 0), BigInt(flamegraph.rightTicks ?? 0)] };
}

// ---- drawing ----

const shownPanels = () => ["base", "now"].filter((key) => asked[key]).map((key) => panels.get(key));

function drawSides() {
  find("sides").hidden = find("choices").hidden;
  find("sides").className = asked.base ? "two" : "one";
  panels.get("base").section.hidden = !asked.base;
  find("compare").querySelector('[value="other"]').hidden = asked.compare !== "other";
  find("compare").value = asked.compare;
  find("swap").hidden = !asked.base;
}

function drawTypes(types) {
  const known = types.includes(asked.type) ? types : [asked.type, ...types];
  find("type").replaceChildren(...known.map((type) => {
    const [name, sample, unit] = type.split(":");
    return el("option", { value: type, title: type }, nameText(`${name} · ${sample} (${unit})`));
  }));
  find("type").value = asked.type;
}

function drawAnswer(sides, { nodes, wholes }, columns) {
  const panelsShown = shownPanels();
  panelsShown.forEach((panel, n) => drawColumns(panel, columns[n], wholes[n]));
  document.title = `${nameText(asked.now.service || "all services")} – Profiles – Throughline`;
  functions = { list: functionsOf(nodes), wholes };
  rowsShown = PAGE_OF_FUNCTIONS;
  const isEmpty = wholes.every((whole) => whole === 0n);
  find("answer").hidden = false;
  const head = el("p", {}, el("strong", {}, "No samples in this time."), " Choose a longer one, or other labels.");
  for (const section of find("answer").querySelectorAll("section")) section.hidden = isEmpty;
  find("answer").querySelector(".nothing")?.remove();
  if (isEmpty) { head.className = "notice nothing"; find("answer").append(head); return; }
  const [[base, baseRange], [now, range]] = sides.length === 2 ? sides : [[], sides[0]];
  const isDifference = base && asked.view === "difference";
  find("view").hidden = !base;
  for (const input of find("view").querySelectorAll("input")) input.checked = input.value === asked.view;
  find("graph-note").textContent = isDifference ? "as wide as the selection; red: more of its own than in the baseline, blue: less, in full from 5 % of all on" : "";
  if (isDifference) drawGraphs([{ heading: "difference", address: wholes[1] > 0n && svgAddress(now, range, base, baseRange) }]);
  else drawGraphs(sides.map(([side, time], n) => ({ heading: sides.length === 1 ? asked.now.service || "all services" : n ? "Selection" : "Baseline", address: wholes[n] > 0n && svgAddress(side, time) })));
  drawTable();
}

function drawEmpty() {
  find("choices").hidden = find("sides").hidden = find("answer").hidden = true;
  const origin = location.origin;
  const commands = [
    ["This machine’s processes, as root", `throughline agent --send ${origin}`],
    ["A client of Pyroscope: its server address, here of Python", `pyroscope.configure(application_name="my.app", server_address="${origin}")`],
    ["OTLP profiles over HTTP, protobuf or JSON", `${origin}/v1development/profiles`],
    ["Folded stacks of any tool", `curl --data-binary @stacks.folded '${origin}/ingest?name=my.app&format=folded&from=now-10s&until=now'`],
  ];
  find("empty").replaceChildren(el("h2", {}, "No profile has come in the last seven days"), el("p", {}, "Clients push them to this address:"),
    ...commands.flatMap(([what, command]) => [el("h3", {}, what), el("pre", {}, el("code", {}, command))]));
  find("empty").hidden = false;
}

// ---- what the reader does ----

function search(words) {
  asked.search = words;
  find("search").value = words;
  rowsShown = PAGE_OF_FUNCTIONS;
  saveAddress();
  drawTable();
  highlight();
}

function compareWith(rule) {
  asked.compare = rule;
  asked.base = rule ? { ...asked.now } : null;
  asked.sort = "";
  asked.up = false;
  reload();
}

function start() {
  loadAddress();
  find("sides").append(panelOf("base").section, panelOf("now").section);
  find("search").value = asked.search;
  find("choices").addEventListener("submit", (event) => { event.preventDefault(); reload(); });
  find("tenant").addEventListener("change", () => { asked.tenant = find("tenant").value.trim(); asked.type = ""; asked.now.service = null; reload(); });
  find("type").addEventListener("change", () => { asked.type = find("type").value; reload(); });
  find("compare").addEventListener("change", () => compareWith(find("compare").value));
  find("swap").addEventListener("click", () => { [asked.base, asked.now, asked.compare] = [asked.now, asked.base, "other"]; reload(); });
  find("search").addEventListener("input", () => search(find("search").value));
  find("search").addEventListener("keydown", (event) => { if (event.key === "Escape") search(""); });
  find("unzoom").addEventListener("click", unzoom);
  listenRules();
  find("view").addEventListener("change", (event) => { asked.view = event.target.value; reload(); });
  find("more").addEventListener("click", () => { rowsShown += PAGE_OF_FUNCTIONS; drawTable(); });
  dark.addEventListener("change", () => reload(false));
  addEventListener("popstate", () => { loadAddress(); find("search").value = asked.search; reload(false); });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest?.("input, select, textarea")) return;
    if (event.key === "/") find("search").focus();
    else if (event.key === "Escape") unzoom();
    else if (event.key === "r") reload();
    else return;
    event.preventDefault();
  });
  reload(false);
}

start();
