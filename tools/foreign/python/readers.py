"""Reads the rate limit fields of each header format, as strictly as RFC 9651 reads them."""

import math
import re
import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import durationpy
import http_sfv

# Structured fields hold integers of 15 digits at most (RFC 9651, section 3.3.1).
GREATEST = 999_999_999_999_999

# The fields of each format, apart from Retry-After. All of them are on every response.
FIELDS = {
    "ietf08": {"ratelimit", "ratelimit-policy"},
    "ietf07": {"ratelimit", "ratelimit-policy"},
    "ietf06": {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit-policy"},
    "envoy03": {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
    "legacy-seconds": {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
    "legacy-epoch": {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
    "github": {
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-used",
        "x-ratelimit-reset",
        "x-ratelimit-resource",
    },
    "spring": {
        "x-ratelimit-remaining",
        "x-ratelimit-replenish-rate",
        "x-ratelimit-burst-capacity",
        "x-ratelimit-requested-tokens",
    },
    "retry-after": {"x-ratelimit-limit", "x-ratelimit-remaining"},
    "tower-governor": {"x-ratelimit-limit", "x-ratelimit-remaining"},
    "openai": set(),
    "anthropic": set(),
    "none": set(),
}

# The units that a format has fields for, and how it names them. Only the units of a stack's policies have fields.
UNITS = {
    "openai": ("x-ratelimit-{}-{}", ["requests", "tokens"]),
    "anthropic": ("anthropic-ratelimit-{1}-{0}", ["requests", "tokens", "input-tokens", "output-tokens"]),
}

# The parts of a unit's fields.
PARTS = ("limit", "remaining", "reset")

# A duration as Go prints it, without fractions.
GO_DURATION = re.compile(r"(?=.)(\d+h)?(\d+m)?(\d+s)?|\d+ms")

# A date and a time in UTC (RFC 3339, section 5.6).
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def fields_of_units(format_name, has_all):
    """Returns the fields of the unit of requests, or of all units."""
    pattern, units = UNITS.get(format_name, ("", []))
    return {pattern.format(part, unit) for unit in (units if has_all else units[:1]) for part in PARTS}


class Fault(Exception):
    """Says why a field is not valid."""


def need(condition, words):
    """Raises the words as a fault, unless the condition holds."""
    if not condition:
        raise Fault(words)


def once(response, name):
    """Returns the only field line of this name."""
    lines = response.headers.get_list(name)
    need(len(lines) == 1, f"{name} has {len(lines)} lines: {lines}")
    return lines[0]


def parsed(kind, name, value):
    """Parses a field as an item, a list or a dictionary of RFC 9651."""
    try:
        kind.parse(value.encode())
    except ValueError as error:
        raise Fault(f"{name}: {value!r}: {error}") from error
    return kind


def integer(name, value, least=0):
    """Returns the value if it is an integer of RFC 9651, and not below `least`."""
    need(isinstance(value, int) and not isinstance(value, bool), f"{name} is {value!r}, not an integer")
    need(least <= value <= GREATEST, f"{name} is {value}, not in {least}..={GREATEST}")
    return value


def item(response, name, least=0):
    """Returns the integer in a field."""
    return integer(name, parsed(http_sfv.Item(), name, once(response, name)).value, least)


def parameters(what, found, required, optional):
    """Fails for parameters that are missing or not known."""
    names = set(found.params)
    need(required <= names, f"{what} has no {', '.join(sorted(required - names))}")
    need(names <= required | optional, f"{what} has the unknown {', '.join(sorted(names - required - optional))}")


def named_members(response, name, required, optional):
    """Returns the members of a list by their names, which are strings and unique."""
    members = {}
    for member in parsed(http_sfv.List(), name, once(response, name)):
        need(isinstance(member, http_sfv.Item), f"{name} has an inner list")
        need(
            isinstance(member.value, str) and not isinstance(member.value, http_sfv.Token),
            f"{name}: {member.value!r} is no string",
        )
        need(member.value not in members, f"{name} has the name {member.value!r} twice")
        parameters(f"{name}: {member.value!r}", member, required, optional)
        members[member.value] = {key: member.params[key] for key in member.params}
    need(members, f"{name} is empty")
    return members


def policies(response, name, first=0):
    """Checks the policies of the older formats, `20;w=1, 50000;w=86400`. Returns their amounts."""
    members = list(parsed(http_sfv.List(), name, once(response, name)))
    amounts = [integer(name, member.value) for member in members[first:]]
    for member in members[first:]:
        need("w" in member.params, f"{name}: {member.value} has no window")
        integer(f"{name}: w", member.params["w"], 1)
    names = [member.params["name"] for member in members[first:] if "name" in member.params]
    need(len(names) == len(set(names)), f"{name} has a name twice: {names}")
    need(amounts, f"{name} has no policy")
    return amounts


def ietf08(response):
    """Reads revisions 08 to 11. Returns the seconds of each spent policy."""
    quotas = named_members(response, "ratelimit-policy", {"q"}, {"w", "qu", "pk"})
    for name, quota in quotas.items():
        integer(f"q of {name}", quota["q"])
        if "w" in quota:
            integer(f"w of {name}", quota["w"], 1)
        if "qu" in quota:
            need(isinstance(quota["qu"], str), f"qu of {name} is {quota['qu']!r}, not a string")
    limits = named_members(response, "ratelimit", {"r"}, {"t", "pk"})
    need(set(limits) <= set(quotas), f"names without a policy: {set(limits) - set(quotas)}")
    for name, limit in limits.items():
        integer(f"r of {name}", limit["r"])
        need(limit["r"] <= quotas[name]["q"], f"r={limit['r']} of {name} is above q={quotas[name]['q']}")
        if "t" in limit:
            integer(f"t of {name}", limit["t"])
    return [limit["t"] for limit in limits.values() if limit["r"] == 0 and "t" in limit]


def spent(limit, remaining, reset):
    """Returns the reset if nothing remains."""
    need(limit is None or remaining <= limit, f"remaining is {remaining}, above the limit of {limit}")
    return [reset] if remaining == 0 and reset is not None else []


def ietf07(response):
    """Reads revision 07. Returns the reset if nothing remains."""
    policies(response, "ratelimit-policy")
    found = parsed(http_sfv.Dictionary(), "ratelimit", once(response, "ratelimit"))
    need(set(found) == {"limit", "remaining", "reset"}, f"ratelimit has {', '.join(found)}")
    return spent(*(integer(name, found[name].value) for name in ("limit", "remaining", "reset")))


def ietf06(response):
    """Reads revisions 04 to 06. Returns the reset if nothing remains."""
    policies(response, "ratelimit-policy")
    return spent(*(item(response, f"ratelimit-{name}") for name in ("limit", "remaining", "reset")))


def envoy03(response):
    """Reads the fields as Envoy writes them. Returns the reset if nothing remains."""
    members = list(parsed(http_sfv.List(), "x-ratelimit-limit", once(response, "x-ratelimit-limit")))
    limit = integer("x-ratelimit-limit", members[0].value)
    need(not members[0].params, "the first member of x-ratelimit-limit has parameters")
    policies(response, "x-ratelimit-limit", first=1)
    return spent(limit, *(item(response, f"x-ratelimit-{name}") for name in ("remaining", "reset")))


def legacy(response):
    """Reads the fields without a standard, with seconds. Returns the reset if nothing remains."""
    return spent(*(item(response, f"x-ratelimit-{name}") for name in ("limit", "remaining", "reset")))


def epoch(response):
    """Reads the fields without a standard, with a time. If nothing remains, returns the seconds until then as a range."""
    limit, remaining, reset = (item(response, f"x-ratelimit-{name}") for name in ("limit", "remaining", "reset"))
    # The response was made between these two times.
    before, after = response.extensions["asked_at"], time.time()
    need(reset >= math.floor(before), f"x-ratelimit-reset {reset} is in the past, now is {before}")
    # A wait of w seconds, rounded up, ends above w - 1 and at most w seconds after the response was made.
    waits = range(reset - math.ceil(after), reset - math.ceil(before) + 2)
    return spent(limit, remaining, waits)


def github(response):
    """Reads the fields of GitHub. If nothing remains, returns the seconds until then as a range."""
    limit, remaining, used = (item(response, f"x-ratelimit-{name}") for name in ("limit", "remaining", "used"))
    need(used + remaining == limit, f"{used} used and {remaining} remaining are not the limit of {limit}")
    need(once(response, "x-ratelimit-resource"), "x-ratelimit-resource is empty")
    return epoch(response)


def spring(response):
    """Reads the fields of Spring Cloud Gateway, which tell no time."""
    item(response, "x-ratelimit-replenish-rate")
    item(response, "x-ratelimit-requested-tokens")
    return spent(item(response, "x-ratelimit-burst-capacity"), item(response, "x-ratelimit-remaining"), None)


def with_wait(name):
    """Returns the reader of a format whose denials repeat the seconds of Retry-After under this name."""
    return lambda response: wait_in(response, name)


def wait_in(response, name):
    """Reads a limit and what remains. Returns the wait under this name on a denial."""
    spent(item(response, "x-ratelimit-limit"), item(response, "x-ratelimit-remaining"), None)
    need((name in response.headers) <= ("retry-after" in response.headers), f"{name} without retry-after")
    return [item(response, name, 1)] if name in response.headers else []


def duration(name, value):
    """Returns the seconds of a duration in the form of Go, rounded up."""
    need(GO_DURATION.fullmatch(value), f"{name}: {value!r} is not in the form of Go")
    try:
        return math.ceil(durationpy.from_str(value).total_seconds())
    except durationpy.DurationError as error:
        raise Fault(f"{name}: {value!r}: {error}") from error


def units(response, format_name, read_reset):
    """Reads the fields of each unit. Returns the resets of the spent ones: the time until all of their units are there."""
    pattern, names = UNITS[format_name]
    told = []
    for unit in names:
        limit, remaining, reset = (pattern.format(part, unit) for part in PARTS)
        if limit in response.headers:
            spent_reset = read_reset(reset, once(response, reset))
            told += spent(item(response, limit), item(response, remaining), spent_reset)
    return told


def openai(response):
    """Reads the fields as OpenAI writes them."""
    return units(response, "openai", duration)


def anthropic(response):
    """Reads the fields as Anthropic writes them."""
    # The response was made between these two times.
    before, after = response.extensions["asked_at"], time.time()

    def instant(name, value):
        need(UTC.fullmatch(value), f"{name}: {value!r} is no time of RFC 3339 in UTC")
        try:
            end = int(datetime.fromisoformat(value).timestamp())
        except ValueError as error:
            raise Fault(f"{name}: {value!r}: {error}") from error
        need(end >= math.floor(before), f"{name}: {value} is in the past, now is {before}")
        return range(end - math.ceil(after), end - math.ceil(before) + 2)

    return units(response, "anthropic", instant)


READERS = {
    "openai": openai,
    "anthropic": anthropic,
    "ietf08": ietf08,
    "ietf07": ietf07,
    "ietf06": ietf06,
    "envoy03": envoy03,
    "legacy-seconds": legacy,
    "legacy-epoch": epoch,
    "github": github,
    "spring": spring,
    "retry-after": with_wait("x-ratelimit-retry-after"),
    "tower-governor": with_wait("x-ratelimit-after"),
    "none": lambda _response: [],
}


def seconds(response):
    """Returns the seconds in Retry-After: digits, or a date (RFC 9110, section 10.2.3)."""
    value = once(response, "retry-after")
    if re.fullmatch("[0-9]+", value):
        return int(value)
    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError as error:
        raise Fault(f"retry-after: {value!r}: {error}") from error
