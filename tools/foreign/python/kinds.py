"""Sends kinds of requests, each allowed once and then denied: directly, and through Envoy."""

import itertools
import re
import socket
import subprocess

import httpx
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset
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
        # In HTTP/2 this curl knows no 100 Continue.
        key = next(KEYS)
        for status in ("200", "429"):
            found = curl(address, "--http1.1", key, *EXPECT, body="x" * 200_000)
            name = f"POST of 200 kB with Expect, --http1.1, {status}"
            case(row, CURL, name, f"{status} with a body", found, re.fullmatch(f"{status} [1-9][0-9]*", found))


SIZES = {"50 kB": 50_000, "100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}


def by_httpx(url, size, is_http2):
    """Uploads with httpx, and sends another request on the same connection. Returns both statuses, or the error."""
    try:
        with httpx.Client(timeout=60, http1=not is_http2, http2=is_http2) as client:
            denied = client.post(url, content=b"x" * size)
            return f"{denied.status_code} {client.get(httpx.URL(url).join('/free')).status_code}"
    except httpx.HTTPError as error:
        return repr(error)


def uploaded(url, size, version):
    """Uploads with curl. Returns the status, or the error."""
    words = ["curl", "--silent", "--show-error", "--max-time", "60", version, "--header", "Expect:", "--data-binary", "@-"]
    words += ["--output", "/dev/null", "--write-out", "%{http_code}", url]
    done = subprocess.run(words, input=b"x" * size, capture_output=True, check=False)
    return (done.stdout if done.returncode == 0 else done.stderr).decode().strip()


def stopped(url, size):
    """Uploads with h2 until the response has ended, as clients in Go do. Returns the status, or what ended the stream."""
    host, port, path = httpx.URL(url).host, httpx.URL(url).port, httpx.URL(url).path
    connection, stream, left, status = H2Connection(), 1, size, None
    with socket.create_connection((host, port), timeout=30) as wire:
        connection.initiate_connection()
        head = {":method": "POST", ":path": path, ":scheme": "http", ":authority": host, "content-length": str(size)}
        connection.send_headers(stream, list(head.items()))
        while True:
            while (window := min(connection.local_flow_control_window(stream), 16_384, left)) > 0:
                left -= window
                connection.send_data(stream, b"x" * window, end_stream=left == 0)
            wire.sendall(connection.data_to_send())
            received = wire.recv(65_536)
            if not received:
                return f"{status}, the connection was closed"
            for event in connection.receive_data(received):
                if isinstance(event, ResponseReceived):
                    status = dict(event.headers)[b":status"].decode()
                elif isinstance(event, StreamEnded):
                    return status
                elif isinstance(event, (StreamReset, ConnectionTerminated)):
                    return f"{status}, {event}"


def uploads():
    """Sends bodies that are denied before they were read: the client receives the denial."""
    direct = {
        "curl, HTTP/1.1": (CURL, lambda url, size: uploaded(url, size, "--http1.1"), "429"),
        "curl, HTTP/2": (CURL, lambda url, size: uploaded(url, size, "--http2-prior-knowledge"), "429"),
        "httpx, HTTP/1.1": (HTTPX, lambda url, size: by_httpx(url, size, False), "429 200"),
        "httpx, HTTP/2": (HTTP2, lambda url, size: by_httpx(url, size, True), "429 200"),
        "h2 that stops at the response": (named("h2"), stopped, "429"),
    }
    # Envoy itself resets the stream of an upload in HTTP/2 when it has passed an early response on, unless it has read the body
    # before.
    proxied = {name: client for name, client in direct.items() if name.endswith("HTTP/1.1")}
    for way, address, clients in [
        ("directly", ARGUMENTS["direct"], direct),
        ("through Envoy, which asks the service in HTTP/1.1", ARGUMENTS["proxied"], proxied),
        ("through Envoy, which asks the service in HTTP/2", ARGUMENTS["proxied_in_http2"], proxied),
        ("through Envoy, which reads the body before", ARGUMENTS["buffered"], direct),
    ]:
        for name, (client, upload, answer) in clients.items():
            row, expected = f"denied uploads: {name}, {way}", [answer] * ARGUMENTS["uploads"]
            for place, (words, size) in itertools.product(("layer", "permits", "handler"), SIZES.items()):
                found = [upload(f"http://{address}/refused/{place}", size) for _ in expected]
                case(row, client, f"{place}, {words}", expected, found)


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
by_curl()
uploads()
continues()
upgrades()
