// The behaviours of the suite in JavaScript, one function each.
import { spawn } from 'node:child_process';
import { chmodSync, fstatSync, mkdirSync, openSync, readdirSync, readFileSync, symlinkSync, writeFileSync, writeSync } from 'node:fs';

export const main = (input) => input;
export const count = (_, ctx) => (ctx.session.state.n = (ctx.session.state.n ?? 0) + 1);
export const about = (_, ctx) => ({
  id: ctx.session.id,
  epoch: ctx.session.epoch,
  is_new: ctx.session.isNew,
  dir: ctx.session.dir,
  pid: process.pid,
  attempt: ctx.attempt,
  key: ctx.idempotencyKey,
});
export const headers = (_, ctx) => ctx.headers;
export const last_heartbeat = (_, { lastHeartbeat: last }) => last && [last.details, last.at.getTime() / 1000, last.attempt];
export const pid = () => process.pid;
export const require_model = (_, ctx) => ctx.session.require('model');
export const set_model = (value, ctx) => (ctx.session.state.model = value);
export const once = async (_, ctx) => {
  const made = await ctx.session.getOrCreate('made', async () => {
    await new Promise((done) => setTimeout(done, 20));
    ctx.session.state.makings = (ctx.session.state.makings ?? 0) + 1;
    return 'made';
  });
  return [made, ctx.session.state.makings];
};
export const fail = () => {
  throw Object.assign(new TypeError('this is wrong'), { retryable: false, details: { code: 7 } });
};
export const wait = (_, ctx) =>
  new Promise((_, reject) => {
    const held = setInterval(() => ctx.heartbeat(), 10);
    ctx.progress('waiting');
    ctx.signal.addEventListener('abort', () => {
      clearInterval(held);
      reject(ctx.signal.reason);
    });
  });
// meet waits until n calls run in it.
export const meet = async (n, ctx) => {
  const { state } = ctx.session;
  state.here = (state.here ?? 0) + 1;
  while (state.here < n) await new Promise((done) => setTimeout(done, 1));
  return state.here;
};
export const spin = (_, ctx) => {
  ctx.progress('spinning');
  for (;;);
};
export const stubborn = (_, ctx) => {
  process.on('SIGTERM', () => {});
  ctx.progress('deaf');
  for (;;);
};
export const crash = () => {
  console.error('last words');
  process.kill(process.pid, 'SIGSEGV');
  for (;;);
};
export const exit = () => process.exit(3);
export const hog = () => {
  const held = [];
  for (;;) held.push(Buffer.alloc(4 << 20, 1));
};
export const say = (_, ctx) => {
  console.log('to stdout');
  console.error('to stderr');
  ctx.log.warn('to the log');
  return null;
};
export const flood = (megabytes) => {
  const chunk = Buffer.alloc(1 << 20, 'x\x1b[31m\0\xff');
  for (let i = 0; i < megabytes; i++) {
    for (let at = 0; at < chunk.length; ) {
      try {
        at += writeSync(1, chunk, at);
      } catch (err) {
        if (err.code !== 'EAGAIN') throw err;
      }
    }
  }
  return megabytes;
};
export const environ = () => process.env;
export const write = (name, ctx) => {
  writeFileSync(`${ctx.session.dir}/${name}`, 'kept');
  return readFileSync(`${ctx.session.dir}/${name}`, 'utf8') + ' ' + readdirSync(ctx.session.dir).join();
};
export const read = (path) => readFileSync(path, 'utf8');
export const create = (path) => writeFileSync(path, 'made');
export const on_close = (path, ctx) => ctx.session.onClose(async () => writeFileSync(path, 'closed'));
// daemon leaves a process that has left the session, and returns its pid.
export const daemon = (seconds, ctx) =>
  new Promise((done) => {
    const shell = spawn('sh', ['-c', `setsid sh -c 'echo $$; exec sleep ${seconds}' & exit`], { stdio: ['ignore', 'pipe', 'ignore'], detached: true });
    shell.stdout.once('data', (text) => done(Number(text)));
  });
export const raw = (base64, ctx) => {
  const bytes = Buffer.from(base64, 'base64');
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(3, bytes, at);
    } catch (err) {
      if (err.code !== 'EAGAIN') throw err;
    }
  }
  return new Promise((done) => setTimeout(done, 100, null));
};
export const nested = (depth) => {
  let value = [];
  for (let i = 1; i < depth; i++) value = [value];
  return value;
};
export const leave_links = (_, ctx) => {
  symlinkSync('/etc/passwd', `${ctx.session.dir}/result.txt`);
  symlinkSync('/', `${ctx.session.dir}/root`);
  writeFileSync(`${ctx.session.dir}/plain.txt`, 'plain');
};
export const heap = () => {
  const held = [];
  for (;;) held.push({ more: new Array(100).fill(held.length) });
};
export const odd_values = () => ({
  date: new Date(0),
  nan: NaN,
  hole: [undefined, 1, () => 1],
  map: new Map([[1, 2]]),
  boxed: [new Number(1), new String('s'), new Boolean(false)],
  big: 2n ** 63n - 1n,
  surrogate: 'a\ud800',
  minus_zero: -0,
  power: 1e21,
  left_out: undefined,
  function: () => 1,
});
export const unstorable = (kind) => {
  if (kind === 'integer') return 2n ** 63n;
  if (kind === 'large') return 'x'.repeat(2 << 20);
  const circle = [];
  circle.push(circle);
  return circle;
};

const kept = [];
let marked = 0;
// leave leaves all state that a call can leave, and returns what it found of the previous call.
export const leave = () => {
  const mask = process.umask(0);
  process.umask(mask);
  const found = {
    env: process.env.LEFT ?? '',
    path: process.env.PATH !== undefined,
    cwd: process.cwd() === process.env.HOME,
    umask: mask !== 0o013,
    files: readdirSync(process.env.HOME).filter((name) => name !== '.code'),
    globals: marked,
    open: kept.filter((fd) => fstatSync(fd).isFile()),
  };
  marked++;
  process.env.LEFT = 'env';
  delete process.env.PATH;
  mkdirSync('in/deeper', { recursive: true });
  for (const path of ['file', 'in/deeper/file', 'in/closed']) writeFileSync(path, 'left');
  symlinkSync('nowhere', 'link');
  chmodSync('in/closed', 0);
  kept.push(openSync('in/deeper/file'), openSync('file'));
  process.chdir('in');
  process.umask(0o013);
  return found;
};
export const leave_later = async () => {
  await new Promise((done) => setTimeout(done, 1));
  return leave();
};
export const leave_and_fail = () => {
  throw new Error(JSON.stringify(leave()));
};
