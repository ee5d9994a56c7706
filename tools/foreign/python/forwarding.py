"""Tries to get a second quota behind Envoy, by header fields that a client can write.

Each setting is a listener of one Envoy in front of the example behind_a_proxy, which limits each client to two
requests per minute and answers with the address that it counts for. The client has an address of its own on the
loopback interface. A spoof gets through if the request counts for another address.
"""

import socket
from http.client import HTTPResponse

from report import ARGUMENTS, ENVOY, case, note

# The wrong settings under which a spoof gets through: Envoy passes the field on as the client wrote it, or the example
# takes its clients for proxies.
WRONG = {"not appended", "clients trusted"}

# The name of a spoof, its field lines, and the settings under which it gets through. `{a}` and `{b}` are addresses that
# no other request names, `{proxy}` is the address of Envoy.
SPOOFS = [
    ("one address", ["X-Forwarded-For: {a}"], WRONG),
    ("two addresses", ["X-Forwarded-For: {a}, {b}"], WRONG),
    ("two field lines", ["X-Forwarded-For: {a}", "X-Forwarded-For: {b}"], WRONG),
    ("an address and that of the proxy", ["X-Forwarded-For: {a}, {proxy}"], WRONG),
    ("an address and that of the proxy five times", ["X-Forwarded-For: {a}" + ", {proxy}" * 5], WRONG),
    ("an address with a port", ["X-Forwarded-For: {a}:4711"], WRONG),
    ("a private address", ["X-Forwarded-For: 10.0.{n}.1"], WRONG),
    ("an IPv6 address", ["X-Forwarded-For: 2001:db8:{n}::1"], WRONG),
    ("an IPv6 address in brackets, with a port", ["X-Forwarded-For: [2001:db8:{n}::2:1]:443"], WRONG),
    ("an IPv4 address written as IPv6", ["X-Forwarded-For: ::ffff:{a}"], WRONG),
    ("two hundred addresses", ["X-Forwarded-For: " + "{b}, " * 199 + "{a}"], WRONG),
    ("an address between commas", ["X-Forwarded-For: , {a} ,"], WRONG),
    ("the field named in lower case", ["x-forwarded-for: {a}"], WRONG),
    ("the address of the proxy", ["X-Forwarded-For: {proxy}"], {"clients trusted"}),
    ("the field named in Connection", ["X-Forwarded-For: {a}", "Connection: close, X-Forwarded-For"], set()),
    ("a word that is no address", ["X-Forwarded-For: unknown"], set()),
    ("an address with leading zeros", ["X-Forwarded-For: 010.{n}.0.1"], set()),
    ("an empty field", ["X-Forwarded-For: "], set()),
    ("Forwarded", ["Forwarded: for={a}"], set()),
    ("Forwarded beside X-Forwarded-For", ["Forwarded: for={a}", "X-Forwarded-For: {b}"], WRONG),
    ("X-Real-IP", ["X-Real-IP: {a}"], set()),
    (
        "X-Client-IP, True-Client-IP, CF-Connecting-IP",
        ["X-Client-IP: {a}", "True-Client-IP: {a}", "CF-Connecting-IP: {a}"],
        set(),
    ),
    ("X-Envoy-External-Address", ["X-Envoy-External-Address: {a}"], set()),
    ("a field name with underscores", ["X_Forwarded_For: {a}"], set()),
]


def request(address, source, lines):
    """Sends a request from the address `source`. Returns the status and the body."""
    with socket.create_connection(address, timeout=20, source_address=(source, 0)) as connection:
        lines = ["GET / HTTP/1.1", "Host: example.com", *lines]
        if not any(line.startswith("Connection:") for line in lines):
            lines.append("Connection: close")
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        response = HTTPResponse(connection)
        response.begin()
        return response.status, response.read().decode().strip()


def spend(address, source):
    """Sends requests from `source` until one is denied. Returns the address that they counted for."""
    counted = None
    for _ in range(20):
        status, body = request(address, source, [])
        if status == 429:
            return counted
        counted = body.removeprefix("you are ")
    return f"nobody: none of 20 requests was denied, the last answer is {status} {body}"


def try_all(number, setting):
    """Tries all spoofs under a setting, and prints a case for each."""
    address, source = ("127.0.0.1", setting["port"]), f"127.0.0.{10 + number}"
    row = setting["row"]
    counted = spend(address, source)
    case(row, ENVOY, "no spoof", setting["counts_for"].replace("{client}", source), counted)
    through, refused = [], []
    for n, (name, lines, wrong) in enumerate(SPOOFS):
        values = {"a": f"198.51.{number}.{n}", "b": f"203.0.{number}.{n}", "n": str(number * len(SPOOFS) + n)}
        values["proxy"] = ARGUMENTS["proxy"]
        status, body = request(address, source, [line.format(**values) for line in lines])
        # The bucket of the client gains a unit each 30 s: 200 for the true address is no escape.
        is_through = status == 200 and body != f"you are {counted}"
        if is_through:
            through.append(name)
        # Envoy itself may refuse a request.
        if status == 400:
            refused.append(name)
        words = {True: "gets through", False: "does not get through"}
        unknown = "" if status in (200, 400, 429) else f" ({status})"
        case(row, ENVOY, name, words[setting["through"] in wrong], words[is_through] + unknown)
    note(row, f"{len(through)} of {len(SPOOFS)} get through" + (f": {', '.join(through)}" if through else ""))
    if refused:
        note(row, f"Envoy refuses: {', '.join(refused)}")


for number, setting in enumerate(ARGUMENTS["settings"]):
    try_all(number, setting)
