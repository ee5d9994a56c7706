"""Calls a gRPC server through Envoy, with gRPC and with gRPC-Web, and reads its denials.

The example grpc_server admits five calls per second, ten at once. A second server admits one each two seconds and tells
its pushback. Messages are sent as bytes, so that no code has to be generated.
"""

import base64
import struct

import grpc
import httpx
from google.rpc import status_pb2

from grpc_denial import denial, details
from report import ARGUMENTS, ENVOY, case, named

GRPC = f"{named('grpcio', 'grpcio-status')}, {ENVOY}"
WEB = f"{named('httpx')}, {ENVOY}"

ADA = b"\n\x03Ada"
HELLO_ADA = b"\n\x0aHello Ada!"
SERVICE = "/helloworld.Greeter"

# The bucket of the example holds ten calls and gains five per second.
MOST_CALLS = 2000


def unary(channel, metadata=()):
    """Returns `OK` or the denial."""
    try:
        reply = channel.unary_unary(f"{SERVICE}/SayHello")(ADA, metadata=metadata, timeout=60)
        return {"code": "OK" if reply == HELLO_ADA else f"another reply: {reply!r}"}
    except grpc.RpcError as error:
        return denial(error)


def stream(channel):
    """Returns `OK` with the number of messages, or the denial."""
    try:
        return {"code": f"OK, {len(list(channel.unary_stream(f'{SERVICE}/SayHelloStream')(ADA, timeout=60)))} messages"}
    except grpc.RpcError as error:
        return denial(error)


def until_denied(call):
    """Repeats a call until it is denied. Returns the denial, or the last answer."""
    for _ in range(MOST_CALLS):
        found = call()
        if found["code"] == "RESOURCE_EXHAUSTED":
            break
    return found


def check_denial(row, client, name, found):
    """Prints the cases of a denial by the example."""
    case(row, client, f"{name}: code", "RESOURCE_EXHAUSTED", found["code"])
    case(row, client, f"{name}: the details have the same code", True, found.get("same_code"))
    case(row, client, f"{name}: number of details", 3, found.get("details"))
    wait = found.get("retry_ms") or 0
    case(row, client, f"{name}: RetryInfo", "1 to 200 ms", f"{wait} ms", 1 <= wait <= 200)
    case(
        row,
        client,
        f"{name}: QuotaFailure",
        "[['policy:greeter', 'greeter: 5 per 1s, 10 at once']]",
        found.get("violations"),
    )
    case(row, client, f"{name}: ErrorInfo", "RATE_LIMIT_EXCEEDED", found.get("reason"))


def of_grpcio():
    """Calls with grpcio, through Envoy and without it."""
    for row, address in [("gRPC through Envoy", ARGUMENTS["example"]), ("gRPC without Envoy", ARGUMENTS["direct"])]:
        with grpc.insecure_channel(address) as channel:
            case(row, GRPC, "a call", "OK", admitted(lambda: unary(channel)))
            case(row, GRPC, "a stream", "OK, 3 messages", admitted(lambda: stream(channel)))
            check_denial(row, GRPC, "a call", until_denied(lambda: unary(channel)))
            check_denial(row, GRPC, "a stream", until_denied(lambda: stream(channel)))
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            # SERVING is 1.
            case(row, GRPC, "health, not limited", b"\x08\x01", health(b"", timeout=60))
    with grpc.insecure_channel(ARGUMENTS["pushback"], [("grpc.enable_retries", 0)]) as channel:
        row = "gRPC pushback through Envoy"
        key = (("x-key", "grpc"),)
        unary(channel, key)
        found = unary(channel, key)
        case(row, GRPC, "code", "RESOURCE_EXHAUSTED", found["code"])
        pushback = int(found.get("pushback") or 0)
        case(row, GRPC, "pushback", "1 to 2000 ms", f"{pushback} ms", 1 <= pushback <= 2000)


def admitted(call):
    """Repeats a call while it is denied: the rows before may have emptied the bucket. Returns its code."""
    for _ in range(MOST_CALLS):
        found = call()
        if found["code"] != "RESOURCE_EXHAUSTED":
            break
    return found["code"]


def frames(body):
    """Returns the flag and the content of each frame of a gRPC-Web body."""
    found = []
    while body:
        flag, length = struct.unpack(">BI", body[:5])
        if len(body) < 5 + length:
            raise ValueError(f"a frame of {length} bytes is cut off")
        found.append((flag, body[5 : 5 + length]))
        body = body[5 + length :]
    return found


def web(client, is_text, method):
    """Makes a call with gRPC-Web. Returns the messages, and the status fields of the trailer frame or of the header."""
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
    messages = []
    for flag, frame in frames(content):
        if flag & 0x80:
            lines = [line.split(b":", 1) for line in frame.decode().encode().split(b"\r\n") if line]
            trailers |= {name.decode().strip().lower(): value.decode().strip() for name, value in lines}
        else:
            messages.append(frame)
    return {
        "status": response.status_code,
        "type": response.headers.get("content-type", "").split(";")[0],
        "messages": messages,
        "trailers": trailers,
    }


def web_denial(found):
    """Returns the denial in the trailers of a gRPC-Web response, in the form of `denial`."""
    encoded = found["trailers"].get("grpc-status-details-bin", "")
    status = status_pb2.Status.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
    code = int(found["trailers"].get("grpc-status", "-1"))
    name = {0: "OK", 8: "RESOURCE_EXHAUSTED"}.get(code, str(code))
    return {"code": name, "same_code": status.code == code, **details(status)}


def of_grpc_web():
    """Calls with gRPC-Web, in its binary and its text form."""
    with httpx.Client(timeout=60) as client:
        for is_text in (False, True):
            row = f"gRPC-Web through Envoy, {'text' if is_text else 'binary'}"
            for method, messages in [("SayHello", 1), ("SayHelloStream", 3)]:
                found = web(client, is_text, method)
                for _ in range(MOST_CALLS):
                    if found["trailers"].get("grpc-status") != "8":
                        break
                    found = web(client, is_text, method)
                answer = f"{found['status']}, {len(found['messages'])} messages, grpc-status {found['trailers'].get('grpc-status')}"
                case(row, WEB, method, f"200, {messages} messages, grpc-status 0", answer)
                kind = "application/grpc-web-text+proto" if is_text else "application/grpc-web+proto"
                case(row, WEB, f"{method}: content type", kind, found["type"])
                for _ in range(MOST_CALLS):
                    found = web(client, is_text, method)
                    if found["trailers"].get("grpc-status") == "8":
                        break
                case(row, WEB, f"{method}, denied: HTTP status", 200, found["status"])
                case(row, WEB, f"{method}, denied: messages", 0, len(found["messages"]))
                check_denial(row, WEB, f"{method}, denied", web_denial(found))


of_grpcio()
of_grpc_web()
