// The table of functions: of one selection, or how two differ.

const PAGE_OF_FUNCTIONS = 100;
let functions = { list: [], wholes: [] };
let rowsShown = PAGE_OF_FUNCTIONS;

// Values by key of a function, for cells and for the order. The base is side 0 of a comparison, and the last side is the selection.
function figureOf(key, { name, selves, totals }) {
  const last = selves.length - 1;
  const { wholes } = functions;
  const change = (values) => share(values[last], wholes[last]) - share(values[0], wholes[0]);
  return {
    name: () => name, self: () => selves[last], total: () => totals[last], base_self: () => selves[0], base_total: () => totals[0],
    self_change: () => change(selves), total_change: () => change(totals),
  }[key]();
}

const columnsOfTable = () => (functions.wholes.length === 2
  ? [["name", "Function"], ["total_change", "total, change"], ["base_total", "baseline"], ["total", "selection"], ["self_change", "self, change"], ["base_self", "baseline"], ["self", "selection"]]
  : [["name", "Function"], ["self", "self"], ["total", "total"]]);

function drawTable() {
  const isDiff = functions.wholes.length === 2;
  const sort = asked.sort && (isDiff || ["name", "self", "total"].includes(asked.sort)) ? asked.sort : isDiff ? "self_change" : "self";
  const isUp = sort === "name" ? !asked.up : asked.up;
  find("functions").tHead.replaceChildren(el("tr", {}, ...columnsOfTable().map(([key, label]) => {
    const order = key === sort ? (isUp ? "ascending" : "descending") : undefined;
    const button = el("button", { type: "button", class: "link", "data-sort": key, onclick: () => sortBy(key) }, `${label}${order ? (isUp ? " ↑" : " ↓") : ""}`);
    return el("th", { scope: "col", class: key === "name" ? "name" : null, "aria-sort": order }, button);
  })));
  const words = asked.search.trim().toLowerCase();
  const matching = functions.list.filter(({ name }) => name.toLowerCase().includes(words));
  // A change counts by its size, whatever its sign.
  const weight = (one) => { const figure = figureOf(sort, one); return sort.endsWith("_change") ? Math.abs(figure) : figure; };
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const sorted = matching.map((one) => [weight(one), one]).sort(([a, one], [b, other]) => (isUp ? 1 : -1) * compare(a, b) || compare(one.name, other.name)).map(([, one]) => one);
  const shown = sorted.slice(0, rowsShown);
  find("functions").tBodies[0].replaceChildren(...shown.map(rowOf));
  find("table-title").textContent = isDiff ? "What grew and what shrank" : "Functions";
  find("table-note").textContent = `${countText(sorted.length)}${words ? ` of ${countText(functions.list.length)}` : ""}${isDiff ? "; changes are of the share of all, so times of different lengths compare" : ""}`;
  const more = find("more");
  more.hidden = shown.length === sorted.length;
  more.textContent = `show ${countText(Math.min(PAGE_OF_FUNCTIONS, sorted.length - shown.length))} more of ${countText(sorted.length - shown.length)}`;
}

function rowOf(one) {
  const { wholes } = functions;
  const cells = columnsOfTable().slice(1).map(([key]) => {
    const figure = figureOf(key, one);
    if (key.endsWith("_change")) {
      return el("td", { "data-key": key, class: `change ${figure > 0 ? "grew" : figure < 0 ? "shrank" : ""}` }, changeText(figure));
    }
    const whole = key.startsWith("base_") ? wholes[0] : wholes[wholes.length - 1];
    const cell = el("td", { "data-key": key, "data-value": String(figure), title: exactText(figure), class: figure === 0n ? "zero" : null }, amountText(figure), el("span", { class: "share" }, shareText(Number(figure), Number(whole))));
    if (wholes.length === 1) {
      const meter = el("span", { class: "meter", hidden: figure === 0n });
      meter.style.width = `${100 * share(figure, whole)}%`;
      cell.append(meter);
    }
    return cell;
  });
  const find_it = el("button", { type: "button", class: "link function", title: "find it in the graph", onclick: () => search(one.name) }, el("bdi", {}, nameText(one.name)));
  const make = el("button", { type: "button", class: "link make", hidden: !rules, onclick: () => editRule({ exact: one.name }) }, "make a rule");
  return el("tr", { "data-function": one.name }, el("td", { class: "name" }, el("div", {}, find_it, make)), ...cells);
}

function sortBy(key) {
  asked.up = asked.sort === key ? !asked.up : false;
  asked.sort = key;
  saveAddress();
  drawTable();
  document.querySelector(`[data-sort="${key}"]`).focus();
}
