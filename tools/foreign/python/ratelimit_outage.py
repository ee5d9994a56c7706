"""Sends requests through Envoy while the rate limit service or its Redis is away."""

import httpx

from report import ARGUMENTS, ENVOY, case, named

CLIENT = f"{named('httpx')}, {ENVOY}"


def statuses(address, tenant, count):
    """Returns the statuses of several requests."""
    with httpx.Client(timeout=60) as client:
        return [client.get(f"http://{address}/", headers={"x-tenant": tenant}).status_code for _ in range(count)]


# Before the outage: three requests pass, through whichever service they go.
shared = ARGUMENTS.get("shared", [])
if shared:
    found = [statuses(place["address"], "shared", 1)[0] for place in shared]
    case("services on one Redis", CLIENT, "three requests pass in all", [200] * 3 + [429] * (len(shared) - 3), found)
for one in ARGUMENTS.get("cases", []):
    case(one["row"], CLIENT, "five requests", one["expected"], statuses(one["address"], "acme", 5))
