"use strict";

/* Data: labels [name, module, kind, inlined] and nodes in preorder as label, depth, self value. */
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const ROW = 19;
const graph = byId("graph"), tip = byId("tip"), detail = byId("detail"), search = byId("search");

const KINDS = { go: "Go", rust: "Rust", cpython: "Python", v8js: "JavaScript", jvm: "JVM", luajit: "LuaJIT", dotnet: ".NET", php: "PHP", other: "other" };

function node(label, parent) {
  return { label, parent, depth: parent ? parent.depth + 1 : 0, self: 0, total: 0, children: [] };
}

/* The tree as it was sent: processes below one root. */
function down() {
  const root = node(-1, null), path = [root];
  for (let at = 0; at < data.nodes.length; at += 3) {
    const parent = path[data.nodes[at + 1]];
    const made = node(data.nodes[at], parent);
    made.self = data.nodes[at + 2];
    parent.children.push(made);
    path[made.depth] = made;
  }
  return sum(root);
}

/* The same stacks turned round: leaves below the root, callers below them. */
function up(from) {
  const root = node(-1, null), below = new Map([[root, new Map()]]), rest = [from];
  while (rest.length) {
    const leaf = rest.pop();
    rest.push(...leaf.children);
    if (!leaf.self) continue;
    let at = root;
    for (let frame = leaf; frame.parent; frame = frame.parent) {
      const known = below.get(at);
      if (!known.has(frame.label)) {
        const made = node(frame.label, at);
        at.children.push(made);
        known.set(frame.label, made);
        below.set(made, new Map());
      }
      at = known.get(frame.label);
    }
    at.self += leaf.self;
  }
  return sum(root);
}

function sum(root) {
  const order = [root];
  for (let at = 0; at < order.length; at++) for (const child of order[at].children) order.push(child);
  for (const one of order.reverse()) {
    one.total = one.self + one.children.reduce((all, child) => all + child.total, 0);
    one.children.sort((a, b) => b.total - a.total);
  }
  return root;
}

const roots = { down: down() };
let root = roots.down, zoomed = root, drawn = [], current = null, matcher = null;

function name(one) {
  return one.label < 0 ? "all" : data.labels[one.label][0];
}

function kind(one) {
  if (one.label < 0) return "all";
  const word = data.labels[one.label][2];
  return data.kinds.includes(word) ? word : "other";
}

function amount(value) {
  if (data.unit === "nanoseconds") {
    if (value >= 1e9) return (value / 1e9).toFixed(value >= 1e10 ? 1 : 2) + " s";
    if (value >= 1e6) return (value / 1e6).toFixed(1) + " ms";
    return (value / 1e3).toFixed(1) + " µs";
  }
  if (data.unit === "bytes" && value >= 1024) {
    return value >= 1048576 ? (value / 1048576).toFixed(1) + " MiB" : (value / 1024).toFixed(1) + " KiB";
  }
  return value.toLocaleString("en") + (data.unit ? " " + data.unit : "");
}

function share(value) {
  return root.total ? (100 * value / root.total).toFixed(value * 1000 < root.total ? 2 : 1) + " %" : "0 %";
}

function draw() {
  const width = graph.clientWidth || 1, pieces = document.createDocumentFragment();
  const focused = graph.contains(document.activeElement);
  drawn = [];
  let deepest = 0;
  function add(one, left, wide, above) {
    const box = document.createElement("div"), label = data.labels[one.label];
    box.className = "frame" + (above ? " above" : "") + (label && label[3] ? " inlined" : "");
    box.dataset.kind = kind(one);
    box.style.left = left + "px";
    box.style.width = Math.max(wide, 1) + "px";
    box.style.top = one.depth * ROW + "px";
    box.tabIndex = -1;
    box.setAttribute("role", "treeitem");
    box.setAttribute("aria-level", one.depth + 1);
    box.setAttribute("aria-label", `${name(one)}, ${share(one.total)}`);
    if (wide > 24) box.textContent = name(one); else box.classList.add("small");
    if (matcher && one.label >= 0 && matcher(label)) box.classList.add("match");
    box.node = one;
    one.box = box;
    drawn.push(one);
    pieces.append(box);
    deepest = Math.max(deepest, one.depth);
  }
  for (let one = zoomed.parent; one; one = one.parent) add(one, 0, width, true);
  const rest = [[zoomed, 0, width]];
  while (rest.length) {
    const [one, left, wide] = rest.pop();
    add(one, left, wide, false);
    let at = left;
    for (const child of one.children) {
      const part = wide * child.total / one.total;
      if (part >= 0.6) rest.push([child, at, part]);
      at += part;
    }
  }
  graph.replaceChildren(pieces);
  graph.style.height = (deepest + 1) * ROW + "px";
  graph.classList.toggle("searching", Boolean(matcher));
  byId("reset").hidden = zoomed === root;
  if (!current || !drawn.includes(current)) current = zoomed;
  current.box.tabIndex = 0;
  if (focused) current.box.focus({ preventScroll: true });
}

function describe(one) {
  const label = data.labels[one.label] || ["", "", "", false];
  const parts = [label[1], (KINDS[label[2]] || label[2]) + (label[3] ? ", inlined" : "")].filter(Boolean);
  const cost = `${amount(one.total)} (${share(one.total)})` + (one.self && root === roots.down ? `, itself ${amount(one.self)} (${share(one.self)})` : "");
  return { name: name(one), cost, where: parts.join(" · ") };
}

function show(one, x, y) {
  const said = describe(one);
  detail.textContent = `${said.name} — ${said.cost}${said.where ? " — " + said.where : ""}`;
  if (x === undefined) { tip.hidden = true; return; }
  const title = document.createElement("strong"), cost = document.createElement("span"), where = document.createElement("span");
  title.textContent = said.name;
  cost.textContent = said.cost;
  where.textContent = said.where;
  tip.replaceChildren(title, cost, where);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
}

function zoom(one) {
  zoomed = current = one;
  tip.hidden = true;
  draw();
show(root);
  show(one);
}

function choose(one) {
  if (!one || !drawn.includes(one)) return;
  current.box.tabIndex = -1;
  current = one;
  one.box.tabIndex = 0;
  one.box.focus();
}

function beside(step) {
  const row = drawn.filter(one => one.depth === current.depth).sort((a, b) => parseFloat(a.box.style.left) - parseFloat(b.box.style.left));
  return row[row.indexOf(current) + step];
}

function find() {
  const text = search.value.trim().toLowerCase();
  matcher = text ? label => label[0].toLowerCase().includes(text) || label[1].toLowerCase().includes(text) : null;
  let found = 0;
  if (matcher) {
    const rest = [root];
    while (rest.length) {
      const one = rest.pop();
      if (one.label >= 0 && matcher(data.labels[one.label])) found += one.total; else rest.push(...one.children);
    }
  }
  byId("found").textContent = matcher ? `${amount(found)} (${share(found)})` : "";
  draw();
show(root);
}

function turn(view) {
  roots.up ??= up(roots.down);
  root = roots[view];
  document.querySelector(`#view input[value="${view}"]`).checked = true;
  current = null;
  zoomed = root;
  find();
}

graph.addEventListener("click", event => { const box = event.target.closest(".frame"); if (box) zoom(box.node); });
graph.addEventListener("mousemove", event => {
  const box = event.target.closest(".frame");
  if (box) show(box.node, event.clientX, event.clientY); else tip.hidden = true;
});
graph.addEventListener("mouseleave", () => { tip.hidden = true; });
graph.addEventListener("focusin", event => { const box = event.target.closest(".frame"); if (box) show(box.node); });
graph.addEventListener("keydown", event => {
  const moves = {
    ArrowUp: () => choose(current.parent),
    ArrowDown: () => choose(current.children.find(child => drawn.includes(child))),
    ArrowLeft: () => choose(beside(-1)),
    ArrowRight: () => choose(beside(1)),
    Enter: () => zoom(current),
    " ": () => zoom(current),
  };
  if (moves[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    moves[event.key]();
  }
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === search;
  if (event.key === "Escape") { if (typing && search.value) { search.value = ""; find(); } else zoom(root); }
  else if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
  else if (event.key === "i" && !typing) turn(root === roots.down ? "up" : "down");
});
search.addEventListener("input", find);
byId("reset").addEventListener("click", () => zoom(root));
for (const choice of document.querySelectorAll("#view input")) choice.addEventListener("change", () => turn(choice.value));
addEventListener("resize", draw);

byId("title").textContent = data.title;
byId("cover").textContent = data.cover;
if (data.notices.length) {
  const line = document.createElement("p");
  line.className = "notice";
  line.textContent = data.notices.join(" ");
  byId("notices").append(line);
}
for (const word of data.kinds.filter(word => word !== "process")) {
  const item = document.createElement("li"), swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.dataset.kind = word;
  item.append(swatch, KINDS[word] || word);
  byId("legend").append(item);
}
draw();
show(root);
