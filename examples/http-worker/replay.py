"""Replays a workflow's code over its history, and finds the commands that come next.

A workflow is an object. Its method run is a generator: it yields a command, or a list of them, and gets what became of it when history
knows. Methods update_NAME change its state and answer, methods query_NAME only look.
"""

from payload import decode, encode


def value(v):
    return {"codec": "avro", "blob": encode(v)}


def activity(name, *arguments, **options):
    return {"type": "schedule_activity", "activity_type": name, "arguments": value(list(arguments)), **options}


def timer(seconds):
    return {"type": "start_timer", "delay_seconds": seconds}


def signal(name):
    return {"type": "open_signal_wait", "signal_name": name}


def together(commands, first):
    """The commands as one group, so that the run is woken when all of it has ended, not for every member."""
    group = {
        "parallel_group_id": f"parallel-calls:{first}:{len(commands)}", "parallel_group_kind": "mixed",
        "parallel_group_base_sequence": first, "parallel_group_size": len(commands),
    }
    return [{**c, **group, "parallel_group_index": i} for i, c in enumerate(commands)]


class Failed(Exception):
    """An activity that did not succeed, as workflow code sees it."""

    def __init__(self, said):
        super().__init__(said.get("message", ""))
        self.type = said.get("exception_type")


class Nondeterministic(Exception):
    """The code and the history do not tell the same story."""


# What a command leaves in history, and the member by which it is known again.
LEAVES = {
    "schedule_activity": ("ActivityScheduled", "activity_type"),
    "start_timer": ("TimerScheduled", "delay_seconds"),
    "open_signal_wait": ("SignalWaitOpened", "signal_name"),
}


class Replay:
    def __init__(self, workflow, events):
        self.workflow, self.commands, self.over = workflow, [], False
        self.number, self.waiting, self.results = 0, {}, {}  # commands are 1, 2, 3 …; those the code waits for; what became of them
        self.signals, self.updates = {}, {}  # that came and nobody took, by id
        self.opened = {e["payload"]["sequence"]: e for e in events if e["event_type"] in dict(LEAVES.values())}
        self.code = workflow.run(*(decode(events[0]["payload"].get("arguments")) or []))
        self.go_on(lambda: next(self.code))
        for e in events:
            self.happened(e["event_type"], e["payload"])

    def happened(self, kind, said):
        match kind:
            case "ActivityCompleted":
                self.resolve(said["sequence"], decode(said.get("result")))
            case "ActivityFailed" | "ActivityTimedOut" | "ActivityCancelled":
                self.resolve(said["sequence"], Failed(said))
            case "TimerFired":
                self.resolve(said["sequence"], None)
            case "SignalReceived":
                self.signals[said["workflow_signal_id"]] = said
            case "SignalApplied":  # the step that took it is in history
                self.signals.pop(said["workflow_signal_id"])
                self.resolve(said["sequence"], decode(said.get("value")))
            case "UpdateAccepted":
                self.updates[said["update_id"]] = said
            case "UpdateApplied":
                self.handle(self.updates.pop(said["update_id"]))
            case "UpdateCompleted":  # without UpdateApplied if nobody took it
                self.updates.pop(said["update_id"], None)

    def next(self):
        """The commands that are to be given: those of what has come since the last, too."""
        for id, said in list(self.signals.items()):
            wait = min((n for n, c in self.waiting.items() if n in self.opened and c.get("signal_name") == said["signal_name"]), default=0)
            if wait and not self.over:
                self.signals.pop(id)
                self.resolve(wait, decode(said.get("value")))
        for id, said in self.updates.items():
            if not self.over:
                answer = self.handle(said)
                self.commands.append({**answer, "update_id": id})
        return self.commands

    def handle(self, said):
        try:
            handler = getattr(self.workflow, "update_" + said["update_name"])
            return {"type": "complete_update", "result": value(handler(*(decode(said.get("arguments")) or [])))}
        except Exception as e:
            return {"type": "fail_update", "message": str(e), "exception_type": type(e).__name__}

    def resolve(self, number, result):
        if self.over or number not in self.waiting:
            return
        del self.waiting[number]
        self.results[number] = result
        if self.waiting:
            return  # it waits for several
        results = [self.results.pop(n) for n in sorted(self.results)]
        failed = next((r for r in results if isinstance(r, Failed)), None)
        if failed:
            self.go_on(lambda: self.code.throw(failed))
        else:
            self.go_on(lambda: self.code.send(results if self.several else results[0]))

    def go_on(self, step):
        try:
            wanted = step()
        except StopIteration as end:
            self.over = True
            self.commands.append({"type": "complete_workflow", "result": value(end.value)})
            return
        except Failed as e:
            self.over = True
            self.commands.append({"type": "fail_workflow", "message": str(e), "exception_type": e.type or "Failed"})
            return
        self.several = isinstance(wanted, list)
        for command in together(wanted, self.number + 1) if self.several else [wanted]:
            self.number += 1
            self.waiting[self.number] = command
            if self.number in self.opened:
                self.same(command, self.opened[self.number])
            else:
                self.commands.append(command)

    def same(self, command, event):
        kind, member = LEAVES[command["type"]]
        if event["event_type"] != kind or event["payload"].get(member) != command[member]:
            raise Nondeterministic(
                f"nondeterministic workflow code at command {self.number}: history has {event['event_type']} {event['payload'].get(member)}, "
                f"the code {command['type']} {command[member]}"
            )
