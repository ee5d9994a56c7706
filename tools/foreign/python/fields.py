"""Asks for answers in every header format from every stack of layers, and reads their fields strictly."""

import math
import re
import time

import httpx

from readers import FIELDS, READERS, UNITS, Fault, fields_of_units, item, need, seconds
from report import ARGUMENTS, case, named

CLIENT = named("http-sfv", "httpx")
OPENAI = named("durationpy", "http-sfv", "httpx")

# The fields that a service sets by itself (`foreign_fields` of the server).
FOREIGN = {
    "ratelimit": "limit=1, remaining=0, reset=3",
    "ratelimit-policy": "1;w=3",
    "ratelimit-limit": "1",
    "ratelimit-remaining": "0",
    "ratelimit-reset": "3",
    "x-ratelimit-limit": "1",
    "x-ratelimit-remaining": "0",
    "x-ratelimit-reset": "3",
}

# The stacks whose second request is denied with a wait of eight seconds: that of the strictest layer.
EIGHT = {"one", "set", "units", "strict-outside", "strict-inside", "three", "one-name-twice"}

# The stacks whose service refuses by itself, with the least seconds that it tells.
OF_SERVICE = {"service-with-seconds": 3, "service-with-a-near-date": 1, "service-with-a-far-date": 3500}


def is_same(wait, told):
    """Returns whether a field tells the wait. A field with a time of day has a few values."""
    return wait in told if isinstance(told, range) else wait == told


def is_within(told, wait):
    """Returns whether a field tells a wait that is not above Retry-After."""
    return (told.start if isinstance(told, range) else told) <= wait


def is_not_before(told, wait):
    """Returns whether a field tells a time that is not before the end of the wait."""
    return (told.stop - 1 if isinstance(told, range) else told) >= wait


def need_millis(format_name, response, wait):
    """Fails if the milliseconds beside Retry-After differ from it, or if another format has them."""
    need(("retry-after-ms" in response.headers) == (format_name == "openai"), "retry-after-ms is missing or not known")
    if format_name == "openai":
        millis = item(response, "retry-after-ms", 1)
        need(wait - 1 < millis / 1000 <= wait, f"retry-after-ms is {millis}, retry-after is {wait}")


def need_exact(response, wait):
    """Fails if the time in X-RateLimit-Reset is not the end of the wait, rounded up once."""
    before, after = response.extensions["asked_at"], time.time()
    reset = item(response, "x-ratelimit-reset")
    least, most = math.ceil(before + wait), math.ceil(after + wait)
    need(least <= reset <= most, f"x-ratelimit-reset is {reset}, a wait of {wait} s ends by {least}")


def fields_of(response):
    """Returns the names of the fields that tell of limits, apart from Retry-After."""
    return {name for name in response.headers if "ratelimit" in name} - {"x-ratelimit-retry-after", "x-ratelimit-after"}


def is_foreign(format_name, response):
    """Returns whether the fields of a format are those that the service has set, left as they are."""
    ours = FIELDS[format_name] & set(FOREIGN)
    return all(response.headers.get_list(name) == [FOREIGN[name]] for name in ours)


def check(format_name, stack, number, response):
    """Reads a response strictly."""
    is_of_service = response.text == "the service refuses\n"
    if stack == "service-with-fields" and is_of_service:
        if not is_foreign(format_name, response):
            READERS[format_name](response)
        return
    found = fields_of(response)
    own = FIELDS[format_name] | fields_of_units(format_name, stack == "units")
    if stack == "cost-never-fits":
        need(response.status_code not in (200, 429), f"status {response.status_code} for a cost that never fits")
        need("retry-after" not in response.headers, "retry-after for a cost that never fits")
        need(found <= own, f"fields {sorted(found)}, not only {sorted(own)}")
        return
    need(found == own, f"fields {sorted(found)} instead of {sorted(own)}")
    waits = READERS[format_name](response)
    if response.status_code != 429:
        need("retry-after" not in response.headers, "retry-after on an allowed response")
        return
    wait = seconds(response)
    if is_of_service:
        need(wait > OF_SERVICE[stack] - 1, f"retry-after is {wait}, the service tells {OF_SERVICE[stack]} at least")
        # The bucket of two is empty after the second request.
        told = 8 if number >= 2 else 0
        need(wait > told - 1, f"retry-after is {wait}, the layer tells {told}")
        return
    need(wait >= 1, f"retry-after is {wait}")
    if stack in EIGHT and number == 2:
        need(wait == 8, f"retry-after is {wait}, the strictest wait is 8")
    if stack == "fraction":
        need(wait == 9, f"retry-after is {wait}, a wait of 8.01 s is rounded up to 9")
        if format_name in ("legacy-epoch", "github"):
            need_exact(response, 8.01)
    need_millis(format_name, response, wait)
    if format_name in UNITS:
        # These formats tell when the whole burst is there.
        need(any(is_not_before(told, wait) for told in waits), f"retry-after is {wait}, the fields tell {waits}")
        return
    for told in waits:
        need(is_within(told, wait), f"retry-after is {wait}, a field tells {told}")
    need(not waits or any(is_same(wait, told) for told in waits), f"retry-after is {wait}, the fields tell {waits}")
    said = re.search(r"try again in (\d+)", response.text)
    if said:
        need(int(said[1]) == wait, f"retry-after is {wait}, the body says {said[0]!r}")


def verdict(format_name, stack, number, response):
    """Returns `valid`, or the reason why the response is not."""
    try:
        check(format_name, stack, number, response)
    except Fault as fault:
        return str(fault)
    return "valid"


with httpx.Client(timeout=60) as client:
    for format_name in ARGUMENTS["formats"]:
        row = f"`{format_name}`"
        for stack in ARGUMENTS["stacks"]:
            for number in range(1, 7):
                asked_at = time.time()
                headers = {"x-key": f"{format_name}-{stack}"}
                response = client.get(f"http://{ARGUMENTS['server']}/{format_name}/{stack}", headers=headers)
                response.extensions["asked_at"] = asked_at
                name = f"{stack}, request {number}: {response.status_code}"
                reader = OPENAI if format_name == "openai" else CLIENT
                case(row, reader, name, "valid", verdict(format_name, stack, number, response))
