"""Calls `tollgate-envoy` as a gateway of Kuadrant does. The messages have the numbers that Limitador's `kuadrantrls.proto`
has, and Envoy's `rls.proto`: they are not read from the service."""

import itertools

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from report import ARGUMENTS, case, named

KUADRANT = "/kuadrant.service.ratelimit.v1.RateLimitService/"
ENVOY = "/envoy.service.ratelimit.v3.RateLimitService/"
CLIENT = named("grpcio")
NAMES = (f"name-{number}" for number in itertools.count())

# For each message: its fields, with their numbers and types. A type with a star is repeated.
MESSAGES = {
    "Entry": "key:1:string value:2:string",
    "UInt64Value": "value:1:uint64",
    "Descriptor": "entries:1:*Entry hits_addend:3:UInt64Value is_negative_hits:4:bool",
    "RateLimitRequest": "domain:1:string descriptors:2:*Descriptor hits_addend:3:uint32",
    "Status": "code:1:int32 limit_remaining:3:uint32",
    "RateLimitResponse": "overall_code:1:int32 statuses:2:*Status",
    "Duration": "seconds:1:int64 nanos:2:int32",
    "ReserveRequest": "domain:1:string descriptors:2:*Descriptor amount:3:uint64 ttl:4:Duration",
    "ReserveResponse": "code:1:int32 reservation_id:2:string",
    "CommitRequest": "domain:1:string descriptors:2:*Descriptor reservation_id:3:string actual_amount:4:uint64",
    "CommitResponse": "reservation_released:1:bool",
}

OK, OVER_LIMIT = 1, 2


def types():
    """Returns the classes of the messages by their names."""
    file = descriptor_pb2.FileDescriptorProto(name="gateway.proto", package="gateway", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in (field.split(":") for field in fields.split()):
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in MESSAGES:
                kind = {"type": kinds.TYPE_MESSAGE, "type_name": f".gateway.{kind}"}
            else:
                kind = {"type": getattr(kinds, f"TYPE_{kind.upper()}")}
            message.field.add(name=field, number=int(number), label=label, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"gateway.{name}")) for name in MESSAGES}


TYPES = types()


def ask(method, request, **fields):
    """Makes a call. Returns the response, or the code of the failure and its message."""
    answer = {"Reserve": "ReserveResponse", "Commit": "CommitResponse"}.get(method, "RateLimitResponse")
    path = (ENVOY if method == "ShouldRateLimit" else KUADRANT) + method
    encode, decode = (lambda message: message.SerializeToString()), TYPES[answer].FromString
    try:
        return CHANNEL.unary_unary(path, encode, decode)(TYPES[request](domain="shop", **fields), timeout=60)
    except grpc.RpcError as error:
        return error.code().name, error.details()


def limit(name, **fields):
    """Returns the descriptors of a limit of 3 a day."""
    return [{"entries": [{"key": "tenant", "value": name}, {"key": "tier", "value": "gold"}], **fields}]


def reserve(descriptors, amount, **fields):
    """Reserves. Returns the code and the id."""
    held = ask("Reserve", "ReserveRequest", descriptors=descriptors, amount=amount, **fields)
    return held if isinstance(held, tuple) else (held.code, held.reservation_id)


def commit(descriptors, name, amount):
    """Commits. Returns whether a reservation was found."""
    found = ask("Commit", "CommitRequest", descriptors=descriptors, reservation_id=name, actual_amount=amount)
    return found if isinstance(found, tuple) else found.reservation_released


def check(descriptors):
    """Returns whether a request would pass, and what is left."""
    answer = ask("CheckRateLimit", "RateLimitRequest", descriptors=descriptors)
    return answer.overall_code, [status.limit_remaining for status in answer.statuses]


def report(descriptors, hits, method="Report"):
    """Reports units. Returns the code."""
    return ask(method, "RateLimitRequest", descriptors=descriptors, hits_addend=hits).overall_code


def calls():
    """Reserves, commits, checks and reports."""
    row, tenant = f"Kuadrant's calls, mode {ARGUMENTS['mode']}", limit(next(NAMES))
    code, name = reserve(tenant, 2, ttl={"seconds": 30})
    case(row, CLIENT, "a reservation of 2 of 3", (OK, True), (code, bool(name)))
    case(row, CLIENT, "a second one", (OVER_LIMIT, ""), reserve(tenant, 2))
    case(row, CLIENT, "a look", (OK, [1]), check(tenant))
    case(row, CLIENT, "a commit of 1", True, commit(tenant, name, 1))
    case(row, CLIENT, "the same commit", False, commit(tenant, name, 1))
    case(row, CLIENT, "a look after it", (OK, [2]), check(tenant))
    case(row, CLIENT, "a commit of an unknown name", False, commit(tenant, "unknown", 1))
    case(row, CLIENT, "a report of more than is left", OK, report(tenant, 4))
    case(row, CLIENT, "a look at the debt", (OVER_LIMIT, [0]), check(tenant))
    case(row, CLIENT, "a reservation of nothing", (OVER_LIMIT, ""), reserve(tenant, 0))

    # Envoy's own call gives units back, and both services count in the same place.
    tenant = limit(next(NAMES))
    case(row, CLIENT, "a reservation of all", OK, reserve(tenant, 3)[0])
    refund = limit(tenant[0]["entries"][0]["value"], is_negative_hits=True)
    case(row, CLIENT, "`is_negative_hits` of Envoy's call", OK, report(refund, 2, "ShouldRateLimit"))
    case(row, CLIENT, "`is_negative_hits` of a report", OK, report(refund, 1))
    case(row, CLIENT, "a look after both", (OK, [3]), check(tenant))

    row, tenant = f"wrong calls, mode {ARGUMENTS['mode']}", limit(next(NAMES))
    wrong = [
        ("no descriptor", reserve([], 1)),
        ("the greatest amount", reserve(tenant, 2**64 - 1)),
        ("a time below 0", reserve(tenant, 1, ttl={"seconds": -1})),
        ("units of a descriptor", reserve(limit(next(NAMES), is_negative_hits=True), 1)),
        ("a commit without a descriptor", commit([], "name", 1)),
    ]
    for name, found in wrong:
        case(row, CLIENT, name, "INVALID_ARGUMENT, and why", found, found[0] == "INVALID_ARGUMENT" and found[1])
    case(row, CLIENT, "nothing was charged", (OK, [3]), check(tenant))


with grpc.insecure_channel(ARGUMENTS["grpc"]) as CHANNEL:
    calls()
