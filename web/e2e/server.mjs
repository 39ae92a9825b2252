// Starts the binary with its sample, or the mock, and stops it.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

/** Starts a program that prints "ready BASE RUNURL" and gives {base, run, stop, stand}; stand(true) pauses it, stand(false) resumes it. */
async function start(command, args, env, cleanUp) {
  const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  const output = [];
  const ready = new Promise((resolve) => {
    let rest = "";
    const read = (part) => {
      const lines = (rest + part).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        output.push(line);
        const found = /^ready (\S+) (\S+)/.exec(line);
        if (found) resolve({ base: found[1], run: found[2].split("/").at(-1) });
      }
    };
    child.stdout.setEncoding("utf8").on("data", read);
    child.stderr.setEncoding("utf8").on("data", (t) => output.push(...t.trimEnd().split("\n")));
  });
  const stand = (still) => child.kill(still ? "SIGSTOP" : "SIGCONT");
  const stop = async () => {
    stand(false);
    child.kill("SIGTERM");
    const stuck = setTimeout(() => child.kill("SIGKILL"), 40_000);
    await ended;
    clearTimeout(stuck);
    await cleanUp?.();
  };
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, 120_000, "late")));
  const first = await Promise.race([ready, ended, late]);
  clearTimeout(timer);
  if (typeof first === "object" && first !== null) return { ...first, stop, stand };
  await stop();
  throw new Error(`${command} ${args.join(" ")} did not get ready (${first})\n${output.slice(-15).join("\n")}`);
}

/** The binary of "make build" with a separate database and its sample run. */
export async function startApp() {
  const binary = at("../../bin/sojourn");
  if (!existsSync(binary)) throw new Error("bin/sojourn is not there: run make build, or give --base URL and --run RUN_ID");
  const dir = await mkdtemp(join(tmpdir(), "sojourn-e2e-"));
  const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("SOJOURN_")));
  const env = { ...own, SOJOURN_ADDR: "127.0.0.1:0", SOJOURN_DATA_DIR: dir };
  return start(binary, ["dev"], env, () => rm(dir, { recursive: true, force: true }));
}

export const startMock = () => start(process.execPath, [at("../dev/mock.mjs"), "--port", "0"], process.env);
