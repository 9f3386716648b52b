// Details of one connector. They are built when it is selected, and updated afterwards.

import { draw, failed } from "./chart.js";
import { ROWS_MAX, cells, clock, count, h, helpFor, keyed, millis, more, perSecond, setHelp, setState, setText, show, shownState, span, table, utc } from "./dom.js";
import { Maintenance } from "./maintenance.js";

export class Detail {
  // `act(what, task)` is called by the buttons.
  constructor(host, name, act) {
    this.name = name;
    this.rounds = [];
    this.act = act;
    this.title = h("h2", { id: "detail-title", tabindex: "-1" }, name);
    this.state = h("span", { class: "state" });
    this.worker = h("span", { class: "muted" });
    this.buttons = this.makeButtons();
    this.trace = new Trace();
    this.next = h("code");
    this.nextWhy = h("span");
    this.config = h("tbody");
    this.figures = h("dl", { class: "figures" });
    this.chart = h("div", { class: "chart" });
    this.noRounds = h("p", { class: "muted" }, "No round has ended since the node has run it.");
    this.roundList = h("tbody");
    this.roundTable = fold("The rounds as a table", table(["Ended (UTC)", "Duration", "Records", "Tables", "Outcome"], this.roundList));
    this.tasks = h("tbody");
    this.tables = h("tbody");
    this.tablesMore = h("p", { class: "muted" });
    this.partitions = h("tbody");
    this.partitionsMore = h("p", { class: "muted" });
    this.maintenance = new Maintenance(act);
    this.letters = h("tbody");
    this.lettersAbout = h("p", { class: "muted" });
    this.lettersTable = table(["Written (UTC)", "Came from", "Stage", "Reason"], this.letters);
    host.replaceChildren(
      h("p", { class: "back" }, h("a", { href: "#/" }, "All connectors")),
      h("div", { class: "title" }, this.title, this.state),
      this.worker,
      this.buttons.box,
      this.trace.element,
      h("p", { class: "next" }, this.nextWhy, " ", this.next),
      this.figures,
      h("h3", {}, "Rounds"),
      this.chart,
      this.legend(),
      this.noRounds,
      this.roundTable,
      h("h3", {}, "Tasks"),
      table(["Task", "State", "Node", ""], this.tasks),
      h("h3", {}, "Tables"),
      table(["Table", "Last outcome", "When (UTC)", "Records", "Files", "Took"], this.tables),
      this.tablesMore,
      ...this.maintenance.elements,
      h("h3", {}, "Dead letters"),
      this.lettersAbout,
      this.lettersTable,
      fold("Configuration", table(["Key", "Value"], this.config)),
      fold("Partitions", table(["Partition", "Committed", "End", "Not in files"], this.partitions), this.partitionsMore),
    );
    for (const part of [this.chart, this.key, this.noRounds, this.roundTable]) show(part, false); // not known yet
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.chart);
  }

  close() {
    this.observer.disconnect();
  }

  makeButtons() {
    const button = (what, label) => h("button", { type: "button", click: () => this.act(what, null) }, label);
    const found = {
      resume: button("resume", "Resume"),
      pause: button("pause", "Pause"),
      failed: button("restart-failed", "Restart what failed"),
      all: button("restart-all", "Restart all"),
    };
    const why = h("p", { class: "muted" });
    return { ...found, why, box: h("div", { class: "buttons" }, ...Object.values(found), why) };
  }

  legend() {
    const entry = (kind, label) => h("li", { class: kind }, label);
    this.key = h("ul", { class: "legend" }, entry("done", "committed"), entry("partial", "partial: ended by timeout"), entry("failed", "a table failed"));
    return this.key;
  }

  // The connector's entry in the overview: metrics, and the caller's role.
  setOverview(found) {
    const mayAct = found.role !== "read";
    const isResting = found.state === "PAUSED" || found.state === "STOPPED";
    const hasFailed = found.state === "FAILED" || (found.tasks.FAILED ?? 0) > 0;
    show(this.buttons.resume, mayAct && isResting);
    show(this.buttons.pause, mayAct && !isResting);
    show(this.buttons.failed, mayAct && hasFailed);
    show(this.buttons.all, mayAct && !isResting);
    show(this.buttons.why, !mayAct);
    setText(this.buttons.why, "You may read this connector; pausing and restarting need the role operate.");
    this.mayAct = mayAct;
    this.process = found.coordinator_process ?? null;
    setState(this.state, shownState(found));
    const [why, command] = nextCommand(found);
    setText(this.nextWhy, why);
    setText(this.next, command);
    this.setFigures([
      ["Records/s", perSecond(found.records_per_s), ""],
      ["Records read", count(found.records_read), "since the tasks began"],
      ["Not yet in files", count(found.not_in_files), "records"],
      ["In files, not yet committed", count(found.in_files_not_committed), "records"],
      ["Valid-through age", span(found.valid_through_age_ms), found.valid_through_ms === null ? "" : utc(found.valid_through_ms)],
      ["Dead letters", count(found.dead_letters), "since the tasks began"],
    ]);
  }

  setFigures(figures) {
    keyed(
      this.figures,
      figures,
      ([label]) => label,
      ([label]) => h("div", {}, h("dt", {}, label), h("dd", { class: "figure" }), h("dd", { class: "muted" })),
      (entry, [, figure, note]) => {
        setText(entry.children[1], figure);
        setText(entry.children[2], note);
      },
    );
  }

  setStatus(status) {
    const process = this.process ? `, process ${this.process}` : "";
    setText(this.worker, `runs on ${status.connector.worker_id}${process}`);
    this.trace.set(status.connector.trace ?? null);
    keyed(
      this.tasks,
      status.tasks,
      (task) => task.id,
      (task) => this.makeTask(task),
      (row, task) => {
        const [, state, worker, action] = row.children;
        setState(state.firstElementChild, task.state);
        row.trace.set(task.trace ?? null);
        setText(worker, task.worker_id);
        show(action.firstElementChild, this.mayAct && status.connector.state !== "PAUSED");
      },
    );
  }

  makeTask(task) {
    const trace = new Trace();
    const again = h(
      "button",
      { type: "button", "aria-label": `Restart task ${task.id}`, click: () => this.act("restart-task", task.id) },
      "Restart",
    );
    const row = h(
      "tr",
      {},
      h("th", { scope: "row" }, String(task.id)),
      h("td", {}, h("span", { class: "state" }), trace.element),
      h("td"),
      h("td", { class: "number" }, again),
    );
    row.trace = trace;
    return row;
  }

  setRounds(rounds) {
    const isNew = JSON.stringify(rounds) !== JSON.stringify(this.rounds);
    this.rounds = rounds;
    for (const part of [this.chart, this.key, this.roundTable]) show(part, rounds.length > 0);
    show(this.noRounds, rounds.length === 0);
    if (isNew) this.redraw();
    keyed(
      this.roundList,
      [...rounds].reverse(),
      (round) => `${round.commit_id}/${round.ended_ms}`,
      (round) => cells(clock(round.ended_ms), millis(round.duration_ms), count(round.records), count(round.tables.length), outcomes(round)),
      () => {},
    );
  }

  redraw() {
    if (this.rounds.length > 0 && !this.chart.hidden) draw(this.chart, this.rounds);
  }

  setTables(tables) {
    const order = (found) => (found.state === "FAILED" ? 0 : 1);
    const sorted = [...tables].sort((a, b) => order(a) - order(b) || (b.ended_ms ?? 0) - (a.ended_ms ?? 0) || (a.table < b.table ? -1 : 1));
    keyed(
      this.tables,
      sorted.slice(0, ROWS_MAX),
      (found) => found.table,
      (found) => {
        const outcome = h("td", {}, h("span", { class: "state" }), h("p", { class: "reason whole" }), helpFor(null));
        return h("tr", {}, h("th", { scope: "row" }, found.table), outcome, h("td"), h("td", { class: "number" }), h("td", { class: "number" }), h("td", { class: "number" }));
      },
      (row, found) => {
        const [, outcome, ended, records, files, took] = row.children;
        setState(outcome.firstElementChild, found.state);
        setText(outcome.children[1], outcomeText(found));
        setHelp(outcome.children[2], found.state === "FAILED" ? found.code : null);
        setText(ended, utc(found.ended_ms).replace(" UTC", ""));
        setText(records, count(found.records));
        setText(files, count(found.files));
        setText(took, found.duration_ms === undefined ? "–" : millis(found.duration_ms));
      },
    );
    setText(this.tablesMore, more(tables.length, "No table has been committed since the node has run it."));
  }

  setMaintenance(found) {
    this.maintenance.set(found, this.mayAct);
  }

  // Secrets are masked by the node.
  setConfig(config) {
    keyed(
      this.config,
      Object.entries(config).sort(([a], [b]) => (a < b ? -1 : 1)),
      ([key]) => key,
      ([key]) => cells(key, ""),
      (row, [, value]) => setText(row.children[1], value),
    );
  }

  setLag(lag) {
    const sorted = [...lag.partitions].sort((a, b) => b.lag - a.lag || (a.topic < b.topic ? -1 : 1) || a.partition - b.partition);
    keyed(
      this.partitions,
      sorted.slice(0, ROWS_MAX),
      (p) => `${p.topic}/${p.partition}`,
      (p) => cells(`${p.topic}/${p.partition}`, "", "", ""),
      (row, p) => {
        setText(row.children[1], count(p.committed_offset));
        setText(row.children[2], count(p.end_offset));
        setText(row.children[3], count(p.lag));
      },
    );
    setText(this.partitionsMore, more(sorted.length, "It reads no partition."));
  }

  setLetters(found) {
    setText(
      this.lettersAbout,
      found.topic === null ? "The connector names no dead letter topic." : `Topic ${found.topic}: the newest ${count(found.last.length)}, without their content.`,
    );
    show(this.lettersTable, found.last.length > 0);
    keyed(
      this.letters,
      found.last,
      (letter) => `${letter.partition}/${letter.offset}`,
      (letter) => cells(utc(letter.timestamp_ms).replace(" UTC", ""), place(letter), letter.stage ?? "–", letter.reason ?? "–"),
      () => {},
    );
  }
}

// A trace: its first line names the cause; the other lines are collapsed.
class Trace {
  constructor() {
    this.cause = h("span");
    this.text = h("pre", { tabindex: "0", role: "region", "aria-label": "Trace" });
    this.help = helpFor(null);
    const details = h("details", { class: "trace" }, h("summary", {}, this.cause), this.text);
    this.element = h("div", { hidden: "" }, details, this.help);
  }

  set(trace) {
    show(this.element, trace !== null);
    setHelp(this.help, /^\w+ \((\w+)\)/.exec(trace ?? "")?.[1] ?? null);
    setText(this.cause, (trace ?? "").split("\n", 1)[0]);
    setText(this.text, trace ?? "");
  }
}

// What an operator does next, and why.
function nextCommand(found) {
  const name = /^[\w.-]+$/.test(found.name) ? found.name : `'${found.name.replaceAll("'", "'\\''")}'`;
  if (shownState(found) === "FAILED" || (found.tasks.FAILED ?? 0) > 0) return ["When the cause is fixed:", `icefloe restart ${name} --include-tasks --only-failed`];
  if (found.tables_failed > 0) return ["Tables that are not committed:", `icefloe tables list ${name}`];
  if (found.state === "PAUSED" || found.state === "STOPPED") return ["To continue:", `icefloe resume ${name}`];
  if (found.dead_letters > 0) return ["Dead letters:", `icefloe dlq list ${name}`];
  return ["More:", `icefloe describe ${name}`];
}

function fold(label, ...content) {
  return h("details", { class: "fold" }, h("summary", {}, label), ...content);
}

function outcomeText(found) {
  if (found.state === "FAILED") return `${found.code}: ${found.message}`;
  return found.snapshot_id === null ? "nothing new" : `snapshot ${found.snapshot_id}`;
}

function outcomes(round) {
  const bad = failed(round);
  if (bad.length > 0) return bad.map((found) => `${found.table}: ${found.code}`).join(", ");
  return round.partial ? "partial" : "committed";
}

function place(letter) {
  const source = letter.source_topic === null ? "" : `${letter.source_topic}/${letter.source_partition ?? "?"} at ${letter.source_offset ?? "?"}`;
  return letter.table === null || letter.table === undefined ? source || "–" : `${source} for ${letter.table}`;
}
