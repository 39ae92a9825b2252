"""Replays the bundle of a run of the workflow "t" in the published SDK: replay.py BUNDLE, which prints what its code would do next."""

import json
import sys

from durable_workflow import workflow
from durable_workflow.workflow import Replayer


@workflow.defn(name="t")
class Noting:
    """Notes something over and over, and now and then has it added up."""

    def run(self, ctx, rounds, notes):
        total = 0
        for _ in range(rounds):
            for _ in range(notes):
                noted = yield ctx.side_effect(lambda: "what is recorded is not asked again")
                if noted != "some text":
                    raise ValueError(f"noted {noted!r}")
            total = yield ctx.schedule_activity("add", [total, 1])
        return total


def main(path):
    with open(path, encoding="utf-8") as f:
        bundle = json.load(f)
    events = [{**e, "event_type": e["type"]} for e in bundle["history_events"]]
    outcome = Replayer(workflows=[Noting]).replay(events, workflow_type="t", run_id=bundle["workflow"]["run_id"], payload_codec="avro")
    print(json.dumps([[type(c).__name__, getattr(c, "result", None)] for c in outcome.commands]))


main(sys.argv[1])
