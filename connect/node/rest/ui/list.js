// The summary, the list of connectors and the nodes.

import { $, count, h, keyed, perSecond, plural, setState, setText, show, shownState, span, utc } from "./dom.js";

export function address(name) {
  return `#/connectors/${encodeURIComponent(name)}`;
}

function taskTotal(connector) {
  return Object.values(connector.tasks).reduce((sum, number) => sum + number, 0);
}

function rank(connector) {
  if (shownState(connector) === "FAILED") return 0;
  if ((connector.tasks.FAILED ?? 0) > 0 || connector.tables_failed > 0) return 1;
  return 2;
}

function tasksText(connector) {
  const total = taskTotal(connector);
  const failed = connector.tasks.FAILED ?? 0;
  if (failed > 0) return `${failed} of ${total} failed`;
  const running = connector.tasks.RUNNING ?? 0;
  if (running === total || connector.state === "PAUSED") return count(total);
  return `${running} of ${total} running`;
}

// `isPartial`: metrics of some nodes are missing, so the sums are lower bounds.
export function renderSummary(connectors, isPartial) {
  const sum = (field) => {
    const known = connectors.map((c) => c[field]).filter((number) => number !== null);
    if (known.length === 0) return count(null);
    const total = known.reduce((found, number) => found + number, 0);
    return isPartial && known.length < connectors.length ? `≥ ${count(total)}` : count(total);
  };
  const oldest = connectors
    .filter((c) => c.valid_through_age_ms !== null && c.state === "RUNNING")
    .reduce((found, c) => (found && found.valid_through_age_ms >= c.valid_through_age_ms ? found : c), null);
  const byState = (state) => connectors.filter((c) => shownState(c) === state).length;
  const tasks = (state) => connectors.reduce((total, c) => total + (c.tasks[state] ?? 0), 0);
  const rest = connectors.length - byState("RUNNING") - byState("FAILED");
  const allTasks = connectors.reduce((total, c) => total + taskTotal(c), 0);
  const otherTasks = allTasks - tasks("RUNNING") - tasks("FAILED");
  const tiles = [
    ["Connectors", count(connectors.length), parts([byState("RUNNING"), "running"], [byState("FAILED"), "failed"], [rest, "other"])],
    ["Tasks", count(allTasks), parts([tasks("RUNNING"), "running"], [tasks("FAILED"), "failed"], [otherTasks, "other"])],
    ["Records/s", perSecond(rate(connectors)), `${sum("records_read")} read since the tasks began`],
    ["Not yet in files", sum("not_in_files"), "records"],
    ["In files, not yet committed", sum("in_files_not_committed"), "records"],
    ["Oldest valid-through", oldest ? span(oldest.valid_through_age_ms) : "–", oldest ? oldest.name : ""],
    ["Dead letters", sum("dead_letters"), "since the tasks began"],
  ];
  keyed(
    $("summary"),
    tiles,
    ([label]) => label,
    ([label]) => h("div", {}, h("dt", {}, label), h("dd", { class: "figure" }), h("dd", { class: "muted" })),
    (tile, [, figure, note]) => {
      setText(tile.children[1], figure);
      setText(tile.children[2], note);
      tile.classList.toggle("bad-text", note.includes(" failed"));
    },
  );
}

function rate(connectors) {
  const known = connectors.map((c) => c.records_per_s).filter((number) => number !== null);
  return known.length === 0 ? null : known.reduce((sum, number) => sum + number, 0);
}

function parts(...numbers) {
  return numbers
    .filter(([number]) => number > 0)
    .map(([number, what]) => `${count(number)} ${what}`)
    .join(", ");
}

export function renderList(connectors, chosen) {
  const wanted = $("filter").value.trim().toLowerCase();
  const fits = (c) =>
    wanted === "" ||
    c.name.toLowerCase().includes(wanted) ||
    shownState(c).toLowerCase().startsWith(wanted) ||
    (wanted.length > 2 && "failed".startsWith(wanted) && rank(c) < 2);
  const found = connectors
    .filter(fits)
    .sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  keyed($("connectors"), found, (c) => c.name, makeRow, (row, c) => updateRow(row, c, chosen));
  show($("none"), found.length === 0);
  setText(
    $("none"),
    connectors.length === 0 ? "There is no connector that you may read." : "No connector fits the filter.",
  );
}

function makeRow(connector) {
  const name = h("a", { href: address(connector.name) }, connector.name);
  const reason = h("p", { class: "reason" });
  const state = h("span", { class: "state" });
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name, reason),
    h("td", {}, state),
    h("td", {}),
    h("td", { class: "number extra" }),
    h("td", { class: "number extra" }),
    h("td", { class: "number" }),
    h("td", { class: "number extra" }),
  );
}

function updateRow(row, connector, chosen) {
  const [name, state, tasks, files, commits, through, letters] = row.children;
  const [link, reason] = name.children;
  if (connector.name === chosen) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
  row.classList.toggle("chosen", connector.name === chosen);
  setText(reason, connector.reason ?? "");
  reason.title = connector.reason ?? "";
  show(reason, connector.reason !== null);
  setState(state.firstElementChild, shownState(connector));
  setText(tasks, tasksText(connector));
  tasks.classList.toggle("bad-text", (connector.tasks.FAILED ?? 0) > 0);
  setText(files, count(connector.not_in_files));
  setText(commits, count(connector.in_files_not_committed));
  setText(through, span(connector.valid_through_age_ms));
  through.title = utc(connector.valid_through_ms);
  setText(letters, count(connector.dead_letters));
  letters.classList.toggle("bad-text", connector.dead_letters > 0);
}

// Fields that this version of the page does not know are ignored.
export function renderNodes(cluster) {
  show($("nodes"), cluster !== null);
  if (cluster === null) return;
  const nodes = cluster.nodes.map((node) => (typeof node === "string" ? { worker_id: node } : node));
  const placements = Object.values(cluster.placements ?? {});
  $("node-rows").columns = ["Node", "", "Processes", "Connectors", "Tasks"];
  keyed(
    $("node-rows"),
    nodes,
    (node) => node.worker_id,
    (node) => h("tr", {}, h("th", { scope: "row" }, node.worker_id), h("td"), h("td"), h("td", { class: "number" }), h("td", { class: "number" })),
    (row, node) => {
      const isOnNode = (place) => place === node.worker_id;
      const placed = placements.filter((placement) => isOnNode(placement.coordinator));
      const tasks = placements.reduce((total, placement) => total + placement.tasks.filter(isOnNode).length, 0);
      setText(row.children[1], node.worker_id === cluster.leader ? "leader" : "");
      setText(row.children[2], Array.isArray(node.ready) ? node.ready.join(", ") || "none is ready" : "–");
      setText(row.children[3], count(placed.length));
      setText(row.children[4], count(tasks));
    },
  );
  setText($("node"), `${cluster.group_id ?? "cluster"}: ${plural(nodes.length, "node")}`);
}
