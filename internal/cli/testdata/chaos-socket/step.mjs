// The step of the chaos test in a worker over the socket: it loads state once per session epoch and appends a line to the ledger for each
// load and each step.
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export async function step({ state, task, session }, { dir, key, n }) {
  const note = (what) => appendFileSync(`${dir}/ledger`, JSON.stringify({
    what, at: new Date().toISOString(), process: process.pid, worker: process.env.SOJOURN_WORKER_ID, run: task.run_id,
    attempt: task.attempt_number, attempt_id: task.activity_attempt_id, execution: task.activity_attempt_id.replace(/-\d+$/, ''),
    session: session.sessionId, epoch: session.epoch,
  }) + '\n');
  note('step');
  if (!state.table) {
    const seed = [...key].reduce((sum, c) => sum + c.charCodeAt(0), 0);
    state.table = Array.from({ length: 64 }, (_, i) => seed * 31 + i * i);
    note('load');
  }
  await sleep(100);
  return { value: state.table[n % 64] + n, more: !existsSync(`${dir}/hold`) };
}
