//! Activities.

use durable_workflow::{ActivityError, Error, Value, Worker, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub fn register(worker: &mut Worker) {
    worker.register_activity("echo", |_, args| async move { Ok(args[0].clone()) });
    worker.register_activity("attempt", |ctx, args| async move {
        match ctx.attempt_number {
            n if n < args[0].as_u64().unwrap_or(0) => {
                Err(ActivityError::new("NotYet", format!("attempt {n}")).into())
            }
            n => Ok(json!(n)),
        }
    });
    worker.register_activity("refuse", |_, args| async move {
        let kind = args[0].as_str().unwrap_or("Refused").to_string();
        let last = args[1].as_bool().unwrap_or(false);
        Err::<Value, Error>(ActivityError::new(kind, "it is refused").non_retryable(last).into())
    });
    worker.register_activity("nap", |ctx, args| async move {
        tokio::time::sleep(Duration::from_millis(args[0].as_u64().unwrap_or(0))).await;
        Ok(json!(ctx.worker_id))
    });
    worker.register_activity("beat", |ctx, args| async move {
        let begun = format!("{}.begun", args[0].as_str().unwrap_or_default());
        std::fs::write(begun, "").map_err(|e| ActivityError::new("Disk", e.to_string()))?;
        loop {
            if ctx.heartbeat(json!({"message": "still here"})).await?.should_stop() {
                let seen = args[0].as_str().unwrap_or_default();
                std::fs::write(seen, "cancelled").map_err(|e| ActivityError::new("Disk", e.to_string()))?;
                return Err(ActivityError::new("Stopped", "told to stop").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let undone = Arc::new(Mutex::new(HashMap::<String, Vec<Value>>::new()));
    let undo = Arc::clone(&undone);
    worker.register_activity("undo", move |_, args| {
        let mut all = undo.lock().expect("nobody panics with it");
        all.entry(args[0].to_string()).or_default().push(args[1].clone());
        async move { Ok(Value::Null) }
    });
    worker.register_activity("undone", move |_, args| {
        let all = undone.lock().expect("nobody panics with it");
        let names = all.get(&args[0].to_string()).cloned().unwrap_or_default();
        async move { Ok(json!(names)) }
    });
    let kept = Arc::new(Mutex::new(HashMap::<String, Vec<i64>>::new()));
    worker.register_activity("keep", move |ctx, args| {
        let kept = Arc::clone(&kept);
        async move {
            let session = ctx
                .worker_session()
                .ok_or_else(|| Error::from(ActivityError::new("NoSession", "it runs in no session")))?;
            let id = session.options().session_id().to_string();
            let values = {
                let mut kept = kept.lock().expect("nobody panics with it");
                let values = kept.entry(id).or_default();
                values.push(args[0].as_i64().unwrap_or(0));
                values.clone()
            };
            tokio::time::sleep(Duration::from_millis(args[1].as_u64().unwrap_or(0))).await;
            Ok(json!({"pid": std::process::id(), "worker": ctx.worker_id, "kept": values}))
        }
    });
}
