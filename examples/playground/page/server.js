// The connection to the server: requests, and the stream of events.

/** Sends a request with a JSON body. Returns whether it was accepted, and the errors by field otherwise. */
export async function request(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    return refused("the server does not answer");
  }
  const text = await response.text();
  const content = parsed(text);
  if (response.ok) {
    return { ok: true, errors: [], content };
  }
  return content?.errors ? { ok: false, errors: content.errors } : refused(`the server answered with ${response.status}`);
}

/** Sends a request to a limited service, as any client does. The server shows its response to all pages. */
export async function call(pane, cost) {
  try {
    const response = await fetch(`/limited/${pane}`, { headers: { "X-Cost": String(cost) }, cache: "no-store" });
    const text = await response.text();
    const errors = response.status === 422 ? parsed(text)?.errors ?? [] : [];
    return { ok: errors.length === 0, errors };
  } catch {
    return refused("the server does not answer");
  }
}

/** Receives the events of the server: `hello` with everything, `settings` and `tick`. Reconnects by itself. */
export function listen(handlers) {
  const source = new EventSource("/api/events");
  for (const [name, handle] of Object.entries(handlers)) {
    if (name !== "lost") {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  }
  source.addEventListener("error", () => handlers.lost());
}

function refused(message) {
  return { ok: false, errors: [{ field: "", value: "", message }] };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
