"""Calls a gRPC server through Envoy, which asks `tollgate-envoy` before each call."""

import grpc

from report import ARGUMENTS, ENVOY, case, named

CLIENT = f"{named('grpcio')}, {ENVOY}"
MODE = ARGUMENTS["mode"]


def codes(channel, name, count):
    """Returns the codes of several calls."""
    call = channel.unary_unary("/helloworld.Greeter/SayHello")
    found = []
    for _ in range(count):
        try:
            call(b"\n\x03Ada", metadata=(("x-method", name),), timeout=60)
            found.append("OK")
        except grpc.RpcError as error:
            found.append(error.code().name)
    return found


row = f"gRPC, mode {MODE}"
for place, word in (("grpc", "UNAVAILABLE"), ("exhausted", "RESOURCE_EXHAUSTED")):
    with grpc.insecure_channel(ARGUMENTS[place], [("grpc.enable_retries", 0)]) as channel:
        # The first connection may be refused while Envoy's workers start.
        grpc.channel_ready_future(channel).result(timeout=60)
        case(row, CLIENT, f"two calls, then {word}", ["OK", "OK", word], codes(channel, place, 3))
