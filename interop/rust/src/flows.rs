//! Workflows.

use durable_workflow::{
    ActivityOptions, ActivityRetryPolicy, ChildWorkflowOptions, ConditionWaitResult,
    ContinueAsNewOptions, Error, ParallelOperation, ParallelResult, ParentClosePolicy, Result,
    SearchAttributeUpdate, Value, Worker, WorkerSessionOptions, WorkflowContext, json,
    wait_condition,
};
use std::time::Duration;

/// What the workflow `tally` keeps in memory.
#[derive(Clone, Default)]
pub struct Tally {
    added: Vec<i64>,
}

pub fn register(worker: &mut Worker, queue: &str) -> Result<()> {
    worker.register_workflow("echo", |ctx, input| async move { ctx.activity("echo", json!([input[0]])).await });
    worker.register_workflow("retried", |ctx, input| async move {
        let tries = ActivityRetryPolicy::new(4).backoff_intervals([Duration::ZERO, Duration::from_secs(1)]);
        ctx.activity_with_options("attempt", ActivityOptions::new().retry_policy(tries), json!([input[0]])).await
    });
    worker.register_workflow("refused", refused);
    worker.register_workflow("unhandled", |ctx, _| async move {
        let once = ActivityOptions::new().retry_policy(ActivityRetryPolicy::new(1));
        ctx.activity_with_options("refuse", once, json!(["Refused", true])).await
    });
    worker.register_workflow("too_slow", too_slow);
    worker.register_workflow("beating", |ctx, input| async move { ctx.activity("beat", json!([input[0]])).await });
    worker.register_workflow("sleeping", |ctx, input| async move {
        ctx.sleep(Duration::from_secs(input[0].as_u64().unwrap_or(1))).await?;
        Ok(json!("awake"))
    });
    worker.register_workflow("collecting", collecting);
    worker.register_workflow("waiting", waiting);
    worker.register_workflow("taking_turns", taking_turns);
    worker.register_workflow("account", account);
    worker.register_replayed_workflow("tally", Tally::default, |ctx, input, tally| async move {
        let wanted = input[0].as_u64().unwrap_or(1) as usize;
        let seen = ctx.clone();
        wait_condition!(ctx, "enough", move || Ok(seen.updates("add")?.len() >= wanted)).await?;
        for update in ctx.updates("add")? {
            tally.update(|t| t.added.extend(update.iter().filter_map(Value::as_i64)))?;
        }
        ctx.sleep(Duration::from_secs(input[1].as_u64().unwrap_or(0))).await?;
        Ok(json!(tally.read(|t| t.added.clone())?))
    });
    worker.register_update("tally", "add", |_, args| async move {
        match args[0].as_i64() {
            Some(n) if n >= 0 => Ok(json!(n * 2)),
            _ => Err(durable_workflow::ActivityError::new("Negative", "only what is not negative").into()),
        }
    });
    worker.register_replayed_query::<Tally, _, _>("tally", "added", |_, tally, args| async move {
        Ok(json!({"added": tally.added, "asked": args}))
    });
    worker.register_workflow("booking", booking);
    worker.register_workflow("parent", parent);
    worker.register_workflow("failing", |_, _| async move {
        Err(durable_workflow::ActivityError::new("Failing", "it fails").into())
    });
    let own = queue.to_string();
    worker.register_workflow("counting_down", move |ctx, input| {
        let own = own.clone();
        async move {
            let left = input[0].as_i64().unwrap_or(0);
            if left == 0 {
                return Ok(input[1].clone());
            }
            let mut seen = input[1].as_array().cloned().unwrap_or_default();
            seen.push(ctx.activity("echo", json!([left])).await?);
            ctx.continue_as_new_with_options(ContinueAsNewOptions::new().task_queue(own), json!([left - 1, seen]))
        }
    });
    worker.register_workflow("once", |ctx, _| async move {
        let first = ctx.side_effect(|| durable_workflow::Uuid::new_v4().to_string())?;
        let version = ctx.get_version("a-change", 1, 3)?;
        ctx.activity("echo", json!([1])).await?;
        let second = ctx.uuid_v4()?;
        ctx.activity("echo", json!([2])).await?;
        Ok(json!({"first": first, "second": second.to_string(), "version": version, "again": ctx.get_version("a-change", 1, 3)?}))
    });
    worker.register_workflow("noting", |ctx, _| async move {
        ctx.upsert_memo(json!({"step": 1, "from": null, "nested": {"a": [1, 2.5, null]}}))?;
        ctx.upsert_search_attributes(
            SearchAttributeUpdate::new()
                .keyword("OrderStatus", "open")?
                .int("Attempts", 2)?
                .bool("Urgent", true)?
                .keyword_list("Tags", ["a", "b"])?,
        )?;
        ctx.activity("echo", json!([1])).await?;
        ctx.upsert_search_attributes(SearchAttributeUpdate::new().delete("Urgent")?)?;
        Ok(json!("noted"))
    });
    worker.register_workflow("together", together);
    worker.register_workflow("together_failing", |ctx, _| async move {
        let members = vec![
            ParallelOperation::activity("echo", json!(["kept"])),
            ParallelOperation::activity_with_options(
                "refuse",
                ActivityOptions::new().retry_policy(ActivityRetryPolicy::new(1)),
                json!(["Refused", true]),
            ),
        ];
        match ctx.join(members).await {
            Err(Error::ParallelFailed(f)) => Ok(json!({"member": f.member_path, "completed": f.completed.len()})),
            other => Ok(json!({"unexpected": format!("{other:?}")})),
        }
    });
    worker.register_workflow("racing", |ctx, _| async move {
        let won = ctx
            .select_keyed(vec![
                ("slow", ParallelOperation::timer(Duration::from_secs(300))),
                ("fast", ParallelOperation::activity("echo", json!(["first"]))),
            ])
            .await?;
        let key = json!(won.key);
        Ok(json!({"key": key, "value": value(won.into_result()?)}))
    });
    worker.register_workflow("in_session", |ctx, input| async move {
        let id = input[0].as_str().unwrap_or_default();
        let session = WorkerSessionOptions::new(id).lease_seconds(input[2].as_u64().unwrap_or(60));
        let again = ActivityRetryPolicy::new(3).backoff_intervals([Duration::ZERO]);
        let options = ActivityOptions::new().retry_policy(again).start_to_close_timeout(Duration::from_secs(5));
        let mut said = vec![];
        for n in 0..input[1].as_i64().unwrap_or(1) {
            let pause = input[3].as_u64().unwrap_or(0);
            let step = ctx.activity_with_options("keep", options.clone(), json!([n, pause]));
            said.push(step.in_worker_session(session.clone()).await?);
        }
        Ok(json!(said))
    });
    worker.register_workflow("steps", |ctx, input| async move {
        let mut workers = vec![];
        for _ in 0..input[0].as_i64().unwrap_or(1) {
            let again = ActivityRetryPolicy::new(3).backoff_intervals([Duration::ZERO]);
            let options = ActivityOptions::new().retry_policy(again).start_to_close_timeout(Duration::from_secs(5));
            workers.push(ctx.activity_with_options("nap", options, json!([300])).await?);
        }
        Ok(json!(workers))
    });
    for (flow, signal) in [("collecting", "add"), ("waiting", "go"), ("taking_turns", "add"), ("account", "deposit")] {
        worker.declare_workflow_signals(flow, &[signal])?;
    }
    Ok(())
}

async fn refused(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let tries = ActivityRetryPolicy::new(3)
        .backoff_intervals([Duration::ZERO])
        .non_retryable_error_type("Hopeless");
    let options = ActivityOptions::new().retry_policy(tries);
    match ctx.activity_with_options("refuse", options, json!([input[0], input[1]])).await {
        Err(Error::ActivityFailed(f)) => Ok(json!({
            "reason": f.reason, "type": f.exception_type, "last": f.non_retryable, "attempt": f.attempt_number, "message": f.message,
        })),
        other => Ok(json!({"unexpected": format!("{other:?}")})),
    }
}

async fn too_slow(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let second = Duration::from_secs(1);
    let once = ActivityOptions::new().retry_policy(ActivityRetryPolicy::new(1));
    let options = match input[0].as_str() {
        Some("start_to_close") => once.start_to_close_timeout(second),
        Some("schedule_to_close") => once.schedule_to_close_timeout(second),
        Some("heartbeat") => once.heartbeat_timeout(second).start_to_close_timeout(second * 60),
        _ => once.schedule_to_start_timeout(second).task_queue("nobody-serves-it"),
    };
    match ctx.activity_with_options("nap", options, json!([4000])).await {
        Err(Error::ActivityFailed(f)) => Ok(json!({"kind": format!("{:?}", f.kind), "timeout": f.timeout_kind})),
        other => Ok(json!({"unexpected": format!("{other:?}")})),
    }
}

async fn collecting(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let mut all = vec![];
    for _ in 0..input[0].as_i64().unwrap_or(1) {
        all.push(ctx.wait_signal("add").await?);
        ctx.activity("echo", json!([all.len()])).await?;
    }
    Ok(json!(all))
}

async fn waiting(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let seen = ctx.clone();
    let wanted = input[0].as_u64().unwrap_or(1) as usize;
    let outcome = wait_condition!(
        ctx,
        "signalled",
        timeout: Duration::from_secs(input[1].as_u64().unwrap_or(300)),
        move || Ok(seen.signals("go")?.len() >= wanted),
    )
    .await?;
    Ok(match outcome {
        ConditionWaitResult::Satisfied => json!(ctx.signals("go")?),
        ConditionWaitResult::TimedOut => json!("timed out"),
    })
}

/// One signal a run, by a wait that is opened after a step, until as many are there as were wanted.
async fn taking_turns(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let left = input[0].as_i64().unwrap_or(1);
    let mut all = input[1].as_array().cloned().unwrap_or_default();
    ctx.activity("echo", json!([left])).await?;
    all.push(json!(ctx.wait_signal("add").await?));
    if left > 1 { ctx.continue_as_new(json!([left - 1, all])) } else { Ok(json!(all)) }
}

/// Opens no wait for a signal: a condition sees to it that there are some, and the run that goes on as new has paid in all of them.
async fn account(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let (goal, mut balance, runs) = (input[0].as_i64(), input[1].as_i64().unwrap_or(0), input[2].as_i64().unwrap_or(0) + 1);
    let seen = ctx.clone();
    wait_condition!(ctx, "paid in", move || Ok(!seen.signals("deposit")?.is_empty())).await?;
    balance += ctx.signals("deposit")?.iter().filter_map(|d| d[0].as_i64()).sum::<i64>();
    if Some(balance) < goal { ctx.continue_as_new(json!([goal, balance, runs])) } else { Ok(json!({"balance": balance, "runs": runs})) }
}

async fn parent(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let queue = input[1].as_str().unwrap_or_default();
    let policy = match input[3].as_str() {
        Some("terminate") => ParentClosePolicy::Terminate,
        Some("request_cancel") => ParentClosePolicy::RequestCancel,
        _ => ParentClosePolicy::Abandon,
    };
    let options = ChildWorkflowOptions::new(queue).parent_close_policy(policy);
    let child = input[0].as_str().unwrap_or_default();
    match ctx.start_child_workflow(child, options, input[2].clone()).await {
        Ok(done) => Ok(json!({"result": done.result, "child": done.child.workflow_id.is_some(), "type": done.child_workflow_type})),
        Err(Error::ChildWorkflowFailed(f)) => Ok(json!({"reason": f.reason, "kind": format!("{:?}", f.kind), "type": f.exception_type})),
        Err(other) => Err(other),
    }
}

async fn together(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let queue = input[0].as_str().unwrap_or_default();
    let results = ctx
        .join(vec![
            ParallelOperation::activity("nap", json!([600])),
            ParallelOperation::timer(Duration::from_secs(1)),
            ParallelOperation::group(vec![
                ParallelOperation::activity("echo", json!(["inner"])),
                ParallelOperation::child_workflow("echo", ChildWorkflowOptions::new(queue), json!(["child"])),
            ]),
        ])
        .await?;
    Ok(Value::Array(results.into_iter().map(value).collect()))
}

/// A member's result as plain JSON.
fn value(result: ParallelResult) -> Value {
    match result {
        ParallelResult::Activity(v) => v,
        ParallelResult::ChildWorkflow(c) => c.result,
        ParallelResult::Timer => json!("timer"),
        ParallelResult::Signal(v) => Value::Array(v),
        ParallelResult::Condition(c) => json!(c.is_satisfied()),
        ParallelResult::Group(all) => Value::Array(all.into_iter().map(value).collect()),
    }
}

/// Reserves two things and refuses the third step if told so. It returns what was compensated, in order.
async fn booking(ctx: WorkflowContext, input: Value) -> Result<Value> {
    let mut saga = ctx.saga();
    let outcome = async {
        for name in ["reserve flight", "reserve hotel"] {
            let reserved = ctx.activity("echo", json!([name])).await?;
            saga.add_compensation("undo", json!([input[1], reserved]))?;
        }
        let once = ActivityOptions::new().retry_policy(ActivityRetryPolicy::new(1));
        if input[0].as_bool().unwrap_or(false) {
            ctx.activity_with_options("refuse", once, json!(["Refused", true])).await?;
        }
        Ok(json!("booked"))
    }
    .await;
    match saga.finish(outcome).await {
        Err(Error::ActivityFailed(_)) => ctx.activity("undone", json!([input[1]])).await,
        other => other,
    }
}
