"""Sends requests to `tollgate-envoy` over HTTP as no honest client does."""

import pathlib

import httpx

from report import ARGUMENTS, case, named, note

CLIENT = named("httpx")

# The most memory of the service, with all that it has at the start.
MEMORY_MIB = 100


def decide(domain, descriptors):
    """Returns the answer to descriptors of one entry each, with their units."""
    entries = [{"entries": [{"key": key, "value": value}], "hitsAddend": str(hits)} for key, value, hits in descriptors]
    request = {"domain": domain, "descriptors": entries}
    return httpx.post(f"http://{ARGUMENTS['json']}/json", json=request, timeout=60).json()


def memory_mib():
    """Returns the memory of the service."""
    status = pathlib.Path(f"/proc/{ARGUMENTS['pid']}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) // 1024


def names():
    """Sends names that are long, many or hostile, and reads the pages of metrics."""
    row = "names of metrics that clients choose"
    before = memory_mib()
    for number in range(100):
        long = f"{number}." * (900_000 // len(f"{number}."))
        decide(long, [("k", "v", 1)])
        decide("shop", [("campaign", long, 1)])
    decide("shop", [("campaign", "x\nadmin.logins:1|c", 1)])
    stats = httpx.get(f"http://{ARGUMENTS['stats']}/stats", timeout=60).text.splitlines()
    metrics = httpx.get(f"http://{ARGUMENTS['metrics']}/metrics", timeout=60).text.splitlines()
    unknown = [line for line in stats if line.endswith(": 100") and "domain_not_found" in line]
    case(row, CLIENT, "domains without rules", ["ratelimit.service.rate_limit.unknown.domain_not_found: 100"], unknown)
    campaigns = [line for line in stats if ".campaign_" in line and ".total_hits" in line]
    case(row, CLIENT, "long values are told apart", 101, len(campaigns))
    longest = max(map(len, stats + metrics))
    case(row, CLIENT, "the longest line", "at most 400", longest, longest <= 400)
    injected = [line for line in stats + metrics if line.startswith("admin.logins")]
    case(row, CLIENT, "lines of a client", [], injected)
    after = memory_mib()
    case(row, CLIENT, "memory in MiB", f"at most {MEMORY_MIB}", after, after <= MEMORY_MIB)
    note(row, f"{before} MiB before, {after} MiB after 200 names of 900 kB")


def twice():
    """Names one counter twice in a request of which the first part is denied."""
    row = "a descriptor that stands twice, mode envoy"
    answer = decide("shop", [("method", "a", 5), ("method", "a", 1)])
    case(row, CLIENT, "both are denied", ["OVER_LIMIT"] * 2, [status["code"] for status in answer["statuses"]])
    answer = decide("shop", [("method", "a", 1)])
    case(row, CLIENT, "the window is used up", "OVER_LIMIT", answer["overallCode"])


names()
twice()
