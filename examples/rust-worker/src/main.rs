//! A worker in Rust, with the published SDK: a workflow with one activity, on the queue "rust".

use durable_workflow::{Client, Result, Worker};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("SOJOURN_APP_URL").unwrap_or_else(|_| "http://127.0.0.1:7700".into());
    let client = Client::builder(url).token(std::env::var("SOJOURN_TOKEN").ok()).build()?;

    let mut worker = Worker::new(client, "rust")
        .recover_transient_outages(true)
        .poll_timeout(Duration::from_secs(5)); // told to end, it waits for the polls under way
    worker.register_typed_activity("rust.greet", |_ctx, name: String| async move {
        Ok(format!("hello {name}, from process {}", std::process::id()))
    });
    worker.register_typed_workflow("rust.greeting", |ctx, name: String| async move {
        let greeting: String = ctx.activity_typed("rust.greet", name).await?;
        Ok(greeting)
    });

    println!("worker waits for work");
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("SIGTERM can be handled");
    worker
        .run_until(async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = end.recv() => {}
            }
        })
        .await
}
