"""Sends kinds of requests, each allowed once and then denied: directly, and through Envoy."""

import itertools
import re
import socket
import subprocess

import httpx
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from report import ARGUMENTS, case, named

HTTPX = named("httpx")
HTTP2 = named("httpx", "h2")
WEBSOCKETS = named("websockets")
CURL = " ".join(subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout.split()[:2])

KEYS = (f"key-{number}" for number in itertools.count())

# One unit per minute: the wait after the first one, by a clock that stands still.
WAIT = "60"


def told(response):
    """Returns the fields that a denial carries."""
    return {name: response.headers.get(name) for name in ("retry-after", "ratelimit", "ratelimit-policy")}


DENIED = {"retry-after": WAIT, "ratelimit": f'"one";r=0;t={WAIT}', "ratelimit-policy": '"one";q=1;w=60'}


def pair(client, method, url, **more):
    """Sends a request twice with a new key. Returns the allowed and the denied response."""
    headers = {"x-key": next(KEYS)}
    return [client.request(method, url, headers=headers, **more) for _ in range(2)]


def length(response):
    """Returns Content-Length, or nothing."""
    return response.headers.get("content-length")


def methods(row, words, client, base):
    """Compares GET, HEAD, OPTIONS and POST, allowed and denied."""
    allowed, denied = pair(client, "GET", f"{base}/")
    case(row, words, "GET, allowed", "200 hello", f"{allowed.status_code} {allowed.text.strip()}")
    case(row, words, "GET, denied", 429, denied.status_code)
    case(row, words, "GET, denied: fields", DENIED, told(denied))
    case(
        row,
        words,
        "GET, denied: length of the body",
        str(len(denied.content)),
        length(denied) or str(len(denied.content)),
    )
    case(row, words, "GET, denied: not stored", "no-store", denied.headers.get("cache-control"))
    case(row, words, "GET, denied: type", "application/problem+json", denied.headers.get("content-type"))

    head_allowed, head_denied = pair(client, "HEAD", f"{base}/")
    for name, head, get in [("allowed", head_allowed, allowed), ("denied", head_denied, denied)]:
        case(row, words, f"HEAD, {name}: status as GET", get.status_code, head.status_code)
        case(row, words, f"HEAD, {name}: no body", 0, len(head.content))
        # RFC 9110, section 8.6: equal to that of GET, or absent.
        same = length(head) in (None, str(len(get.content)))
        case(row, words, f"HEAD, {name}: content-length", f"{len(get.content)} or none", length(head), same)
        expected = {name: get.headers.get(name) for name in told(get)}
        case(row, words, f"HEAD, {name}: fields as GET", expected, told(head))

    options_allowed, options_denied = pair(client, "OPTIONS", f"{base}/")
    case(row, words, "OPTIONS, allowed", 204, options_allowed.status_code)
    case(row, words, "OPTIONS, denied", 429, options_denied.status_code)
    case(row, words, "OPTIONS, denied: fields", DENIED, told(options_denied))

    posted, refused = pair(client, "POST", f"{base}/", content=b"x" * 100_000)
    case(row, words, "POST of 100 kB, allowed", "200 100000 bytes", f"{posted.status_code} {posted.text.strip()}")
    case(row, words, "POST of 100 kB, denied", 429, refused.status_code)
    case(row, words, "POST of 100 kB, denied: fields", DENIED, told(refused))
    again = client.get(f"{base}/free")
    case(row, words, "the next request after a denied body", "200 free", f"{again.status_code} {again.text.strip()}")


def versions():
    """Sends the methods in HTTP/1.1 and in HTTP/2."""
    for place, address in [("directly", ARGUMENTS["direct"]), ("through Envoy", ARGUMENTS["proxied"])]:
        with httpx.Client(timeout=60) as client:
            methods(f"HTTP/1.1, {place}", HTTPX, client, f"http://{address}")
        with httpx.Client(timeout=60, http1=False, http2=True) as client:
            methods(f"HTTP/2, {place}", HTTP2, client, f"http://{address}")
            response = client.get(f"http://{address}/free")
            case(f"HTTP/2, {place}", HTTP2, "the version", "HTTP/2", response.http_version)


def short_bodies():
    """Sends bodies that are denied, each before another request, through an Envoy that sends no request twice."""
    row, base = "short bodies, through Envoy without retries", f"http://{ARGUMENTS['unretried']}"
    with httpx.Client(timeout=60) as client:
        headers = {"x-key": next(KEYS)}
        posted = client.post(f"{base}/", headers=headers, content=b"x" * 60_000)
        case(row, HTTPX, "POST of 60 kB, allowed", "200 60000 bytes", f"{posted.status_code} {posted.text.strip()}")
        found = []
        for _ in range(50):
            denied = client.post(f"{base}/", headers=headers, content=b"x" * 60_000)
            found.append((denied.status_code, client.get(f"{base}/free").status_code))
        case(row, HTTPX, "50 denied POSTs of 60 kB, each before a GET", [(429, 200)] * 50, found)


def curl(address, version, key, *arguments, body=None):
    """Runs curl. Returns the status and the size of the body, or the error of curl."""
    words = ["curl", "--silent", "--show-error", "--max-time", "60", version, "--header", f"x-key: {key}", *arguments]
    words += ["--output", "/dev/null", "--write-out", "%{http_code} %{size_download}", f"http://{address}/"]
    done = subprocess.run(words, input=body, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stderr.strip()


EXPECT = ["--header", "Expect: 100-continue", "--expect100-timeout", "50", "--data-binary", "@-"]


def by_curl():
    """Sends HEAD, GET, and a large body that is announced, with curl."""
    for place, address in [("directly", ARGUMENTS["direct"]), ("through Envoy", ARGUMENTS["proxied"])]:
        row = f"curl, {place}"
        for version in ("--http1.1", "--http2-prior-knowledge"):
            key = next(KEYS)
            for status in ("200", "429"):
                found = curl(address, version, key, "--head")
                case(row, CURL, f"HEAD, {version}, {status}", f"{status} 0", found)
            key = next(KEYS)
            for status in ("200", "429"):
                found = curl(address, version, key)
                case(
                    row,
                    CURL,
                    f"GET, {version}, {status}",
                    f"{status} with a body",
                    found,
                    re.fullmatch(f"{status} [1-9][0-9]*", found),
                )
        # In HTTP/2 this curl knows no 100 Continue. It also fails with its error 92 when any server answers before the
        # upload has ended, so a denied upload in HTTP/2 is a case of httpx.
        key = next(KEYS)
        for status in ("200", "429"):
            found = curl(address, "--http1.1", key, *EXPECT, body="x" * 200_000)
            name = f"POST of 200 kB with Expect, --http1.1, {status}"
            case(row, CURL, name, f"{status} with a body", found, re.fullmatch(f"{status} [1-9][0-9]*", found))


def announced(address, key):
    """Announces a body, waits for an answer, and sends the body after 100. Returns the status of each answer."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        lines = ["POST / HTTP/1.1", f"Host: {address}", f"x-key: {key}", "Content-Length: 5", "Expect: 100-continue"]
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        with connection.makefile("rb") as answer:
            first = answer.readline().decode().strip()
            found = [first]
            if " 100 " in first:
                connection.sendall(b"12345")
                found += [line.decode().strip() for line in answer if line.startswith(b"HTTP/1.1 ")]
            return [line.split(" ")[1] for line in found]


def continues():
    """Asks for 100 Continue: a denied request gets its denial instead, and its body is never asked for."""
    row = "`Expect: 100-continue`, directly"
    key = next(KEYS)
    case(row, "a socket", "allowed", ["100", "200"], announced(ARGUMENTS["direct"], key))
    case(row, "a socket", "denied", ["429"], announced(ARGUMENTS["direct"], key))


def websocket(address, key):
    """Opens a WebSocket. Returns the first message, or the denial."""
    try:
        with connect(f"ws://{address}/websocket", additional_headers={"x-key": key}, proxy=None) as connection:
            return connection.recv(timeout=30)
    except InvalidStatus as error:
        response = error.response
        return f"{response.status_code}, retry-after {response.headers.get('retry-after')}, {len(response.body)} bytes"


def upgrades():
    """Opens WebSockets: the upgrade is limited, the open connection is not touched."""
    for place, address in [("directly", ARGUMENTS["direct"]), ("through Envoy", ARGUMENTS["proxied"])]:
        row = f"WebSocket, {place}"
        key = next(KEYS)
        case(row, WEBSOCKETS, "allowed", "hello", websocket(address, key))
        denied = websocket(address, key)
        case(
            row,
            WEBSOCKETS,
            "denied",
            f"429, retry-after {WAIT}, a body",
            denied,
            denied.startswith(f"429, retry-after {WAIT}, ") and not denied.endswith(" 0 bytes"),
        )


versions()
short_bodies()
by_curl()
continues()
upgrades()
