// The dashboard behind a proxy that serves it below a path prefix and strips the prefix.
import assert from "node:assert/strict";
import http from "node:http";
import net from "node:net";
import { patience, shown } from "./checks.mjs";

const prefix = "/team/sojourn";

/** A proxy in front of base: what is below the prefix goes there, sockets too, and nothing else. */
async function proxy(base) {
  const { hostname, port } = new URL(base);
  const to = (req) => ({ host: hostname, port, path: req.url.slice(prefix.length) || "/", method: req.method, headers: { ...req.headers, "x-forwarded-prefix": prefix } });
  const open = new Set();
  const server = http.createServer((req, res) => {
    if (!req.url.startsWith(`${prefix}/`)) return res.writeHead(404).end("the proxy has nothing here");
    const on = http.request(to(req), (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    on.on("error", () => res.destroy());
    req.pipe(on);
  });
  server.on("upgrade", (req, client) => {
    if (!req.url.startsWith(`${prefix}/`)) return client.destroy();
    const { path, headers } = to(req);
    const app = net.connect(port, hostname, () => {
      app.write(`GET ${path} HTTP/1.1\r\n${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join("")}\r\n`);
      app.pipe(client).pipe(app);
    });
    for (const s of [app, client]) s.on("error", () => [app, client].forEach((one) => one.destroy()));
  });
  server.on("connection", (s) => open.add(s.on("close", () => open.delete(s))));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { at: `http://127.0.0.1:${server.address().port}`, stop: () => [...open].forEach((s) => s.destroy()) ?? server.close() };
}

export const below = [
  ["the dashboard works below a path prefix of a proxy and sends no request outside it", async ({ page, base, run }) => {
    const { at, stop } = await proxy(base);
    const other = await page.context().newPage();
    const outside = [];
    other.on("request", (r) => !r.url().startsWith(`${at}${prefix}/`) && !/^(data|blob):/.test(r.url()) && outside.push(r.url()));
    other.on("response", (r) => r.status() >= 400 && outside.push(`${r.status()} ${r.url()}`));
    try {
      await other.goto(`${at}${prefix}/runs/${run}`);
      await shown(other.getByRole("list", { name: "Event history" }));
      await other.locator('[data-live="Live"]').waitFor({ timeout: patience });
      await other.getByRole("link", { name: "Workers", exact: true }).click();
      await other.waitForURL(`${at}${prefix}/workers`, { timeout: patience });
      await shown(other.locator("[data-worker]").first());
      await other.reload();
      await shown(other.locator("[data-worker]").first());
      assert.deepEqual(outside, []);
    } finally {
      await other.close();
      stop();
    }
  }],
];
