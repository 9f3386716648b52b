// The last rounds of a connector as two rows of bars, duration above records, oldest at the left.
// A round with a failed table has a cross above it, so that colour is not the only sign.

import { clock, count, millis, plural } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 54;
const GAP = 40;
const TOP = 20;
const BOTTOM = 18;
const HEIGHT = TOP + 2 * ROW + GAP + BOTTOM;
const BAR_MAX = 18;

export function failed(round) {
  return round.tables.filter((table) => table.code !== undefined);
}

function outcome(round) {
  if (failed(round).length > 0) return "failed";
  return round.partial ? "partial" : "done";
}

export function sentence(round) {
  const parts = [
    `${clock(round.ended_ms)} UTC`,
    millis(round.duration_ms),
    plural(round.records, "record"),
    plural(round.tables.length, "table"),
  ];
  if (round.partial) parts.push("partial: ended by timeout");
  for (const table of failed(round)) parts.push(`${table.table}: ${table.code}`);
  return parts.join(", ");
}

export function draw(host, rounds) {
  const width = Math.max(240, host.clientWidth);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img" });
  svg.setAttribute("aria-label", summary(rounds));
  const step = Math.min(BAR_MAX, width / Math.max(rounds.length, 1));
  row(svg, rounds, width, step, TOP, (r) => r.duration_ms, (most) => `duration, at most ${millis(most)}`);
  row(svg, rounds, width, step, TOP + ROW + GAP, (r) => r.records, (most) => `records, at most ${count(most)}`);
  rounds.forEach((round, place) => {
    const x = place * step;
    if (outcome(round) === "failed") cross(svg, x + step / 2, TOP + ROW + 10);
    const area = element("rect", { x, y: TOP, width: step, height: 2 * ROW + GAP, class: "hover" });
    area.append(text("title", {}, sentence(round)));
    svg.append(area);
  });
  if (rounds.length > 0) {
    const y = HEIGHT - 4;
    const last = Math.min(width, rounds.length * step);
    svg.append(text("text", { x: 0, y }, `${clock(rounds[0].ended_ms)}`));
    if (last > 140) {
      const end = { x: last, y, "text-anchor": "end" };
      svg.append(text("text", end, `${clock(rounds[rounds.length - 1].ended_ms)} UTC`));
    }
  }
  host.replaceChildren(svg);
}

function row(svg, rounds, width, step, top, valueOf, label) {
  const most = Math.max(0, ...rounds.map(valueOf));
  svg.append(text("text", { x: 0, y: top - 6 }, label(most)));
  svg.append(element("line", { x1: 0, x2: width, y1: top + ROW, y2: top + ROW }));
  rounds.forEach((round, place) => {
    const height = most === 0 ? 1 : Math.max(1, (valueOf(round) / most) * ROW);
    svg.append(
      element("rect", {
        x: place * step + 1,
        y: top + ROW - height,
        width: Math.max(1, step - 2),
        height,
        class: outcome(round),
      }),
    );
  });
}

function cross(svg, x, y) {
  svg.append(element("path", { d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8`, class: "cross" }));
}

function summary(rounds) {
  const bad = rounds.filter((round) => outcome(round) === "failed").length;
  const partial = rounds.filter((round) => round.partial).length;
  const longest = Math.max(0, ...rounds.map((round) => round.duration_ms));
  return (
    `The last ${plural(rounds.length, "round")}: the longest took ${millis(longest)}, ` +
    `${bad} had a failed table, ${partial} ended by timeout.`
  );
}

function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function text(tag, attributes, content) {
  const made = element(tag, attributes);
  made.textContent = content;
  return made;
}
