"""Lets clients wait: a denied request has to succeed by a single retry of the client's own.

The server admits one request each two seconds. Envoy retries a 429 once, after the time in the field that it is told to
read. The clients of language-model services do so too: the one of OpenAI reads `retry-after-ms` first, and `retry-after`
if there is none. A retry that comes too early is denied again, and then Envoy passes the 429 on, and a client raises an
error.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import anthropic
import httpx
import openai

from report import ARGUMENTS, ENVOY, case, named, note

CLIENTS = {"openai": openai.OpenAI, "anthropic": anthropic.Anthropic}


def ask(client, port, path, key):
    """Sends a request through Envoy. Returns the status, and how often Envoy sent it."""
    response = client.get(f"http://127.0.0.1:{port}/{path}", headers={"x-key": key})
    return f"{response.status_code} at attempt {response.headers['x-envoy-attempt-count']}"


def thrice(what):
    """Does something three times. Returns what it returned, each with the seconds that it took."""
    found = []
    for _ in range(3):
        began = time.monotonic()
        found.append((what(), time.monotonic() - began))
    return found


def by_envoy(row):
    """Lets Envoy wait for the field of this row."""
    with httpx.Client(timeout=60) as client:
        return thrice(lambda: ask(client, row["port"], row["format"], f"{row['format']}-{row['field']}"))


def by_package(package, format_name):
    """Lets a client wait for the fields of this format. Returns also how many requests arrived."""
    url, key = f"http://{ARGUMENTS['server']}", f"{package}-{format_name}"
    with CLIENTS[package](base_url=url, api_key="none", max_retries=1, default_headers={"x-key": key}) as client:
        return thrice(lambda: client.get(f"/{format_name}", cast_to=str)), httpx.get(f"{url}/seen/{key}").text


def tell(name, client, found, first, again):
    """Counts the first answer, and the two that came after a wait."""
    case(name, client, "the first request", first, found[0][0])
    for number, (answer, seconds) in enumerate(found[1:], 1):
        case(name, client, f"denied, then sent again, {number}", again, answer)
        note(name, f"admitted after {seconds:.1f} s")


# They wait side by side: each has a key of its own.
with ThreadPoolExecutor(16) as pool:
    rows = [(row, pool.submit(by_envoy, row)) for row in ARGUMENTS["rows"]]
    packages = [(package, name, pool.submit(by_package, package, name)) for package in CLIENTS for name in (package, "ietf08")]

for row, found in rows:
    name = f"Envoy waits: `{row['format']}`, `{row['field']}` in {row['unit']}"
    tell(name, ENVOY, found.result(), "200 at attempt 1", "200 at attempt 2")

name = "Envoy does not wait: no field is named in its retry policy"
with httpx.Client(timeout=60) as client:
    found = [ask(client, ARGUMENTS["hasty"], "ietf08", "hasty") for _ in range(2)]
case(name, ENVOY, "denied, then sent again after 25 ms", ["200 at attempt 1", "429 at attempt 2"], found)

for package, format_name, found in packages:
    name, (found, seen) = f"{package} waits: `{format_name}`", found.result()
    tell(name, named(package), found, "hello\n", "hello\n")
    case(name, named(package), "requests that arrived", "5", seen)
