// Rules: which sums of samples become metrics. One is made of a function, previewed over the time that is shown, and kept.

const FUNCTION_TESTS = { "": "none: all samples", exact: "the one named", prefix: "that begin with", regex: "that match", package: "of the package", file: "of the file" };
const RULES_SERVICE = "settings.v1.RecordingRulesService";
let rules = null; // null where the store keeps none
let edited = {}; // the rule in the dialog, as it was

const functionsOfRule = ({ throughline = {}, stacktraceFilter }) => {
  const exact = throughline.exact || stacktraceFilter?.functionName?.functionName;
  const said = { ...throughline, exact };
  const test = Object.keys(FUNCTION_TESTS).find((test) => test && said[test]) ?? "";
  return { test, text: said[test] ?? "", isSelf: throughline.isSelf ?? false, allLabels: throughline.allLabels ?? false };
};

async function loadRules() {
  try {
    rules = (await ask("ListRecordingRules", {}, RULES_SERVICE)).rules ?? [];
  } catch (error) {
    if (!(error instanceof Refused) || ![404, 501].includes(error.status)) throw error;
    rules = null;
  }
  find("rules").hidden = rules === null || !find("empty").hidden;
  for (const make of document.querySelectorAll("#functions .make")) make.hidden = rules === null;
  if (rules) drawRules();
  await loadReceivers();
}

function drawRules() {
  const head = ["Metric", "Functions", "Of", "Labels", ""];
  find("rule-table").tHead.replaceChildren(el("tr", {}, ...head.map((label) => el("th", { scope: "col" }, label))));
  const rows = rules.map((rule) => {
    const { test, text, isSelf, allLabels } = functionsOfRule(rule);
    const actions = rule.provisioned ? el("span", { class: "quiet" }, "of the configuration")
      : el("span", {}, el("button", { type: "button", class: "link", onclick: () => editRule({}, rule) }, "change"), " ", deleteButton(rule));
    return el("tr", { "data-rule": rule.id },
      el("td", { class: "path" }, nameText(rule.metricName || `by its type, ${rule.profileType}`)),
      el("td", { class: "path" }, test ? `${FUNCTION_TESTS[test]} ${nameText(text)}${isSelf ? ", self" : ""}` : "all samples"),
      el("td", { class: "path" }, ...(rule.matchers ?? []).map((matcher) => el("div", {}, nameText(matcher)))),
      el("td", { class: "path" }, allLabels ? "all" : (rule.groupBy ?? []).map(nameText).join(", ") || "none"),
      el("td", {}, actions));
  });
  find("rule-table").tBodies[0].replaceChildren(...(rows.length ? rows : [el("tr", {}, el("td", { class: "path", colspan: head.length }, "none yet"))]));
}

// Who gets the metrics, and how far behind each is: what the store says of itself as metrics.
async function loadReceivers() {
  const response = await fetch("metrics");
  const text = response.ok ? await response.text() : "";
  const receivers = new Map();
  for (const [, name, labels, value] of text.matchAll(/^throughline_export_(\w+)\{(.*)\} (\S+)$/gm)) {
    const of = {};
    for (const [, label, said] of labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) of[label] = said.replace(/\\(.)/g, (_, it) => it === "n" ? "\n" : it);
    if (!of.receiver || of.tenant !== (asked.tenant || "anonymous")) continue;
    if (!receivers.has(of.receiver)) receivers.set(of.receiver, { lost: 0 });
    const known = receivers.get(of.receiver);
    if (name === "lost_samples_total") known.lost += Number(value);
    else known[name] = Number(value);
  }
  const lines = [...receivers].map(([url, it]) => {
    const more = [[it.waiting_samples, "samples wait"], [it.parked_series, "series are refused"], [it.lost, "samples are lost"]];
    const told = more.filter(([count]) => count > 0).map(([count, what]) => `, ${count.toLocaleString("en")} ${what}`).join("");
    return el("li", it.failing ? { class: "warn" } : {}, `${nameText(url)}: ${Math.max(0, it.lag_seconds).toFixed(0)} s behind${told}${it.failing ? "; it takes nothing now" : ""}`);
  });
  find("receivers").replaceChildren(...lines);
  find("receivers").hidden = !lines.length;
}

function deleteButton(rule) {
  const button = el("button", { type: "button", class: "link" }, "delete");
  button.addEventListener("click", async () => {
    if (!button.dataset.asked) { button.dataset.asked = "1"; button.textContent = "really delete"; return; }
    try {
      await ask("DeleteRecordingRule", { id: rule.id }, RULES_SERVICE);
      await loadRules();
    } catch (error) {
      tell(error);
    }
  });
  return button;
}

// Opens the dialog with a rule, or with one for functions of what is shown.
function editRule(functions, rule) {
  edited = rule ?? { matchers: [`{__profile_type__=${JSON.stringify(asked.type)}}`, selectorOf(asked.now)], groupBy: ["service_name"], throughline: functions };
  const { test, text, isSelf, allLabels } = functionsOfRule(edited);
  find("rule-title").textContent = rule ? "Change a rule" : "Make a rule";
  find("rule-test").value = test;
  find("rule-text").value = text;
  find("rule-value").value = isSelf ? "self" : "";
  find("rule-matchers").value = (edited.matchers ?? []).join("\n");
  find("rule-labels").value = allLabels ? "*" : (edited.groupBy ?? []).join(", ");
  find("rule-metric").value = edited.metricName ?? "";
  find("rule").showModal();
  previewRule();
}

function ruleOfDialog() {
  const test = find("rule-test").value;
  const labels = find("rule-labels").value.trim();
  const throughline = { allLabels: labels === "*", isSelf: test !== "" && find("rule-value").value === "self", ...(test && { [test]: find("rule-text").value }) };
  return {
    id: edited.id ?? "", generation: edited.generation ?? "0", metricName: find("rule-metric").value.trim(), externalLabels: edited.externalLabels ?? [],
    matchers: find("rule-matchers").value.split("\n").map((line) => line.trim()).filter(Boolean),
    groupBy: labels === "*" ? [] : labels.split(",").map((label) => label.trim()).filter(Boolean), throughline,
  };
}

let previews = 0; // answers to earlier ones are dropped

async function previewRule() {
  const mine = ++previews;
  find("rule-text").hidden = find("rule-test").value === "";
  const preview = find("rule-preview");
  preview.textContent = "asking…";
  try {
    const { series, isMore, examples = [], clashes, lost } = await ask("preview", { rule: ruleOfDialog(), ...rangeOf(asked.now, Date.now()) }, "api/rules");
    if (mine !== previews) return;
    const notes = [clashes && `${countText(clashes)} samples lose a label whose name another has`, lost && `${countText(lost)} samples have labels that no receiver takes`].filter(Boolean);
    preview.replaceChildren(
      el("p", {}, el("strong", { id: "rule-series", "data-value": series }, `${isMore ? "more than " : ""}${countText(series)} series`), ` in the time that is shown${notes.length ? `; ${notes.join("; ")}` : ""}`),
      el("ul", {}, ...examples.map((example) => el("li", { "data-sum": example.sum }, `${nameText(example.series)} ${amountText(example.sum)}`))));
    find("rule-keep").disabled = false;
  } catch (error) {
    if (mine !== previews) return;
    preview.replaceChildren(el("p", { class: "errors" }, nameText(error.message)));
    find("rule-keep").disabled = true;
  }
}

async function keepRule(event) {
  event.preventDefault();
  try {
    await ask("UpsertRecordingRule", ruleOfDialog(), RULES_SERVICE);
    find("rule").close();
    await loadRules();
  } catch (error) {
    find("rule-preview").replaceChildren(el("p", { class: "errors" }, nameText(error.message)));
  }
}

function listenRules() {
  find("rule-test").replaceChildren(...Object.entries(FUNCTION_TESTS).map(([value, label]) => el("option", { value }, label)));
  find("make-rule").addEventListener("click", () => editRule({}));
  find("rule-leave").addEventListener("click", () => find("rule").close());
  find("rule-form").addEventListener("submit", keepRule);
  find("rule-form").addEventListener("change", previewRule);
}
