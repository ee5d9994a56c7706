"""Sends requests through Envoy while the rate limit service, one of its replicas, or its Redis is away."""

import collections
import os
import signal
import socket
import threading

import httpx

from report import ARGUMENTS, ENVOY, case, named, note

CLIENT = f"{named('httpx')}, {ENVOY}"


def statuses(address, tenant, count):
    """Returns the statuses of several requests."""
    with httpx.Client(timeout=60) as client:
        return [client.get(f"http://{address}/", headers={"x-tenant": tenant}).status_code for _ in range(count)]


def is_open(address):
    """Returns whether something accepts connections there."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def end(pid, grpc, address):
    """Ends a replica by SIGTERM while four clients send requests, and counts those that failed for it."""
    counts, lock, over = collections.Counter(), threading.Lock(), threading.Event()

    def ask():
        while not over.is_set():
            found = statuses(address, "a", 10)
            with lock:
                counts.update(found)

    def wait_for(count):
        last = sum(counts.values()) + count
        while sum(counts.values()) < last:
            over.wait(0.05)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(500)
    # The first requests may come before Envoy has seen that the replicas are healthy.
    with lock:
        counts.clear()
    os.kill(pid, signal.SIGTERM)
    while is_open(grpc):
        wait_for(50)
    wait_for(500)
    over.set()
    for thread in threads:
        thread.join()
    row = "a replica ends under load, `failure_mode_deny: true`"
    case(row, CLIENT, "requests that failed", {}, {status: count for status, count in counts.items() if status != 200})
    note(row, f"{sum(counts.values())} requests from SIGTERM on")


# Before the outage: three requests pass, through whichever service they go.
if shared := ARGUMENTS.get("shared", []):
    found = [statuses(place["address"], "shared", 1)[0] for place in shared]
    case("services on one Redis", CLIENT, "three requests pass in all", [200] * 3 + [429] * (len(shared) - 3), found)
for one in ARGUMENTS.get("cases", []):
    case(one["row"], CLIENT, "five requests", one["expected"], statuses(one["address"], "acme", 5))
if "pid" in ARGUMENTS:
    end(ARGUMENTS["pid"], ARGUMENTS["grpc"], ARGUMENTS["address"])
