"""Lets grpcio wait: its retry policy obeys `grpc-retry-pushback-ms`.

The server admits one call each two seconds. The back-off of the policy is 20 s, so a call that succeeds earlier has
obeyed the pushback. Two attempts are allowed, so a call that is repeated too early fails. Messages are sent as bytes, so
that no code has to be generated.
"""

import json
import time
import urllib.request

import grpc

from grpc_denial import denial
from report import ARGUMENTS, case, named, note

CLIENT = named("grpcio", "grpcio-status")
ADA = b"\n\x03Ada"
HELLO_ADA = b"\n\x0aHello Ada!"
GREETER = ARGUMENTS["greeter"]

RETRY = {
    "methodConfig": [
        {
            "name": [{"service": "helloworld.Greeter"}],
            "retryPolicy": {
                "maxAttempts": 2,
                "initialBackoff": "20s",
                "maxBackoff": "20s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


def call(channel, key, cost="1"):
    """Makes a call. Returns `OK` or the denial, and the seconds that it took."""
    began = time.monotonic()
    try:
        hello = channel.unary_unary("/helloworld.Greeter/SayHello")
        reply = hello(ADA, metadata=(("x-key", key), ("x-cost", cost)), timeout=60)
        found = {"code": "OK" if reply == HELLO_ADA else f"another reply: {reply!r}"}
    except grpc.RpcError as error:
        found = denial(error)
    return found, time.monotonic() - began


def seen(key):
    """Returns how many calls with this key reached the server."""
    with urllib.request.urlopen(f"http://{GREETER}/seen/{key}") as response:
        return int(response.read())


def told(code, key):
    """Returns the code of a call, and the number of calls that the server saw."""
    return f"{code}, {seen(key)} calls seen"


def stream(channel, key):
    """Makes a call with a response stream. Returns the code, and the number of messages."""
    try:
        hello = channel.unary_stream("/helloworld.Greeter/SayHelloStream")
        return f"OK, {len(list(hello(ADA, metadata=(('x-key', key),), timeout=60)))} messages"
    except grpc.RpcError as error:
        return error.code().name


retrying = [("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(RETRY))]
with grpc.insecure_channel(GREETER, retrying) as channel:
    row = "grpcio waits: `grpc-retry-pushback-ms`"
    case(row, CLIENT, "the first call", "OK, 1 calls seen", told(call(channel, "waits")[0]["code"], "waits"))
    found, took = call(channel, "waits")
    case(row, CLIENT, "denied, then sent again", "OK, 3 calls seen", told(found["code"], "waits"))
    case(row, CLIENT, "sent again by the pushback, not by the back-off", "below 15 s", f"{took:.1f} s", took < 15)
    note(row, f"admitted after {took:.1f} s")
    case(row, CLIENT, "a stream, denied, then sent again", "OK, 3 messages", stream(channel, "waits"))

    row = "grpcio gives up: a cost that never fits has a pushback of -1"
    found, took = call(channel, "never", cost="7")
    case(row, CLIENT, "code and attempts", "RESOURCE_EXHAUSTED, 1 calls seen", told(found["code"], "never"))
    case(row, CLIENT, "pushback", "-1", found.get("pushback"))
    case(row, CLIENT, "reason", "COST_EXCEEDS_LIMIT", found.get("reason"))

with grpc.insecure_channel(GREETER, [("grpc.enable_retries", 0)]) as channel:
    row = "grpcio without retries reads the denial"
    call(channel, "reads")
    found, _ = call(channel, "reads")
    case(row, CLIENT, "code", "RESOURCE_EXHAUSTED", found["code"])
    case(row, CLIENT, "the details have the same code", True, found.get("same_code"))
    case(row, CLIENT, "number of details", 3, found.get("details"))
    wait = found.get("retry_ms") or 0
    case(row, CLIENT, "RetryInfo", "1 to 2000 ms", f"{wait} ms", 1 <= wait <= 2000)
    case(
        row,
        CLIENT,
        "pushback, rounded up from RetryInfo",
        "0 or 1 ms above",
        found["pushback"],
        0 <= int(found["pushback"]) - wait <= 1,
    )
    case(row, CLIENT, "QuotaFailure", "[['policy:slow', 'slow: 1 per 2s']]", found.get("violations"))
    case(
        row,
        CLIENT,
        "ErrorInfo",
        "RATE_LIMIT_EXCEEDED of tollgate: slow",
        f"{found.get('reason')} of {found.get('domain')}: {found.get('policy')}",
    )

with grpc.insecure_channel(ARGUMENTS["charged"]) as channel:
    row = "grpcio reads the denial of a message"
    hello, messages = channel.unary_stream("/helloworld.Greeter/SayHelloStream"), 0
    try:
        for _ in hello(ADA, metadata=(("x-key", "messages"),), timeout=60):
            messages += 1
        found = {"code": "OK"}
    except grpc.RpcError as error:
        found = denial(error)
    case(row, CLIENT, "messages before it", 1, messages)
    case(row, CLIENT, "code", "RESOURCE_EXHAUSTED", found["code"])
    case(row, CLIENT, "the details have the same code", True, found.get("same_code"))
    case(row, CLIENT, "QuotaFailure", "[['policy:slow', 'slow: 1 per 2s']]", found.get("violations"))
