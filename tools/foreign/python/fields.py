"""Reads the fields of an admitted and of a denied response in every header format, with parsers that others wrote."""

import re

import durationpy
import http_sfv
import httpx

from report import ARGUMENTS, case, named

CLIENT = named("durationpy", "http-sfv", "httpx")

# Structured fields hold integers of 15 digits at most (RFC 9651, section 3.3.1).
GREATEST = 999_999_999_999_999

# The fields that are lists or dictionaries of RFC 9651, by the format.
STRUCTURES = {
    "ietf08": {"ratelimit": http_sfv.List, "ratelimit-policy": http_sfv.List},
    "ietf07": {"ratelimit": http_sfv.Dictionary, "ratelimit-policy": http_sfv.List},
    "ietf06": {"ratelimit-policy": http_sfv.List},
    "envoy03": {"x-ratelimit-limit": http_sfv.List},
}

# A duration as Go prints it, without fractions; and a date and a time in UTC (RFC 3339, section 5.6).
GO_DURATION = re.compile(r"(?=.)(\d+h)?(\d+m)?(\d+s)?|\d+ms")
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def integers(value):
    """Returns the integers of a parsed field, with those of its parameters."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return [it for item in items for it in (item.value, *item.params.values()) if isinstance(it, int)]


def check(format_name, name, value):
    """Fails unless the value is valid in its format."""
    if name == "x-ratelimit-resource":
        assert value
    elif format_name == "openai" and name.startswith("x-ratelimit-reset"):
        assert GO_DURATION.fullmatch(value)
        durationpy.from_str(value)
    elif format_name == "anthropic" and name.endswith("reset"):
        assert UTC.fullmatch(value)
    else:
        parsed = STRUCTURES.get(format_name, {}).get(name, http_sfv.Item)()
        parsed.parse(value.encode())
        found = integers(parsed)
        assert found and all(0 <= number <= GREATEST for number in found), found


def faults(format_name, response):
    """Returns the fields that are not valid, or that stand there twice."""
    found, lines = [], [(name, value) for name, value in response.headers.multi_items() if "ratelimit" in name]
    for name, value in lines + [("retry-after", response.headers.get("retry-after", "0"))]:
        try:
            check(format_name, name, value)
            assert len(response.headers.get_list(name)) < 2
        except (AssertionError, ValueError, durationpy.DurationError) as error:
            found.append(f"{name}: {value!r}: {error!r}")
    return found


with httpx.Client(timeout=60) as client:
    for format_name in ARGUMENTS["formats"]:
        for status in (200, 429):
            url = f"http://{ARGUMENTS['server']}/{format_name}"
            response = client.get(url, headers={"x-key": f"fields-{format_name}"})
            row, name = f"fields: `{format_name}`", f"{status}"
            case(row, CLIENT, f"{name}: status", status, response.status_code)
            case(row, CLIENT, f"{name}: invalid fields", [], faults(format_name, response))
            told = "retry-after" in response.headers
            case(row, CLIENT, f"{name}: retry-after", status == 429, told)
