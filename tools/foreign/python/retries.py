"""Lets clients wait: a denied request has to succeed by a single retry of the client's own.

The server admits one request each two seconds. Envoy retries a 429 once, after the time in the field that it is told to
read. The clients of language-model services do so too: the one of OpenAI reads `retry-after-ms` first, and `retry-after`
if there is none. A retry that comes too early is denied again, and then Envoy passes the 429 on, and a client raises an
error.
"""

import time

import anthropic
import httpx
import openai

from report import ARGUMENTS, ENVOY, case, named, note

CLIENTS = {"openai": openai.OpenAI, "anthropic": anthropic.Anthropic}


def ask(client, port, path, key):
    """Sends a request through Envoy. Returns the status, and how often Envoy sent it."""
    response = client.get(f"http://127.0.0.1:{port}/{path}", headers={"x-key": key})
    return f"{response.status_code} at attempt {response.headers['x-envoy-attempt-count']}"


def timed(row, what):
    """Notes how long something takes, and returns what it returns."""
    began = time.monotonic()
    found = what()
    note(row, f"admitted after {time.monotonic() - began:.1f} s")
    return found


with httpx.Client(timeout=60) as client:
    for row in ARGUMENTS["rows"]:
        name = f"Envoy waits: `{row['format']}`, `{row['field']}` in {row['unit']}"
        asked = (client, row["port"], row["format"], f"{row['format']}-{row['field']}")
        case(name, ENVOY, "the first request", "200 at attempt 1", ask(*asked))
        for number in range(2):
            again = timed(name, lambda: ask(*asked))
            case(name, ENVOY, f"denied, then sent again, {number + 1}", "200 at attempt 2", again)
    name = "Envoy does not wait: no field is named in its retry policy"
    found = [ask(client, ARGUMENTS["hasty"], "ietf08", "hasty") for _ in range(2)]
    case(name, ENVOY, "denied, then sent again after 25 ms", ["200 at attempt 1", "429 at attempt 2"], found)

for package, connect in CLIENTS.items():
    for format_name in (package, "ietf08"):
        name, key = f"{package} waits: `{format_name}`", f"{package}-{format_name}"
        url, headers = f"http://{ARGUMENTS['server']}", {"x-key": key}
        with connect(base_url=url, api_key="none", max_retries=1, default_headers=headers) as client:
            get = lambda: client.get(f"/{format_name}", cast_to=str)
            case(name, named(package), "the first request", "hello\n", get())
            case(name, named(package), "denied, then sent again", "hello\n", timed(name, get))
        seen = httpx.get(f"{url}/seen/{key}").text
        case(name, named(package), "requests that arrived", "3", seen)
