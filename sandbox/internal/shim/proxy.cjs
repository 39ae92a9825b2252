// Loaded before the executor, and before each thread of it: the worker's proxy is the only way to the network, so what uses http, https or
// fetch gets its connections through it, whatever agent it has.
'use strict';
const net = require('node:net');
const http = require('node:http');
const https = require('node:https');

const LIMIT_ANSWER = 64 * 1024;
const proxy = process.env.HTTP_PROXY?.includes('@') ? new URL(process.env.HTTP_PROXY) : null;
if (!proxy) return; // a thread that was given another environment

// tunnel connects to a host through the proxy, and gives an error with the proxy's sentence or a socket.
function tunnel(host, port, done) {
  const bare = String(host || 'localhost').replace(/^\[|\]$/g, '');
  const to = `${bare.includes(':') ? `[${bare}]` : bare}:${port}`;
  const credential = Buffer.from(`${proxy.username}:${proxy.password}`).toString('base64');
  const path = process.env.SOJOURN_EGRESS_SOCKET;
  const wire = path ? net.connect({ path }) : net.connect({ host: proxy.hostname, port: Number(proxy.port) });
  let answer = Buffer.alloc(0);
  const end = (err) => {
    wire.off('data', read).off('error', end).off('close', closed);
    if (err) wire.on('error', () => {}).destroy();
    done(err, err ? undefined : wire);
    if (!err) process.nextTick(() => wire.resume()); // whoever has it now listens by then
  };
  const closed = () => end(Object.assign(new Error(`the worker's proxy closed the connection to ${to}`), { code: 'ECONNRESET' }));
  const read = (chunk) => {
    answer = Buffer.concat([answer, chunk]);
    const at = answer.indexOf('\r\n\r\n');
    if (at < 0) return answer.length > LIMIT_ANSWER ? closed() : undefined;
    const [, status, words] = /^HTTP\/1\.\d (\d+) ?(.*)/.exec(answer.toString('latin1', 0, answer.indexOf('\r\n'))) ?? [];
    if (status !== '200') {
      const code = status === '403' ? 'EACCES' : status === '504' ? 'ETIMEDOUT' : 'ECONNREFUSED';
      return end(Object.assign(new Error(`connect to ${to}: ${status} ${words}`), { code, syscall: 'connect' }));
    }
    wire.pause();
    if (answer.length > at + 4) wire.unshift(answer.subarray(at + 4));
    end(null);
  };
  wire.on('data', read).on('error', end).on('close', closed);
  wire.write(`CONNECT ${to} HTTP/1.1\r\nHost: ${to}\r\nProxy-Authorization: Basic ${credential}\r\n\r\n`);
}

// secure makes a connection one of TLS. The host is what the certificate must be for; where to connect has been decided.
const secure = (options, wire) => {
  const host = String(options.host || options.hostname || 'localhost').replace(/^\[|\]$/g, '');
  const servername = options.servername || (net.isIP(host) ? '' : host);
  return require('node:tls').connect({ ...options, host, servername, socket: wire });
};

for (const [module, port] of [[http, 80], [https, 443]]) {
  const direct = module.Agent.prototype.createConnection;
  module.Agent.prototype.createConnection = function (options, done) {
    if (options.socketPath || options.socket) return direct.call(this, options, done);
    tunnel(options.host ?? options.hostname, options.port || port, (err, wire) => {
      if (err) return done(err);
      done(null, module === https ? secure(options, wire) : wire);
    });
  };
}

// fetch takes its connections from a dispatcher that is made at the first use.
const key = Symbol.for('undici.globalDispatcher.1');
const fetched = globalThis.fetch;
let installed = false;
globalThis.fetch = function fetch(...args) {
  if (!installed) {
    installed = true;
    void globalThis.Headers; // makes it
    const Agent = globalThis[key]?.constructor;
    if (Agent) {
      globalThis[key] = new Agent({
        connect({ hostname, host, protocol, port, servername }, done) {
          tunnel(hostname || host, port || (protocol === 'https:' ? 443 : 80), (err, wire) => {
            if (err || protocol !== 'https:') return done(err, wire);
            const safe = secure({ host: hostname, servername, ALPNProtocols: ['http/1.1'] }, wire);
            safe.once('secureConnect', () => done(null, safe)).once('error', (e) => done(e));
          });
        },
      });
    }
  }
  return fetched.apply(this, args);
};
