// Flame graphs: documents that the server draws with a script of their own, which zooms and searches. Here they get what that script does not do: keys,
// names for readers of screens, and a place in the address.

let graphs = []; // the documents that are loaded

const dark = matchMedia("(prefers-color-scheme: dark)");

function svgAddress(side, range, base, baseRange) {
  const parameters = { type: asked.type, selector: selectorOf(side), ...range, theme: dark.matches ? "dark" : "light" };
  if (base) Object.assign(parameters, { base_selector: selectorOf(base), base_start: baseRange.start, base_end: baseRange.end });
  if (asked.tenant) parameters.tenant = asked.tenant;
  // The documents' script reads its own parameters without taking + for a space.
  return `flame.svg?${Object.entries(parameters).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
}

// Shows documents; each has an address and a heading, or only a heading when there is nothing in it.
function drawGraphs(shown) {
  graphs = [];
  find("detail").textContent = "";
  const keep = find("graphs").style.minHeight;
  find("graphs").style.minHeight = `${find("graphs").offsetHeight}px`;
  find("graphs").replaceChildren(...shown.map(({ address, heading }) => {
    if (!address) return el("div", { class: "graph" }, el("h3", {}, heading), el("p", { class: "quiet" }, "No samples in this time."));
    const frame = el("iframe", { title: `Flame graph: ${heading}`, src: address });
    // Their script has its first turn after it is loaded.
    frame.addEventListener("load", () => setTimeout(() => opened(frame, keep), 0));
    return el("div", { class: "graph" }, shown.length > 1 ? el("h3", {}, heading) : null, el("div", { class: "window" }, frame));
  }));
  find("svg").hidden = shown.length !== 1 || !shown[0].address;
  if (shown[0]?.address) find("svg").href = shown[0].address;
}

function opened(frame, minHeight) {
  const page = frame.contentDocument;
  const frames = page?.getElementById("frames");
  find("graphs").style.minHeight = minHeight;
  if (!frames) {
    tell(new Error(`the flame graph cannot be shown: ${page?.documentElement?.textContent?.slice(0, 300) ?? "no answer"}`));
    frame.remove();
    return;
  }
  frame.height = page.documentElement.getAttribute("height");
  page.getElementById("search").setAttribute("display", "none"); // it asks with a window; the page has a field
  const boxes = boxesOf(frames);
  const graph = { page, window: frame.contentWindow, boxes, byGroup: new Map(boxes.map((box) => [box.group, box])) };
  graphs.push(graph);
  makeReachable(graph);
  page.addEventListener("click", (event) => {
    const box = boxAt(graph, event.target);
    if (box) { asked.frames = pathOf(box); focusBox(graph, box); }
    else if (event.target.id === "unzoom") asked.frames = [];
    else return;
    zoomed();
  });
  page.addEventListener("mouseover", (event) => {
    const box = boxAt(graph, event.target);
    if (box) find("detail").textContent = box.title;
  });
  page.addEventListener("keydown", (event) => keyInGraph(graph, event));
  if (asked.frames.length) zoomTo(graph, asked.frames);
  zoomed();
  highlight();
}

// Each drawn frame with its name and the one that it is below.
function boxesOf(frames) {
  const boxes = [...frames.children].map((group) => {
    const { "fg:x": x, "fg:w": w, y } = group.querySelector("rect").attributes;
    const title = group.querySelector("title").textContent;
    return { group, title, name: title.replace(/ \([^()]*\)$/, ""), x: Number(x.value), end: Number(x.value) + Number(w.value), y: Number(y.value), parent: null };
  }).sort((a, b) => a.y - b.y || a.x - b.x);
  let [above, level, y] = [[], [], null];
  for (const box of boxes) {
    if (box.y !== y) { [above, level, y] = [level, [], box.y]; above.at = 0; }
    while (above.at + 1 < above.length && above[above.at].end <= box.x) above.at++;
    box.parent = above[above.at] ?? null;
    level.push(box);
  }
  return boxes;
}

const boxAt = (graph, element) => graph.byGroup.get(element?.closest?.("#frames > *"));

// Names from the root, which is not one of them.
function pathOf(box) {
  const path = [];
  for (let at = box; at.parent; at = at.parent) path.unshift(at.name);
  return path;
}

function zoomTo(graph, path) {
  const box = graph.boxes.find((one) => one.name === path[path.length - 1] && pathOf(one).join("\n") === path.join("\n"));
  if (!box) return;
  graph.window.unzoom();
  graph.window.zoom(box.group);
}

function unzoom() {
  asked.frames = [];
  for (const graph of graphs) graph.window.unzoom();
  zoomed();
}

function zoomed() {
  find("unzoom").hidden = asked.frames.length === 0;
  saveAddress();
}

// ---- keys ----

function makeReachable(graph) {
  const root = graph.page.documentElement;
  root.setAttribute("role", "tree");
  root.setAttribute("aria-label", "Stacks. Arrow keys move, Enter zooms, Escape zooms out.");
  graph.boxes.forEach(({ group, title }, n) => {
    group.setAttribute("role", "treeitem");
    group.setAttribute("aria-label", title);
    group.setAttribute("tabindex", n === 0 ? "0" : "-1");
  });
}

function focusBox(graph, box) {
  if (!box) return;
  for (const { group } of graph.boxes) if (group.getAttribute("tabindex") === "0") group.setAttribute("tabindex", "-1");
  box.group.setAttribute("tabindex", "0");
  box.group.focus({ preventScroll: true });
  box.group.scrollIntoView({ block: "nearest" });
  box.group.querySelector("rect").dispatchEvent(new graph.window.MouseEvent("mouseover", { bubbles: true }));
}

function keyInGraph(graph, event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const box = boxAt(graph, graph.page.activeElement);
  const isShown = ({ group }) => !group.classList.contains("hide");
  const moves = {
    ArrowUp: () => box.parent,
    ArrowDown: () => graph.boxes.filter((one) => one.parent === box && isShown(one)).sort((a, b) => b.end - b.x - (a.end - a.x))[0],
    ArrowLeft: () => graph.boxes.filter((one) => one.y === box.y && one.end <= box.x && isShown(one)).pop(),
    ArrowRight: () => graph.boxes.find((one) => one.y === box.y && one.x >= box.end && isShown(one)),
  };
  if (box && moves[event.key]) focusBox(graph, moves[event.key]());
  else if (box && event.key === "Enter") box.group.querySelector("rect").dispatchEvent(new graph.window.MouseEvent("click", { bubbles: true }));
  else if (event.key === "Escape") unzoom();
  else if (event.key === "/") find("search").focus();
  else return;
  event.preventDefault();
}

// ---- search ----

// Their script matches titles, "name (1,234 ms, 5.67%)": the text has to begin in the name.
function highlight() {
  const words = asked.search.trim();
  const inName = words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/;/g, "\u037e").replace(/ /g, "\\s");
  const found = graphs.map(({ page, window: view }) => {
    if (view.searching) view.reset_search();
    view.searching = 0;
    page.getElementById("matched").classList.add("hide");
    if (words) view.search(new RegExp(`${inName}.* \\([\\d,]+ [^()]*\\)$`, "i"));
    if (!words) return "";
    return view.searching ? page.getElementById("matched").textContent.replace("Matched: ", "").replace("%", " %") : "not found";
  });
  find("found").textContent = found.join(" · ");
}
