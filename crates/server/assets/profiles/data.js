// Questions to the querier, and what is computed of its answers. Values are BigInt: sums of them are exact.

class Refused extends Error {
  constructor(method, status, { code, message }) {
    super(message || `${status}`);
    Object.assign(this, { method, status, code });
  }
}

async function ask(method, question, service = "querier.v1.QuerierService") {
  const headers = { "Content-Type": "application/json", ...(asked.tenant && { "X-Scope-OrgID": asked.tenant }) };
  const response = await fetch(`${service}/${method}`, { method: "POST", headers, body: JSON.stringify(question) });
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = { message: text.trim().slice(0, 300) };
  }
  if (!response.ok) throw new Refused(method, response.status, answer);
  return answer;
}

const labelValues = async (name, matchers, range) => (await ask("LabelValues", { name, matchers, ...range })).names ?? [];

const questionOf = (side, range) => ({ profileTypeID: asked.type, labelSelector: selectorOf(side), ...range });

// Nodes of a flame graph with their parents; [totals] and [selves] hold a value for each side.
function nodesOf(graph, isDiff) {
  const step = isDiff ? 7 : 4;
  const sides = isDiff ? [0, 3] : [0];
  let above = [];
  const nodes = [];
  for (const { values = [] } of graph.levels ?? []) {
    const ends = sides.map(() => 0n);
    const level = [];
    let parent = 0;
    for (let at = 0; at < values.length; at += step) {
      const value = (offset) => BigInt(values[at + offset]);
      const totals = sides.map((side) => value(side + 1));
      const begins = sides.map((side, n) => ends[n] + value(side));
      begins.forEach((begin, n) => { ends[n] = begin + totals[n]; });
      const begin = sum(begins);
      const end = begin + sum(totals);
      while (parent + 1 < above.length && above[parent].end <= begin) parent++;
      const node = { name: graph.names[Number(value(step - 1))], totals, selves: sides.map((side) => value(side + 2)), begin, end, parent: above[parent] ?? null };
      level.push(node);
      nodes.push(node);
    }
    above = level;
  }
  return nodes;
}

// Each function once: what ends in it, and all that it is part of; of recursion the outermost frame counts.
function functionsOf(nodes) {
  const functions = new Map();
  for (const node of nodes) {
    if (!node.parent) continue;
    let known = functions.get(node.name);
    if (!known) functions.set(node.name, known = { name: node.name, selves: node.selves.map(() => 0n), totals: node.selves.map(() => 0n) });
    let outer = node.parent;
    while (outer?.parent && outer.name !== node.name) outer = outer.parent;
    node.selves.forEach((self, n) => {
      known.selves[n] += self;
      if (!outer?.parent) known.totals[n] += node.totals[n];
    });
  }
  return [...functions.values()];
}

// ---- figures ----

const unitOf = (type) => type.split(":")[2] ?? "";

function amountText(value, unit = unitOf(asked.type)) {
  if (unit === "nanoseconds") return durationText(value);
  if (unit === "bytes") return bytesText(value);
  return countText(value);
}

function exactText(value) {
  return `${countText(value)} ${unitOf(asked.type)}`;
}

// Nanoseconds in a second of time: processors.
function rateText(value, stepMs) {
  const perSecond = Number(value) / (stepMs / 1000);
  if (unitOf(asked.type) !== "nanoseconds") return `${amountText(Math.round(perSecond))} a second`;
  const cores = perSecond / 1e9;
  return `${cores < 0.0995 ? cores.toPrecision(2) : cores < 9.95 ? cores.toFixed(2) : cores.toFixed(1)} cores`;
}

const share = (part, whole) => (whole > 0n ? Number(part) / Number(whole) : 0);

function changeText(points) {
  const text = (100 * Math.abs(points)).toFixed(2);
  return text === "0.00" ? "±0 %" : `${points < 0 ? "−" : "+"}${text} %`;
}
