// The executor for JavaScript: frames on descriptor 3, one handler module per content hash, state kept in this process.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs, { readFileSync, readSync, readdirSync, rmSync, writeFileSync, writeSync, mkdirSync } from 'node:fs';
import Module, { createRequire, syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const LIMIT_HEADER = 64 * 1024;
const THROTTLE_MS = 100;
const ROOM = 4; // descriptor of the memory that the worker has too, when a call is lent it
const IN_ROOM = 16 * 1024; // bytes from which on a result is left there
const socket = new net.Socket({ fd: 3, readable: true, writable: true });
const modules = new Map(); // content hash -> promise of the module
const calls = new Map(); // call id -> AbortController
let scratch = process.cwd();
let limitBody = 2 * 1024 * 1024 + 64 * 1024;
let session = null;

function send(header, body) {
  const head = Buffer.from(JSON.stringify(header));
  const size = body ? body.length : 0;
  if (head.length > LIMIT_HEADER || size > limitBody) return false;
  const frame = Buffer.allocUnsafe(8 + head.length + size);
  frame.writeUInt32LE(head.length, 0);
  frame.writeUInt32LE(size, 4);
  head.copy(frame, 8);
  if (size) body.copy(frame, 8 + head.length);
  socket.write(frame);
  return true;
}

// leaveInRoom says whether it did: there may be no memory left for it.
function leaveInRoom(output) {
  try {
    return writeSync(ROOM, output, 0, output.length, 0) === output.length;
  } catch {
    return false;
  }
}

// A confined process may not read how much memory it has. The most it ever had is the nearest to it.
try {
  process.memoryUsage.rss();
} catch {
  const rss = () => process.resourceUsage().maxRSS * 1024;
  const all = () => {
    const heap = createRequire(import.meta.url)('node:v8').getHeapStatistics();
    return { rss: rss(), heapTotal: heap.total_heap_size, heapUsed: heap.used_heap_size, external: heap.external_memory, arrayBuffers: 0 };
  };
  process.memoryUsage = Object.assign(all, { rss });
}

// What a value is stored as: an Avro single-object frame of one recursive schema, as base64 text. The worker passes it on as it is.
const FRAME = Buffer.from('c301e2a33dff55802237', 'hex');
const MAX_STORED = 2 * 1024 * 1024; // bytes of the text
const MAX_DEPTH = 512;
const NULL = 0;
const BOOL = 2;
const LONG = 4;
const DOUBLE = 6;
const BYTES = 8;
const STRING = 10;
const ARRAY = 12;
const MAP = 14;

// A value that cannot be stored, or stored text that cannot be read; reason is the word programs go by.
class PayloadError extends Error {
  constructor(reason, message) {
    super(message);
    this.name = 'PayloadError';
    this.reason = reason;
    this.retryable = false;
  }
}

// What ctx.pending() throws: the worker reports that the attempt stays open.
class ActivityPending extends Error {
  constructor() {
    super('the outcome is reported with the token of the attempt');
    this.name = 'ActivityPending';
    this.retryable = false;
  }
}

// decode is the value that stored text holds. Whole numbers that a number cannot hold exactly are bigints; bytes are an object that names
// them.
function decode(text) {
  const buf = Buffer.from(text.latin1Slice(0, text.length), 'base64');
  let at = 10;
  const bad = (what) => new PayloadError('invalid_payload_framing', `the arguments cannot be read: ${what} at byte ${at}`);
  const byte = () => {
    if (at >= buf.length) throw bad('truncated');
    return buf[at++];
  };
  const long = () => {
    let b = byte();
    if (b < 0x80) return (b >>> 1) ^ -(b & 1);
    const start = at - 1;
    let n = b & 0x7f;
    for (let scale = 128; b >= 0x80; scale *= 128) {
      if (scale > 2 ** 42) return longest(start); // more than 49 bits: a number might not hold them
      b = byte();
      n += (b & 0x7f) * scale;
    }
    return n % 2 ? -(n + 1) / 2 : n / 2;
  };
  const longest = (start) => {
    at = start;
    let n = 0n;
    for (let shift = 0n, b = 0x80; b >= 0x80; shift += 7n) {
      if (shift > 63n) throw bad('over-long number');
      b = byte();
      n |= BigInt(b & 0x7f) << shift;
    }
    n = BigInt.asIntN(64, (n >> 1n) ^ -(n & 1n));
    return n >= Number.MIN_SAFE_INTEGER && n <= Number.MAX_SAFE_INTEGER ? Number(n) : n;
  };
  const window = () => {
    const size = Number(long());
    const start = at;
    if (size < 0 || size > buf.length - at) throw bad('length beyond the end');
    at += size;
    return start;
  };
  const string = () => {
    const start = window();
    if (at - start > 24) return buf.utf8Slice(start, at);
    let out = '';
    for (let i = start; i < at; i++) {
      if (buf[i] >= 0x80) return buf.utf8Slice(start, at);
      out += String.fromCharCode(buf[i]);
    }
    return out;
  };
  const count = () => {
    let n = Number(long());
    if (n < 0) {
      n = -n;
      long(); // the block's size in bytes, for readers that skip it
    }
    if (n > buf.length - at) throw bad('block count beyond the end');
    return n;
  };
  const value = (depth) => {
    const tag = byte();
    switch (tag) {
      case NULL:
        return null;
      case BOOL:
        return byte() === 1;
      case LONG:
        return long();
      case DOUBLE:
        if (buf.length - at < 8) throw bad('truncated');
        at += 8;
        return buf.readDoubleLE(at - 8);
      case BYTES: {
        const start = window();
        return { $type: 'bytes', base64: buf.toString('base64', start, at) };
      }
      case STRING:
        return string();
      case ARRAY:
      case MAP: {
        if (depth >= MAX_DEPTH) throw bad(`more than ${MAX_DEPTH} levels`);
        if (tag === ARRAY) {
          const items = [];
          for (let n = count(); n > 0; n = count()) while (n-- > 0) items.push(value(depth + 1));
          return items;
        }
        const entries = {};
        for (let n = count(); n > 0; n = count()) {
          while (n-- > 0) {
            const key = string();
            const held = value(depth + 1);
            if (key !== '__proto__') entries[key] = held;
            else Object.defineProperty(entries, key, { value: held, enumerable: true, configurable: true, writable: true });
          }
        }
        return entries;
      }
    }
    throw bad(`unknown value branch ${tag}`);
  };
  if (buf.length < 10 || buf.compare(FRAME, 0, 10, 0, 10) !== 0) throw bad('no frame of this schema');
  const whole = value(0);
  if (at !== buf.length) throw bad('trailing bytes');
  return whole;
}

// encode is what value is stored as. It takes what JSON.stringify takes and means the same, and bigints, which are whole numbers.
function encode(root) {
  let out = Buffer.allocUnsafe(1024);
  let at = FRAME.copy(out);
  const refuse = (reason, what) => new PayloadError(reason, `the result cannot be stored: ${what}`);
  const room = (more) => {
    if (at + more <= out.length) return;
    if (at > MAX_STORED) throw refuse('payload_too_large', `more than ${MAX_STORED} bytes`);
    const larger = Buffer.allocUnsafe(Math.max(2 * out.length, at + more));
    out.copy(larger, 0, 0, at);
    out = larger;
  };
  const long = (n) => {
    room(10);
    if (n >= -0x40000000 && n < 0x40000000) {
      let z = (n << 1) ^ (n >> 31);
      for (; z > 0x7f; z >>>= 7) out[at++] = (z & 0x7f) | 0x80;
      out[at++] = z;
      return;
    }
    const wide = BigInt(n);
    if (BigInt.asIntN(64, wide) !== wide) throw refuse('integer_overflow', `${wide} is outside signed 64 bit`);
    let z = BigInt.asUintN(64, (wide << 1n) ^ (wide >> 63n));
    for (; z > 0x7fn; z >>= 7n) out[at++] = Number(z & 0x7fn) | 0x80;
    out[at++] = Number(z);
  };
  const string = (s) => {
    if (s.length <= 24) {
      room(s.length + 1);
      const start = at;
      out[at++] = s.length << 1;
      let i = 0;
      for (let c; i < s.length && (c = s.charCodeAt(i)) < 0x80; i++) out[at++] = c;
      if (i === s.length) return;
      at = start;
    }
    const size = Buffer.byteLength(s);
    if (size > MAX_STORED) throw refuse('payload_too_large', `more than ${MAX_STORED} bytes`);
    long(size);
    room(size);
    at += out.utf8Write(s, at);
  };
  // plain is what JSON has in the place of a value; undefined if it leaves it out.
  const plain = (v, key) => {
    if (v !== null && (typeof v === 'object' || typeof v === 'function')) {
      if (typeof v.toJSON === 'function') v = v.toJSON(key);
      if (v instanceof Number) v = Number(v);
      else if (v instanceof String) v = String(v);
      else if (v instanceof Boolean || v instanceof BigInt) v = v.valueOf();
    }
    return typeof v === 'function' || typeof v === 'symbol' ? undefined : v;
  };
  const write = (v, depth) => {
    room(10);
    switch (typeof v) {
      case 'string':
        out[at++] = STRING;
        return string(v);
      case 'number':
        if (Number.isInteger(v) && Math.abs(v) < 1e21) {
          out[at++] = LONG;
          return long(v);
        }
        if (!Number.isFinite(v)) {
          out[at++] = NULL;
          return;
        }
        out[at++] = DOUBLE;
        at = out.writeDoubleLE(v, at);
        return;
      case 'bigint':
        out[at++] = LONG;
        return long(v);
      case 'boolean':
        out[at++] = BOOL;
        out[at++] = v ? 1 : 0;
        return;
    }
    if (v === null || v === undefined) {
      out[at++] = NULL;
      return;
    }
    if (depth >= MAX_DEPTH) throw refuse('payload_too_deep', `more than ${MAX_DEPTH} levels, or a value that contains itself`);
    if (Array.isArray(v)) {
      out[at++] = ARRAY;
      if (v.length) long(v.length);
      for (let i = 0; i < v.length; i++) write(plain(v[i], String(i)), depth + 1);
    } else {
      out[at++] = MAP;
      const keys = [];
      const held = [];
      for (const key of Object.keys(v)) {
        const item = plain(v[key], key);
        if (item === undefined) continue;
        keys.push(key);
        held.push(item);
      }
      if (keys.length) long(keys.length);
      for (let i = 0; i < keys.length; i++) {
        string(keys[i]);
        write(held[i], depth + 1);
      }
    }
    room(1);
    out[at++] = 0;
  };
  write(plain(root, ''), 0);
  const text = Buffer.from(out.base64Slice(0, at), 'latin1');
  if (text.length > MAX_STORED) throw refuse('payload_too_large', `${text.length} bytes exceed ${MAX_STORED}`);
  return text;
}

class SessionLost extends Error {
  constructor(message) {
    super(message);
    this.name = 'SessionLost';
  }
}

class Session {
  constructor(id, epoch) {
    this.id = id;
    this.epoch = epoch;
    this.state = {};
    this.dir = scratch;
    this.making = new Map();
    this.closers = [];
  }
  require(key) {
    if (!(key in this.state)) throw new SessionLost(`session state ${JSON.stringify(key)} does not exist`);
    return this.state[key];
  }
  async getOrCreate(key, fn) {
    if (key in this.state) return this.state[key];
    let making = this.making.get(key);
    if (!making) {
      making = (async () => (this.state[key] = await fn()))().finally(() => this.making.delete(key));
      this.making.set(key, making);
    }
    return making;
  }
  onClose(fn) {
    this.closers.push(fn);
  }
  async close() {
    const closers = this.closers.reverse();
    this.closers = [];
    for (const fn of closers) {
      try {
        await fn();
      } catch (err) {
        console.error('close hook:', err);
      }
    }
  }
}

// What one call sees of the session: the same state, also when the handler replaces it, and whether this is the first call.
function sessionOfCall(isNew) {
  return Object.create(session, {
    isNew: { value: isNew, enumerable: true },
    state: { get: () => session.state, set: (value) => (session.state = value), enumerable: true },
  });
}

const lastHeartbeats = new Map(); // id of a call -> heartbeat details of an earlier attempt, until the call begins

const headersOfCalls = new Map(); // id of a call -> headers of its activity, until the call begins

// headersOf returns the headers for a call as its handler sees them.
function headersOf(id) {
  const headers = headersOfCalls.get(id);
  headersOfCalls.delete(id);
  return Object.freeze(Object.assign(Object.create(null), headers));
}

// lastHeartbeatOf returns the heartbeat details for a call as its handler sees them; null: none.
function lastHeartbeatOf(id) {
  const last = lastHeartbeats.get(id);
  lastHeartbeats.delete(id);
  return last ? { details: last.details, at: new Date(last.at), attempt: last.attempt_number } : null;
}

// A context is what one call's handler gets as its second argument.
function context(header, controller) {
  const id = header.id;
  const keys = header.keys ?? {};
  let open = true;
  let beat = -Infinity;
  let shown = -Infinity;
  let pending = null;
  const log = (level, args) => {
    if (!open) return;
    const text = args.map((a) => (typeof a === 'string' ? a : JSON.stringify(a) ?? String(a))).join(' ');
    send({ t: 'log', id, level }, Buffer.from(text).subarray(0, 64 * 1024));
  };
  const ctx = {
    activity: header.activity,
    attempt: header.attempt ?? 1,
    keys,
    idempotencyKey: keys.activity_execution_id ?? '',
    deadline: header.deadline_ms ? new Date(header.deadline_ms) : null,
    lastHeartbeat: lastHeartbeatOf(id),
    headers: headersOf(id),
    session: session && sessionOfCall(header.is_new === true),
    fence: session && session.epoch ? { namespace: keys.namespace, sessionId: session.id, epoch: session.epoch } : null,
    signal: controller.signal,
    get cancelled() {
      return controller.signal.aborted;
    },
    heartbeat() {
      const now = performance.now();
      if (!open || now - beat < THROTTLE_MS) return;
      beat = now;
      send({ t: 'heartbeat', id });
    },
    progress(value) {
      const now = performance.now();
      if (!open) return;
      const body = Buffer.from(JSON.stringify(value) ?? 'null');
      if (now - shown < THROTTLE_MS) {
        pending = body;
        return;
      }
      shown = now;
      pending = null;
      send({ t: 'progress', id }, body);
    },
    pending() {
      throw new ActivityPending();
    },
    log: Object.assign((...args) => log('info', args), {
      debug: (...args) => log('debug', args),
      info: (...args) => log('info', args),
      warn: (...args) => log('warn', args),
      error: (...args) => log('error', args),
    }),
  };
  const finish = () => {
    open = false;
    if (pending) send({ t: 'progress', id }, pending);
  };
  return { ctx, finish };
}

// Packages that were installed for the handlers are found where none beside or above a handler has the name.
const packages = process.env.SOJOURN_PACKAGES;
if (packages) {
  const parentURL = pathToFileURL(join(packages, 'package.json')).href;
  if (Module.registerHooks) {
    Module.registerHooks({
      resolve(name, context, next) {
        try {
          return next(name, context);
        } catch (err) {
          if (!/MODULE_NOT_FOUND$/.test(err.code) || /^[./]|^[a-z]+:/.test(name)) throw err;
          try {
            return next(name, { ...context, parentURL });
          } catch {
            throw err; // it names the importing module
          }
        }
      },
    });
  } else if (Module.register) {
    const hooks = `let parentURL;
      export const initialize = (data) => (parentURL = data);
      export async function resolve(name, context, next) {
        try { return await next(name, context); } catch (err) {
          if (!/MODULE_NOT_FOUND$/.test(err.code) || /^[./]|^[a-z]+:/.test(name)) throw err;
          try { return await next(name, { ...context, parentURL }); } catch { throw err; }
        }
      }`;
    Module.register(`data:text/javascript,${encodeURIComponent(hooks)}`, { parentURL: import.meta.url, data: parentURL });
  }
}

function isModuleSyntax(code) {
  return /^\s*(?:export|import)[\s{*'"]/m.test(code);
}

const versions = new Map(); // path -> version that it was loaded as, by its own name
const require = createRequire(import.meta.url);

// takeVersions notes what a handler imports, and says whether all of it can be had by its own name: nothing was loaded as another
// version before. What `require` keeps of another version is forgotten.
function takeVersions(files) {
  let same = true;
  for (const [path, version] of Object.entries(files)) {
    if (!versions.has(path)) versions.set(path, version);
    else if (versions.get(path) !== version) same = false;
    if (required.get(path) !== version) delete require.cache[path];
    required.set(path, version);
  }
  return same;
}
const required = new Map(); // path -> version that `require` has

// copy writes a module into the scratch folder, with the imports that name a file or a package resolved from the original place, and
// returns its path. Stack traces name the original.
function copy(path, version, code, files) {
  const dir = join(scratch, '.code');
  const file = join(dir, `${version}.mjs`);
  const from = createRequire(path);
  const here = pathToFileURL(path).href;
  copies.add(version); // what imports itself in a circle is written once
  const resolved = code
    .replace(/(\bfrom\s*|\bimport\s*\(?\s*)(['"])([^'"\n]+)\2/g, (all, before, quote, name) => {
      if (/^(node:|data:|https?:|file:)/.test(name)) return all;
      try {
        const target = name.startsWith('.') ? join(dirname(path), name) : from.resolve(name);
        return target === name ? all : before + quote + moduleOf(target, files) + quote;
      } catch {
        return all;
      }
    })
    .replace(/\bimport\.meta\.url\b/g, JSON.stringify(here));
  mkdirSync(dir, { recursive: true });
  writeFileSync(file, /\.[mc]?ts$/.test(path) ? resolved : `${resolved}\n//# sourceURL=${here}\n`);
  return file;
}
const copies = new Set(); // versions that are written

// moduleOf is the address of a file as a handler imports it: its own, unless it was loaded as another version under that.
function moduleOf(path, files) {
  const version = files[path];
  const url = pathToFileURL(path).href;
  if (!version || versions.get(path) === version) return url;
  const file = join(scratch, '.code', `${version}.mjs`);
  if (copies.has(version)) return pathToFileURL(file).href;
  if (!/\.m?js$/.test(path)) return `${url}?hash=${version}`;
  const code = readFileSync(path, 'utf8');
  if (path.endsWith('.js') && !isModuleSyntax(code)) return `${url}?hash=${version}`;
  return pathToFileURL(copy(path, version, code, files)).href;
}

// load makes a module of the code under its own path, so that what it imports is found beside it. A module is cached by hash: new code is
// a new module.
async function load({ hash, own = hash, format, path, files = {} }, code) {
  if (/^[mc]?ts$/.test(format)) process.setSourceMapsEnabled(true); // it comes as one module with a map to its files
  if (format === 'js') format = isModuleSyntax(code) ? 'mjs' : 'cjs';
  const same = takeVersions(files);
  if (format === 'cjs') {
    const module = new Module(path, null);
    module.filename = path;
    module.paths = Module._nodeModulePaths(dirname(path));
    module._compile(code, path);
    const made = module.exports;
    return typeof made === 'function' ? Object.assign((...args) => made(...args), made, { main: made }) : made;
  }
  let file = path;
  let there = false;
  try {
    there = same && path.endsWith('.mjs') && createHash('sha256').update(readFileSync(path)).digest('hex').startsWith(own);
  } catch {
    // The worker's copy is what counts.
  }
  if (!there) {
    // The file or one it imports has changed since, or its name does not make it a module: run the worker's copy.
    file = copy(path, hash, code, files);
  }
  try {
    return await import(`${pathToFileURL(file).href}?hash=${hash}`);
  } catch (err) {
    if (err instanceof SyntaxError && !String(err.stack).includes(path)) {
      err.stack = `${(await whereWrong(file)).replaceAll(file, path) || path}\n${err.stack}`;
    }
    if (file !== path && err instanceof Error && String(err.message).includes(file)) { // as of a package that is not there
      const stack = String(err.stack);
      err.message = err.message.replaceAll(file, path);
      err.stack = stack.replaceAll(file, path);
    }
    throw err;
  }
}

// whereWrong is what Node says of the place of a syntax error in a module: file, line and the line itself. The error that import throws
// has none of it, so the file is checked once more; empty when that finds nothing or cannot be done.
function whereWrong(file) {
  return new Promise((found) => {
    try {
      execFile(process.execPath, ['--check', file], { timeout: 5000 }, (_, __, printed) => {
        const lines = printed.split('\n').slice(0, 3);
        found(/:\d+$/.test(lines[0]) ? lines.join('\n') : '');
      });
    } catch {
      found('');
    }
  });
}

// deniedPath is the path to which access was denied, if err or one of its causes is such an error.
function deniedPath(err) {
  for (let depth = 0; err instanceof Error && depth < 5; err = err.cause, depth++) {
    if (err.code === 'EACCES' && typeof err.path === 'string') return err.path.slice(0, 1024);
  }
}

// outOfMemory knows what is thrown when there is no room outside V8's own heap: for buffers.
function outOfMemory(err) {
  return err?.code === 'ERR_MEMORY_ALLOCATION_FAILED' || err instanceof RangeError && err.message === 'Array buffer allocation failed';
}

// className is the name an error was given, or else that of its class: what a class does not name itself it has from the one it extends.
function className(error) {
  const of = error.constructor;
  const named = Object.hasOwn(error, 'name') || !of?.prototype || Object.hasOwn(of.prototype, 'name');
  return String((named ? error.name : of.name || error.name) || 'Error');
}

const PLACES = /file:\/\/(\/[^\s?)]*?)(?:\?hash=[0-9a-f]+)?(:\d+)/g; // how a stack names the modules it was in

// traced is what people read of an error: its class and frames and those of what it came from, without the frames of this file and
// those of Node that lead there.
function traced(error, depth = 0) {
  const [name, header] = [className(error), String(error.name || 'Error')];
  let text = String(error.stack ?? '');
  if (name !== header && text.startsWith(header) && !text.startsWith(name)) text = name + text.slice(header.length);
  const lines = text.split('\n').filter((line) => !line.includes(import.meta.url));
  while (/^\s+at .*\bnode:internal\//.test(lines.at(-1))) lines.pop();
  text = lines.join('\n').replace(PLACES, (_, path, line) => plainPath(path) + line);
  return error.cause instanceof Error && depth < 5 ? `${text}\ncaused by ${traced(error.cause, depth + 1)}` : text;
}

function plainPath(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

function failure(id, err, controller) {
  const error = err instanceof Error ? err : new Error(typeof err === 'string' ? err : JSON.stringify(err) ?? String(err));
  const aborted = controller?.signal.aborted && (err === controller.signal.reason || error.name === 'AbortError');
  const header = {
    t: 'error',
    id,
    type: 'UserError',
    class: error instanceof PayloadError ? error.reason : className(error).slice(0, 256),
    message: String(error.message).slice(0, 8192),
    stack: traced(error).slice(0, 8192),
    retryable: err?.retryable !== false && err?.nonRetryable !== true,
    denied: deniedPath(err),
  };
  if (err instanceof SessionLost) Object.assign(header, { type: 'SessionLost', details: { cause: 'declared' } });
  else if (outOfMemory(err)) header.type = 'OutOfMemory';
  else if (aborted) header.type = 'Cancelled';
  else if (err?.details !== undefined) {
    try {
      const details = JSON.stringify(err.details);
      if (details !== undefined && details.length <= 8192) header.details = JSON.parse(details);
    } catch {
      // Details that are not JSON are left out; the message stands.
    }
  }
  send(header);
}

// What calls outside sessions find as the handler's module left it when it was loaded: environment, working directory, umask, an empty
// scratch folder, and no files or connections that a call opened. The module itself, with its globals, stays as it is.
let surroundings = null;
let remembered = null; // the module that left them so
const opened = new Set(); // descriptors of files that were opened, perhaps closed since

// noteOpened wraps every function that opens a file, so that it records the descriptor: a confined process may not list
// its descriptors.
function noteOpened() {
  const { openSync, open } = fs;
  const { open: promised } = fs.promises;
  fs.openSync = (...args) => {
    const fd = openSync.apply(fs, args);
    opened.add(fd);
    return fd;
  };
  fs.open = (...args) => {
    const done = args.pop();
    if (typeof done !== 'function') return open.apply(fs, [...args, done]);
    return open.call(fs, ...args, (err, fd) => {
      if (!err) opened.add(fd);
      done(err, fd);
    });
  };
  fs.promises.open = async (...args) => {
    const file = await promised.apply(fs.promises, args);
    opened.add(file.fd);
    return file;
  };
  syncBuiltinESMExports();
}
noteOpened();

const handles = () => process._getActiveHandles?.() ?? [];

function remember() {
  const umask = process.umask(0o077);
  process.umask(umask);
  opened.clear();
  surroundings = { cwd: process.cwd(), umask, env: { ...process.env }, handles: new Set(handles()) };
}

// restore undoes what a call did. An executor that cannot undo it ends: the worker takes another one for the next call.
function restore() {
  try {
    process.chdir(surroundings.cwd);
    process.umask(surroundings.umask);
    const { env } = surroundings;
    const now = Object.keys(process.env);
    for (const name of now) {
      if (!Object.hasOwn(env, name)) delete process.env[name];
      else if (process.env[name] !== env[name]) process.env[name] = env[name];
    }
    for (const name in env) if (process.env[name] === undefined) process.env[name] = env[name];
    for (const fd of opened) closeLeft(fd);
    opened.clear();
    for (const handle of handles()) {
      if (!surroundings.handles.has(handle) && handle instanceof net.Socket) handle.destroy();
      else if (!surroundings.handles.has(handle) && handle instanceof net.Server) handle.close();
    }
    for (const name of readdirSync(scratch, 'buffer')) {
      if (copies.size > 0 && name.toString() === '.code') {
        const dir = join(scratch, '.code');
        for (const file of readdirSync(dir)) {
          if (!copies.has(file.replace(/\.mjs$/, ''))) rmSync(join(dir, file), { recursive: true });
        }
      } else rmSync(Buffer.concat([Buffer.from(`${scratch}/`), name]), { recursive: true });
    }
  } catch (err) {
    writeSync(2, `executor: failed to restore the process after a call, exiting: ${err}\n`);
    process.exit(0);
  }
}

// closeLeft closes a file that a call left open. The number stays in use, so that code that has it gets no other file.
function closeLeft(fd) {
  let left;
  try {
    left = fs.fstatSync(fd);
  } catch {
    return; // the call closed it
  }
  if (!left.isFile() && !left.isDirectory()) return; // another kind has the number since
  fs.closeSync(fd);
  if (fs.openSync('/dev/null') === fd) opened.delete(fd);
}

// flushed is when what was printed is in its pipe, so that it is read as the call's: Node keeps what does not fit there.
async function flushed() {
  for (const out of [process.stdout, process.stderr]) {
    if (out.writableLength > 0) await new Promise((done) => out.write('', () => done()));
  }
}

async function invoke(header, body) {
  const { id } = header;
  const controller = new AbortController();
  calls.set(id, controller);
  if (session && header.epoch) session.epoch = header.epoch; // the worker has acquired a session that it prepared
  const { ctx, finish } = context(header, controller);
  const before = process.resourceUsage();
  try {
    const loading = modules.get(header.hash);
    if (!loading) {
      send({ t: 'error', id, type: 'NeedCode', message: `code ${header.hash} is not loaded` });
      return;
    }
    const module = await loading;
    if (!session && remembered !== loading) {
      remembered = loading;
      remember();
    }
    if (header.export) {
      finish();
      send({ t: 'result', id }, Buffer.from(JSON.stringify(module[header.export] ?? module.default?.[header.export]) ?? 'null'));
      return;
    }
    const entry = header.entry || 'main';
    const fn = module[entry] ?? (entry === 'main' ? module.default : undefined);
    if (typeof fn !== 'function') {
      const missing = new Error(`${header.activity} exports no function ${JSON.stringify(entry)}`);
      missing.retryable = false;
      throw missing;
    }
    if (header.room) {
      body = Buffer.allocUnsafe(header.room);
      readSync(ROOM, body, 0, header.room, 0);
    }
    const definition = header.keys?.session_definition;
    if (entry === 'main' && typeof module.session === 'string' && module.session !== definition) {
      const missing = new Error(`${header.activity} requires a session with the definition ${module.session}`);
      missing.retryable = false;
      throw missing;
    }
    if (entry === 'main' && typeof module.session === 'string' && !session.wasSetUp) {
      const elsewhere = new Error(`the set-up of session definition ${definition} ran in another process`);
      elsewhere.name = 'SessionStateElsewhere';
      elsewhere.retryable = false;
      throw elsewhere;
    }
    const args = body.length ? decode(body) : [];
    const input = Array.isArray(args) ? (args.length === 1 ? args[0] : args.length === 0 ? null : args) : args;
    let value;
    if (session && entry === 'onHandOver') value = await fn(session.state);
    else if (session && entry === 'restore') value = await fn(session.state, input);
    else value = await fn(input, ctx);
    if (entry === 'setUp' && session) {
      // What setUp returned is the state of the session, until tearDown gets it.
      session.closers = session.closers.filter((fn) => !fn.tearsDown);
      if (value !== undefined) session.state = value;
      session.wasSetUp = true;
      const state = session.state;
      const tearDown = module.tearDown ?? module.default?.tearDown;
      if (typeof tearDown === 'function') session.closers.unshift(Object.assign(() => tearDown(state), { tearsDown: true }));
      value = null;
    }
    const output = encode(value);
    await flushed();
    finish();
    const after = process.resourceUsage();
    const cpu = after.userCPUTime + after.systemCPUTime - before.userCPUTime - before.systemCPUTime;
    const done = { t: 'result', id, usage: { cpu_ms: cpu / 1000, rss: after.maxRSS * 1024 } };
    if (header.lend && output.length >= IN_ROOM && leaveInRoom(output)) send({ ...done, room: output.length });
    else send(done, output);
  } catch (err) {
    await flushed();
    finish();
    failure(id, err, controller);
  } finally {
    calls.delete(id);
    if (!session && surroundings && calls.size === 0) restore(); // the answer is on its way, and the next call comes after this
  }
}

function handle(header, body) {
  switch (header.t) {
    case 'init':
      scratch = header.scratch || scratch;
      limitBody = header.max_body || limitBody;
      send({ t: 'ready', proto: 1, runtime: `node ${process.versions.node}`, features: ['overlap', 'room'] });
      break;
    case 'load': {
      const loading = load(header, body.toString('utf8'));
      loading.catch(() => {}); // each call that needs the module fails with the error
      modules.set(header.hash, loading);
      break;
    }
    case 'last_heartbeat':
      lastHeartbeats.set(header.id, JSON.parse(body.toString('utf8')));
      break;
    case 'headers':
      headersOfCalls.set(header.id, JSON.parse(body.toString('utf8')));
      break;
    case 'open':
      session = new Session(header.session, header.epoch);
      break;
    case 'invoke':
      invoke(header, body);
      break;
    case 'cancel': {
      const controller = calls.get(header.id);
      if (controller) controller.abort(Object.assign(new Error(header.reason || 'cancelled'), { name: 'AbortError' }));
      break;
    }
    case 'close':
      Promise.resolve(session?.close()).finally(() => send({ t: 'closed' }));
      break;
    case 'ping':
      send({ t: 'pong' });
      break;
    case 'shutdown':
      process.exit(0);
  }
}

let chunks = [];
let have = 0;
let need = 8;

socket.on('data', (chunk) => {
  chunks.push(chunk);
  have += chunk.length;
  while (have >= need) {
    let buffer = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, have);
    const head = buffer.readUInt32LE(0);
    const size = 8 + head + buffer.readUInt32LE(4);
    if (have < size) {
      chunks = [buffer];
      need = size;
      return;
    }
    const header = JSON.parse(buffer.toString('utf8', 8, 8 + head));
    const body = buffer.subarray(8 + head, size);
    buffer = buffer.subarray(size);
    chunks = buffer.length ? [buffer] : [];
    have = buffer.length;
    need = 8;
    handle(header, body);
  }
});
socket.on('end', () => process.exit(0));
socket.on('error', () => process.exit(0));
