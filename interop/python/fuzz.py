"""What Schemathesis cannot know of an app: ids that are there, and which requests would wait for half a minute.

FUZZ_KNOWN is a JSON object of lists: parts of paths and members of bodies, by name, and values that mean something to the app under test. Most requests
get them, and sound version headers, so that they come past the first checks; the rest stay as they were made.
"""

import json
import os
import random

import schemathesis

KNOWN = json.loads(os.environ.get("FUZZ_KNOWN", "{}"))
VERSIONS = {
    "X-Durable-Workflow-Protocol-Version": "1.20",
    "X-Durable-Workflow-Control-Plane-Version": "2",
    "X-Namespace": "default",
}
DICE = random.Random(int(os.environ.get("FUZZ_SEED", "1")))


def known(values):
    """Puts what is there in the place of most values."""
    for name, choices in KNOWN.items():
        if name in values and DICE.random() < 0.8:
            values[name] = DICE.choice(choices)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.path_parameters:
        known(case.path_parameters)
        if case.operation.path.endswith("/stream"):  # that of an open run ends with the run
            case.path_parameters["workflow"], case.path_parameters["run"] = KNOWN["ended"]
    if case.query:
        known(case.query)
        case.query.pop("wait_new_event", None)
    if DICE.random() < 0.85:
        for name, version in VERSIONS.items():
            if name in (case.headers or {}):
                case.headers[name] = version
    body, path = case.body, case.operation.path
    if not isinstance(body, dict):
        return
    if path.startswith("/api/worker/") and DICE.random() < 0.8:
        for name in ("worker_id", "lease_owner"):
            body.setdefault(name, "")
    known(body)
    if path.endswith("/poll"):
        body["timeout_seconds"] = 0
    if isinstance(body.get("next"), dict):
        body["next"]["timeout_seconds"] = 0
    if "/update/" in path:
        body["wait_timeout_seconds"] = 1
