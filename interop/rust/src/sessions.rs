//! Cases of the session verbs of the SDK. Each has workers of its own, which have nothing but sessions.

use super::cases::{Bench, Verdict, same, text};
use durable_workflow::{Error, Result, Uuid, Value, Worker, WorkerSessionOptions, json};
use std::time::Duration;

struct Holders {
    queue: String,
    first: Worker,
    second: Worker,
}

impl Holders {
    async fn register(b: &Bench) -> std::result::Result<Self, String> {
        let queue = format!("sessions-{}", Uuid::new_v4());
        let worker = |name: &str| {
            Worker::new(b.client.clone(), &queue)
                .worker_id(format!("{queue}-{name}"))
                .worker_sessions(true)
                .max_concurrent_worker_sessions(1)
                .capabilities(["cache:local"])
                .poll_timeout(Duration::from_millis(10))
        };
        let all = Holders { first: worker("first"), second: worker("second"), queue: queue.clone() };
        all.first.register().await.map_err(text)?;
        all.second.register().await.map_err(text)?;
        Ok(all)
    }

    fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.queue)
    }

    fn options(&self, id: &str, ttl: u64) -> WorkerSessionOptions {
        WorkerSessionOptions::new(id).queue(&self.queue).requirements(["cache:local"]).lease_seconds(3).ttl_seconds(ttl)
    }

    async fn stop(self) -> Verdict {
        self.first.run_until(async {}).await.map_err(text)?;
        self.second.run_until(async {}).await.map_err(text)
    }
}

fn refused(got: Result<Value>, reason: &str) -> Verdict {
    match got {
        Err(Error::Http { status, body }) if status.as_u16() == 409 && body.contains(&format!("\"{reason}\"")) => Ok(()),
        other => Err(format!("got {other:?}, want 409 {reason}")),
    }
}

pub async fn session_verbs_and_refusals(b: Bench) -> Verdict {
    let h = Holders::register(&b).await?;
    let id = h.id("held");
    let session = h.first.worker_session(h.options(&id, 45)).map_err(text)?;
    let created = session.create().await.map_err(text)?;
    same(&created["outcome"], json!("created"))?;
    same(&session.create().await.map_err(text)?["outcome"], json!("reused"))?;
    let renewed = session.renew().await.map_err(text)?;
    same(&renewed["session"]["ttl_expires_at"], created["session"]["ttl_expires_at"].clone())?;

    let (first, second) = (h.id("first"), h.id("second"));
    let other = h.second.worker_session(h.options(&id, 45)).map_err(text)?;
    refused(other.create().await, "session_owned_by_another_worker")?;
    refused(b.client.renew_worker_session(&second, &id, 3).await, "session_owner_mismatch")?;
    let one_more = WorkerSessionOptions::new(h.id("one-more")).queue(&h.queue);
    refused(b.client.create_worker_session(&first, &one_more).await, "worker_session_limit_exceeded")?;
    let gpu = WorkerSessionOptions::new(h.id("gpu")).queue(&h.queue).requirements(["gpu:absent"]);
    refused(b.client.create_worker_session(&second, &gpu).await, "session_requirements_not_met")?;

    let closed = session.close("done").await.map_err(text)?;
    same(&closed["outcome"], json!("closed"))?;
    same(&session.close("again").await.map_err(text)?, closed)?;
    refused(b.client.create_worker_session(&second, &h.options(&id, 45)).await, "session_closed")?;
    h.stop().await
}

pub async fn a_session_moves_when_its_lease_ends_and_keeps_its_ttl(b: Bench) -> Verdict {
    let h = Holders::register(&b).await?;
    let id = h.id("moved");
    let created = h.first.worker_session(h.options(&id, 8)).map_err(text)?.create().await.map_err(text)?;
    tokio::time::sleep(Duration::from_millis(3250)).await;
    let next = h.second.worker_session(h.options(&id, 8)).map_err(text)?;
    let moved = next.create().await.map_err(text)?;
    same(&moved["outcome"], json!("reacquired"))?;
    same(&moved["session"]["ttl_expires_at"], created["session"]["ttl_expires_at"].clone())?;
    refused(b.client.renew_worker_session(&h.id("first"), &id, 3).await, "session_owner_mismatch")?;
    tokio::time::sleep(Duration::from_millis(5000)).await;
    refused(next.create().await, "session_reacquire_disallowed")?;
    b.client.deregister_worker_registration(&h.id("first")).await.map_err(text)?;
    h.second.run_until(async {}).await.map_err(text)
}

/// A stop of a worker releases its sessions: another worker can acquire them at once.
pub async fn a_stopped_worker_releases_its_sessions(b: Bench) -> Verdict {
    let h = Holders::register(&b).await?;
    let options = h.options(&h.id("deployed"), 45);
    let session = h.first.worker_session(options.clone()).map_err(text)?;
    session.create().await.map_err(text)?;
    h.first.run_until(async {}).await.map_err(text)?;
    same(&json!(session.active()), json!(false))?;
    same(&session.close("again").await.map_err(text)?["outcome"], json!("closed"))?;
    let next = h.second.worker_session(options).map_err(text)?.create().await.map_err(text)?;
    same(&next["outcome"], json!("reacquired"))?;
    h.second.run_until(async {}).await.map_err(text)
}
