import { describe, expect, it } from "vitest";
import type { HistoryEvent } from "../api/types";
import { resetPoints } from "./Reset";

const event = (sequence: number, event_type: string, workflow_task_id?: string) => ({ sequence, event_type, workflow_task_id, payload: null }) as unknown as HistoryEvent;

describe("the events to which a run can be reset", () => {
  const events = [
    event(1, "WorkflowStarted"),
    event(2, "ActivityScheduled", "r-1-workflow"),
    event(3, "TimerScheduled", "r-1-workflow"),
    event(4, "ActivityCompleted"),
    event(5, "ActivityScheduled", "r-2-workflow"),
    event(6, "ActivityCompleted"),
    event(7, "WorkflowCompleted", "r-3-workflow"),
  ];

  it("are the last events of the workflow tasks that left the run open", () => {
    expect([...resetPoints(events, true)]).toEqual([3, 5]);
  });

  it("do not include the end of a history that is not complete", () => {
    expect([...resetPoints(events.slice(0, 2), false)]).toEqual([]);
  });
});
