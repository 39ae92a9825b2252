// The step of the chaos test: it loads state once per session epoch and appends a line to the ledger for each load and each step.
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export async function main({ dir, key, n }, ctx) {
  const note = (what) => appendFileSync(`${dir}/ledger`, JSON.stringify({
    what, at: new Date().toISOString(), process: process.pid, worker: ctx.keys.worker_id, run: ctx.keys.run_id, attempt: ctx.attempt,
    attempt_id: ctx.keys.attempt_id, execution: ctx.keys.activity_execution_id, session: ctx.session.id, epoch: ctx.session.epoch,
  }) + '\n');
  note('step');
  const table = await ctx.session.getOrCreate('table', () => {
    note('load');
    const seed = [...key].reduce((sum, c) => sum + c.charCodeAt(0), 0);
    return Array.from({ length: 64 }, (_, i) => seed * 31 + i * i);
  });
  await sleep(100);
  return { value: table[n % 64] + n, more: !existsSync(`${dir}/hold`) };
}
