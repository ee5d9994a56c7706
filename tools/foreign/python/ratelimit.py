"""Sends requests through Envoy, which asks `tollgate-envoy` before each of them.

What is tried are the checks that Envoy's rate limit service makes of itself with an Envoy in front, and the fields and
statuses that a client sees.
"""

import itertools
import re
import time

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


def until(what, look):
    """Waits until `look` returns something true, and returns it."""
    end = time.monotonic() + LIMIT
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)
    return found


def counter(name):
    """Returns a counter of the service."""
    lines = httpx.get(f"http://{ARGUMENTS['stats']}/stats").text.splitlines()
    values = dict(line.rsplit(": ", 1) for line in lines)
    return int(values.get(f"ratelimit.service.rate_limit.{name}", 0))


def limits(client):
    """Tries limits by address, by fields and by the route."""
    title = row("limits by address, header and route")
    case(title, CLIENT, "a request without a descriptor", [200], statuses(client, "/none", {}, 1))
    case(title, CLIENT, "a descriptor that is not limited", [200] * 9, statuses(client, "/pairs", {"x-tenant": "a"}, 9))
    gold = {"x-tenant": "acme", "x-tier": "gold"}
    case(title, CLIENT, "three requests of a tenant, then denials", [200] * 3 + [429] * 2, statuses(client, "/pairs", gold, 5))
    other = {"x-tenant": "other", "x-tier": "gold"}
    case(title, CLIENT, "another tenant", [200], statuses(client, "/pairs", other, 1))
    free = {"x-tenant": "acme", "x-tier": "unlimited"}
    case(title, CLIENT, "a rule without a limit", [200] * 9, statuses(client, "/pairs", free, 9))
    case(title, CLIENT, "the client's address", [200] * 3 + [429], statuses(client, "/address", {}, 4))
    spoofed = {"x-forwarded-for": "192.0.2.7"}
    case(title, CLIENT, "the address with a spoofed field", [429], statuses(client, "/address", spoofed, 1))
    with httpx.Client(base_url=client.base_url, transport=httpx.HTTPTransport(local_address="127.0.0.77")) as second:
        case(title, CLIENT, "another address", [200] * 3 + [429], statuses(second, "/address", {}, 4))
    case(title, CLIENT, "names of clusters", [200, 429], statuses(client, "/clusters", {}, 2))
    hasty = {"x-hasty": next(NAMES)}
    until("a denial within one second", lambda: 429 in statuses(client, "/hasty", hasty, 2))
    until("the next window", lambda: statuses(client, "/hasty", hasty, 1) == [200])
    case(title, CLIENT, "a new window admits again", True, True)


def fields(client):
    """Reads the fields of admitted and of denied requests."""
    title = row("fields and statuses")
    headers = {"x-tenant": next(NAMES), "x-tier": "gold"}
    answers = [client.get("/pairs", headers=headers) for _ in range(4)]
    admitted, denied = answers[0], answers[3]
    case(title, CLIENT, "admitted: X-Shop-Limit, X-Shop-Left", ["3", "2"], named_fields(admitted))
    case(title, CLIENT, "denied: X-Shop-Limit, X-Shop-Left", ["3", "0"], named_fields(denied))
    case(title, CLIENT, "admitted: x-ratelimit-limit", "3, 3;w=86400", admitted.headers.get("x-ratelimit-limit"))
    case(title, CLIENT, "admitted: x-ratelimit-remaining", "2", admitted.headers.get("x-ratelimit-remaining"))
    case(title, CLIENT, "denied: x-ratelimit-remaining", "0", denied.headers.get("x-ratelimit-remaining"))
    case(title, CLIENT, "admitted: x-envoy-ratelimited", None, admitted.headers.get("x-envoy-ratelimited"))
    case(title, CLIENT, "denied: x-envoy-ratelimited", "true", denied.headers.get("x-envoy-ratelimited"))
    case(title, CLIENT, "admitted: retry-after", None, admitted.headers.get("retry-after"))
    # The window is that of a day in UTC, and the answer is a moment old.
    left = DAY - int(time.time()) % DAY
    for name in ("x-shop-reset", "x-ratelimit-reset", "retry-after"):
        found = int(denied.headers.get(name, -1))
        is_near = left - 1 <= found <= left + 60 or found <= 60
        case(title, CLIENT, f"denied: {name}", f"about {left}", found, is_near)
    with httpx.Client(base_url=f"http://{ARGUMENTS['other']}", transport=httpx.HTTPTransport(local_address="127.0.0.78")) as other:
        last = [other.get("/") for _ in range(4)][3]
    case(title, CLIENT, "`rate_limited_status: 403`", 403, last.status_code)
    case(title, CLIENT, "`disable_x_envoy_ratelimited_header`", None, last.headers.get("x-envoy-ratelimited"))
    with httpx.Client(base_url=f"http://{ARGUMENTS['custom']}", headers={"x-method": next(NAMES)}) as custom:
        case(title, CLIENT, "`rate_limited_status: 503`", [200, 200, 503], statuses(custom, "/", {}, 3))


def named_fields(response):
    """Returns the fields that the service was told to add."""
    return [response.headers.get(name) for name in ("x-shop-limit", "x-shop-left")]


def shadow(client):
    """Tries a rule in shadow mode."""
    title = row("shadow mode")
    headers = {"x-tenant": next(NAMES), "x-tier": "trial"}
    case(title, CLIENT, "all requests pass", [200] * 5, statuses(client, "/pairs", headers, 5))
    last = client.get("/pairs", headers=headers)
    case(title, CLIENT, "then nothing is left", "0", last.headers.get("x-ratelimit-remaining"))


def replaced(client):
    """Tries limits that other limits replace."""
    title = row("replaced limits")

    def ask(path, tenant, region, count, **more):
        headers = {"x-tenant": tenant, "x-region": region} | {f"x-{name}": value for name, value in more.items()}
        headers |= {"x-from": "proxy"} if "to" in more else {}
        return statuses(client, path, headers, count)

    name = next(NAMES)
    case(title, CLIENT, "a limit of 0", [429], ask("/pairs", name, "closed", 1))
    case(title, CLIENT, "beside a limit that replaces nothing", [429], ask("/four", name, "closed", 1, to="other"))
    case(title, CLIENT, "replaced by a limit of 2", [200, 200, 429], ask("/four", name, "closed", 3, to="open"))
    name = next(NAMES)
    case(title, CLIENT, "1 replaced by 2", [200, 200, 429], ask("/four", name, "slow", 3, to="fast"))
    case(title, CLIENT, "the replaced one was not charged", [200, 429], ask("/four", name, "slow", 2, to="nowhere"))
    case(title, CLIENT, "the replacing one stays exhausted", [429], ask("/four", name, "slow", 1, to="fast"))
    name = next(NAMES)
    both = ask("/five", name, "slow", 5, to="named", category="account")
    case(title, CLIENT, "two replaced by one of 4", [200] * 4 + [429], both)
    case(title, CLIENT, "the first one was not charged", [200, 429], ask("/pairs", next(NAMES), "slow", 2))
    case(title, CLIENT, "the second one was not charged", [200, 200, 429], ask("/four", name, "new", 3, to="named"))
    case(title, CLIENT, "the one of 4 stays exhausted", [429], ask("/five", name, "slow", 1, to="named", category="account"))


def quotas(client):
    """Tries quota descriptors, of which one with units left is enough."""
    title = row("quotas")
    case(title, CLIENT, "denied when both quotas are exhausted", [200, 200, 429], statuses(client, "/quota", {}, 3))


def tokens(client):
    """Tries requests that ask with 0 units, and spend when their response is there."""
    title = row("units spent after the response")
    # A check of 0 units is denied natively when no unit is left, and in the mode envoy when the limit was exceeded.
    admitted = 3 if MODE == "envoy" else 2
    for number in range(1, admitted + 1):
        case(title, CLIENT, f"request {number}", 200, client.get("/tokens").status_code)
        until("the report of the response", lambda number=number: counter("shop.tokens.total_hits") >= number)
    case(title, CLIENT, "the next request", 429, client.get("/tokens").status_code)

    title = row("a server with units left")
    found = []
    # The service names the first rule that has units, and Envoy selects the server with that name.
    per_server = {"first": 2, "second": 3} if MODE == "envoy" else {"first": 1, "second": 2}
    expected = [name for name, count in per_server.items() for _ in range(count)] + ["429"]
    spent = lambda: sum(counter(f"shop.service_{name}.total_hits") for name in per_server)
    for number in range(1, len(expected) + 1):
        answer = client.get("/services")
        found.append(answer.text if answer.status_code == 200 else str(answer.status_code))
        if answer.status_code == 200:
            until("the report of the response", lambda number=number: spent() >= number)
    case(title, CLIENT, "the servers that answered", expected, found)


def metrics(client):
    """Reads the metrics of a rule whose name contains the value of the request."""
    title = row("metrics by value")
    name = next(NAMES)
    case(title, CLIENT, "two of three pass", [200, 200, 429], statuses(client, "/campaign", {"x-campaign": name}, 3))
    page = httpx.get(f"http://{ARGUMENTS['metrics']}/metrics").text
    sample = rf'^ratelimit_service_rate_limit_over_limit{{domain="shop",key1="campaign_{name}"}} (\d+)$'
    case(title, CLIENT, "over_limit, as Prometheus reads it", ["1"], re.findall(sample, page, re.MULTILINE))
    case(title, CLIENT, "over_limit, on the page of counters", 1, counter(f"shop.campaign_{name}.over_limit"))


with httpx.Client(base_url=f"http://{ARGUMENTS['web']}", timeout=60) as envoy:
    for part in (limits, fields, shadow, replaced, quotas, tokens, metrics):
        part(envoy)
