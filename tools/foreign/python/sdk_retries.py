"""Lets the clients of language-model services wait: a denied request has to succeed by a single retry of their own.

The server admits one request each two seconds. The clients retry a 429 once. The one of OpenAI reads `retry-after-ms` first,
and `retry-after` if there is none. A retry that comes too early is denied again, and then the client raises an error.
"""

import time

import anthropic
import httpx
import openai

from report import ARGUMENTS, case, named, note

CLIENTS = {
    "openai": lambda url, headers: openai.OpenAI(
        base_url=url, api_key="none", max_retries=1, default_headers=headers
    ),
    "anthropic": lambda url, headers: anthropic.Anthropic(
        base_url=url, api_key="none", max_retries=1, default_headers=headers
    ),
}


def ask(client, path):
    """Sends a request. Returns the body, or the name of the error, and the seconds that it took."""
    began = time.monotonic()
    try:
        found = client.get(path, cast_to=str)
    except (openai.APIError, anthropic.APIError) as error:
        found = type(error).__name__
    return found, time.monotonic() - began


def seen(key):
    """Returns how many requests for the key arrived at the server."""
    return int(httpx.get(f"http://{ARGUMENTS['server']}/seen/{key}").text)


for package, connect in CLIENTS.items():
    for format_name in (package, "ietf08"):
        name = f"{package} waits: `{format_name}`"
        key = f"{package}-{format_name}"
        with connect(f"http://{ARGUMENTS['server']}", {"x-key": key}) as client:
            first, _ = ask(client, f"/{format_name}")
            case(name, named(package), "the first request", "hello\n", first)
            again, took = ask(client, f"/{format_name}")
            case(name, named(package), "denied, then sent again", "hello\n", again)
            case(name, named(package), "requests that arrived", 3, seen(key))
            note(name, f"admitted after {took:.1f} s")
