package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// confined opens a pool at that level, or skips the test with what keeps this machine from it.
func confined(t *testing.T, target Target, o sandbox.Options) *Bench {
	t.Helper()
	b := Open(t, target, o)
	if r := b.Report(); r.Level != sandbox.LevelConfined {
		t.Skip(r.Reason)
	}
	return b
}

func everyRuntimeConfined(t *testing.T, o sandbox.Options, test func(*testing.T, *Bench)) {
	for _, target := range Targets {
		t.Run(target.Runtime, func(t *testing.T) { test(t, confined(t, target, o)) })
	}
}

// The whole list, tried by a handler for real, at each level.
func TestAttacks(t *testing.T) {
	t.Setenv("SOJOURN_TOKEN", "sjn_secret")
	for _, level := range []sandbox.Level{sandbox.LevelProcess, sandbox.LevelConfined} {
		t.Run(string(level), func(t *testing.T) {
			dir := t.TempDir()
			code := HandlersDir(t)
			var b *Bench
			if o := (sandbox.Options{Handlers: code}); level == sandbox.LevelConfined {
				b = confined(t, Targets[0], o)
			} else {
				o.Level = level
				b = Open(t, Targets[0], o)
			}
			other := Got[map[string]any](t, b.Run(In("other", 1, b.Call("about"))))
			b.Run(In("other", 1, b.Call("write", "kept")))
			own := Got[map[string]any](t, b.Run(In("attacker", 1, b.Call("about"))))
			aim := Aim{
				Worker: os.Getpid(), Other: int(other["pid"].(int64)), Secret: filepath.Join(dir, "secret"),
				Foreign: filepath.Join(other["dir"].(string), "kept"),
				Folder:  dir, Code: filepath.Join(code, "python.py"), Scratch: own["dir"].(string),
				Abstract: fmt.Sprintf("@sojourn-attacked-%d", os.Getpid()), Named: filepath.Join(dir, "socket"),
				TCP: "127.0.0.1:0",
			}
			if err := os.WriteFile(aim.Secret, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			for network, address := range map[string]*string{"abstract": &aim.Abstract, "named": &aim.Named, "tcp": &aim.TCP} {
				if network != "tcp" {
					network = "unix"
				}
				l, err := net.Listen(network, *address)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				*address = l.Addr().String()
			}
			if err := os.Chmod(aim.Named, 0o666); err != nil {
				t.Fatal(err)
			}
			said := Got[map[string]string](t, b.Run(In("attacker", 1, b.Call("attacks", aim))))
			for _, row := range Attacks {
				what, told := said[row.Name]
				must := row.Process
				if level == sandbox.LevelConfined {
					must = row.Confined && b.Report().LandlockABI >= row.ABI
				}
				switch {
				case !told || what == "nobody wrote it":
					t.Errorf("%s was not tried", row.Name)
				case must && what == "":
					t.Errorf("%s is open", row.Name)
				case row.Works && what != "":
					t.Errorf("%s: %s", row.Name, what)
				}
			}
			b.Run(In("attacker", 1, b.Call("count"))) // it is still there to be asked
		})
	}
}

func TestConfinedCodeMayOpenWhatTheSettingsSay(t *testing.T) {
	read, write := t.TempDir(), t.TempDir()
	text := filepath.Join(read, "text")
	if err := os.WriteFile(text, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	everyRuntimeConfined(t, sandbox.Options{Read: []string{read}, Write: []string{write}}, func(t *testing.T, b *Bench) {
		if got := Got[string](t, b.Run(b.Call("read", text))); got != "words" {
			t.Errorf("read %q", got)
		}
		made := filepath.Join(write, b.Runtime)
		b.Run(b.Call("create", made))
		if _, err := os.Stat(made); err != nil {
			t.Error(err)
		}
		if e := WantType(t, b.Fail(b.Call("create", filepath.Join(read, "new"))), sandbox.UserError); !strings.Contains(
			e.Message, "may be read by confined code, not changed",
		) {
			t.Errorf("got %s", e.Message)
		}
		if all := b.Snapshot(); len(all) == 0 || all[0].Level != sandbox.LevelConfined {
			t.Errorf("executors %+v", all)
		}
	})
}

// A handler that is refused a file fails with the reason, once with all that it may open.
func TestDeniedAccessIsExplained(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	everyRuntimeConfined(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		for i := range 2 {
			e := WantType(t, b.Fail(In("s", 1, b.Call("read", secret))), sandbox.UserError)
			if !strings.Contains(e.Message, fmt.Sprintf("%q is not among what confined code may open", secret)) ||
				!strings.Contains(e.Message, "executor-read") {
				t.Errorf("failure %d: %s", i, e.Message)
			}
			if all := strings.Contains(e.Message, "/usr/lib"); all != (i == 0) {
				t.Errorf("failure %d: %s", i, e.Message)
			}
		}
		// What is not there is not the isolation's doing.
		if e := WantType(t, b.Fail(In("s", 1, b.Call("read", "missing"))), sandbox.UserError); strings.Contains(
			e.Message, "isolation",
		) {
			t.Errorf("got %s", e.Message)
		}
	})
}

// The folder of the worker's database may lie in the one of the handlers.
func TestPrivateFolderAmongTheHandlersStaysClosed(t *testing.T) {
	dir := HandlersDir(t)
	private := filepath.Join(dir, ".sojourn")
	deep := filepath.Join(dir, "lib", "deep")
	secret, helper := filepath.Join(private, "sojourn.db"), filepath.Join(deep, "helper.txt")
	if err := errors.Join(os.MkdirAll(private, 0o700), os.MkdirAll(deep, 0o700), os.WriteFile(
		secret, []byte("rows"), 0o600,
	),
		os.WriteFile(helper, []byte("help"), 0o600)); err != nil {
		t.Fatal(err)
	}
	everyRuntimeConfined(t, sandbox.Options{Handlers: dir, Private: private}, func(t *testing.T, b *Bench) {
		if got := Got[string](t, b.Run(b.Call("read", helper))); got != "help" {
			t.Errorf("read %q", got)
		}
		if e := WantType(t, b.Fail(b.Call("read", secret)), sandbox.UserError); !strings.Contains(e.Message, "not among") {
			t.Errorf("got %s", e.Message)
		}
	})
}

// What ordinary programs do runs as it does anywhere.
func TestOrdinaryCodeRunsConfined(t *testing.T) {
	dir := t.TempDir()
	for name, code := range map[string]string{
		"script.mjs": `
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import { Worker } from 'node:worker_threads';
import { helper } from './lib/helper.mjs';
import packaged from 'packaged';
export async function main(port) {
  const failed = {};
  const attempt = async (name, fn) => { try { if (!(await fn())) failed[name] = 'nothing'; } catch (err) { failed[name] = String(err); } };
  await attempt('import', () => helper() === 'helped' && packaged === 'packaged');
  await attempt('thread', () => new Promise((done, no) => new Worker("require('worker_threads').parentPort.postMessage(1)", { eval: true }).on('message', done).on('error', no)));
  await attempt('child', () => execFileSync(process.execPath, ['-p', '1+1']).toString() === '2\n');
  await attempt('shell', () => spawnSync('sh', ['-c', 'echo hi > f && cat f']).stdout.toString() === 'hi\n');
  await attempt('cpus', () => os.cpus().length > 0 && os.totalmem() > 0 && os.loadavg().length === 3);
  await attempt('usage', () => process.resourceUsage().maxRSS > 0 && process.cpuUsage().user > 0);
  await attempt('memory', () => process.memoryUsage().heapUsed > 0 && process.memoryUsage().rss > 0 && process.memoryUsage.rss() > 0);
  await attempt('random', () => randomBytes(8).length === 8 && createHash('sha256').update('x').digest('hex').length === 64);
  await attempt('temporary', () => { const d = fs.mkdtempSync(os.tmpdir() + '/x'); fs.writeFileSync(d + '/a', '1'); fs.renameSync(d + '/a', d + '/b'); fs.rmSync(d, { recursive: true }); return true; });
  await attempt('zone', () => new Date(0).toLocaleString('de-DE', { timeZone: 'Europe/Berlin' }).includes('1970'));
  await attempt('names', async () => (await lookup('localhost')).address);
  await attempt('network', () => new Promise((done, no) => net.connect(port, '127.0.0.1', () => done(true)).on('error', no)));
  return failed;
}`,
		"lib/helper.mjs":                     `export const helper = () => 'helped';`,
		"node_modules/packaged/index.js":     `module.exports = 'packaged';`,
		"node_modules/packaged/package.json": `{"name":"packaged","main":"index.js"}`,
		"script.py": `
import os, sys
from _helper import helper
def main(port, ctx):
    failed = {}
    def attempt(name, fn):
        try:
            if not fn():
                failed[name] = "nothing"
        except BaseException as err:
            failed[name] = repr(err)
    def sqlite():
        import sqlite3
        db = sqlite3.connect("x.db")
        db.execute("create table t (a)"); db.execute("insert into t values (1)"); db.commit()
        return db.execute("select count(*) from t").fetchone()[0] == 1
    def threads():
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            return sum(pool.map(lambda n: n, range(10))) == 45
    def child():
        import subprocess
        return subprocess.run([sys.executable, "-c", "print(1+1)"], capture_output=True, check=True).stdout == b"2\n"
    def temporary():
        import tempfile, shutil
        d = tempfile.mkdtemp(); open(d + "/a", "w").close(); os.rename(d + "/a", d + "/b"); shutil.rmtree(d)
        with tempfile.TemporaryFile() as f:
            f.write(b"x")
        return True
    def network():
        import socket
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    def names():
        import socket
        return socket.getaddrinfo("localhost", 80)
    def certificates():
        import ssl
        ssl.create_default_context()
        return True
    def loop():
        import asyncio
        async def run():
            p = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
            return await p.wait() == 3
        return asyncio.run(run())
    def zone():
        import zoneinfo
        return zoneinfo.ZoneInfo("Europe/Berlin") if os.path.exists("/usr/share/zoneinfo") else True
    attempt("import", lambda: helper() == "helped")
    for fn in (sqlite, threads, child, temporary, network, names, certificates, loop, zone):
        attempt(fn.__name__, fn)
    attempt("cpus", lambda: os.cpu_count() and os.getloadavg())
    attempt("random", lambda: os.urandom(8))
    return failed
`,
		"_helper.py": "def helper():\n    return 'helped'\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(code), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, runtime := range []string{sandbox.RuntimeNode, sandbox.RuntimePython} {
		t.Run(runtime, func(t *testing.T) {
			// The two files differ in their names' ends only, so that each runtime has a folder of its own.
			handlers := t.TempDir()
			if err := os.CopyFS(handlers, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(handlers, map[string]string{
				sandbox.RuntimeNode: "script.py", sandbox.RuntimePython: "script.mjs",
			}[runtime])); err != nil {
				t.Fatal(err)
			}
			b := confined(t, Target{Activity: "script", Runtime: runtime}, sandbox.Options{
				Handlers: handlers, Egress: sandbox.EgressOpen,
			})
			for name, what := range Got[map[string]string](t, b.Run(b.Call("main", l.Addr().(*net.TCPAddr).Port))) {
				t.Errorf("%s: %s", name, what)
			}
		})
	}
}
