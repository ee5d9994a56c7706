"""Changes the files of a running `tollgate-envoy`, and asks it over HTTP until the new rules are in force."""

import pathlib
import shutil
import subprocess
import time

import httpx

from report import ARGUMENTS, case, named

CLIENT = named("httpx")
DIRECTORY = pathlib.Path(ARGUMENTS["directory"])
ROW = "files that change"

# Less than the 30 seconds after which the files are read without an event.
LIMIT = 20


def rules(requests):
    """Returns rules with one limit."""
    return f"domain: files\ndescriptors:\n- {{key: k, rate_limit: {{unit: day, requests_per_unit: {requests}}}}}\n"


def limit():
    """Returns the limit that is in force."""
    request = {"domain": "files", "descriptors": [{"entries": [{"key": "k", "value": "v"}], "hitsAddend": "0"}]}
    answer = httpx.post(f"http://{ARGUMENTS['json']}/json", json=request).json()
    return answer["statuses"][0].get("currentLimit", {}).get("requestsPerUnit")


def in_force(name, expected):
    """Waits until a limit is in force."""
    end = time.monotonic() + LIMIT
    while (found := limit()) != expected and time.monotonic() < end:
        time.sleep(0.05)
    case(ROW, CLIENT, name, expected, found)


def swap(target, link):
    """Swaps a link as operators do."""
    subprocess.run(f"ln -s {target} next && mv -T next {link}", shell=True, check=True, cwd=DIRECTORY)


def config(name):
    """Makes the directory of the rules."""
    path = DIRECTORY / name / "ratelimit" / "config"
    path.mkdir(parents=True)
    return path


(config("second") / "rules.yaml").write_text(rules(2))
swap("second", "current")
in_force("`RUNTIME_ROOT=current`, `ln -s second next && mv -T next current`", 2)

mount = config("third")
(mount / "..v1").mkdir()
(mount / "..v1" / "rules.yaml").write_text(rules(3))
(mount / "..data").symlink_to("..v1")
(mount / "rules.yaml").symlink_to("..data/rules.yaml")
swap("third", "current")
in_force("a config map behind the link", 3)
(mount / "..v2").mkdir()
(mount / "..v2" / "rules.yaml").write_text(rules(4))
swap("..v2", mount / "..data")
in_force("the config map is swapped", 4)

(mount / "new").write_text(rules(5))
(mount / "new").rename(mount / "rules.yaml")
in_force("a file is replaced by a rename", 5)
shutil.rmtree(DIRECTORY / "third")
(config("third") / "rules.yaml").write_text(rules(6))
in_force("the directory is deleted and made again", 6)
