// Sends heartbeats for the workers of these files. A worker without heartbeats is stale after a minute, and checks may take longer.

/** Sends a worker's heartbeats until the checks end. */
export function keepAlive(api, worker, namespace = "default") {
  const beat = () => api("/api/worker/heartbeat", { worker_id: worker }, namespace).catch(() => {}); // at the end the app is gone first
  setInterval(beat, 10_000).unref();
}
