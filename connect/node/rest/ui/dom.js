// Elements and texts. Data of the node becomes text nodes only, never HTML: other users write names
// of connectors and tables, traces and reasons.

export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function show(element, isShown) {
  element.hidden = !isShown;
}

// Make the children of `parent` those of `items`. A child is kept as long as its key exists, so
// focus, scroll position and expanded parts do not change.
export function keyed(parent, items, keyOf, make, update) {
  const wanted = new Map(items.map((item) => [String(keyOf(item)), item]));
  const known = new Map();
  for (const child of [...parent.children]) {
    if (wanted.has(child.dataset.key)) known.set(child.dataset.key, child);
    else child.remove();
  }
  let next = parent.firstElementChild;
  for (const [key, item] of wanted) {
    let child = known.get(key);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = key;
      for (const [place, label] of (parent.columns ?? []).entries()) {
        child.children[place].dataset.label = label; // for narrow screens, which have no columns
      }
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    update(child, item);
  }
}

// A table with a head; `body.columns` labels the cells on narrow screens.
export function table(columns, body) {
  body.columns = columns;
  const head = columns.map((column) => h("th", { scope: "col" }, column));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head)), body));
}

export function cells(...texts) {
  const [first, ...others] = texts;
  return h("tr", {}, h("th", { scope: "row" }, first), ...others.map((text) => h("td", {}, text)));
}

export const ROWS_MAX = 100;

export function more(total, none) {
  if (total === 0) return none;
  return total > ROWS_MAX ? `and ${count(total - ROWS_MAX)} more` : "";
}

const MARKS = {
  RUNNING: "ok",
  COMMITTED: "ok",
  COMPLETED: "ok",
  DONE: "ok",
  DUE: "warn",
  WAITING: "warn",
  FAILED: "bad",
  PAUSED: "idle",
  STOPPED: "idle",
  RESTARTING: "warn",
  UNASSIGNED: "warn",
};

export function setState(element, state) {
  setText(element, state.toLowerCase());
  element.className = `state ${MARKS[state] ?? "idle"}`;
}

// What the page shows as the state: Kafka Connect says RUNNING also if every task has failed.
export function shownState(connector) {
  const failed = connector.tasks.FAILED ?? 0;
  const isDown = failed > 0 && failed === Object.values(connector.tasks).reduce((sum, number) => sum + number, 0);
  return connector.state === "RUNNING" && isDown ? "FAILED" : connector.state;
}

// A link to the page of errors that the node serves.
export function helpFor(code) {
  const link = h("a", { class: "help", target: "_blank", rel: "noopener" }, "What to do");
  setHelp(link, code);
  return link;
}

export function setHelp(link, code) {
  show(link, code !== null);
  if (code !== null) link.href = `/ui/recovery.html#${encodeURIComponent(code)}`;
}

export function perSecond(number) {
  return number === null || number === undefined ? "–" : count(number < 10 ? Math.round(10 * number) / 10 : Math.round(number));
}

export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en");
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// A span of time in its two largest units.
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export function millis(ms) {
  return ms < 10_000 ? `${count(Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function utc(ms) {
  if (ms === null || ms === undefined) return "–";
  const date = new Date(ms);
  return Number.isNaN(date.valueOf()) ? "–" : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export function clock(ms) {
  return utc(ms).slice(11, 19);
}
