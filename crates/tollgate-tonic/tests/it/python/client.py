"""Makes calls with the standard Python client (grpcio, grpcio-status), and prints one line of JSON for each call.

Arguments: the address of an echo server, the name of a scenario, and for `tls` the file of root certificates.
Messages are sent as bytes, so that no Python code has to be generated. `grpc_denial` is a script of `tools/foreign`.
"""

import json
import sys
import time

import grpc
from grpc_denial import denial

ADDRESS, SCENARIO = sys.argv[1], sys.argv[2]
METADATA = (("x-api-key", "acme"),)

RETRY = {
    "methodConfig": [
        {
            "name": [{"service": "echo.Echo"}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "20s",
                "maxBackoff": "20s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


def channel():
    options = []
    if SCENARIO == "retry":
        options = [("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(RETRY))]
    if SCENARIO == "tls":
        with open(sys.argv[3], "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        options = [("grpc.ssl_target_name_override", "localhost")]
        return grpc.secure_channel(ADDRESS, credentials, options)
    return grpc.insecure_channel(ADDRESS, options)


def call(grpc_channel, kind):
    """Makes one call. The text of the message is `3`, so that a response stream has three messages."""
    message = b"\n\x013"
    if kind == "unary":
        grpc_channel.unary_unary("/echo.Echo/Unary")(message, metadata=METADATA)
        return 1
    if kind == "server":
        return len(list(grpc_channel.unary_stream("/echo.Echo/Server")(message, metadata=METADATA)))
    if kind == "client":
        grpc_channel.stream_unary("/echo.Echo/Client")(iter([message] * 3), metadata=METADATA)
        return 1
    return len(list(grpc_channel.stream_stream("/echo.Echo/Bidi")(iter([message] * 3), metadata=METADATA)))


def streamed(grpc_channel, kind):
    """Makes a call of nine messages with its own key. Returns the messages before the denial, and the denial."""
    message, received = b"\n\x019", 0
    metadata = (("x-api-key", kind),)
    try:
        if kind == "client":
            grpc_channel.stream_unary("/echo.Echo/Client")(iter([message] * 9), metadata=metadata)
        elif kind == "server":
            for _ in grpc_channel.unary_stream("/echo.Echo/Server")(message, metadata=metadata):
                received += 1
        else:
            for _ in grpc_channel.stream_stream("/echo.Echo/Bidi")(iter([message] * 9), metadata=metadata):
                received += 1
    except grpc.RpcError as error:
        return {"kind": kind, "messages": received, **denial(error)}
    return {"kind": kind, "messages": received, "code": "OK"}


with channel() as grpc_channel:
    if SCENARIO == "messages":
        for kind in ["server", "client", "bidi"]:
            print(json.dumps(streamed(grpc_channel, kind)), flush=True)
        sys.exit()
    kinds = ["unary", "server", "client", "bidi"]
    for kind in ["unary"] * 2 if SCENARIO == "retry" else kinds + kinds:
        started = time.monotonic()
        try:
            line = {"kind": kind, "code": "OK", "messages": call(grpc_channel, kind)}
        except grpc.RpcError as error:
            line = {"kind": kind, **denial(error)}
        line["took_ms"] = int((time.monotonic() - started) * 1000)
        print(json.dumps(line), flush=True)
