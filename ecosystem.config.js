// PM2: `pm2 start ecosystem.config.js` runs this directory's binary as app, as worker, or as both, each a process of its own.
// SOJOURN_CONTAINER_TYPE says which: APP, WORKER or WORKER_AND_APP (the default). They may start in either order.
const fs = require('node:fs');
const path = require('node:path');

const type = process.env.SOJOURN_CONTAINER_TYPE || 'WORKER_AND_APP';
const roles = { APP: ['app'], WORKER: ['worker'], WORKER_AND_APP: ['app', 'worker'] }[type];
if (!roles) {
  throw new Error(`SOJOURN_CONTAINER_TYPE is "${type}": must be APP, WORKER or WORKER_AND_APP`);
}

// A release unpacked here carries the binary beside this file; a checkout has built it into bin/.
const binary = [path.join(__dirname, 'sojourn'), path.join(__dirname, 'bin', 'sojourn')].find((file) => fs.existsSync(file)) || 'sojourn';

// Milliseconds of the longest drain, from SOJOURN_DRAIN_TIMEOUT (25 s; 90s, 1m30s).
const units = { h: 3600e3, m: 60e3, s: 1e3, ms: 1 };
const drain = [...(process.env.SOJOURN_DRAIN_TIMEOUT || '25s').matchAll(/([\d.]+)(ms|h|m|s)/g)]
  .reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0);

// A worker's ID is new at each start. With SOJOURN_WORKER_ID, such as the host name, a restarted worker acquires its sessions
// at once. No two processes may have the same one, so set it only where one worker runs.
module.exports = {
  apps: roles.map((role) => ({
    name: `sojourn-${role}`,
    script: binary,
    args: [role],
    interpreter: 'none',
    cwd: __dirname,
    // 15 s after the end of the drain: killed earlier, work would have to wait for its leases.
    kill_timeout: drain + 15000,
    // The process alone is told: executors end when their worker says so, and what runs in them may finish while it drains.
    treekill: false,
    // A settings mistake exits with 2 and stays down (PM2 goes on to show it as waiting for its restart); everything else comes
    // back, each time a little later. 0 is not in this list: PM2 takes it for the code of whatever a signal ended.
    stop_exit_codes: [2],
    exp_backoff_restart_delay: 200,
    max_restarts: 1000,
    merge_logs: true,
  })),
};
