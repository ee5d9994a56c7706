"""Calls a gRPC server through Envoy, with gRPC and with gRPC-Web, and reads its denials.

The example grpc_server admits five calls per second, ten at once. A second server admits one each two seconds and tells
its pushback.
"""

import base64
import struct

import grpc
import httpx
from google.rpc import status_pb2

from grpc_denial import ADA, SERVICE, denial, details, unary
from report import ARGUMENTS, ENVOY, case, named

GRPC = f"{named('grpcio', 'grpcio-status')}, {ENVOY}"
WEB = f"{named('httpx')}, {ENVOY}"


def stream(channel):
    """Returns `OK` with the number of messages, or the denial."""
    try:
        return {"code": f"OK, {len(list(channel.unary_stream(f'{SERVICE}/SayHelloStream')(ADA, timeout=60)))} messages"}
    except grpc.RpcError as error:
        return denial(error)


def until(is_denied, call):
    """Repeats a call until it is denied, or until it is not. Returns the last answer."""
    # The bucket of the example holds ten calls and gains five per second.
    for _ in range(2000):
        found = call()
        if (found["code"] == "RESOURCE_EXHAUSTED") == is_denied:
            break
    return found


def check(row, client, name, admitted, call):
    """Prints the cases of a call to the example: admitted, and denied."""
    case(row, client, name, admitted, until(False, call)["code"])
    found = until(True, call)
    wait = found.get("retry_ms") or 0
    case(row, client, f"{name}: RetryInfo", "1 to 200 ms", f"{wait} ms", 1 <= wait <= 200)
    expected = {
        "code": "RESOURCE_EXHAUSTED",
        "same_code": True,
        "details": 3,
        "violations": [["policy:greeter", "greeter: 5 per 1s, 10 at once"]],
        "reason": "RATE_LIMIT_EXCEEDED",
    }
    case(row, client, f"{name}, denied", expected, {field: found.get(field) for field in expected})


def of_grpcio():
    """Calls with grpcio, through Envoy and without it."""
    for row, address in [("gRPC through Envoy", ARGUMENTS["example"]), ("gRPC without Envoy", ARGUMENTS["direct"])]:
        with grpc.insecure_channel(address) as channel:
            check(row, GRPC, "a call", "OK", lambda: unary(channel))
            check(row, GRPC, "a stream", "OK, 3 messages", lambda: stream(channel))
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            # SERVING is 1.
            case(row, GRPC, "health, not limited", b"\x08\x01", health(b"", timeout=60))
    with grpc.insecure_channel(ARGUMENTS["pushback"], [("grpc.enable_retries", 0)]) as channel:
        row, key = "gRPC pushback through Envoy", [("x-key", "grpc")]
        unary(channel, key)
        found = unary(channel, key)
        case(row, GRPC, "code", "RESOURCE_EXHAUSTED", found["code"])
        pushback = int(found.get("pushback") or 0)
        case(row, GRPC, "pushback", "1 to 2000 ms", f"{pushback} ms", 1 <= pushback <= 2000)


def frames(body):
    """Returns the flag and the content of each frame of a gRPC-Web body."""
    while body:
        flag, length = struct.unpack(">BI", body[:5])
        if len(body) < 5 + length:
            raise ValueError(f"a frame of {length} bytes is cut off")
        yield flag, body[5 : 5 + length]
        body = body[5 + length :]


def web(client, is_text, method):
    """Makes a call with gRPC-Web. Returns its code with the number of messages, or the denial."""
    kind = "application/grpc-web-text+proto" if is_text else "application/grpc-web+proto"
    body = struct.pack(">BI", 0, len(ADA)) + ADA
    response = client.post(
        f"http://{ARGUMENTS['example']}{SERVICE}/{method}",
        content=base64.b64encode(body) if is_text else body,
        headers={"content-type": kind, "accept": kind, "x-grpc-web": "1"},
    )
    content = response.content
    if is_text:
        # Each frame may be padded by itself.
        quads = [content[at : at + 4] for at in range(0, len(content), 4)]
        content = b"".join(base64.b64decode(quad) for quad in quads)
    # A response without messages may tell its status in the header (Trailers-Only).
    trailers = {name: value for name, value in response.headers.items() if name.startswith("grpc-")}
    messages = 0
    for flag, frame in frames(content):
        if flag & 0x80:
            lines = [line.split(":", 1) for line in frame.decode().split("\r\n") if line]
            trailers |= {name.strip().lower(): value.strip() for name, value in lines}
        else:
            messages += 1
    sent = (response.status_code, response.headers.get("content-type", "").split(";")[0])
    code = trailers.get("grpc-status") if sent == (200, kind) else sent
    if code != "8" or messages > 0:
        return {"code": f"{code}, {messages} messages"}
    encoded = trailers.get("grpc-status-details-bin", "")
    status = status_pb2.Status.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
    return {"code": "RESOURCE_EXHAUSTED", "same_code": status.code == 8, **details(status)}


def of_grpc_web():
    """Calls with gRPC-Web, in its binary and its text form."""
    with httpx.Client(timeout=60) as client:
        for is_text in (False, True):
            row = f"gRPC-Web through Envoy, {'text' if is_text else 'binary'}"
            for method, messages in [("SayHello", 1), ("SayHelloStream", 3)]:
                check(row, WEB, method, f"0, {messages} messages", lambda: web(client, is_text, method))


of_grpcio()
of_grpc_web()
