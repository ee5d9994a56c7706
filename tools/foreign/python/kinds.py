"""Sends kinds of requests, each allowed once and then denied: directly, and through Envoy."""

import itertools
import socket
import subprocess
import time

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
DENIED = {"retry-after": "60", "ratelimit": '"one";r=0;t=60', "ratelimit-policy": '"one";q=1;w=60'}


def told(response):
    """Returns the fields that a denial carries."""
    return {name: response.headers.get(name) for name in DENIED}


def pair(client, method, url, **more):
    """Sends a request twice with a new key. Returns the allowed and the denied response."""
    headers = {"x-key": next(KEYS)}
    return [client.request(method, url, headers=headers, **more) for _ in range(2)]


def methods(row, words, client, base):
    """Compares GET, HEAD, OPTIONS and POST, allowed and denied."""
    pairs = {method: pair(client, method, f"{base}/") for method in ("GET", "HEAD", "OPTIONS")}
    pairs["POST"] = pair(client, "POST", f"{base}/", content=b"x" * 100_000)
    answers = {"GET": (200, "hello\n"), "HEAD": (200, ""), "OPTIONS": (204, ""), "POST": (200, "100000 bytes\n")}
    for method, (allowed, denied) in pairs.items():
        case(row, words, f"{method}, allowed", answers[method], (allowed.status_code, allowed.text))
        case(row, words, f"{method}, denied", 429, denied.status_code)
        case(row, words, f"{method}, denied: fields", DENIED, told(denied))
    denied = pairs["GET"][1].headers
    kind = (denied.get("cache-control"), denied.get("content-type"))
    case(row, words, "GET, denied: kind", ("no-store", "application/problem+json"), kind)
    for head, get in zip(pairs["HEAD"], pairs["GET"]):
        # RFC 9110, section 8.6: equal to that of GET, or absent.
        length, size = head.headers.get("content-length"), str(len(get.content))
        case(row, words, f"HEAD, {head.status_code}: content-length", f"{size} or none", length, length in (None, size))
        case(row, words, f"HEAD, {head.status_code}: no body", 0, len(head.content))
    again = client.get(f"{base}/free")
    case(row, words, "the next request after a denied body", (200, "free\n"), (again.status_code, again.text))


def versions():
    """Sends the methods in HTTP/1.1 and in HTTP/2, and HEAD and GET with curl."""
    for place, address in [("directly", ARGUMENTS["direct"]), ("through Envoy", ARGUMENTS["proxied"])]:
        with httpx.Client(timeout=60) as client:
            methods(f"HTTP/1.1, {place}", HTTPX, client, f"http://{address}")
        with httpx.Client(timeout=60, http1=False, http2=True) as client:
            methods(f"HTTP/2, {place}", HTTP2, client, f"http://{address}")
        for version, head in itertools.product(("--http1.1", "--http2-prior-knowledge"), ([], ["--head"])):
            more = [version, "--header", f"x-key: {next(KEYS)}", *head]
            found = [curl(f"http://{address}/", *more) for _ in range(2)]
            case(f"curl, {place}", CURL, " ".join([version, *head]), ["200", "429"], found)


def curl(url, *arguments, body=b""):
    """Runs curl. Returns the status, or the error of curl."""
    words = ["curl", "--silent", "--show-error", "--max-time", "60", *arguments]
    words += ["--output", "/dev/null", "--write-out", "%{http_code}", url]
    done = subprocess.run(words, input=body, capture_output=True, check=False)
    return (done.stdout if done.returncode == 0 else done.stderr).decode().strip()


SIZES = {"50 kB": 50_000, "100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}


def by_httpx(url, size, is_http2):
    """Uploads with httpx, and sends another request on the same connection. Returns both statuses, or the error."""
    try:
        with httpx.Client(timeout=60, http1=not is_http2, http2=is_http2) as client:
            denied = client.post(url, content=b"x" * size)
            return f"{denied.status_code} {client.get(httpx.URL(url).join('/free')).status_code}"
    except httpx.HTTPError as error:
        return repr(error)


def by_curl(url, size, *options):
    """Uploads with curl. Returns the status, or the error."""
    return curl(url, *options, "--data-binary", "@-", body=b"x" * size)


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


def in_time(upload, url, size):
    """Uploads again if it took two seconds, for which the server reads a denied body. The twentieth upload counts."""
    for _ in range(20):
        began = time.monotonic()
        answer = upload(url, size)
        if time.monotonic() - began < 2:
            break
    return answer


def uploads():
    """Sends bodies that are denied before they were read: the client receives the denial."""
    unasked, expecting = ("--header", "Expect:"), ("--header", "Expect: 100-continue", "--expect100-timeout", "50")
    direct = {
        "curl, HTTP/1.1": (CURL, lambda url, size: by_curl(url, size, "--http1.1", *unasked), "429"),
        "curl, HTTP/1.1, `Expect: 100-continue`": (CURL, lambda url, size: by_curl(url, size, "--http1.1", *expecting), "429"),
        "curl, HTTP/2": (CURL, lambda url, size: by_curl(url, size, "--http2-prior-knowledge", *unasked), "429"),
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
                found = [in_time(upload, f"http://{address}/refused/{place}", size) for _ in expected]
                case(row, client, f"{place}, {words}", expected, found)


def websocket(address, key):
    """Opens a WebSocket. Returns the first message, or the denial."""
    try:
        with connect(f"ws://{address}/websocket", additional_headers={"x-key": key}, proxy=None) as connection:
            return connection.recv(timeout=30)
    except InvalidStatus as error:
        return f"{error.response.status_code}, retry-after {error.response.headers.get('retry-after')}"


def upgrades():
    """Opens WebSockets: the upgrade is limited, the open connection is not touched."""
    for place, address in [("directly", ARGUMENTS["direct"]), ("through Envoy", ARGUMENTS["proxied"])]:
        key = next(KEYS)
        found = [websocket(address, key) for _ in range(2)]
        case(f"WebSocket, {place}", WEBSOCKETS, "allowed, then denied", ["hello", "429, retry-after 60"], found)


versions()
uploads()
upgrades()
