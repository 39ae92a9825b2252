// A worker of another language that does one job: node worker.mjs URL RELEASE. It speaks the channel with the official client and nothing of ours.
// With a release that is not the app's it must be given nothing. Ends with 0 when everything was as it must be.
import assert from "node:assert/strict";
import { io } from "socket.io-client";

const [url, release] = process.argv.slice(2);
setTimeout(() => {
  console.error("the worker hangs");
  process.exit(1);
}, 55_000).unref();

const socket = io(url, {
  path: "/api/socket.io",
  transports: ["websocket"],
  auth: { token: "", workerId: `js-${release}`, protocol: 1 },
});
const call = (method, payload) => socket.timeout(20_000).emitWithAck("rpc", { method, payload });
const machine = {
  workerId: `js-${release}`, cpuUsagePercentage: 1, ramUsagePercentage: 2, totalAvailableRamInBytes: 3, totalCpuCores: 2,
  workerProps: { EXECUTION_MODE: "SANDBOX_PROCESS", WORKER_CONCURRENCY: "1", version: release },
};

await new Promise((resolve) => socket.on("connect", resolve));
const early = await call("poll", machine);
assert.ok(early.__rpcError, "a call before the settings is refused, not silent");

const settings = await socket.timeout(30_000).emitWithAck("FETCH_WORKER_SETTINGS", machine);
assert.equal(typeof settings.APP_VERSION, "string");

const unknown = await call("dance", {});
assert.equal(unknown.__rpcApError.code, "unknown_method");

if (settings.APP_VERSION !== release) {
  const answer = await call("poll", { ...machine, max: 1, timeoutMs: 100 });
  assert.equal(answer.pollStatus, "version_mismatch");
  assert.deepEqual(answer.jobs, []);
  assert.equal(await call("poll", { ...machine, timeoutMs: 100 }), null, "the plain form is null");
  socket.close();
  process.exit(0);
}

const job = await call("poll", { ...machine, timeoutMs: 15_000 });
assert.equal(job.kind, "activity");
assert.equal(job.task.activity_type, "js.greet");
const extended = await call("extendLock", { jobId: job.jobId, token: job.token });
assert.ok(Date.parse(extended.lockExpiresAt) > Date.now());
assert.equal(extended.cancelRequested, false);

const wrong = await call("completeJob", { jobId: job.jobId, token: job.token.replace(/^a\d/, "a9"), status: "OK", response: {} });
assert.ok(wrong.__rpcError, "a stale token changes nothing and is told so");
const ok = { codec: "avro", blob: "wwHioz3/VYAiNwoEb2s=" }; // "ok"
const done = await call("completeJob", { jobId: job.jobId, token: job.token, status: "OK", response: { result: ok } });
assert.ok(!done?.__rpcError, JSON.stringify(done));
socket.close();
process.exit(0);
