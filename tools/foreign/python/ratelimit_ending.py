"""Ends one of two replicas while Envoy asks them, and counts the requests that failed for it."""

import collections
import os
import signal
import socket
import threading

import httpx

from report import ARGUMENTS, ENVOY, case, named, note

CLIENT = f"{named('httpx')}, {ENVOY}"
ROW = "a replica ends under load, `failure_mode_deny: true`"
CLIENTS = 4

# The requests before the signal, and after the port of the replica is closed.
BEFORE, AFTER = 500, 500

statuses = collections.Counter()
lock = threading.Lock()
over = threading.Event()


def ask():
    """Sends requests until the end."""
    with httpx.Client(base_url=f"http://{ARGUMENTS['address']}", headers={"x-tenant": "a"}, timeout=60) as client:
        while not over.is_set():
            status = client.get("/").status_code
            with lock:
                statuses[status] += 1


def wait_for(count):
    """Waits for the answers to so many more requests."""
    end = sum(statuses.values()) + count
    while sum(statuses.values()) < end:
        over.wait(0.05)


def is_open():
    """Returns whether the replica accepts connections."""
    host, port = ARGUMENTS["grpc"].rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
for thread in threads:
    thread.start()
wait_for(BEFORE)
# The first requests may come before Envoy has seen that the replicas are healthy.
with lock:
    statuses.clear()
os.kill(ARGUMENTS["pid"], signal.SIGTERM)
while is_open():
    wait_for(50)
wait_for(AFTER)
over.set()
for thread in threads:
    thread.join()
failed = {status: count for status, count in statuses.items() if status != 200}
case(ROW, CLIENT, "requests that failed", {}, failed)
note(ROW, f"{sum(statuses.values())} requests from SIGTERM on")
