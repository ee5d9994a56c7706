"""Asks two replicas as fast as it can, and counts what both admit together."""

import threading
import time
from collections import Counter

import httpx

from report import ARGUMENTS, case, named, note

CLIENT = named("httpx")
SECONDS = ARGUMENTS["seconds"]

# The path, and the greatest number that may be admitted in `t` seconds. The bucket holds 20 and gains 50 per second. A
# window of one second has 50, and `t` seconds touch two windows more than there are whole seconds in them.
LIMITS = [
    ("/bucket", "a bucket of 20 and 50 per second", lambda t: 20 + 50 * t),
    ("/window", "a window of 50 per second", lambda t: 50 * (int(t) + 2)),
]

# A machine that stands still for a moment loses units, because the bucket is full meanwhile.
LEAST = 0.7


def load(client, url, end, counts):
    """Asks a replica until the end, and counts the statuses."""
    while time.monotonic() < end:
        counts[client.get(url).status_code] += 1


def measure(path):
    """Asks both replicas with two threads each. Returns the counts by replica, and the seconds from first to last."""
    urls = [f"http://{replica}{path}" for replica in ARGUMENTS["replicas"]]
    counts = [Counter() for _ in range(4)]
    # A client takes a while to be made, and a full bucket gains nothing meanwhile.
    clients = [httpx.Client(timeout=30) for _ in counts]
    began = time.monotonic()
    threads = [
        threading.Thread(target=load, args=(clients[n], urls[n % 2], began + SECONDS, counts[n])) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    for client in clients:
        client.close()
    return [counts[0] + counts[2], counts[1] + counts[3]], took


for path, words, most in LIMITS:
    row = f"two replicas, {words}, {SECONDS} s"
    counts, took = measure(path)
    admitted, asked = sum(it[200] for it in counts), sum(sum(it.values()) for it in counts)
    unavailable = sum(it[503] for it in counts)
    case(row, CLIENT, "admitted, at most", f"≤ {int(most(took))}", admitted, admitted <= most(took))
    case(
        row, CLIENT, "admitted, at least", f"≥ {int(LEAST * 50 * SECONDS)}", admitted, admitted >= LEAST * 50 * SECONDS
    )
    case(row, CLIENT, "both replicas admit requests", True, all(it[200] > 0 for it in counts))
    case(row, CLIENT, "other answers than 200 and 429", 0, asked - admitted - sum(it[429] for it in counts))
    note(row, f"{asked} requests in {took:.1f} s, {admitted} admitted, at most {int(most(took))} allowed")
    note(row, f"{unavailable} unavailable")
