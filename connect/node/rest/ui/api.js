// Calls to the node that has served this page.
//
// Without a token the browser adds the user's stored credentials (name and password, a certificate)
// and asks for a password itself. With a token it sends no other credentials, so it never asks.

const TOKEN = "icefloe.token";
const TIMEOUT_MS = 20_000;
let hasAnswered = false; // until then the browser may be waiting for its user's password

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(text) {
  sessionStorage.setItem(TOKEN, text);
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}

export async function call(method, path) {
  const kept = token();
  const headers = { Accept: "application/json" };
  if (kept !== null) headers.Authorization = `Bearer ${kept}`;
  const answer = await fetch(path, {
    method,
    headers,
    credentials: kept === null ? "same-origin" : "omit",
    cache: "no-store",
    redirect: "error",
    signal: hasAnswered ? AbortSignal.timeout(TIMEOUT_MS) : undefined,
  });
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, message(text) ?? `HTTP ${answer.status}`);
  hasAnswered = true;
  return text === "" ? null : parsed(text);
}

// JSON with whole numbers that a double cannot hold, such as snapshot ids, kept as their text.
function parsed(text) {
  const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  return JSON.parse(text.replace(tokens, (token) => (/^-?\d{16,}$/.test(token) ? `"${token}"` : token)));
}

export const get = (path) => call("GET", path);

export function ofConnector(name, rest = "") {
  return `/connectors/${encodeURIComponent(name)}${rest}`;
}

export function view(name, what) {
  return `/icefloe/v1/connectors/${encodeURIComponent(name)}/${what}`;
}

function message(text) {
  try {
    return JSON.parse(text).message;
  } catch {
    return null;
  }
}
