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

// confined opens a pool at the level confined, or skips the test with the reason why this machine does not support it.
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
			outcomes := Got[map[string]string](t, b.Run(In("attacker", 1, b.Call("attacks", aim))))
			for _, row := range Attacks {
				what, reported := outcomes[row.Name]
				must := row.Process
				if level == sandbox.LevelConfined {
					must = row.Confined && b.Report().LandlockABI >= row.ABI
				}
				switch {
				case !reported || what == "no outcome was written":
					t.Errorf("%s was not tried", row.Name)
				case must && what == "":
					t.Errorf("%s is open", row.Name)
				case row.Works && what != "":
					t.Errorf("%s: %s", row.Name, what)
				}
			}
			b.Run(In("attacker", 1, b.Call("count"))) // the attacker still responds
			if level == sandbox.LevelConfined {       // and so does the attacked session, with its state
				if got := Got[string](t, b.Run(In("other", 1, b.Call("read", aim.Foreign)))); got != "kept" {
					t.Errorf("the other executor's file says %q", got)
				}
			}
		})
	}
}

// hostile are handlers that attack another live executor with the means of their language, and report the results.
var hostile = map[string]string{
	"hostile.mjs": `
import fs from 'node:fs';
import { spawnSync } from 'node:child_process';
export const main = () => { fs.writeFileSync('kept', 'kept'); return { pid: process.pid, dir: process.cwd() }; };
export const kept = () => fs.readFileSync('kept', 'utf8') + ' ' + fs.readdirSync('.').filter((n) => n !== '.code').join();
export const tries = ({ pid, dir }) => {
  const open = [];
  const attempt = (name, fn) => { try { fn(); open.push(name); } catch {} };
  const shell = (name, script) => attempt(name, () => { if (spawnSync('sh', ['-c', script]).status !== 0) throw new Error(); });
  attempt('read', () => fs.readFileSync(dir + '/kept'));
  attempt('list', () => fs.readdirSync(dir));
  attempt('list all', () => fs.readdirSync(dir + '/..'));
  attempt('change', () => fs.appendFileSync(dir + '/kept', 'x'));
  attempt('cut off', () => fs.truncateSync(dir + '/kept'));
  attempt('make', () => fs.writeFileSync(dir + '/made', 'x'));
  attempt('remove', () => fs.unlinkSync(dir + '/kept'));
  attempt('take', () => fs.renameSync(dir + '/kept', 'taken'));
  attempt('give', () => { fs.writeFileSync('own', 'x'); fs.renameSync('own', dir + '/given'); });
  attempt('hard link', () => { fs.linkSync(dir + '/kept', 'hard'); fs.readFileSync('hard'); });
  attempt('soft link', () => { fs.symlinkSync(dir + '/kept', 'soft'); fs.readFileSync('soft'); });
  attempt('soft folder', () => { fs.symlinkSync(dir, 'folder'); fs.writeFileSync('folder/made', 'x'); });
  for (const name of ['environ', 'mem', 'maps', 'cmdline', 'cwd/kept', 'root' + dir + '/kept', 'fd/3']) attempt(name, () => fs.readFileSync('/proc/' + pid + '/' + name));
  shell('read by a child', 'cat ' + dir + '/kept');
  shell('change by a child', 'echo x >> ' + dir + '/kept');
  shell('read by a daemon', 'setsid -w cat ' + dir + '/kept');
  attempt('signal', () => process.kill(pid, 'SIGSTOP'));
  return open;
};
`,
	"hostile.py": `
import ctypes, os, shutil, signal, subprocess
def main(_, ctx):
    open("kept", "w").write("kept")
    return {"pid": os.getpid(), "dir": os.getcwd()}
def kept(_, ctx):
    return open("kept").read() + " " + ",".join(os.listdir("."))
def tries(other, ctx):
    pid, dir, found = other["pid"], other["dir"], []
    def attempt(name, fn):
        try:
            fn()
            found.append(name)
        except Exception:
            pass
    def shell(name, script):
        attempt(name, lambda: subprocess.run(["sh", "-c", script], check=True, capture_output=True))
    libc = ctypes.CDLL(None, use_errno=True)
    def check(result):
        if result < 0:
            raise OSError(ctypes.get_errno())
    here = os.open(".", os.O_RDONLY)
    attempt("read", lambda: open(dir + "/kept").read())
    attempt("read from a folder", lambda: os.open("../" + os.path.basename(dir) + "/kept", os.O_RDONLY, dir_fd=here))
    attempt("list", lambda: os.listdir(dir))
    attempt("list all", lambda: os.listdir(dir + "/.."))
    attempt("go there", lambda: (os.chdir(dir), os.listdir(".")))
    os.chdir(ctx.session.dir)
    attempt("change", lambda: open(dir + "/kept", "a").write("x"))
    attempt("cut off", lambda: os.truncate(dir + "/kept", 0))
    attempt("make", lambda: open(dir + "/made", "w").write("x"))
    attempt("fifo", lambda: os.mkfifo(dir + "/fifo"))
    attempt("remove", lambda: os.remove(dir + "/kept"))
    attempt("remove all", lambda: shutil.rmtree(dir))
    attempt("take", lambda: os.rename(dir + "/kept", "taken"))
    attempt("hard link", lambda: (os.link(dir + "/kept", "hard"), open("hard").read()))
    attempt("soft link", lambda: (os.symlink(dir + "/kept", "soft"), open("soft").read()))
    attempt("soft folder", lambda: (os.symlink(dir, "folder"), open("folder/made", "w").write("x")))
    for name in ["environ", "mem", "maps", "cmdline", "cwd/kept", "root" + dir + "/kept", "fd/3", "task/%d/environ" % pid]:
        attempt(name, lambda: open("/proc/%d/%s" % (pid, name), "rb").read(1))
    def stream():
        pidfd = os.pidfd_open(pid)
        check(libc.syscall(438, pidfd, 3, 0))
    attempt("its control socket", stream)
    attempt("its processors", lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)))
    attempt("trace", lambda: check(libc.ptrace(0x4206, pid, 0, 0)))
    shell("read by a child", "cat %s/kept" % dir)
    shell("change by a child", "echo x >> %s/kept" % dir)
    attempt("signal", lambda: os.kill(pid, signal.SIGSTOP))
    attempt("signal its group", lambda: os.killpg(pid, signal.SIGSTOP))
    return found
`,
}

// Of two live sessions, one tries every attack that its language offers on the other.
func TestAnotherSessionIsOutOfReach(t *testing.T) {
	for _, target := range Targets[1:] {
		t.Run(target.Runtime, func(t *testing.T) {
			name := map[string]string{sandbox.RuntimeNode: "hostile.mjs", sandbox.RuntimePython: "hostile.py"}[target.Runtime]
			target.Activity = "hostile"
			b := confined(t, target, sandbox.Options{Handlers: openFiles(t, map[string]string{name: hostile[name]})})
			other := Got[map[string]any](t, b.Run(In("other", 1, b.Call("main"))))
			b.Run(In("attacker", 1, b.Call("main")))
			for _, found := range Got[[]string](t, b.Run(In("attacker", 1, b.Call("tries", other)))) {
				if strings.HasPrefix(found, "signal") && !b.Report().Signals && !b.Report().UIDPerSession {
					continue // as the report states
				}
				t.Errorf("%s: it is open", found)
			}
			if got := Got[string](t, b.Run(In("other", 1, b.Call("kept")))); got != "kept kept" {
				t.Errorf("the other session has %q", got)
			}
		})
	}
}

// openFiles returns a folder with files that every user may read.
func openFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := errors.Join(
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644), os.Chmod(filepath.Dir(dir), 0o755),
		); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Everything that an executor created is removed before its place is reused, even if it tries to prevent this.
func TestSessionLeavesNoStateForTheNext(t *testing.T) {
	// The watchdog ends an executor whose files it cannot count, which may happen before dig_in returns.
	uncounted := map[string]sandbox.Limits{sandbox.RuntimePython: {ScratchBytes: -1, ScratchFiles: -1}}
	b := python(t, sandbox.Options{Blank: -1, MaxExecutors: 1, Limits: uncounted})
	about := Got[map[string]any](t, b.Run(In("first", 1, b.Call("about"))))
	b.Run(In("first", 1, b.Call("dig_in")))
	if err := b.CloseSession(t.Context(), sandbox.Session{ID: "first", Epoch: 1}, "done"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(about["dir"].(string)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
	if got := Got[string](t, b.Run(In("second", 1, b.Call("write", "own")))); got != "kept own" {
		t.Errorf("the next session has %q", got)
	}
	all, err := os.ReadDir(filepath.Dir(about["dir"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if strings.Contains(e.Name(), "kept-for-later") {
			t.Errorf("%s is there", e.Name())
		}
	}
}

func TestConfinedCodeMayOpenThePathsOfItsSettings(t *testing.T) {
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

// A handler that is denied a file fails with the reason; the first error lists all paths that it may open.
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
		// A missing file is not explained by the isolation.
		if e := WantType(t, b.Fail(In("s", 1, b.Call("read", "missing"))), sandbox.UserError); strings.Contains(
			e.Message, "isolation",
		) {
			t.Errorf("got %s", e.Message)
		}
	})
}

// The error of a denied read names the reason if executor-read names the path but it is in the data directory, or if
// the path leads through a node_modules folder that is a link.
func TestAPathThatSeemsOpenIsExplained(t *testing.T) {
	file := func(dir string) string {
		t.Helper()
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private, elsewhere, handlers := t.TempDir(), t.TempDir(), HandlersDir(t)
	link := filepath.Join(handlers, "node_modules")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	named, linked := file(private), file(elsewhere)
	everyRuntimeConfined(t, sandbox.Options{
		Handlers: handlers, Private: private, Read: []string{named},
	}, func(t *testing.T, b *Bench) {
		for path, want := range map[string]string{
			named:  fmt.Sprintf("executor-read names %q, which cannot be allowed: it is in the data directory", named),
			linked: fmt.Sprintf("%q is a link to %q: add that folder to executor-read", link, elsewhere),
		} {
			e := WantType(t, b.Fail(In("s", 1, b.Call("read", path))), sandbox.UserError)
			if !strings.Contains(e.Message, want) {
				t.Errorf("got %s, want %s", e.Message, want)
			}
		}
	})
}

// The folder of the worker's database may be inside the folder of the handlers.
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

// Ordinary programs run confined without differences.
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
			// The names of the two files differ only in their extensions, so each runtime gets a separate folder.
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
