// Exact figures and how a person reads them.
//
// A figure is a Number, or a decimal string where a Number could not hold it: JSON integers of 16 and more digits stay text,
// so that what stands in the page is what stood in the answer. num() is for drawing and sorting, String() for showing exactly.

// A key directly before a colon cannot be inside a JSON string: its quotes would be escaped there.
function parseAnswer(text) {
  return JSON.parse(text.replace(/"([a-z_]+)":\s*(-?\d{16,})(?=\s*[,}])/g, '"$1":"$2"'));
}

function num(figure) {
  return Number(figure ?? 0);
}

function sum(figures) {
  return figures.reduce((total, figure) => total + BigInt(figure ?? 0), 0n);
}

function trimmed(value, unit) {
  const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${value.toFixed(digits)} ${unit}`;
}

function durationText(nanoseconds) {
  const ns = num(nanoseconds);
  if (ns < 0) return `−${durationText(-ns)}`;
  if (ns < 999.5) return `${Math.round(ns)} ns`;
  if (ns < 999.5e3) return trimmed(ns / 1e3, "µs");
  if (ns < 999.5e6) return trimmed(ns / 1e6, "ms");
  if (ns < 60e9) return trimmed(ns / 1e9, "s");
  const seconds = Math.round(ns / 1e9);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  const minutes = Math.round(seconds / 60);
  return `${countText(Math.floor(minutes / 60))} h ${String(minutes % 60).padStart(2, "0")} min`;
}

function countText(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function exactNs(figure) {
  return `${countText(figure)} ns`;
}

function bytesText(bytes) {
  let value = num(bytes);
  if (value < 1024) return `${value} B`;
  let unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    if (value < 1023.5) break;
    value /= 1024;
    unit = next;
  }
  return trimmed(value, unit);
}

function shareText(part, whole) {
  if (!(whole > 0)) return "–";
  const percent = (100 * part) / whole;
  if (percent === 0) return "0 %";
  if (percent < 0.1) return "<0.1 %";
  return percent > 99.9 && percent < 100 ? ">99.9 %" : `${percent.toFixed(1)} %`;
}

// "2026-11-20 20:01:02.123" in UTC, to the millisecond or the nanosecond.
function timeText(epochNs, exact) {
  const ns = BigInt(epochNs);
  const milliseconds = ns / 1000000n;
  const text = new Date(Number(milliseconds)).toISOString().replace("T", " ").replace("Z", "");
  return exact ? `${text}${String(ns % 1000000n).padStart(6, "0")} UTC` : text;
}

// Names come from the traced system: characters that would move or hide their neighbours are shown as their code.
function nameText(name) {
  if (name === "") return "(no name)";
  return String(name).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}
