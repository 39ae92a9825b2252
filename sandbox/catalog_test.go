package sandbox_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// files writes a folder of handlers.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The catalog omits unreadable files with a reason and still finds the other handlers of the folder.
func TestUnreadableFilesDoNotHideHandlers(t *testing.T) {
	dir := files(t, map[string]string{"good.py": "a", "also.js": "b", "in/deeper.js": "c", "closed/x.py": "d"})
	for name, to := range map[string]string{
		"dangling.py": "nowhere.py", "loop.js": "loop.js", "folder.py": "in", "lib": "nowhere", "dangling.ts": "nowhere.ts",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.py"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"dangling.py (dangling.py cannot be read: no such file or directory)",
		"dangling.ts (dangling.ts cannot be read: no such file or directory)",
		"folder.py (not a file)", "loop.js (loop.js cannot be read: too many levels of symbolic links)",
		"pipe.py (not a file)",
	}
	names := []string{"also", "closed.x", "good", "in.deeper"}
	if os.Geteuid() != 0 { // root reads everything
		if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(filepath.Join(dir, "closed"), 0o700)
		want = append([]string{"closed (closed cannot be read: permission denied)"}, want...)
		names = slices.Delete(names, 1, 2)
	}
	found, left, err := sandbox.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got, out []string
	for _, d := range found {
		got = append(got, d.Name)
	}
	for _, o := range left {
		out = append(out, o.Path+" ("+o.Why+")")
	}
	slices.Sort(out)
	if d := cmp.Diff(names, got) + cmp.Diff(want, out); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDiscoverNamesHandlersByTheirFiles(t *testing.T) {
	dir := files(t, map[string]string{
		"index.py": "a", "search.mjs": "b", "text/clean.js": "c", "text/deep/er.cjs": "d", "README.md": "",
		"_shared/lib.py": "", "_lib.js": "",
		".hidden.py": "", "node_modules/x/index.js": "", "bad name.py": "", "__pycache__/x.py": "",
	})
	found, _, err := sandbox.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range found {
		got[d.Name] = d.Runtime + " " + d.Format
		if len(d.Hash) != 32 {
			t.Errorf("%s has the hash %q", d.Name, d.Hash)
		}
	}
	if d := cmp.Diff(got, map[string]string{
		"index": "python py", "search": "node mjs", "text.clean": "node js", "text.deep.er": "node cjs",
	}); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
	writeFile(t, filepath.Join(dir, "index.js"), "")
	if _, _, err := sandbox.Discover(dir); err == nil || !strings.Contains(err.Error(), "both named index") {
		t.Errorf("two files of one name: %v", err)
	}
	if _, _, err := sandbox.Discover(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that is not there was read")
	}
}

func TestPackagesAreNotListedAsHandlers(t *testing.T) {
	handler := "def main(_, ctx):\n    return 1"
	dir := files(t, map[string]string{
		"package.json": `{"name": "mine", "version": "1.0.0"}`, "one.mjs": "", "text/two.py": handler, "text/__init__.py": "",
		"text/helper.py":          "",
		"node_modules/x/index.js": "", "deep/node_modules/x.js": "", "lib/python3.11/site-packages/x.py": "",
		"env/pyvenv.cfg": "", "env/bin/activate.py": "",
		"pad/package.json": `{"name": "pad", "version": "2.1.0"}`, "pad/index.js": "",
		"requests/__init__.py": "", "requests/api.py": "def get(): pass",
		"yaml-1.0.dist-info/RECORD": "yaml/__init__.py,sha256=a,1\nsix.py,sha256=b,2\n../../bin/y,,\n", "six.py": "",
		"yaml/__init__.py": "", "yaml/reader.py": handler,
		"x.sh": "", "run.jsx": "", "run.d.ts": "", "vite.config.mjs": "", "data.json": "", ".venv/x.py": "",
	})
	writeFile(t, filepath.Join(dir, "tool"), "")
	if err := os.Chmod(filepath.Join(dir, "tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	found, left, err := sandbox.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range found {
		names = append(names, d.Name)
	}
	if d := cmp.Diff(names, []string{"one", "text.helper", "text.two"}); d != "" {
		t.Errorf("handlers (-got +want)\n%s", d)
	}
	why := map[string]string{}
	for _, o := range left {
		why[o.Path] = o.Why
	}
	if d := cmp.Diff(why, map[string]string{
		"env": "a virtual environment", "pad": "a package", "requests": "a package", "x.sh": "no runtime",
		"run.jsx": "no runtime", "vite.config.mjs": "not an activity's name", "tool": "no runtime",
	}); d != "" {
		t.Errorf("left out (-got +want)\n%s", d)
	}
}

func TestEveryFormOfModuleRunsWithItsImports(t *testing.T) {
	dir := files(t, map[string]string{
		"esm.mjs":      "import { twice } from './_lib.mjs';\nexport async function main(n) { return twice(n); }",
		"syntax.js":    "import { twice } from './_lib.mjs';\nexport async function main(n) { return twice(n); }",
		"default.mjs":  "export default (n) => n * 2;",
		"cjs.cjs":      "const { twice } = require('./_lib.cjs');\nmodule.exports = { main: twice };",
		"function.js":  "const { twice } = require('./_lib.cjs');\nmodule.exports = async (n) => twice(n);",
		"exports.js":   "exports.main = async (n) => n * 2;",
		"deep/er.mjs":  "import { twice } from '../_lib.mjs';\nexport const main = twice;",
		"_lib.mjs":     "export const twice = (n) => n * 2;",
		"_lib.cjs":     "exports.twice = (n) => n * 2;",
		"snake.py":     "from _lib import twice\ndef main(n, ctx):\n    return twice(n)",
		"coroutine.py": "import asyncio\nasync def main(n, ctx):\n    await asyncio.sleep(0)\n    return n * 2",
		"_lib.py":      "def twice(n):\n    return n * 2",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	found, _, err := sandbox.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 9 {
		t.Errorf("found %d handlers", len(found))
	}
	for _, d := range found {
		if b.Report().Runtimes[d.Runtime] == "" {
			continue
		}
		inv := b.Call("", 21)
		inv.Activity = d.Name
		if got := Got[int](t, b.Run(In("s", 1, inv))); got != 42 {
			t.Errorf("%s gave %d", d.Name, got)
		}
	}
}

func TestChangedCodeRunsAtTheNextCallAndStateStays(t *testing.T) {
	for _, c := range []struct {
		target      Target
		file, first string
		second      string
	}{
		{
			Targets[1], "h.mjs", "export const main = (_, ctx) => { ctx.session.state.a = 1; return 'first'; }",
			"export const main = (_, ctx) => `second ${ctx.session.state.a}`",
		},
		{
			Targets[2], "h.py", "def main(_, ctx):\n    ctx.session.state.a = 1\n    return 'first'",
			"def main(_, ctx):\n    return 'second %d' % ctx.session.state.a",
		},
	} {
		t.Run(c.target.Runtime, func(t *testing.T) {
			dir := files(t, map[string]string{c.file: c.first})
			b := Open(t, c.target, sandbox.Options{Handlers: dir})
			inv := b.Call("main")
			inv.Activity = "h"
			if got := Got[string](t, b.Run(In("s", 1, inv))); got != "first" {
				t.Errorf("got %q", got)
			}
			found, _, err := sandbox.Discover(dir)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, c.file), c.second)
			if got := Got[string](t, b.Run(In("s", 1, inv))); got != "second 1" {
				t.Errorf("got %q", got)
			}
			inv.Hash = found[0].Hash
			WantType(t, b.Fail(In("s", 1, inv)), sandbox.Unavailable)
			if err := os.Remove(filepath.Join(dir, c.file)); err != nil {
				t.Fatal(err)
			}
			inv.Hash = ""
			WantType(t, b.Fail(In("s", 1, inv)), sandbox.Unavailable)
		})
	}
}

// The version of a handler includes the files that it imports: after a change the next call runs the new code, also for
// indirect and circular imports, packages and data files, and the session's state stays. Unchanged modules are not
// loaded again.
func TestChangedImportsRunAtTheNextCall(t *testing.T) {
	for name, c := range map[string]struct {
		target Target
		files  map[string]string
		change map[string]string // each change must change the result
	}{
		"modules": {Targets[1], map[string]string{
			"h.mjs": "import { deep } from './_lib/a.mjs';\nimport data from './_data.json' with { type: 'json' };\n" +
				"import { old } from './_old.cjs';\nimport { kept } from './_kept.mjs';\n" +
				"export const main = (_, ctx) => [deep(), data.n, old(), kept(), ctx.session.state.n = (ctx.session.state.n ?? 0) + 1].join();",
			"_lib/a.mjs": "import { b } from './b.mjs';\nexport const one = 1;\nexport const deep = () => b() + 'a';",
			"_lib/b.mjs": "import { one } from './a.mjs';\nexport const b = () => 'b' + one;",
			"_data.json": `{"n": "data"}`, "_old.cjs": "exports.old = () => 'old';",
			"_kept.mjs": "let n = 0;\nexport const kept = () => ++n;",
		}, map[string]string{
			"_lib/b.mjs": "import { one } from './a.mjs';\nexport const b = () => 'changed' + one;",
			"_data.json": `{"n": "changed"}`, "_old.cjs": "exports.old = () => 'changed';",
		}},
		"commonjs": {Targets[1], map[string]string{
			"h.cjs": "const { deep } = require('./_lib/a');\nconst { kept } = require('./_kept');\n" +
				"exports.main = (_, ctx) => [deep(), kept(), ctx.session.state.n = (ctx.session.state.n ?? 0) + 1].join();",
			"_lib/a.js": "const { b } = require('./b.js');\nexports.deep = () => b() + 'a';",
			"_lib/b.js": "exports.b = () => 'b';", "_kept.js": "let n = 0;\nexports.kept = () => ++n;",
		}, map[string]string{"_lib/b.js": "exports.b = () => 'changed';"}},
		"python": {Targets[2], map[string]string{
			"h.py": "import json, _kept\nfrom _lib import a\nfrom _lib.c import (\n    c,\n)\nimport _lib.d as d\n" +
				"def main(_, ctx):\n    s = ctx.session.state\n    s.n = getattr(s, 'n', 0) + 1\n" +
				"    return ','.join([a.deep(), c(), d.d(), str(_kept.kept()), str(s.n)])",
			"_lib/__init__.py": "", "_lib/a.py": "from . import b\ndef deep():\n    return b.b() + 'a'",
			"_lib/b.py": "def b():\n    return 'b'", "_lib/c.py": "def c():\n    return 'c'",
			"_lib/d.py": "def d():\n    return 'd'",
			"_kept.py":  "n = 0\ndef kept():\n    global n\n    n += 1\n    return n",
		}, map[string]string{
			"_lib/b.py": "def b():\n    return 'changed'", "_lib/c.py": "def c():\n    return 'changed'",
			"_lib/d.py": "def d():\n    return 'changed'",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, c.files)
			b := Open(t, c.target, sandbox.Options{Handlers: dir})
			inv := b.Call("main")
			inv.Activity = "h"
			versions := map[string]bool{}
			for calls, file := range append([]string{""}, slices.Sorted(maps.Keys(c.change))...) {
				if file != "" {
					writeFile(t, filepath.Join(dir, file), c.change[file])
				}
				found, _, err := sandbox.Discover(dir)
				if err != nil || len(found) != 1 || versions[found[0].Hash] {
					t.Fatalf("after a change of %q: %+v %v, want another version", file, found, err)
				}
				versions[found[0].Hash] = true
				got := Got[string](t, b.Run(In("s", 1, inv)))
				if strings.Count(got, "changed") != calls || !strings.HasSuffix(got, fmt.Sprintf(",%d,%d", calls+1, calls+1)) {
					t.Errorf("after a change of %q: got %q", file, got)
				}
			}
		})
	}
}

// A version depends on the content of files, not on their paths.
func TestVersionsAreTheSameEverywhere(t *testing.T) {
	all := map[string]string{
		"h.mjs": "import './_a.mjs';\nexport const main = () => 1;", "_a.mjs": "", "p.py": "import _b\ndef main(): pass",
		"_b.py": "", "alone.py": "def main(): pass",
	}
	here, there := files(t, all), files(t, all)
	writeFile(t, filepath.Join(there, "_unused.py"), "x")
	var got [2][]string
	for i, dir := range []string{here, there} {
		found, _, err := sandbox.Discover(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			got[i] = append(got[i], d.Name+" "+d.Hash)
		}
	}
	if d := cmp.Diff(got[0], got[1]); d != "" || len(got[0]) != 3 {
		t.Errorf("(-here +there)\n%s", d)
	}
}

func TestUnusableHandlersHaveAReason(t *testing.T) {
	dir := files(t, map[string]string{
		"syntax.mjs": "export const main = (", "throws.mjs": "throw new Error('at the top');",
		"empty.mjs": "export const other = 1;",
		"wrong.py":  "def main(", "raises.py": "raise ValueError('at the top')", "none.py": "other = 1",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	for activity, want := range map[string]string{
		"syntax": "SyntaxError", "throws": "at the top", "empty": `no function "main"`, "wrong": "SyntaxError",
		"raises": "at the top", "none": "no function 'main'",
	} {
		if runtime, _ := b.Has(activity); runtime == "" {
			continue
		}
		inv := b.Call("main")
		inv.Activity = activity
		if e := WantType(t, b.Fail(In("s", 1, inv)), sandbox.UserError); !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v", activity, e)
		}
	}
}

// Syntax errors, and callbacks that fail after their function has returned, report their file and line.
func TestFailuresNameTheirFileAndLine(t *testing.T) {
	const late = "() => {\n    throw new Error('too late');\n  }, 1);\n});"
	dir := files(t, map[string]string{
		"wrong.mjs":  "// one\n// two\nexport const main = (;",
		"module.js":  "import fs from 'node:fs';\n// two\nexport const main = (;",
		"common.cjs": "// one\n// two\nexports.main = (;",
		"parse.py":   "# one\n# two\ndef main(",
		"late.mjs":   "export const main = () => new Promise(() => {\n  setTimeout(" + late,
		"reject.mjs": "export const main = () => new Promise(() => {\n  setTimeout(async " + late,
		"copy.js":    "export const main = () => new Promise(() => {\n  setTimeout(" + late,
		"old.cjs":    "exports.main = () => new Promise(() => {\n  setTimeout(" + late,
		"task.py": "import asyncio\nasync def late():\n    raise ValueError('too late')\n" +
			"async def main(_, ctx):\n    await asyncio.create_task(late())\n",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	for file, kind := range map[string]sandbox.ErrorType{
		"wrong.mjs": sandbox.UserError, "module.js": sandbox.UserError, "common.cjs": sandbox.UserError,
		"parse.py": sandbox.UserError, "task.py": sandbox.UserError,
		"late.mjs": sandbox.Crashed, "reject.mjs": sandbox.Crashed, "copy.js": sandbox.Crashed, "old.cjs": sandbox.Crashed,
	} {
		t.Run(file, func(t *testing.T) {
			activity := strings.TrimSuffix(file, filepath.Ext(file))
			if _, ok := b.Has(activity); !ok {
				t.Skip("its runtime is not on this machine")
			}
			inv := b.Call("main")
			inv.Activity = activity
			e := WantType(t, b.Fail(In(activity, 1, inv)), kind)
			third := regexp.QuoteMeta(filepath.Join(dir, file)) + `(\?hash=[0-9a-f]+)?(:|", line )3\b`
			if !regexp.MustCompile(third).MatchString(e.Stack) {
				t.Errorf("%v does not name line 3 of %s:\n%s", e, file, e.Stack)
			}
			if regexp.MustCompile(`node\.mjs|python\.py|sojourn_handler_|\?hash=`).MatchString(e.Stack) {
				t.Errorf("%s has what nobody wrote in its stack:\n%s", file, e.Stack)
			}
			if kind == sandbox.Crashed && !strings.HasSuffix(e.Message, "too late") {
				t.Errorf("%s does not say what nobody caught: %q", file, e.Message)
			}
		})
	}
}

// A stack trace contains only frames of user code, under their original names, with the innermost frame first and with
// the causes.
func TestStackTracesContainTheCodeOfTheUser(t *testing.T) {
	dir := files(t, map[string]string{
		"order.py": `class Declined(Exception):
    pass
def charge(amount):
    raise ValueError("amount %d" % amount)
def main(amount, ctx):
    try:
        charge(amount)
    except ValueError as err:
        raise Declined("no credit") from err
`,
		"wait.py": "import asyncio\nasync def main(_, ctx):\n    await asyncio.sleep(0)\n    ctx.session.get_or_create('k', lambda: {}['no'])\n",
		"pay.mjs": `class Declined extends Error {}
const parse = (text) => JSON.parse(text);
export async function main(amount, ctx) {
  try {
    parse('{');
  } catch (cause) {
    throw new Declined('no credit', { cause });
  }
}
`,
		"model.py":    "def main(_, ctx):\n    return ctx.session.require('model')\n",
		"weights.mjs": "export const main = (_, ctx) =>\n  ctx.session.require('model');\n",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	for activity, want := range map[string]string{
		"order": `^Traceback \(most recent call last\):
  File "DIR/order.py", line 7, in main
    charge\(amount\)
  File "DIR/order.py", line 4, in charge
    raise ValueError\("amount %d" % amount\)
ValueError: amount 7

The above exception was the direct cause of the following exception:

Traceback \(most recent call last\):
  File "DIR/order.py", line 9, in main
    raise Declined\("no credit"\) from err
Declined: no credit
$`,
		"wait": `(?s)^Traceback \(most recent call last\):
  File "DIR/wait.py", line 4, in main
.*
  File "DIR/wait.py", line 4, in <lambda>
.*
KeyError: 'no'
$`,
		"pay": `(?s)^Declined: no credit
    at main \(DIR/pay.mjs:7:11\)
caused by SyntaxError: .*
    at JSON.parse \(<anonymous>\)
    at parse \(DIR/pay.mjs:2:30\)
    at main \(DIR/pay.mjs:5:5\)$`,
	} {
		if _, ok := b.Has(activity); !ok {
			t.Skip("a runtime is not on this machine")
		}
		inv := b.Call("main", 7)
		inv.Activity = activity
		e := WantType(t, b.Fail(In("s", 1, inv)), sandbox.UserError)
		if !regexp.MustCompile(strings.ReplaceAll(want, "DIR", regexp.QuoteMeta(dir))).MatchString(e.Stack) {
			t.Errorf("%s has the stack\n%s", activity, e.Stack)
		}
	}
	for activity, place := range map[string]string{"model": "model.py\", line 2", "weights": "weights.mjs:2:"} {
		inv := b.Call("main")
		inv.Activity = activity
		lost := WantLost(t, b.Fail(In("s", 1, inv)), sandbox.CauseDeclared)
		if !strings.Contains(lost.Stack, filepath.Join(dir, place)) ||
			!strings.HasPrefix(lost.Error(), "session s lost: session state ") {
			t.Errorf("%s: %v\n%s", activity, lost, lost.Stack)
		}
	}
}
