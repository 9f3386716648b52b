// The page requests one overview of all connectors every few seconds, and details of the selected
// one only. It sends no request while it is not visible, and one request of a kind at a time.

import { Refused, call, forgetToken, get, keepToken, ofConnector, token, view } from "./api.js";
import { $, clock, count, setText, show, shownState } from "./dom.js";
import { Detail } from "./detail.js";
import { renderList, renderNodes, renderSummary } from "./list.js";

const EVERY_MS = 5_000;
const EVERY_MS_MAX = 60_000;
const LAG_TICKS = 2; // sends requests to the broker
const MAINTENANCE_TICKS = 2;
const NODES_TICKS = 6;
const LETTERS_TICKS = 12; // reads the topic

let overview = null;
let readBefore = new Map(); // name -> records and time of the overview before
let detail = null;
let ticks = 0;
let pauseMs = EVERY_MS;
let timer = null;
let isAsking = false;
let isAskedAgain = false;

// ------------------------------------------------------------ requests

async function tick() {
  clearTimeout(timer);
  if (isAsking) {
    isAskedAgain = true;
    return;
  }
  isAsking = true;
  isAskedAgain = false;
  let isSignedOut = false;
  try {
    overview = await get("/icefloe/v1/overview");
    noteRates(overview.connectors);
    pauseMs = EVERY_MS;
    render();
    sayMissing(overview.missing); // further requests may wait for the same nodes
    await Promise.all([askNodes(), askDetail()]);
    setTrouble(null);
    sayMissing(overview.missing);
    ticks += 1;
  } catch (error) {
    isSignedOut = error instanceof Refused && error.status === 401;
    if (isSignedOut) signIn();
    else setTrouble(error);
    pauseMs = Math.min(2 * pauseMs, EVERY_MS_MAX);
  } finally {
    isAsking = false;
  }
  if (isAskedAgain) await tick();
  else if (!isSignedOut && !document.hidden) timer = setTimeout(tick, pauseMs);
}

function noteRates(connectors) {
  const now = performance.now();
  for (const connector of connectors) {
    const before = readBefore.get(connector.name);
    const records = connector.records_read;
    const isKnown = before !== undefined && records !== null && before.records !== null && records >= before.records;
    connector.records_per_s = isKnown ? (1000 * (records - before.records)) / (now - before.at) : null;
  }
  readBefore = new Map(connectors.map((c) => [c.name, { records: c.records_read, at: now }]));
}

async function askNodes() {
  if (ticks % NODES_TICKS !== 0) return;
  renderNodes(overview.caller.node_role === null ? null : await get("/icefloe/v1/cluster"));
}

async function askDetail() {
  if (detail === null) return;
  const asked = detail;
  const due = (every) => asked.ticks % every === 0;
  const apply = async (path, set) => {
    try {
      const found = await get(path);
      if (detail === asked) set(found);
    } catch (error) {
      // it may have been deleted meanwhile, or its metrics are not available for a moment
      if (!(error instanceof Refused) || error.status === 401) throw error;
      if (error.status !== 404) asked.missing = error;
    }
  };
  asked.missing = null;
  await Promise.all([
    apply(ofConnector(asked.name, "/status"), (found) => asked.setStatus(found)),
    apply(view(asked.name, "rounds"), (found) => asked.setRounds(found.rounds)),
    apply(view(asked.name, "tables"), (found) => asked.setTables(found.tables)),
    due(MAINTENANCE_TICKS) ? apply(view(asked.name, "maintenance"), (found) => asked.setMaintenance(found)) : null,
    due(LAG_TICKS) ? apply(view(asked.name, "lag"), (found) => asked.setLag(found)) : null,
    due(LETTERS_TICKS) ? apply(view(asked.name, "config"), (found) => asked.setConfig(found)) : null,
    due(LETTERS_TICKS) ? apply(view(asked.name, "dead-letters"), (found) => asked.setLetters(found)) : null,
  ]);
  asked.ticks += 1;
  if (asked.missing !== null && detail === asked) throw asked.missing;
}

// ------------------------------------------------------------ display

function render() {
  show($("signin"), false);
  show($("status"), true);
  show($("forget"), token() !== null);
  const { name, node_role: role } = overview.caller;
  setText($("caller"), name === "everybody" ? "" : `signed in as ${name}${role ? `, ${role}` : ""}`);
  setText($("updated"), `${clock(Date.now())} UTC`);
  renderSummary(overview.connectors, overview.missing.length > 0);
  renderList(overview.connectors, detail?.name ?? null);
  renderChosen();
  const bad = overview.connectors.filter((c) => shownState(c) === "FAILED" || c.tasks.FAILED > 0).length;
  document.title = bad > 0 ? `(${count(bad)} failed) Icefloe` : "Icefloe";
}

function renderChosen() {
  if (detail === null) return;
  const found = overview.connectors.find((connector) => connector.name === detail.name);
  if (found === undefined) {
    say(`There is no connector ${detail.name}, or you may not read it.`);
    location.hash = "#/";
    return;
  }
  detail.setOverview(found);
}

function choose(isByHand) {
  const address = /^#\/connectors\/(.+)$/.exec(location.hash);
  let name = null;
  try {
    name = address === null ? null : decodeURIComponent(address[1]);
  } catch {
    name = null; // a malformed link
  }
  if (name === (detail?.name ?? null)) return;
  detail?.close();
  detail = name === null ? null : new Detail($("detail"), name, act);
  show($("detail"), detail !== null);
  $("panes").classList.toggle("chosen", detail !== null);
  if (overview !== null) {
    renderList(overview.connectors, name);
    renderChosen();
  }
  if (detail !== null) {
    detail.ticks = 0;
    if (isByHand) detail.title.focus();
  }
  tick();
}

function setTrouble(error) {
  const element = $("trouble");
  show(element, error !== null);
  if (error === null) return;
  const why = error instanceof Refused ? error.message : "the node does not answer";
  setText(element, `Not up to date: ${why}`);
}

// Nodes that run units but did not return metrics; their values are shown as dashes.
function sayMissing(missing) {
  if (missing.length === 0) return;
  show($("trouble"), true);
  setText($("trouble"), `No figures from ${missing.map((node) => `${node.worker_id} (${node.reason})`).join(", ")}`);
}

function say(text) {
  setText($("said"), text);
  show($("said"), true);
}

// ------------------------------------------------------------ actions

const MAINTENANCE = {
  "maintenance-run": ["run", null, "Starting maintenance of"],
  "maintenance-stop": ["stop", "Stop maintenance of", "Stopping maintenance of"],
};

const ACTIONS = {
  pause: ["PUT", "/pause", "Pause", "Pausing"],
  resume: ["PUT", "/resume", null, "Resuming"],
  "restart-failed": ["POST", "/restart?includeTasks=true&onlyFailed=true", null, "Restarting what failed of"],
  "restart-all": ["POST", "/restart?includeTasks=true&onlyFailed=false", "Restart all of", "Restarting all of"],
};

function request(what, name, task) {
  if (what === "restart-task") {
    return ["POST", ofConnector(name, `/tasks/${task}/restart`), null, `Restarting task ${task} of`];
  }
  if (what in MAINTENANCE) {
    const [rest, question, doing] = MAINTENANCE[what];
    return ["POST", view(name, `maintenance/${rest}`), question, doing];
  }
  const [method, rest, question, doing] = ACTIONS[what];
  return [method, ofConnector(name, rest), question, doing];
}

async function act(what, task) {
  const { name } = detail;
  const [method, path, question, doing] = request(what, name, task);
  if (question !== null && !(await confirmed(question, name))) return;
  try {
    await call(method, path);
    say(`${doing} ${name}: accepted.`);
  } catch (error) {
    say(`${doing} ${name}: refused, ${error.message}`);
  }
  tick();
}

function confirmed(question, name) {
  const dialog = $("confirm");
  setText($("confirm-what"), `${question} ${name}?`);
  setText($("confirm-yes"), question.split(" ")[0]);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

// ------------------------------------------------------------ sign-in

function signIn() {
  show($("status"), false);
  show($("signin"), true);
  show($("forget"), false);
  setText($("caller"), "");
  setText($("updated"), "");
  setTrouble(null);
  const why = token() === null ? "This node answers people it knows." : "This node does not know that token.";
  setText($("signin-why"), why);
  forgetToken();
  $("token").focus();
}

$("signin-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken($("token").value.trim());
  $("token").value = "";
  tick();
});
$("ask").addEventListener("click", () => {
  forgetToken();
  tick();
});
$("forget").addEventListener("click", () => {
  forgetToken();
  location.reload();
});
$("filter").addEventListener("input", () => {
  if (overview !== null) renderList(overview.connectors, detail?.name ?? null);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else tick();
});
window.addEventListener("hashchange", () => choose(true));

choose(false);
if (detail === null) tick();
