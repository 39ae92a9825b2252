// A worker over the Socket.IO channel: it serves the queue "socket" of the app at SOJOURN_APP_URL with the official client and nothing else.
//
// Its workflow, socket.tally, counts words in one session, so that the sum stays in this process between the steps. Its activity socket.watch tells how
// far it is and ends when it is told to.
import { randomUUID } from "node:crypto";
import { io } from "socket.io-client";
import { decode, encode } from "./payload.mjs";

const url = process.env.SOJOURN_APP_URL ?? "http://127.0.0.1:7700";
const me = process.env.SOJOURN_WORKER_ID ?? `socket-${randomUUID()}`;
const incarnation = randomUUID(); // names this process: what another process of the same ID held is released
const queue = "socket";
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- what this worker does

// A workflow gives the commands that come next, from what has happened: `done` are the results of its activities by the number of their command.
const workflows = {
  "socket.tally"({ id, args: [words], scheduled, done }) {
    if (scheduled > done.size) return []; // it waits for one
    if (done.size < words.length) {
      return [{
        type: "schedule_activity", activity_type: "socket.add", arguments: encode([words[done.size]]), session_id: `tally-${id}`,
        start_to_close_timeout: 60, retry_policy: { max_attempts: 3, backoff_seconds: [1] },
      }];
    }
    return [{ type: "complete_workflow", result: encode(done.get(done.size) ?? null) }];
  },
  "socket.watch"({ args, scheduled, done }) {
    if (scheduled > done.size) return [];
    if (done.size) return [{ type: "complete_workflow", result: encode(done.get(1)) }];
    return [{ type: "schedule_activity", activity_type: "socket.watch", arguments: encode(args) }];
  },
};

// An activity gets its arguments and its job: state of the session, progress, and a signal that ends it.
const activities = {
  async "socket.add"(job, word) {
    job.state.words = [...(job.state.words ?? []), word];
    await job.progress({ message: `counted ${word}` });
    return { words: job.state.words, letters: job.state.words.join("").length, worker: me };
  },
  async "socket.watch"(job, rounds) {
    for (let n = 1; n <= rounds; n++) {
      job.signal.throwIfAborted();
      await job.progress({ message: `round ${n}`, current: n, total: rounds });
      await pause(50);
    }
    return rounds;
  },
};

// ---- the channel

const socket = io(url, {
  path: "/api/socket.io", transports: ["websocket"], autoConnect: false, reconnectionDelay: 200, reconnectionDelayMax: 2_000,
  auth: { token: process.env.SOJOURN_TOKEN ?? "", workerId: me, protocol: 1 },
});

class Refused extends Error {
  constructor(answer) {
    super(answer.__rpcError);
    Object.assign(this, { code: answer.__rpcApError.code, details: answer.__rpcApError });
  }
}

// call asks the app. An error that is not Refused says that nothing is known: the same call again is safe.
async function call(method, payload, ms = 60_000) {
  const answer = await socket.timeout(ms).emitWithAck("rpc", { method, payload, deadlineMs: ms });
  if (answer?.__rpcError !== undefined) throw new Refused(answer);
  return answer;
}

// retryable are the codes of errors after which a call is repeated.
const retryable = ["settings_required", "backend_unavailable", "busy", "deadline_exceeded", "cancelled", "internal"];
// insist repeats a call until the app responds. The app may have processed a call that got no ack; all methods are idempotent.
async function insist(method, payload, signal) {
  for (;;) {
    signal.throwIfAborted();
    try {
      return await call(method, payload, 10_000);
    } catch (err) {
      if (err instanceof Refused && !retryable.includes(err.code)) throw err;
    }
    await pause(200);
  }
}

let settings, generation = 0, draining = false;
const running = new Map(); // jobs by id, with what ends them
const states = new Map(); // of sessions: {epoch, state}

const machine = () => ({
  workerId: me, cpuUsagePercentage: 0, ramUsagePercentage: 0, totalAvailableRamInBytes: 0, totalCpuCores: 1,
  workerProps: { EXECUTION_MODE: "process", WORKER_CONCURRENCY: "4", version: settings?.APP_VERSION ?? "" },
});

// hello is what every connection begins with: settings first, then the registration, with what is still being worked on.
async function hello(mine) {
  settings = await socket.timeout(10_000).emitWithAck("FETCH_WORKER_SETTINGS", machine());
  await call("register", {
    task_queues: [queue], incarnation, runtime: "javascript", sdk_version: "socket-worker/1", release: settings.APP_VERSION,
    supported_workflow_types: Object.keys(workflows), supported_activity_types: Object.keys(activities),
    capabilities: ["worker_sessions"], max_concurrent_workflow_tasks: 2, max_concurrent_activity_tasks: 4, max_concurrent_worker_sessions: 100,
    held_tasks: [...running.values()].map(({ job: { task, kind } }) => kind === "activity" ? task.activity_attempt_id : `${task.task_id}/${task.workflow_task_attempt}`),
  });
  console.log(`${me} works for ${url}`);
  for (const kind of ["workflow", "activity", "activity"]) loop(kind, mine);
  beat(mine);
}

// loop polls for one kind of job until its connection is gone or the worker drains.
async function loop(kind, mine) {
  while (mine === generation && !draining) {
    let wait = 1000; // never in a tight loop, whatever the app answers
    const asked = performance.now();
    try {
      const a = await call("poll", { kinds: [kind], max: 1, pollRequestId: randomUUID(), release: settings.APP_VERSION });
      const late = performance.now() - asked > 2_000; // the process may have been frozen with the response in its socket
      for (const job of a.jobs) await run(job, late);
      wait = a.jobs.length ? 0 : a.retryAfterMs ?? (a.pollStatus === "empty" ? 0 : 1000);
    } catch (err) {
      console.error(`poll: ${err.message}`);
    }
    await pause(wait);
  }
}

// beat shows that the worker lives, also when it has nothing to do, and hears what it missed.
async function beat(mine) {
  while (mine === generation) {
    try {
      const a = await call("heartbeat", { machine: machine(), draining }, 8_000);
      if (a.intent === "leave") drain(); // a.drain is about the app: it leaves, and the next connection finds another
    } catch (err) {
      console.error(`heartbeat: ${err.message}`);
    }
    await pause(settings.WORKER_HEARTBEAT_SECONDS * 1000);
  }
}

// run works on one job, across any number of connections: the worker holds the job until its lock expires.
async function run(job, late) {
  const ref = { jobId: job.jobId, token: job.token };
  const stop = new AbortController();
  running.set(job.jobId, { job, stop });
  const lost = (err) => { if (err instanceof Refused && !retryable.includes(err.code)) stop.abort(err); }; // another worker may hold the job
  const extending = setInterval(async () => { // the lock outlives three misses
    try {
      if ((await call("extendLock", ref, 10_000)).cancelRequested) stop.abort(new Error("cancelled"));
    } catch (err) {
      lost(err);
    }
  }, settings.JOB_LOCK_EXTEND_SECONDS * 1000);
  try {
    let outcome;
    // The app rejects extendLock if the job has ended; another worker may hold its session then.
    if (late && (await insist("extendLock", ref, stop.signal)).cancelRequested) throw new Error("cancelled");
    try {
      outcome = { status: "OK", response: job.kind === "workflow" ? await decide(job, ref, stop.signal) : await act(job, ref, stop.signal) };
    } catch (err) {
      lost(err);
      stop.signal.throwIfAborted();
      outcome = { status: "USER_FAILURE", response: { failure: { message: err.message, type: err.name } } };
    }
    try {
      await insist("completeJob", { ...ref, ...outcome }, stop.signal);
    } catch (err) {
      if (!(err instanceof Refused && [413, 422].includes(err.details.status))) throw err;
      // The app refused the content of the outcome and would refuse it again: report a failure with the reason.
      const failure = { message: `the app refused the outcome: ${err.message}`, type: "OutcomeRefused", non_retryable: true };
      await insist("completeJob", { ...ref, status: "USER_FAILURE", response: { failure } }, stop.signal);
    }
  } catch (err) { // the job was cancelled or lost, or the app refused its outcome
    console.log(`${job.task.activity_type ?? job.task.workflow_type} ended: ${err.message}`);
  } finally {
    clearInterval(extending);
    running.delete(job.jobId);
  }
}

// decide replays the history of a run and gives the commands that come next.
async function decide({ task }, ref, signal) {
  let { history_events: events, next_history_page_token: pageToken } = task;
  while (pageToken) {
    const page = await insist("fetchHistory", { ...ref, pageToken }, signal);
    events = events.concat(page.history_events);
    pageToken = page.next_history_page_token;
  }
  const done = new Map();
  let scheduled = 0;
  for (const { event_type: type, payload } of events) {
    if (type === "ActivityScheduled") scheduled++;
    if (type === "ActivityCompleted") done.set(payload.sequence, decode(payload.result));
    if (type === "ActivityFailed") return { commands: [{ type: "fail_workflow", message: payload.message ?? "an activity failed" }] };
  }
  const commands = workflows[task.workflow_type]({ id: task.workflow_id, args: decode(task.arguments) ?? [], scheduled, done });
  if (!commands.length) throw Object.assign(new Error("nothing new"), { name: "WorkflowTaskWaitingForHistory" });
  return { commands };
}

// act runs an activity, with the state of its session: another epoch is somebody else's past.
async function act({ jobId, task, session }, ref, signal) {
  let state = {};
  if (session) {
    const held = states.get(session.sessionId);
    state = held?.epoch === session.epoch ? held.state : {};
    states.set(session.sessionId, { epoch: session.epoch, state });
  }
  const progress = async (progress) => {
    if ((await insist("reportProgress", { ...ref, progress }, signal)).cancelRequested) running.get(jobId)?.stop.abort(new Error("cancelled"));
  };
  return { result: await activities[task.activity_type]({ state, progress, signal }, ...(decode(task.arguments) ?? [])) };
}

// drain stops polling, lets what runs end within the time the app gives, hands the rest back, releases its sessions and leaves.
async function drain() {
  if (draining) return;
  draining = true;
  console.log(`${me} drains`);
  await call("heartbeat", { draining: true }, 5_000).catch(() => {});
  for (const end = Date.now() + (settings?.WORKER_DRAIN_SECONDS ?? 25) * 1000 - 5_000; running.size && Date.now() < end; ) await pause(50);
  const farewell = (method, payload) => call(method, payload, 5_000).catch(() => {}); // without a response, the leases expire
  await Promise.all([...running.values()].map(({ job, stop }) => {
    stop.abort(new Error("draining"));
    return farewell("returnJob", { jobId: job.jobId, token: job.token, reason: "draining" });
  }));
  await Promise.all([...states].map(([session_id, { epoch }]) => farewell("releaseSession", { session_id, epoch, reason: "drained" })));
  await farewell("deregister", {});
  generation++;
  socket.disconnect();
  console.log(`${me} has left`);
  process.exit(0);
}

const notices = {
  cancel: ({ taskId }) => running.get(taskId)?.stop.abort(new Error("cancelled")),
  drain: () => void drain(),
  settings: async () => { settings = await socket.timeout(10_000).emitWithAck("FETCH_WORKER_SETTINGS", machine()); },
  closeSession: ({ session_id, epoch }) => { if (states.get(session_id)?.epoch === epoch) states.delete(session_id); },
  yieldSession: async ({ session_id, epoch, reason }) => {
    if (![...running.values()].some(({ job }) => job.session?.sessionId === session_id)) {
      states.delete(session_id);
      await call("releaseSession", { session_id, epoch, reason });
    }
  },
};

socket.on("rpc-notify", async ({ method, payload }, ack) => {
  try {
    await notices[method]?.(payload ?? {});
  } catch (err) {
    console.error(`${method}: ${err.message}`);
  }
  ack?.(); // heard
});
socket.on("connect", () => {
  const mine = ++generation;
  hello(mine).catch((err) => {
    console.error(`hello: ${err.message}`);
    if (mine !== generation || draining) return; // that connection has ended; the next one calls hello again
    socket.disconnect();
    setTimeout(() => socket.connect(), 1000);
  });
});
socket.on("connect_error", (err) => console.error(`connect: ${err.data?.reason ?? err.message}`));
socket.on("disconnect", (reason) => {
  generation++; // the loops of this connection end; what runs goes on, and says so when there is a connection again
  if (reason === "io server disconnect" && !draining) setTimeout(() => socket.connect(), 1000);
});
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, drain);
socket.connect();
