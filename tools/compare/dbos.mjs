// The same work on DBOS. Workflows, steps and the caller run in one process: DBOS is a library.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { DBOS } from "@dbos-inc/dbos-sdk";

const echo = async (input) => input;
const work = (name, steps) =>
  DBOS.registerWorkflow(
    async (input) => {
      let out = input;
      for (let i = 0; i < steps; i++) out = await DBOS.runStep(() => echo(out), { name: "echo" });
      return out;
    },
    { name },
  );
const all = { five: work("five", 5), one: work("one", 1) };

DBOS.setConfig({ name: "compare", systemDatabaseUrl: process.env.DATABASE, runAdminServer: false, logLevel: "error" });
await DBOS.launch();
const { version } = JSON.parse(readFileSync(new URL("node_modules/@dbos-inc/dbos-sdk/package.json", import.meta.url)));
console.log(`compare: ready ${version}`);

const kilobyte = "x".repeat(1000);
for await (const line of createInterface({ input: process.stdin })) {
  const [kind, n, atOnce] = line.split(" ");
  const run = all[kind];
  let next = 0;
  const one = async () => {
    while (next++ < Number(n)) {
      if ((await run(kilobyte)) !== kilobyte) throw new Error("a workflow returned something else");
    }
  };
  const began = performance.now();
  try {
    await Promise.all(Array.from({ length: Number(atOnce) }, one));
    console.log(`compare: done ${(performance.now() - began) / 1000}`);
  } catch (e) {
    console.log(`compare: failed ${String(e).replaceAll("\n", " ")}`);
  }
}
await DBOS.shutdown();
process.exit(0);
