// @vitest-environment jsdom
import { QueryClient } from "@tanstack/react-query";
import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Server } from "socket.io";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Live } from "./live";
import { keys } from "./queries";

const workers = [...keys.workers, "default"];

let http: HttpServer;
let server: Server;
let stop: (() => void) | undefined;

async function listen(port = 0): Promise<number> {
  http = createServer();
  server = new Server(http, { path: "/api/socket.io", serveClient: false, cors: { origin: true, credentials: true } });
  server.of("/dashboard"); // a missing Socket.IO namespace is rejected
  await new Promise<void>((resolve) => {
    http.on("error", () => setTimeout(() => http.listen(port, "127.0.0.1"), 50)); // another connection may use the port for a moment
    http.listen(port, "127.0.0.1", resolve);
  });
  return (http.address() as AddressInfo).port;
}

const until = (fit: () => boolean) => vi.waitFor(() => expect(fit()).toBe(true), { timeout: 30_000, interval: 20 });

let port: number;
let client: QueryClient;
const stale = (key: readonly unknown[]) => client.getQueryState(key)?.isInvalidated === true;

beforeEach(async () => {
  port = await listen();
  client = new QueryClient();
  client.setQueryData(workers, {});
  client.setQueryData(keys.me, {});
});

afterEach(async () => {
  stop?.();
  await server.close();
});

it("a hint from the app makes what it names stale", async () => {
  const live = new Live(60_000);
  stop = live.start(client, `http://127.0.0.1:${port}`);
  await until(() => live.state === "live");
  expect(stale(workers)).toBe(false);
  server.of("/dashboard").emit("hint", { kind: "worker", id: "local" });
  await until(() => stale(workers));
  expect(stale(keys.me)).toBe(false);
});

it("reconnects and reloads data that may have changed", async () => {
  const live = new Live(60_000);
  const seen: string[] = [];
  live.subscribe(() => seen.push(live.state));
  stop = live.start(client, `http://127.0.0.1:${port}`);
  await until(() => live.state === "live");
  await server.close();
  await until(() => live.state === "reconnecting");
  expect(stale(workers)).toBe(false);
  await listen(port);
  await until(() => live.state === "live" && stale(workers));
  expect(seen).toEqual(["live", "reconnecting", "live"]);
});

it("tries again after the app refused or dropped it", async () => {
  let refusals = 1;
  server.of("/dashboard").use((_, next) => next(refusals-- > 0 ? new Error("unauthorized") : undefined));
  const live = new Live(60_000);
  stop = live.start(client, `http://127.0.0.1:${port}`);
  await until(() => live.state === "live");
  expect(refusals).toBe(-1);
  server.of("/dashboard").disconnectSockets();
  await until(() => live.state === "reconnecting");
  await until(() => live.state === "live");
});

it("without a connection everything shown is read again, but not who is signed in", async () => {
  await server.close();
  const live = new Live(50);
  stop = live.start(client, `http://127.0.0.1:${port}`);
  await until(() => stale(workers));
  expect(live.state).toBe("connecting");
  expect(stale(keys.me)).toBe(false);
});
