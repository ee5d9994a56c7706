"""Sends requests and gRPC calls through Envoy, which asks `tollgate-envoy` before each of them."""

import itertools
import time

import grpc
import httpx

from report import ARGUMENTS, ENVOY, case, named

MODE = ARGUMENTS["mode"]
CLIENT = f"{named('httpx')}, {ENVOY}"
NAMES = (f"name-{number}" for number in itertools.count())
DAY = 86_400

# The time within which a report that Envoy sends after a response has to arrive.
LIMIT = 30


def row(name):
    """Returns the name of a row in this mode."""
    return f"{name}, mode {MODE}"


def statuses(client, path, headers, count):
    """Returns the statuses of several requests."""
    return [client.get(path, headers=headers).status_code for _ in range(count)]


def spent(*names):
    """Returns the units that the service has counted for these rules."""
    lines = httpx.get(f"http://{ARGUMENTS['stats']}/stats").text.splitlines()
    values = dict(line.rsplit(": ", 1) for line in lines)
    return sum(int(values.get(f"ratelimit.service.rate_limit.shop.{name}.total_hits", 0)) for name in names)


def wait_for(count, *names):
    """Waits until the reports of so many responses have arrived."""
    end = time.monotonic() + LIMIT
    while spent(*names) < count:
        if time.monotonic() > end:
            raise TimeoutError("the report of the response")
        time.sleep(0.01)


def limits(client):
    """Tries limits by address, by fields and by the route."""
    title = row("limits by address, header and route")
    case(title, CLIENT, "a request without a descriptor", [200], statuses(client, "/none", {}, 1))
    case(title, CLIENT, "a descriptor that is not limited", [200] * 9, statuses(client, "/pairs", {"x-tenant": "a"}, 9))
    gold = {"x-tenant": "acme", "x-tier": "gold"}
    case(title, CLIENT, "three requests of a tenant, then denials", [200] * 3 + [429] * 2, statuses(client, "/pairs", gold, 5))
    case(title, CLIENT, "another tenant", [200], statuses(client, "/pairs", gold | {"x-tenant": "other"}, 1))
    case(title, CLIENT, "a rule without a limit", [200] * 9, statuses(client, "/pairs", gold | {"x-tier": "unlimited"}, 9))
    case(title, CLIENT, "shadow mode", [200] * 5, statuses(client, "/pairs", gold | {"x-tier": "trial"}, 5))
    case(title, CLIENT, "the client's address", [200] * 3 + [429], statuses(client, "/address", {}, 4))
    spoofed = {"x-forwarded-for": "192.0.2.7"}
    case(title, CLIENT, "the address with a spoofed field", [429], statuses(client, "/address", spoofed, 1))
    with httpx.Client(base_url=client.base_url, transport=httpx.HTTPTransport(local_address="127.0.0.77")) as second:
        case(title, CLIENT, "another address", [200] * 3 + [429], statuses(second, "/address", {}, 4))
    case(title, CLIENT, "names of clusters", [200, 429], statuses(client, "/clusters", {}, 2))
    closed = {"x-tenant": "acme", "x-region": "closed"}
    case(title, CLIENT, "a limit of 0", [429], statuses(client, "/four", closed, 1))
    replacing = closed | {"x-from": "proxy", "x-to": "open"}
    case(title, CLIENT, "replaced by a limit of 2", [200, 200, 429], statuses(client, "/four", replacing, 3))
    case(title, CLIENT, "one of two quotas is enough", [200, 200, 429], statuses(client, "/quota", {}, 3))


def fields(client):
    """Reads the fields of admitted and of denied requests."""
    title = row("fields and statuses")
    headers = {"x-tenant": next(NAMES), "x-tier": "gold"}
    answers = [client.get("/pairs", headers=headers) for _ in range(4)]
    for name, admitted, denied in [
        ("x-shop-limit", "3", "3"),
        ("x-shop-left", "2", "0"),
        ("x-ratelimit-limit", "3, 3;w=86400", "3, 3;w=86400"),
        ("x-ratelimit-remaining", "2", "0"),
        ("x-envoy-ratelimited", None, "true"),
    ]:
        case(title, CLIENT, name, [admitted, denied], [answers[at].headers.get(name) for at in (0, 3)])
    case(title, CLIENT, "admitted: retry-after", None, answers[0].headers.get("retry-after"))
    # The window is that of a day in UTC, and the answer is a moment old.
    left = DAY - int(time.time()) % DAY
    for name in ("x-shop-reset", "x-ratelimit-reset", "retry-after"):
        found = int(answers[3].headers.get(name, -1))
        is_near = left - 1 <= found <= left + 60 or found <= 60
        case(title, CLIENT, f"denied: {name}", f"about {left}", found, is_near)
    with httpx.Client(base_url=f"http://{ARGUMENTS['other']}", headers={"x-method": next(NAMES)}) as other:
        last = [other.get("/") for _ in range(3)][2]
    case(title, CLIENT, "`rate_limited_status: 403`", 403, last.status_code)
    case(title, CLIENT, "`disable_x_envoy_ratelimited_header`", None, last.headers.get("x-envoy-ratelimited"))


def tokens(client):
    """Tries requests that ask with 0 units, and spend when their response is there."""
    title = row("units spent after the response")
    # A check of 0 units is denied natively when no unit is left, and in the mode envoy when the limit was exceeded.
    admitted = 3 if MODE == "envoy" else 2
    for number in range(1, admitted + 1):
        case(title, CLIENT, f"request {number}", 200, client.get("/tokens").status_code)
        wait_for(number, "tokens")
    case(title, CLIENT, "the next request", 429, client.get("/tokens").status_code)

    title = row("a server with units left")
    found = []
    # The service names the first rule that has units, and Envoy selects the server with that name.
    expected = ["first"] * (admitted - 1) + ["second"] * admitted + ["429"]
    for number in range(1, len(expected) + 1):
        answer = client.get("/services")
        found.append(answer.text if answer.status_code == 200 else str(answer.status_code))
        if answer.status_code == 200:
            wait_for(number, "service_first", "service_second")
    case(title, CLIENT, "the servers that answered", expected, found)


def calls():
    """Calls a gRPC server."""
    for place, word in (("grpc", "UNAVAILABLE"), ("exhausted", "RESOURCE_EXHAUSTED")):
        with grpc.insecure_channel(ARGUMENTS[place], [("grpc.enable_retries", 0)]) as channel:
            # The first connection may be refused while Envoy's workers start.
            grpc.channel_ready_future(channel).result(timeout=60)
            call, name, found = channel.unary_unary("/helloworld.Greeter/SayHello"), next(NAMES), []
            for _ in range(3):
                try:
                    call(b"\n\x03Ada", metadata=(("x-method", name),), timeout=60)
                    found.append("OK")
                except grpc.RpcError as error:
                    found.append(error.code().name)
            case(row("gRPC"), f"{named('grpcio')}, {ENVOY}", f"two calls, then {word}", ["OK", "OK", word], found)


with httpx.Client(base_url=f"http://{ARGUMENTS['web']}", timeout=60) as envoy:
    for part in (limits, fields, tokens):
        part(envoy)
calls()
