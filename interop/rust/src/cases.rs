//! The client's side: each case starts workflows of flows.rs and fails when something is not as the contract says.

use durable_workflow::{
    Client, Error, Result, Uuid, Value, WorkflowCommandOptions, WorkflowDescription, WorkflowHandle,
    WorkflowResultOptions, WorkflowStartOptions, json,
};
use crate::sessions::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub type Verdict = std::result::Result<(), String>;
type Case = fn(Bench) -> Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// What every case needs: a client, and workflows under ids nobody else has.
#[derive(Clone)]
pub struct Bench {
    pub client: Client,
    queue: String,
}

const PATIENCE: Duration = Duration::from_secs(120);

impl Bench {
    async fn start(&self, flow: &str, input: Value) -> std::result::Result<WorkflowHandle, String> {
        self.start_as(flow, &format!("{flow}-{}", Uuid::new_v4()), input, WorkflowStartOptions::new()).await
    }

    async fn start_as(&self, flow: &str, id: &str, input: Value, options: WorkflowStartOptions) -> std::result::Result<WorkflowHandle, String> {
        self.client.start_workflow_with_options(flow, &self.queue, id, options, input).await.map_err(text)
    }

    async fn run(&self, flow: &str, input: Value) -> std::result::Result<Value, String> {
        self.start(flow, input).await?.result(patient()).await.map_err(text)
    }

    async fn end(&self, flow: &str, input: Value) -> std::result::Result<Result<Value>, String> {
        Ok(self.start(flow, input).await?.result(patient()).await)
    }

    /// Waits for a run to look as the check wants it.
    async fn until(&self, handle: &WorkflowHandle, what: &str, check: fn(&WorkflowDescription) -> bool) -> std::result::Result<WorkflowDescription, String> {
        let began = Instant::now();
        loop {
            let seen = handle.describe().await.map_err(text)?;
            if check(&seen) {
                return Ok(seen);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("waited in vain until {what}: {:?} {:?}", seen.status, seen.raw.get("wait_reason")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn patient() -> WorkflowResultOptions {
    WorkflowResultOptions { poll_interval: Duration::from_millis(50), timeout: PATIENCE }
}

pub fn text(e: Error) -> String {
    format!("{e:?}").chars().take(800).collect()
}

pub fn same(got: &Value, want: Value) -> Verdict {
    if *got == want { Ok(()) } else { Err(format!("got {got}, want {want}")) }
}

fn is_waiting(d: &WorkflowDescription) -> bool {
    d.status.as_deref() == Some("waiting")
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        fn all() -> Vec<(&'static str, Case)> {
            vec![$((stringify!($name), |b| Box::pin($name(b)))),*]
        }
    };
}

cases![
    every_json_type, retries, non_retryable_failures, a_typed_failure_at_the_client, all_four_timeouts, heartbeat_and_cancellation, timers,
    signals_before_and_after_the_wait, a_condition_is_met_by_signals, a_condition_times_out, updates_and_queries, children, ended_children,
    continue_as_new, a_signal_that_answered_a_wait_is_handled, signals_that_met_a_condition_are_handled, side_effects_and_version_markers, memo_and_search_attributes, parallel_groups, racing_operations, cancel_and_terminate,
    run_timeout, duplicate_start, a_session_keeps_its_state, session_verbs_and_refusals, a_session_moves_when_its_lease_ends_and_keeps_its_ttl,
    a_stopped_worker_releases_its_sessions, a_saga_compensates,
];

/// Runs the named cases, or all, at once, and prints a line of JSON for each.
pub async fn run(client: Client, queue: &str, names: &[String]) -> Result<()> {
    let bench = Bench { client, queue: queue.to_string() };
    let room = Arc::new(tokio::sync::Semaphore::new(8));
    let mut tasks = tokio::task::JoinSet::new();
    for (name, case) in all() {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        let (bench, room) = (bench.clone(), Arc::clone(&room));
        tasks.spawn(async move {
            let _place = room.acquire().await;
            let verdict = tokio::time::timeout(Duration::from_secs(300), case(bench)).await;
            let error = match verdict {
                Ok(Ok(())) => String::new(),
                Ok(Err(e)) => e,
                Err(_) => "it takes longer than 300 s".to_string(),
            };
            println!("{}", json!({"case": name, "ok": error.is_empty(), "error": error}));
        });
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

async fn every_json_type(b: Bench) -> Verdict {
    let given = json!({
        "null": null, "yes": true, "no": false, "zero": 0, "most": i64::MAX, "least": i64::MIN, "half": 0.5, "one": 1.0, "text": "ß \u{1F980} \"\\\n",
        "empty": "", "list": [1, [2, []], {}], "map": {"b": 1, "a": {"c": null}},
    });
    same(&b.run("echo", json!([given])).await?, given)?;
    for one in [json!(null), json!("x"), json!([]), json!(7.0), json!(-1)] {
        same(&b.run("echo", json!([one])).await?, one)?;
    }
    Ok(())
}

async fn retries(b: Bench) -> Verdict {
    same(&b.run("retried", json!([3])).await?, json!(3))
}

async fn non_retryable_failures(b: Bench) -> Verdict {
    let refused = |last: bool, attempt: u64, kind: &str| {
        json!({"reason": "activity", "type": kind, "last": last, "attempt": attempt, "message": "it is refused"})
    };
    same(&b.run("refused", json!(["Refused", true])).await?, refused(true, 1, "Refused"))?;
    same(&b.run("refused", json!(["Hopeless", false])).await?["attempt"], json!(1))?;
    same(&b.run("refused", json!(["Refused", false])).await?["attempt"], json!(3))
}

async fn a_typed_failure_at_the_client(b: Bench) -> Verdict {
    match b.end("unhandled", json!([])).await? {
        Err(Error::WorkflowFailed(f)) => {
            same(&json!(f.message.as_deref().unwrap_or_default().contains("it is refused")), json!(true))?;
        }
        other => return Err(format!("got {other:?}")),
    }
    match b.end("failing", json!([])).await? {
        Err(Error::WorkflowFailed(f)) if f.message.as_deref() == Some("it fails") => Ok(()),
        other => Err(format!("got {other:?}")),
    }
}

async fn all_four_timeouts(b: Bench) -> Verdict {
    for kind in ["start_to_close", "schedule_to_close", "heartbeat", "schedule_to_start"] {
        same(&b.run("too_slow", json!([kind])).await?, json!({"kind": "TimedOut", "timeout": kind}))?;
    }
    Ok(())
}

/// Waits for a file that an activity writes.
async fn written(path: &std::path::Path, what: &str) -> Verdict {
    let began = Instant::now();
    while !path.exists() {
        if began.elapsed() > PATIENCE {
            return Err(format!("waited in vain until {what}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn heartbeat_and_cancellation(b: Bench) -> Verdict {
    let seen = std::env::temp_dir().join(format!("sojourn-interop-{}", Uuid::new_v4()));
    let handle = b.start("beating", json!([seen.to_str()])).await?;
    let begun = seen.with_extension("begun");
    written(&begun, "the activity begins").await?;
    handle.cancel(WorkflowCommandOptions::new().reason("enough")).await.map_err(text)?;
    written(&seen, "the activity is told of the cancellation").await?;
    let _ = std::fs::remove_file(seen);
    let _ = std::fs::remove_file(begun);
    match handle.result(patient()).await {
        Err(Error::WorkflowCancelled(_)) => Ok(()),
        other => Err(format!("got {other:?}")),
    }
}

async fn timers(b: Bench) -> Verdict {
    let began = Instant::now();
    same(&b.run("sleeping", json!([1])).await?, json!("awake"))?;
    if began.elapsed() < Duration::from_secs(1) { Err("it woke early".to_string()) } else { Ok(()) }
}

async fn signals_before_and_after_the_wait(b: Bench) -> Verdict {
    let handle = b.start("collecting", json!([3])).await?;
    handle.signal("add", json!(["one", 1])).await.map_err(text)?;
    handle.signal_with_request_id("add", json!([]), "twice").await.map_err(text)?;
    handle.signal_with_request_id("add", json!([]), "twice").await.map_err(text)?;
    b.until(&handle, "it waits", is_waiting).await?;
    handle.signal("add", json!([{"three": 3}])).await.map_err(text)?;
    let got = handle.result(patient()).await.map_err(text)?;
    same(&json!(got.as_array().map(Vec::len)), json!(3))?;
    same(&got[0], json!(["one", 1]))
}

async fn a_condition_is_met_by_signals(b: Bench) -> Verdict {
    let handle = b.start("waiting", json!([2, 300])).await?;
    for n in 1..=2 {
        b.until(&handle, "it waits", is_waiting).await?;
        handle.signal("go", json!([n])).await.map_err(text)?;
    }
    same(&handle.result(patient()).await.map_err(text)?, json!([[1], [2]]))
}

async fn a_condition_times_out(b: Bench) -> Verdict {
    same(&b.run("waiting", json!([1, 1])).await?, json!("timed out"))
}

async fn updates_and_queries(b: Bench) -> Verdict {
    let handle = b.start("tally", json!([2, 2])).await?;
    same(&handle.query("added", json!(["x"])).await.map_err(text)?, json!({"added": [], "asked": ["x"]}))?;
    same(&handle.update("add", json!([4]), Some("first")).await.map_err(text)?, json!(8))?;
    same(&handle.update("add", json!([4]), Some("first")).await.map_err(text)?, json!(8))?;
    if let Ok(got) = handle.update("add", json!([-1]), None).await {
        if got["update_status"] != json!("failed") {
            return Err(format!("a refused update gives {got}"));
        }
    }
    same(&handle.update("add", json!([5]), None).await.map_err(text)?, json!(10))?;
    handle.result(patient()).await.map_err(text)?;
    let closed = handle.query("added", json!([])).await.map_err(text)?;
    same(&json!(closed["added"].as_array().is_some_and(|a| a.contains(&json!(4)) && a.contains(&json!(5)))), json!(true))?;
    match handle.query("nothing-of-that-name", json!([])).await {
        Err(Error::QueryFailed(_)) => Ok(()),
        other => Err(format!("an unknown query: {other:?}")),
    }
}

async fn children(b: Bench) -> Verdict {
    let done = json!({"result": "from the child", "child": true, "type": "echo"});
    same(&b.run("parent", json!(["echo", b.queue, ["from the child"], null])).await?, done)?;
    let failed = b.run("parent", json!(["failing", b.queue, [], null])).await?;
    same(&failed["kind"], json!("Failed"))
}

async fn ended_children(b: Bench) -> Verdict {
    for (policy, status) in [("terminate", "terminated"), ("request_cancel", "cancelled"), ("abandon", "waiting")] {
        let handle = b.start("parent", json!(["sleeping", b.queue, [600], policy])).await?;
        let began = Instant::now();
        let child = loop {
            let seen = handle.describe().await.map_err(text)?;
            let open = seen.raw.get("pending").and_then(|p| p["children"].as_array().cloned()).unwrap_or_default();
            if let Some(id) = open.first().and_then(|c| c["workflow_id"].as_str()) {
                break id.to_string();
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("no child is shown: {:?}", seen.raw));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        handle.terminate(WorkflowCommandOptions::new()).await.map_err(text)?;
        let began = Instant::now();
        loop {
            let seen = b.client.describe_workflow(&child).await.map_err(text)?;
            if seen.status.as_deref() == Some(status) {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("with {policy} the child is {:?}", seen.status));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

async fn continue_as_new(b: Bench) -> Verdict {
    let handle = b.start("counting_down", json!([3, []])).await?;
    same(&handle.result(patient()).await.map_err(text)?, json!([3, 2, 1]))?;
    let last = handle.describe().await.map_err(text)?;
    same(&last.raw["run_number"], json!(4))
}

/// Of what a run was shown, the answer to its wait stays behind and the rest goes with it.
async fn a_signal_that_answered_a_wait_is_handled(b: Bench) -> Verdict {
    let handle = b.start("taking_turns", json!([4, []])).await?;
    for n in 1..=3 {
        handle.signal("add", json!([n])).await.map_err(text)?;
    }
    b.until(&handle, "the last run waits", |d| is_waiting(d) && d.raw["run_number"] == json!(4)).await?;
    handle.signal("add", json!([4])).await.map_err(text)?;
    same(&handle.result(patient()).await.map_err(text)?, json!([[1], [2], [3], [4]]))
}

async fn signals_that_met_a_condition_are_handled(b: Bench) -> Verdict {
    let handle = b.start("account", json!([15])).await?;
    b.until(&handle, "it waits", is_waiting).await?;
    handle.signal("deposit", json!([10])).await.map_err(text)?;
    b.until(&handle, "the next run waits", |d| is_waiting(d) && d.raw["run_number"] == json!(2)).await?;
    handle.signal("deposit", json!([5])).await.map_err(text)?;
    same(&handle.result(patient()).await.map_err(text)?, json!({"balance": 15, "runs": 2}))?;

    let handle = b.start("account", json!([30])).await?; // they meet runs that begin, wait and go on
    for _ in 0..30 {
        handle.signal("deposit", json!([1])).await.map_err(text)?;
    }
    same(&handle.result(patient()).await.map_err(text)?["balance"], json!(30))
}

async fn side_effects_and_version_markers(b: Bench) -> Verdict {
    let got = b.run("once", json!([])).await?;
    same(&json!([got["version"], got["again"]]), json!([3, 3]))?;
    same(&json!(got["first"] != got["second"] && got["first"].is_string()), json!(true))
}

async fn memo_and_search_attributes(b: Bench) -> Verdict {
    let handle = b.start("noting", json!([])).await?;
    same(&handle.result(patient()).await.map_err(text)?, json!("noted"))?;
    let seen = handle.describe().await.map_err(text)?;
    same(&seen.raw["memo"], json!({"step": 1, "nested": {"a": [1, 2.5, null]}}))?;
    same(&seen.raw["search_attributes"], json!({"OrderStatus": "open", "Attempts": 2, "Tags": ["a", "b"]}))
}

async fn parallel_groups(b: Bench) -> Verdict {
    let got = b.run("together", json!([b.queue])).await?;
    same(&json!([got[1], got[2]]), json!(["timer", ["inner", "child"]]))?;
    same(&b.run("together_failing", json!([])).await?, json!({"member": [1], "completed": 1}))
}

async fn racing_operations(b: Bench) -> Verdict {
    same(&b.run("racing", json!([])).await?, json!({"key": "fast", "value": "first"}))
}

async fn cancel_and_terminate(b: Bench) -> Verdict {
    let cancelled = b.start("sleeping", json!([600])).await?;
    b.until(&cancelled, "it sleeps", is_waiting).await?;
    cancelled.cancel(WorkflowCommandOptions::new().reason("enough")).await.map_err(text)?;
    let Err(Error::WorkflowCancelled(_)) = cancelled.result(patient()).await else {
        return Err("a cancelled run is not seen as one".to_string());
    };
    let Err(Error::WorkflowCommandRejected(_)) = cancelled.cancel(WorkflowCommandOptions::new()).await else {
        return Err("a closed run can be cancelled".to_string());
    };
    let ended = b.start("sleeping", json!([600])).await?;
    b.until(&ended, "it sleeps", is_waiting).await?;
    ended.terminate(WorkflowCommandOptions::new()).await.map_err(text)?;
    match ended.result(patient()).await {
        Err(Error::WorkflowTerminated(_)) => Ok(()),
        other => Err(format!("got {other:?}")),
    }
}

async fn run_timeout(b: Bench) -> Verdict {
    let options = WorkflowStartOptions::new().run_timeout_seconds(1).execution_timeout_seconds(60);
    let handle = b.start_as("sleeping", &format!("short-{}", Uuid::new_v4()), json!([600]), options).await?;
    match handle.result(patient()).await {
        Err(Error::WorkflowTimedOut(o)) => same(&json!(o.reason), json!("run_timeout")),
        other => Err(format!("got {other:?}")),
    }
}

async fn duplicate_start(b: Bench) -> Verdict {
    let handle = b.start("sleeping", json!([600])).await?;
    match b.client.start_workflow("sleeping", &b.queue, &handle.workflow_id, json!([600])).await {
        Err(Error::Http { status, body }) if status.as_u16() == 409 && body.contains("duplicate") => {}
        other => return Err(format!("got {other:?}")),
    }
    handle.terminate(WorkflowCommandOptions::new()).await.map_err(text).map(|_| ())
}

async fn a_saga_compensates(b: Bench) -> Verdict {
    let failed = b.run("booking", json!([true, Uuid::new_v4().to_string()])).await?;
    same(&failed, json!(["reserve hotel", "reserve flight"]))?;
    same(&b.run("booking", json!([false, Uuid::new_v4().to_string()])).await?, json!("booked"))
}

async fn a_session_keeps_its_state(b: Bench) -> Verdict {
    let id = format!("s-{}", Uuid::new_v4());
    let said = b.run("in_session", json!([id, 3, 60, 0])).await?;
    let all = said.as_array().cloned().unwrap_or_default();
    if all.len() != 3 || all.iter().any(|s| s["pid"] != all[0]["pid"]) {
        return Err(format!("the session moved: {said}"));
    }
    same(&all[2]["kept"], json!([0, 1, 2]))
}
