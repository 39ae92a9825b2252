// The official client against our server: node client.mjs URL SCENARIO [TRANSPORTS]. Ends with 0 when everything was as it must be.
import assert from "node:assert/strict";
import { once } from "node:events";
import { io } from "socket.io-client";

const [url, scenario, transports = "websocket"] = process.argv.slice(2);
setTimeout(() => {
  console.error(`${scenario} over ${transports} hangs`);
  process.exit(1);
}, 55_000).unref();

function connect(namespace = "/", options = {}) {
  return io(url + namespace, {
    path: "/api/socket.io",
    transports: transports.split(","),
    auth: { token: "right", workerId: "w1", protocol: 1 },
    reconnectionDelay: 20,
    reconnectionDelayMax: 100,
    forceNew: true,
    ...options,
  });
}

async function event(socket, name) {
  return new Promise((resolve) => socket.once(name, (...args) => resolve(args)));
}

const scenarios = {
  // Acks both ways, values of every kind, attachments, a large payload, and the envelope of calls.
  async exchange() {
    const socket = connect();
    socket.on("ask", (question, answer) => answer(`answer to ${question}`));
    await event(socket, "connect");
    if (transports === "polling,websocket") {
      const [name] = await new Promise((resolve) => {
        if (socket.io.engine.transport.name === "websocket") resolve(["websocket"]);
        socket.io.engine.once("upgrade", (transport) => resolve([transport.name]));
      });
      assert.equal(name, "websocket");
    } else {
      assert.equal(socket.io.engine.transport.name, transports);
    }
    const value = { text: "grüße \u2028 \x1e <&>", list: [1, 2.5, null, true], nested: { deep: [[]] } };
    const back = await socket.timeout(30_000).emitWithAck("echo", value);
    assert.deepEqual(back, value);
    const blob = await socket.timeout(30_000).emitWithAck("blob", Buffer.from([0, 1, 2, 255]));
    assert.deepEqual([...new Uint8Array(blob)], [255, 2, 1, 0]);
    const big = "x".repeat(300_000);
    assert.equal(await socket.timeout(30_000).emitWithAck("echo", big), big);
    for (let i = 0; i < 50; i++) {
      assert.equal(await socket.timeout(30_000).emitWithAck("echo", i), i);
    }
    const many = await Promise.all(Array.from({ length: 100 }, (_, i) => socket.timeout(30_000).emitWithAck("echo", i)));
    assert.deepEqual(many, Array.from({ length: 100 }, (_, i) => i));
    const hint = event(socket, "hint");
    assert.equal(await socket.timeout(30_000).emitWithAck("ask me", "42"), "answer to 42");
    assert.deepEqual(await hint, ["to the room"]);

    const call = (method, payload) => socket.timeout(30_000).emitWithAck("rpc", { method, payload });
    assert.deepEqual(await call("greet", { name: "Ada" }), { text: "hello Ada" });
    const unknown = await call("nobody", {});
    assert.equal(unknown.__rpcApError.code, "unknown_method");
    assert.equal(typeof unknown.__rpcError, "string");
    assert.equal((await call("greet", "no object")).__rpcApError.code, "malformed_payload");
    assert.equal((await call("crash", {})).__rpcApError.code, "internal");
    assert.equal(await call("nothing", {}), null);
    socket.disconnect();
  },

  // Two namespaces share one connection; leaving one keeps the other.
  async namespaces() {
    const worker = connect("/", { forceNew: false });
    const browser = connect("/dashboard", { forceNew: false });
    await Promise.all([event(worker, "connect"), event(browser, "connect")]);
    assert.equal(worker.io, browser.io);
    worker.disconnect();
    assert.equal(await browser.timeout(30_000).emitWithAck("where"), "/dashboard");
    browser.disconnect();
  },

  // A refusal says why in a form programs read.
  async refused() {
    const socket = connect("/", { auth: { token: "wrong" }, reconnection: false });
    const [err] = await event(socket, "connect_error");
    assert.equal(err.message, "not authorised");
    assert.deepEqual(err.data, { reason: "unauthenticated" });
    const nowhere = connect("/nowhere", { reconnection: false });
    const [invalid] = await event(nowhere, "connect_error");
    assert.equal(invalid.message, "Invalid namespace");
    socket.close();
    nowhere.close();
  },

  // After a disconnect by the server the client connects when it is told to; after a lost connection, by itself.
  async reconnect() {
    const socket = connect();
    await event(socket, "connect");
    const first = socket.id;
    const gone = event(socket, "disconnect");
    socket.emit("disconnect me");
    assert.equal((await gone)[0], "io server disconnect");
    socket.connect();
    await event(socket, "connect");
    assert.notEqual(socket.id, first);
    assert.equal(await socket.timeout(30_000).emitWithAck("echo", 1), 1);
    const lost = event(socket, "disconnect");
    const again = event(socket, "connect");
    socket.io.engine.close();
    await lost;
    await again;
    assert.equal(await socket.timeout(30_000).emitWithAck("echo", 2), 2);
    socket.disconnect();
  },

  // Tells when it is connected and stays until its input ends, through any number of restarts of the server.
  async stay() {
    const count = Number(process.argv[5] ?? 1);
    const sockets = Array.from({ length: count }, () => connect());
    let up = 0;
    for (const socket of sockets) {
      socket.on("connect", () => ++up === count && console.log("all connected"));
      socket.on("disconnect", () => --up === 0 && console.log("all disconnected"));
    }
    process.stdin.resume();
    await once(process.stdin, "end");
    for (const socket of sockets) socket.disconnect();
  },
};

await scenarios[scenario]();
process.exit(0);
