"""Calls the greeter with grpcio, and reads a denial with grpcio-status. Messages are sent as bytes, so that no code has
to be generated."""

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

SERVICE = "/helloworld.Greeter"
ADA = b"\n\x03Ada"
HELLO_ADA = b"\n\x0aHello Ada!"


def unary(channel, metadata=()):
    """Makes a call. Returns `OK` or the denial."""
    try:
        reply = channel.unary_unary(f"{SERVICE}/SayHello")(ADA, metadata=metadata, timeout=60)
        return {"code": "OK" if reply == HELLO_ADA else f"another reply: {reply!r}"}
    except grpc.RpcError as error:
        return denial(error)


def details(status):
    """Returns the details of a `google.rpc.Status`."""
    retry, quota, info = (
        error_details_pb2.RetryInfo(),
        error_details_pb2.QuotaFailure(),
        error_details_pb2.ErrorInfo(),
    )
    for detail in status.details:
        for message in (retry, quota, info):
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    return {
        "details": len(status.details),
        "retry_ms": retry.retry_delay.ToMilliseconds(),
        "violations": [[it.subject, it.description] for it in quota.violations],
        "reason": info.reason,
    }


def denial(error):
    """Returns the status of a failed call, and the details that grpcio-status finds in the trailers."""
    status = rpc_status.from_call(error)
    found = {"code": error.code().name}
    if status is not None:
        found |= {"same_code": status.code == error.code().value[0], **details(status)}
    found["pushback"] = dict(error.trailing_metadata()).get("grpc-retry-pushback-ms")
    return found
