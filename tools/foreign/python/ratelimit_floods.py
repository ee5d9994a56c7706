"""Holds 90 idle connections of gRPC to a `tollgate-envoy` that has 64 descriptors."""

import os
import pathlib
import socket
import time

import httpx

from report import ARGUMENTS, case, named, note

CLIENT = named("httpx")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])

# The time over which the work of the service is measured, and the most of a core that it may take.
SECONDS, CORE = 3, 0.2

# The longest wait for a counter.
LIMIT = 30


def flood(place):
    """Opens connections."""
    host, port = place["grpc"].rsplit(":", 1)
    connections = [socket.create_connection((host, int(port)), timeout=10) for _ in range(90)]
    for connection in connections:
        connection.sendall(PREFACE)
    return connections


def cpu(place):
    """Returns the share of a core that the service takes."""

    def used():
        fields = pathlib.Path(f"/proc/{place['pid']}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(SECONDS)
    return (used() - before) / SECONDS


def counter(place, name):
    """Returns a counter of the service."""
    lines = httpx.get(f"http://{place['stats']}/stats").text.splitlines()
    return int(dict(line.rsplit(": ", 1) for line in lines).get(f"ratelimit_server.{name}", 0))


def until(what, look):
    """Waits until `look` returns something true."""
    end = time.monotonic() + LIMIT
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


ROW = "90 idle connections, 64 descriptors"
place = ARGUMENTS["bounded"]
held = flood(place)
until("a full port", lambda: counter(place, "connection_limit") > 0)
statuses = [httpx.get(f"http://{place['json']}/healthcheck").status_code for _ in range(20)]
case(ROW, CLIENT, "the other port answers", [200] * 20, statuses)
share = cpu(place)
case(ROW, CLIENT, "work", f"at most {CORE} of a core", f"{share:.2f}", share <= CORE)
case(ROW, CLIENT, "connections that the system did not accept", 0, counter(place, "accept_error"))

ROW = "90 idle connections, 64 descriptors, `--max-connections 1000`"
place = ARGUMENTS["unbounded"]
held = flood(place)
share = cpu(place)
case(ROW, CLIENT, "work", f"at most {CORE} of a core", f"{share:.2f}", share <= CORE)
for connection in held:
    connection.close()
until("the service answers again", lambda: counter(place, "accept_error") > 0)
errors = counter(place, "accept_error")
case(ROW, CLIENT, "attempts in the meantime", "1 to 100", errors, 1 <= errors <= 100)
note(ROW, f"{share:.2f} of a core, {errors} attempts")
