// Encrypted values: the page shows them decoded by the codec endpoint of the namespace. This file is the endpoint.
import assert from "node:assert/strict";
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { shown, until } from "./checks.mjs";

const space = "vault";
const keyId = "k1";
const key = randomBytes(32);
const header = Buffer.from("c301e2a33dff55802237", "hex");
const text = (s) => Buffer.concat([Buffer.from([s.length * 2]), Buffer.from(s)]); // up to 63 characters

/** A list of arguments with one text, as a worker with codec.Encrypt stores it. */
function encrypted(word) {
  const frame = Buffer.concat([header, Buffer.from([0x0c, 2, 0x0a]), text(word), Buffer.from([0])]);
  const nonce = randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(keyId));
  const data = Buffer.concat([nonce, cipher.update(frame), cipher.final(), cipher.getAuthTag()]);
  assert.ok(data.length < 64);
  const map = [0x0c, 2, 0x0e, 6, text("sojourn.codec"), 0x0a, text("sojourn.aes-256-gcm"), text("key_id"), 0x0a, text(keyId), text("data"), 8, data.length * 2, data, 0, 0];
  const blob = Buffer.concat([header, ...map.map((part) => (typeof part === "number" ? Buffer.from([part]) : part))]);
  return { codec: "avro", blob: blob.toString("base64") };
}

function decrypt(one) {
  assert.equal(one.key_id, keyId);
  const data = Buffer.from(one.data, "base64");
  const decipher = createDecipheriv("aes-256-gcm", key, data.subarray(0, 12)).setAAD(Buffer.from(one.key_id)).setAuthTag(data.subarray(-16));
  const frame = Buffer.concat([decipher.update(data.subarray(12, -16)), decipher.final()]);
  return [frame.subarray(header.length + 4, -1).toString()];
}

/** Serves the endpoint for the viewer's token "viewer", and records the requests. */
function serve(origin) {
  const requests = [];
  const server = createServer(async (req, res) => {
    res.setHeader("Access-Control-Allow-Origin", origin);
    res.setHeader("Access-Control-Allow-Headers", "authorization, content-type");
    if (req.method === "OPTIONS") return res.writeHead(204).end();
    requests.push({ url: req.url, headers: req.headers });
    if (req.headers.authorization !== "Bearer viewer") return res.writeHead(401).end("Sign in first.");
    let body = "";
    for await (const part of req) body += part;
    res.setHeader("Content-Type", "application/json");
    res.end(JSON.stringify({ values: JSON.parse(body).payloads.map((p) => ({ value: decrypt(p) })) }));
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve({ server, requests, url: `http://127.0.0.1:${server.address().port}/decode` })));
}

const policy = async (base) => (await fetch(base)).headers.get("Content-Security-Policy");

export const codec = [
  ["the page decodes encrypted values by the codec endpoint of the namespace, which receives no cookie and no token of the app", async ({ page, base, api, axe, shot, refused }) => {
    for (const part of ["/decode", "/elsewhere", `/api/namespaces/${space}`]) refused(part);
    const endpoint = await serve(new URL(base).origin);
    try {
      await api("/api/namespaces", { name: space });
      const { run_id } = await api("/api/workflows", { workflow_id: "letter", workflow_type: "letter", task_queue: "nobody", input: encrypted("Dear Ada") }, space);
      await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
      const input = page.getByRole("region", { name: "Input" });
      await shown(input.getByText("Encrypted with key k1. The namespace has no codec endpoint that decodes it."));
      await page.goto(`${base}/namespaces?namespace=${space}`);
      await page.locator(`[data-namespace="${space}"]`).getByRole("button", { name: "Edit" }).click();
      await page.getByLabel("Codec endpoint").fill("http://codec.example.com/decode");
      await page.getByRole("button", { name: "Save" }).click();
      await shown(page.getByText(/must begin with https/));
      await page.getByLabel("Codec endpoint").fill(endpoint.url);
      await page.getByRole("button", { name: "Save" }).click();
      await until("the policy has the endpoint", async () => (await policy(base)).includes(`connect-src 'self' ${endpoint.url};`));
      await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
      await shown(input.getByText("Sign in first."));
      const events = page.getByRole("region", { name: "Events" });
      await events.getByText("Workflow started").click();
      await shown(events.getByText("Sign in first."));
      assert.deepEqual(await axe(), []);
      await shot("codec-token");
      await input.getByLabel("Access token of the codec endpoint").fill("viewer");
      await input.getByRole("button", { name: "Decode" }).click();
      await shown(input.getByText('"Dear Ada"'));
      await shown(events.getByText('"Dear Ada"')); // one entry of the token decodes all values of the page
      await shown(input.getByText("Decoded by the codec endpoint."));
      await shot("codec-decoded");
      await page.reload(); // the tab keeps the token
      await shown(input.getByText('"Dear Ada"'));
      assert.deepEqual([...new Set(endpoint.requests.map((r) => r.headers.authorization))], [undefined, "Bearer viewer"]);
      for (const r of endpoint.requests) {
        assert.equal(r.url, "/decode");
        assert.equal(r.headers.cookie, undefined);
        assert.equal(r.headers.referer, undefined);
        assert.deepEqual(Object.keys(r.headers).filter((name) => name.startsWith("x-")), []);
      }
      const elsewhere = endpoint.url.replace("/decode", "/elsewhere");
      assert.equal(await page.evaluate((url) => fetch(url, { mode: "no-cors" }).then(() => "sent", () => "blocked"), elsewhere), "blocked");
      assert.ok(endpoint.requests.every((r) => r.url !== "/elsewhere"));
    } finally {
      await api(`/api/namespaces/${space}`, { codec_endpoint: "" }, undefined, "PUT").catch(() => {});
      endpoint.server.close();
    }
  }],
];
