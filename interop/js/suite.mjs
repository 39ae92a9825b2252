// What the official suites of Engine.IO 4 and Socket.IO 5 ask of a server, case by case after the names they are published
// under, in our own words: the suites themselves are in no registry. The server is internal/socketio/suiteserver.
//
//   node suite.mjs URL [--patient URL] [--runs N] [--unbuffered]
//
// Cases that do not look at the heartbeat go to the patient server, where there is one: its pings do not come between two
// steps on a machine that is busy. --unbuffered reads as the suites do, one listener a message: what comes while nobody
// listens is lost.
import { parseArgs } from "node:util";
import { deepStrictEqual as same, ok } from "node:assert";
import { WebSocket } from "ws";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: { patient: { type: "string" }, runs: { type: "string", default: "1" }, unbuffered: { type: "boolean" } },
});
const quick = positionals[0];
const patient = flags.patient ?? quick;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const ended = Symbol("the end of a connection");
const blobs = '{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}';

// Line is a websocket whose messages are read one by one.
class Line {
  constructor(url) {
    this.kept = [];
    this.keeps = !flags.unbuffered;
    this.readers = [];
    this.ws = new WebSocket(url.replace("http", "ws"));
    this.ws.binaryType = "arraybuffer";
    this.opened = new Promise((done) => this.ws.addEventListener("open", done));
    this.closed = new Promise((done) => this.ws.addEventListener("close", done));
    this.ws.on("error", () => {}); // a refused handshake closes as well
    this.ws.addEventListener("message", ({ data }) => this.#take(data));
    this.closed.then(() => this.#take(ended));
  }
  #take(data) {
    const reader = this.readers.shift();
    if (reader) reader(data);
    else if (this.keeps || data === ended) this.kept.push(data);
  }
  async next() {
    const got = this.kept.length ? this.kept.shift() : await new Promise((done) => this.readers.push(done));
    ok(got !== ended, "the connection ended");
    return got;
  }
  async nextButPings() {
    for (;;) {
      const got = await this.next();
      if (got !== "2") return got;
    }
  }
  async gets(...wanted) {
    for (const want of wanted) same(await this.next(), want);
  }
  send(...packets) {
    for (const p of packets) this.ws.send(p);
    return this;
  }
}

// Place is one server at one path, "/engine.io/" or "/socket.io/".
class Place {
  constructor(url, path) {
    this.url = url + path;
  }
  at(query) {
    return `${this.url}?${query}`;
  }
  line(query = "EIO=4&transport=websocket") {
    return new Line(this.at(query));
  }
  async refuses(query, init) {
    same((await fetch(this.at(query), init)).status, 400, query);
  }
  async session() {
    const text = await (await fetch(this.at("EIO=4&transport=polling"))).text();
    const sid = JSON.parse(text.slice(1)).sid;
    const url = this.at(`EIO=4&transport=polling&sid=${sid}`);
    const place = this;
    return {
      get: (init) => fetch(url, init),
      async gets(want) {
        const a = await fetch(url);
        same([a.status, await a.text()], [200, want]);
      },
      async gone() {
        same((await fetch(url)).status, 400);
      },
      async posts(body) {
        const a = await fetch(url, { method: "post", body });
        same([a.status, await a.text()], [200, "ok"]);
      },
      post: (body) => fetch(url, { method: "post", body }),
      line: () => place.line(`EIO=4&transport=websocket&sid=${sid}`),
    };
  }
  // joined is a line in the main namespace, greeted.
  async joined() {
    const line = this.line();
    await line.next();
    line.send("40");
    await line.nextButPings();
    await line.nextButPings();
    return line;
  }
}

const terms = (text, upgrades) => {
  ok(text.startsWith("0"));
  const got = JSON.parse(text.slice(1));
  same(Object.keys(got).sort(), ["maxPayload", "pingInterval", "pingTimeout", "sid", "upgrades"]);
  same([typeof got.sid, got.upgrades, got.maxPayload], ["string", upgrades, 1_000_000]);
  return got;
};

// What both suites ask of Engine.IO. A case is a name and its steps; those under "heartbeat" need pings.
const transport = {
  "handshake, HTTP long-polling: opens a session": async (p) => {
    const a = await fetch(p.at("EIO=4&transport=polling"));
    same(a.status, 200);
    terms(await a.text(), ["websocket"]);
  },
  "handshake, HTTP long-polling: invalid EIO": async (p) => {
    await p.refuses("transport=polling");
    await p.refuses("EIO=abc&transport=polling");
  },
  "handshake, HTTP long-polling: invalid transport": async (p) => {
    await p.refuses("EIO=4");
    await p.refuses("EIO=4&transport=abc");
  },
  "handshake, HTTP long-polling: invalid method": async (p) => {
    for (const method of ["post", "put"]) await p.refuses("EIO=4&transport=polling", { method });
  },
  "handshake, WebSocket: opens a session": async (p) => {
    const line = p.line();
    terms(await line.next(), []);
    line.ws.close();
  },
  "handshake, WebSocket: invalid EIO": async (p) => {
    for (const query of ["transport=websocket", "EIO=abc&transport=websocket"]) await p.line(query).closed;
  },
  "handshake, WebSocket: invalid transport": async (p) => {
    for (const query of ["EIO=4", "EIO=4&transport=abc"]) await p.line(query).closed;
  },
  "heartbeat, HTTP long-polling: pings and pongs": async (p) => {
    const s = await p.session();
    for (let i = 0; i < 3; i++) {
      await s.gets("2");
      await s.posts("3");
    }
  },
  "heartbeat, HTTP long-polling: ends without a pong": async (p) => {
    const text = await (await fetch(p.at("EIO=4&transport=polling"))).text();
    const { sid, pingInterval, pingTimeout } = terms(text, ["websocket"]);
    await sleep(pingInterval + pingTimeout);
    await p.refuses(`EIO=4&transport=polling&sid=${sid}`);
  },
  "heartbeat, WebSocket: pings and pongs": async (p) => {
    const line = p.line();
    await line.next();
    for (let i = 0; i < 3; i++) {
      await line.gets("2");
      line.send("3");
    }
    line.ws.close();
  },
  "heartbeat, WebSocket: ends without a pong": (p) => p.line().closed,
  "close, HTTP long-polling": async (p) => {
    const s = await p.session();
    await Promise.all([s.gets("6"), s.posts("1")]);
    await s.gone();
  },
  "close, WebSocket": async (p) => {
    const line = p.line();
    await line.next();
    await line.send("1").closed;
  },
};

const engine = {
  ...transport,
  "message, HTTP long-polling: one text packet": async (p) => {
    const s = await p.session();
    await s.posts("4hello");
    await s.gets("4hello");
  },
  "message, HTTP long-polling: several text packets": async (p) => {
    const s = await p.session();
    await s.posts("4one\x1e4two\x1e4three");
    await s.gets("4one\x1e4two\x1e4three");
  },
  "message, HTTP long-polling: text and binary packets": async (p) => {
    const s = await p.session();
    await s.posts("4hello\x1ebAQIDBA==");
    await s.gets("4hello\x1ebAQIDBA==");
  },
  "message, HTTP long-polling: an invalid packet ends the session": async (p) => {
    const s = await p.session();
    same((await s.post("abc")).status, 400);
    await s.gone();
  },
  "message, HTTP long-polling: a second poll at once ends the session": async (p) => {
    const s = await p.session();
    const [first, second] = await Promise.all([s.get(), sleep(5).then(() => s.get())]);
    // Which of the two came first the client cannot know for certain.
    const answers = [[first.status, await first.text()], [second.status, await second.text()]].sort((a, b) => a[0] - b[0]);
    same(answers[0], [200, "1"]);
    same(answers[1][0], 400);
    await s.gone();
  },
  "message, HTTP long-polling: a cancelled poll ends the session": async (p) => {
    const s = await p.session();
    const cancel = new AbortController();
    s.get({ signal: cancel.signal }).catch(() => {});
    await sleep(flags.patient ? 100 : 5); // a poll that was never sent cannot be cancelled
    cancel.abort();
    await s.gone();
  },
  "message, WebSocket: text": async (p) => {
    const line = p.line();
    await line.next();
    await line.send("4hello").gets("4hello");
    line.ws.close();
  },
  "message, WebSocket: binary": async (p) => {
    const line = p.line();
    await line.next();
    await line.send(Uint8Array.of(1, 2, 3, 4)).gets(Uint8Array.of(1, 2, 3, 4).buffer);
    line.ws.close();
  },
  "message, WebSocket: an invalid packet ends the session": async (p) => {
    const line = p.line();
    await line.next();
    await line.send("abc").closed;
  },
  "upgrade: moves the session": async (p) => {
    const s = await p.session();
    const line = s.line();
    await line.opened;
    await line.send("2probe").gets("3probe");
    await s.gets("6");
    await line.send("5", "4hello").gets("4hello");
    line.ws.close();
  },
  "upgrade: HTTP requests afterwards are ignored": async (p) => {
    const s = await p.session();
    const line = s.line();
    await line.opened;
    await line.send("2probe").gets("3probe");
    line.send("5");
    await s.gone();
    await line.send("4hello").gets("4hello");
    line.ws.close();
  },
  "upgrade: another WebSocket afterwards is ignored": async (p) => {
    const s = await p.session();
    const line = s.line();
    await line.opened;
    await line.send("2probe").gets("3probe");
    line.send("5");
    const second = s.line();
    await second.opened; // accepted, and then closed
    await second.closed;
    await line.send("4hello").gets("4hello");
    line.ws.close();
  },
};

const connects = (packet, prefix, greeting) => async (p) => {
  const line = p.line();
  await line.next();
  line.send(packet);
  const got = await line.nextButPings();
  ok(got.startsWith(prefix), got);
  const answer = JSON.parse(got.slice(prefix.length));
  same([Object.keys(answer), typeof answer.sid], [["sid"], "string"]);
  same(await line.nextButPings(), greeting);
  line.ws.close();
};

const mirrors = (packets, ...wanted) => async (p) => {
  const line = await p.joined();
  line.keeps = true; // attachments come at once, for the suites too
  line.send(...packets);
  for (const want of wanted) same(await line.nextButPings(), want);
  line.ws.close();
};

const cuts = (packet) => async (p) => (await p.joined()).send(packet).closed;

const two = [Uint8Array.of(1, 2, 3), Uint8Array.of(4, 5, 6)];

const socket = {
  ...transport,
  "upgrade: moves the session": async (p) => {
    const line = (await p.session()).line();
    await line.opened;
    await line.send("2probe").gets("3probe");
    line.send("5");
  },
  "upgrade: HTTP requests afterwards are ignored": async (p) => {
    const s = await p.session();
    const line = s.line();
    await line.opened;
    line.send("2probe", "5"); // without waiting for the answer
    await s.gone();
  },
  "upgrade: another WebSocket afterwards is ignored": async (p) => {
    const s = await p.session();
    const line = s.line();
    await line.opened;
    line.send("2probe", "5");
    const second = s.line();
    await second.opened;
    await second.closed;
  },
  "connect: the main namespace": connects("40", "40", '42["auth",{}]'),
  "connect: the main namespace, with a payload": connects('40{"token":"123"}', "40", '42["auth",{"token":"123"}]'),
  "connect: a custom namespace": connects("40/custom,", "40/custom,", '42/custom,["auth",{}]'),
  "connect: a custom namespace, with a payload":
    connects('40/custom,{"token":"abc"}', "40/custom,", '42/custom,["auth",{"token":"abc"}]'),
  "connect: an unknown namespace": async (p) => {
    const line = p.line();
    await line.next();
    line.send("40/random");
    same(await line.nextButPings(), '44/random,{"message":"Invalid namespace"}');
    line.ws.close();
  },
  "connect: an invalid handshake": async (p) => {
    const line = p.line();
    await line.next();
    await line.send("4abc").closed;
  },
  "connect: none at all": (p) => p.line().closed,
  "heartbeat after disconnect: the main namespace": async (p) => {
    const line = await p.joined();
    await line.send("41").gets("2"); // nothing but the next ping
    line.ws.close();
  },
  "disconnect: a custom namespace": async (p) => {
    const line = await p.joined();
    line.send("40/custom");
    await line.nextButPings();
    await line.nextButPings();
    line.send("41/custom", '42["message","message to main namespace"]');
    same(await line.nextButPings(), '42["message-back","message to main namespace"]');
    line.ws.close();
  },
  "message: text": mirrors(['42["message",1,"2",{"3":[true]}]'], '42["message-back",1,"2",{"3":[true]}]'),
  "message: attachments": mirrors([`452-["message",${blobs}]`, ...two], `452-["message-back",${blobs}]`,
    ...two.map((b) => b.buffer)),
  "message: text, with an ack":
    mirrors(['42456["message-with-ack",1,"2",{"3":[false]}]'], '43456[1,"2",{"3":[false]}]'),
  "message: attachments, with an ack": mirrors([`452-789["message-with-ack",${blobs}]`, ...two], `462-789[${blobs}]`,
    ...two.map((b) => b.buffer)),
  "message: an unknown packet type": cuts("4abc"),
  "message: an invalid payload": cuts("42{}"),
  "message: an invalid ack id": cuts('42abc["message-with-ack",1,"2",{"3":[false]}]'),
};

let ran = 0;
let failed = 0;
for (let run = 0; run < Number(flags.runs); run++) {
  for (const [path, cases] of [["/engine.io/", engine], ["/socket.io/", socket]]) {
    for (const [name, steps] of Object.entries(cases)) {
      const url = name.startsWith("heartbeat") || name.endsWith("none at all") ? quick : patient;
      ran++;
      const late = new AbortController();
      try {
        await Promise.race([
          steps(new Place(url, path)),
          new Promise((_, no) => {
            const timer = setTimeout(() => no(new Error("nothing more came for 30 s")), 30_000);
            late.signal.addEventListener("abort", () => clearTimeout(timer));
          }),
        ]);
      } catch (e) {
        failed++;
        console.log(`FAILED ${path} ${name}: ${e.message}`);
      }
      late.abort();
    }
  }
}
console.log(`${ran - failed} of ${ran} passed`);
process.exit(failed ? 1 : 0);
