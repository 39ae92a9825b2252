"""Speaks HTTP with an app: one call, one answer."""

import json, os, urllib.error, urllib.request

URL = os.environ.get("SOJOURN_APP_URL", "http://127.0.0.1:7700")
HEADERS = {"Content-Type": "application/json", "X-Durable-Workflow-Protocol-Version": "1.20"}
if token := os.environ.get("SOJOURN_TOKEN"):
    HEADERS["Authorization"] = "Bearer " + token


class Refused(Exception):
    """The app's no. Its reason is for programs, its text for people."""

    def __init__(self, status, body):
        super().__init__(f"{status} {body.get('reason')}: {body.get('message')}")
        self.reason = body.get("reason")
        # Whether the app refused the content of the request: it would refuse the same request again.
        self.content = status in (413, 422) or status == 400 and bool(body.get("errors"))


def work(method, path, body=None):
    """Calls a route below /api/worker/ and returns its answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}/api/worker/{path}", data, HEADERS, method=method)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        raise Refused(refusal.code, json.load(refusal)) from None
