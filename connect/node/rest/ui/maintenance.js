// Maintenance of the connector's tables: what is due, what runs, and what was done last.

import { ROWS_MAX, cells, count, h, keyed, setState, setText, show, table, utc } from "./dom.js";

const NUMBERS = {
  rewritten_files: "data files rewritten",
  rewritten_bytes: "bytes",
  added_files: "new files",
  removed_delete_files: "delete files removed",
  rewritten_manifests: "manifests rewritten",
  orphan_files: "orphan files deleted",
  failed_files: "files not rewritten",
  lost_commits: "commits lost against others",
};

export class Maintenance {
  // `act(what, task)` is called by the buttons.
  constructor(act) {
    const button = (what, label) => h("button", { type: "button", hidden: "", click: () => act(what, null) }, label);
    this.state = h("span", { class: "state", hidden: "" });
    this.run = button("maintenance-run", "Run maintenance now");
    this.stop = button("maintenance-stop", "Stop maintenance");
    this.about = h("p", { class: "muted" });
    this.rows = h("tbody");
    this.table = table(["Table", "Work", "Last run", "Ended (UTC)", "Due files", "Result"], this.rows);
    this.elements = [
      h("div", { class: "heading" }, h("h3", {}, "Maintenance"), this.state),
      this.about,
      this.table,
      h("div", { class: "buttons" }, this.run, this.stop),
    ];
    show(this.table, false);
  }

  set(found, mayAct) {
    const isEnabled = found.state !== "DISABLED";
    const isAllowed = isEnabled && found.state !== "NOT_ALLOWED";
    setState(this.state, found.state);
    show(this.state, isAllowed);
    show(this.run, mayAct && isAllowed && found.state !== "RUNNING");
    show(this.stop, mayAct && isAllowed && found.state !== "STOPPED");
    const rows = entries(found);
    setText(this.about, about(found, rows.length));
    show(this.table, rows.length > 0);
    keyed(this.rows, rows.slice(0, ROWS_MAX), (one) => one.key, makeRow, updateRow);
  }
}

// One entry for each work of each table; the failed ones first, then those that run.
function entries(found) {
  const byKey = new Map();
  const entry = ({ table: name, work }) => {
    const key = `${name}/${work}`;
    if (!byKey.has(key)) byKey.set(key, { key, name, work, due: null, last: null });
    return byKey.get(key);
  };
  for (const one of found.due) entry(one).due = one.files;
  for (const one of found.results) entry(one).last = one;
  const places = ["FAILED", "RUNNING"];
  const rank = (one) => (places.indexOf(one.last?.state) + 1 || 3);
  return [...byKey.values()].sort((a, b) => rank(a) - rank(b) || (a.key < b.key ? -1 : 1));
}

function makeRow({ name, work }) {
  const row = cells(name, work, "", "", "", "");
  row.children[2].append(h("span", { class: "state" }));
  row.children[5].append(h("p", { class: "reason whole" }));
  return row;
}

function updateRow(row, { due, last }) {
  const hasEnded = last !== null && last.state !== "RUNNING";
  setState(row.children[2].firstElementChild, last?.state ?? "DUE");
  setText(row.children[3], hasEnded ? utc(last.time_ms).replace(" UTC", "") : "–");
  setText(row.children[4], count(due));
  setText(row.children[5].firstElementChild, hasEnded ? result(last) : "–");
}

function result(last) {
  if (last.state === "FAILED") return `${last.code}: ${last.message}`;
  const parts = Object.entries(NUMBERS).filter(([key]) => last[key] > 0);
  return parts.map(([key, label]) => `${count(last[key])} ${label}`).join(", ") || "nothing to do";
}

function about(found, rows) {
  if (found.state === "DISABLED") return "No work of a maintenance process is enabled, or the connector does not run.";
  if (found.state === "NOT_ALLOWED") return "The node's property icefloe.maintenance.enabled does not allow it.";
  const hidden = rows > ROWS_MAX ? ` ${count(rows - ROWS_MAX)} more rows are not shown.` : "";
  return `${count(found.bytes_last_hour)} of ${count(found.bytes_per_hour)} bytes were rewritten in the last hour.${hidden}`;
}
