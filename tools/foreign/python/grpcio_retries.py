"""Lets grpcio wait: its retry policy obeys `grpc-retry-pushback-ms`.

The server admits one call each two seconds. The back-off of the policy is 20 s, so a call that succeeds earlier has
obeyed the pushback. Two attempts are allowed, so a call that is repeated too early fails. Messages are sent as bytes, so
that no code has to be generated.
"""

import json
import time
import urllib.request

import grpc

from grpc_denial import ADA, SERVICE, denial, unary
from report import ARGUMENTS, case, named, note

CLIENT = named("grpcio", "grpcio-status")
GREETER = ARGUMENTS["greeter"]

RETRY = {
    "name": [{"service": "helloworld.Greeter"}],
    "retryPolicy": {
        "maxAttempts": 2,
        "initialBackoff": "20s",
        "maxBackoff": "20s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    },
}


def told(found, key):
    """Returns the code of a call, and how many calls with this key reached the server."""
    with urllib.request.urlopen(f"http://{GREETER}/seen/{key}") as response:
        return f"{found['code']}, {response.read().decode()} calls seen"


retrying = [("grpc.enable_retries", 1), ("grpc.service_config", json.dumps({"methodConfig": [RETRY]}))]
with grpc.insecure_channel(GREETER, retrying) as channel:
    row, waits = "grpcio waits: `grpc-retry-pushback-ms`", [("x-key", "waits")]
    case(row, CLIENT, "the first call", "OK, 1 calls seen", told(unary(channel, waits), "waits"))
    began = time.monotonic()
    found, took = unary(channel, waits), time.monotonic() - began
    case(row, CLIENT, "denied, then sent again", "OK, 3 calls seen", told(found, "waits"))
    case(row, CLIENT, "sent again by the pushback, not by the back-off", "below 15 s", f"{took:.1f} s", took < 15)
    note(row, f"admitted after {took:.1f} s")

    row = "grpcio gives up: a cost that never fits has a pushback of -1"
    found = unary(channel, [("x-key", "never"), ("x-cost", "7")])
    case(row, CLIENT, "code and attempts", "RESOURCE_EXHAUSTED, 1 calls seen", told(found, "never"))
    answer = ["-1", "COST_EXCEEDS_LIMIT"]
    case(row, CLIENT, "pushback and reason", answer, [found.get("pushback"), found.get("reason")])

with grpc.insecure_channel(ARGUMENTS["charged"]) as channel:
    row, messages, found = "grpcio reads the denial of a message", 0, {"code": "OK"}
    try:
        call = channel.unary_stream(f"{SERVICE}/SayHelloStream")
        for _ in call(ADA, metadata=[("x-key", "messages")], timeout=60):
            messages += 1
    except grpc.RpcError as error:
        found = denial(error)
    case(row, CLIENT, "messages before it", 1, messages)
    case(row, CLIENT, "code", "RESOURCE_EXHAUSTED", found["code"])
    case(row, CLIENT, "the details have the same code", True, found.get("same_code"))
    case(row, CLIENT, "QuotaFailure", "[['policy:slow', 'slow: 1 per 2s']]", found.get("violations"))
