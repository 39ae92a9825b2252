//! The published SDK as its users have it: a worker, and a client with cases to try.
//!
//! sojourn-interop worker URL TOKEN QUEUE WORKER_ID MAX_SESSIONS [CAPABILITY...]
//! sojourn-interop cases URL TOKEN QUEUE [CASE...]

mod cases;
mod flows;
mod sessions;
mod steps;

use durable_workflow::{Client, Result, Worker};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [verb, url, token, queue, rest @ ..] = args.as_slice() else {
        eprintln!("usage: sojourn-interop worker|cases URL TOKEN QUEUE …");
        std::process::exit(2);
    };
    let client = Client::builder(url)
        .token(Some(token.clone()))
        .timeout(Duration::from_secs(120))
        .build()?;
    match verb.as_str() {
        "worker" => work(client, queue, rest).await,
        _ => cases::run(client, queue, rest).await,
    }
}

/// Runs a worker until SIGTERM, and then leaves as a supervisor wants it to.
async fn work(client: Client, queue: &str, rest: &[String]) -> Result<()> {
    let sessions: usize = rest[1].parse().expect("MAX_SESSIONS is a number");
    let mut worker = Worker::new(client, queue)
        .worker_id(&rest[0])
        .worker_sessions(true)
        .max_concurrent_worker_sessions(sessions)
        .capabilities(rest[2..].iter().cloned())
        .recover_transient_outages(true)
        .poll_timeout(Duration::from_secs(5));
    steps::register(&mut worker);
    flows::register(&mut worker, queue)?;
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .expect("SIGTERM can be handled");
    worker
        .run_until(async move {
            end.recv().await;
        })
        .await
}
