"""Lets Envoy wait: a denied request has to succeed by a single retry of Envoy's own.

The server admits one request each two seconds. Envoy retries a 429 once, after the time in the field that it is told to
read. A retry that comes too early is denied again, and then Envoy passes the 429 on.
"""

import time

import httpx

from report import ARGUMENTS, ENVOY, case, note


def ask(client, port, path, key):
    """Sends a request. Returns the response and the seconds that it took."""
    began = time.monotonic()
    response = client.get(f"http://127.0.0.1:{port}/{path}", headers={"x-key": key})
    return response, time.monotonic() - began


def attempts(response):
    """Returns how often Envoy sent the request to the server."""
    return int(response.headers["x-envoy-attempt-count"])


def told(response):
    """Returns the status, and the number of times that Envoy sent the request."""
    return f"{response.status_code} at attempt {attempts(response)}"


with httpx.Client(timeout=60) as client:
    for row in ARGUMENTS["rows"]:
        name = f"Envoy waits: `{row['format']}`, `{row['field']}` in {row['unit']}"
        key = f"{row['format']}-{row['field']}"
        first, _ = ask(client, row["port"], row["format"], key)
        case(name, ENVOY, "the first request", "200 at attempt 1", told(first))
        for number in range(2):
            again, took = ask(client, row["port"], row["format"], key)
            case(name, ENVOY, f"denied, then sent again, {number + 1}", "200 at attempt 2", told(again))
            note(name, f"admitted after {took:.1f} s")
    name = "Envoy does not wait: no field is named in its retry policy"
    ask(client, ARGUMENTS["hasty"], "ietf08", "hasty")
    hasty, _ = ask(client, ARGUMENTS["hasty"], "ietf08", "hasty")
    case(name, ENVOY, "denied, then sent again after 25 ms", "429 at attempt 2", told(hasty))
