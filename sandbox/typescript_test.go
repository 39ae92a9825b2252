package sandbox_test

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// needNode skips a test on a machine without Node.
func needNode(t *testing.T, b *Bench) {
	t.Helper()
	if b.Report().Runtimes[sandbox.RuntimeNode] == "" {
		t.Skip("node is not on this machine")
	}
}

func TestTypeScriptRunsWithWhatItImports(t *testing.T) {
	dir := files(t, map[string]string{
		"shop/price.ts": `import { basename } from 'node:path';
import { twice, type Money } from '../_lib/money';
import { half } from '../_lib/half.js';
import rates from '../_rates.json';
import { old } from '../_old.cjs';
const here: string = basename(import.meta.url);
export async function main(input: { cents: number }, ctx: any): Promise<unknown> {
  ctx.session.state.calls = (ctx.session.state.calls ?? 0) + 1;
  const m: Money = { cents: input.cents };
  return [twice(m).cents, half(4), rates.eur, old(), here, ctx.session.state.calls, require('node:os').EOL].join();
}
export const recovery = { rebuildActivity: 'shop.open' } as const;`,
		"_lib/money.ts": "export interface Money { cents: number }\n" +
			"export const enum Factor { Two = 2 }\nexport const twice = (m: Money): Money => ({ cents: m.cents * Factor.Two });",
		"_lib/half.ts": "export const half = (n: number): number => n / 2;",
		"_rates.json":  `{"eur": 1.5}`, "_old.cjs": "exports.old = () => require('node:path').sep;",
		"m.mts": "export default (n: number): number => n * 2;", "c.cts": "export const main = (n: number) => n * 3;",
		"types.d.ts": "export type X = string;",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	needNode(t, b)
	found, left, err := sandbox.Discover(dir)
	if err != nil || len(found) != 3 || len(left) != 0 {
		t.Fatalf("found %+v, left out %+v, %v", found, left, err)
	}
	call := func(activity string, in any) sandbox.Invocation {
		inv := b.Call("main", in)
		inv.Activity = activity
		return In("s", 1, inv)
	}
	if got := Got[string](t, b.Run(call("shop.price", map[string]int{"cents": 5}))); got != "10,2,1.5,/,price.ts,1,\n" {
		t.Errorf("got %q", got)
	}
	if got := Got[int](t, b.Run(call("m", 2))) + Got[int](t, b.Run(call("c", 2))); got != 10 {
		t.Errorf("the other endings gave %d", got)
	}
	raw, err := b.Exported(t.Context(), "shop.price", "recovery")
	if err != nil || !strings.Contains(string(raw), "shop.open") {
		t.Errorf("recovery: %s %v", raw, err)
	}
	writeFile(t, filepath.Join(dir, "_lib/half.ts"), "export const half = (n: number): string => 'changed';")
	second, _, err := sandbox.Discover(dir)
	if err != nil || second[2].Name != "shop.price" || second[2].Hash == found[2].Hash || second[1].Hash != found[1].Hash {
		t.Errorf("versions after a change of what one imports: %+v, before %+v, %v", second, found, err)
	}
	if got := Got[string](t, b.Run(call("shop.price", map[string]int{"cents": 5}))); got != "10,changed,1.5,/,price.ts,2,\n" {
		t.Errorf("after a change of what it imports: got %q", got)
	}
}

// While one call loads a file for its exports, another call for the file returns when its context ends.
func TestAWaitForTheExportsOfAFileEndsWithItsContext(t *testing.T) {
	b := Open(t, Targets[1], sandbox.Options{Handlers: files(t, map[string]string{
		"slow.mjs": "await new Promise(resolve => setTimeout(resolve, 600_000));\nexport const recovery = {};",
	})})
	needNode(t, b)
	loading, stop := context.WithCancel(t.Context())
	defer stop()
	loaded := make(chan error, 1)
	go func() {
		_, err := b.Exported(loading, "slow", "recovery")
		loaded <- err
	}()
	Eventually(t, "the file loads", func() bool { return b.Stats().Starts[sandbox.RuntimeNode] > 0 })
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := b.Exported(ctx, "slow", "options")
		waited <- err
	}()
	cancel()
	WantType(t, Receive(t, "the end of the wait", waited), sandbox.Cancelled)
	select {
	case err := <-loaded:
		t.Errorf("the file is no longer loaded: %v", err)
	default:
	}
	stop()
	if err := Receive(t, "the end of the load", loaded); err == nil {
		t.Error("a cancelled load returned no error")
	}
	// The next call loads the file.
	next, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if _, err := b.Exported(next, "slow", "options"); err == nil {
		t.Error("a load beyond its deadline returned no error")
	}
}

// JSX is compiled as its file specifies.
func TestTypeScriptWithMarkupRuns(t *testing.T) {
	dir := files(t, map[string]string{
		"mail.tsx": "/** @jsxRuntime classic */\n/** @jsx h */\nimport { h } from './_h.js';\nimport { Name } from './_name';\n" +
			"export const main = (who: string): string => <p class=\"x\">{Name(who)}</p>;",
		"_name.tsx": "/** @jsxRuntime classic @jsx h */\nimport { h } from './_h';\n" +
			"export const Name = (who: string): string => <b>{who}</b>;",
		"_h.tsx": "export const h = (tag: string, _: object | null, ...inside: string[]): string =>\n" +
			"  `<${tag}>${inside.join('')}</${tag}>`;",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	needNode(t, b)
	inv := b.Call("main", "Ann")
	inv.Activity = "mail"
	if got := Got[string](t, b.Run(In("s", 1, inv))); got != "<p><b>Ann</b></p>" {
		t.Errorf("got %q", got)
	}
}

// Stack traces name the source files, not the compiled ones; so do syntax errors, which fail the call.
func TestTypeScriptFailuresNameTheirFileAndLine(t *testing.T) {
	dir := files(t, map[string]string{
		"throws.ts": "interface Unused {\n  a: string;\n}\nimport { deep } from './_deep';\nexport function main(): void {\n  deep();\n}",
		"_deep.ts":  "type T = number;\n\nexport function deep(): never {\n  throw new TypeError('at the bottom');\n}",
		"wrong.ts":  "// one\n// two\nexport const main = (;",
		"late.ts":   "export const main = (): Promise<void> => new Promise(() => {\n  setTimeout((): void => {\n    throw new Error('late');\n  }, 1);\n});",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	needNode(t, b)
	for activity, c := range map[string]struct {
		kind   sandbox.ErrorType
		places []string
	}{
		"throws": {sandbox.UserError, []string{"_deep.ts:4:", "throws.ts:6:"}},
		"wrong":  {sandbox.UserError, []string{"wrong.ts:3:", "export const main = (;", "(wrong.ts, line 3)"}},
		"late":   {sandbox.Crashed, []string{"late.ts:3:"}},
	} {
		inv := b.Call("main")
		inv.Activity = activity
		e := WantType(t, b.Fail(In(activity, 1, inv)), c.kind)
		for _, place := range c.places {
			if strings.Contains(place, ".ts:") {
				place = regexp.QuoteMeta(filepath.Join(dir, place))
			} else {
				place = regexp.QuoteMeta(place)
			}
			if !regexp.MustCompile(place).MatchString(e.Message + "\n" + e.Stack) {
				t.Errorf("%s: %v does not name %s:\n%s", activity, e, place, e.Stack)
			}
		}
	}
}

// The worker compiles only files of the folder. Imports of other files remain for the executor, whose rules decide
// about them.
func TestTypeScriptReadsNothingOutsideTheFolder(t *testing.T) {
	away := files(t, map[string]string{"secret.json": `{"secret": "7f3a"}`})
	dir := files(t, map[string]string{
		"h.ts": "import s from '" + filepath.Join(away, "secret.json") + "';\nexport const main = () => s;",
		"r.ts": "import s from '../" + filepath.Base(away) + "/secret.json';\nexport const main = () => s;",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	needNode(t, b)
	for _, activity := range []string{"h", "r"} {
		inv := b.Call("main")
		inv.Activity = activity
		if err := b.Fail(In(activity, 1, inv)); strings.Contains(err.Error(), "7f3a") {
			t.Errorf("%s: %v", activity, err)
		}
	}
}

// The nearest tsconfig.json of the folder determines the resolution of imports and the compilation of JSX, as in
// editors. It is part of the version; files outside of the folder are not read.
func TestTypeScriptFollowsItsSettings(t *testing.T) {
	over := t.TempDir()
	dir := filepath.Join(over, "handlers")
	const shop = "import { double } from '@lib/double';\nimport { half } from 'halves';\nimport { h } from '_lib/h';\n" +
		"export const main = (n: number): string => <b>{double(n) + ',' + half(n)}</b>;"
	for name, text := range map[string]string{
		"tsconfig.json": "{\n  // what editors read\n  \"extends\": [\"./base\", \"../outside.json\", \"@tsconfig/node22/tsconfig.json\"],\n" +
			"  \"compilerOptions\": { \"paths\": { \"@lib/*\": [\"_none/*\", \"_lib/*\",], \"halves\": [\"./_lib/half.ts\"] }, /* , } */ },\n}",
		"base.json":      `{"compilerOptions": {"baseUrl": ".", "jsx": "react", "jsxFactory": "h", "strict": true, "url": "a//b"}}`,
		"shop.tsx":       shop,
		"deep/shop.tsx":  shop,
		"_lib/double.ts": "export const double = (n: number): number => 2 * n;",
		"_lib/half.ts":   "export const half = (n: number): number => n / 2;",
		"_lib/h.ts":      "export const h = (tag: string, _: unknown, inside: string): string => `<${tag}>${inside}</${tag}>`;",
		"_lib/w.ts":      "export const w = (tag: string, _: unknown, inside: string): string => `${tag}:${inside}`;",
		// A tsconfig.json that applies to one folder only.
		"near/tsconfig.json": `{"compilerOptions": {"paths": {"twice": ["../_lib/double"]}}}`,
		"near/far.ts":        "import { double } from 'twice';\nexport const main = (n: number): number => double(n);",
		"bad/tsconfig.json":  `{"compilerOptions": {"paths": 7}}`,
		"bad/any.ts":         "export const main = (): number => 1;",
		"../outside.json":    `{"compilerOptions": {"jsxFactory": "w", "paths": {"secret": ["./_lib/half.ts"]}}}`,
		"../tsconfig.json":   `{"compilerOptions": {"paths": {"secret": ["handlers/_lib/half.ts"]}}}`,
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir})
	needNode(t, b)
	call := func(activity string) sandbox.Invocation {
		inv := b.Call("main", 5)
		inv.Activity = activity
		return In(activity, 1, inv)
	}
	for activity, want := range map[string]any{
		"shop": "<b>10,2.5</b>", "deep.shop": "<b>10,2.5</b>", "near.far": int64(10),
	} {
		if got := Got[any](t, b.Run(call(activity))); got != want {
			t.Errorf("%s: got %v", activity, got)
		}
	}
	e := WantType(t, b.Fail(call("bad.any")), sandbox.UserError)
	if !strings.Contains(e.Message, filepath.Join("bad", "tsconfig.json")) || !strings.Contains(e.Message, "paths") {
		t.Errorf("settings that are wrong: %s", e.Message)
	}
	before, _, err := sandbox.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "base.json"), `{"compilerOptions": {"jsx": "react", "jsxFactory": "w"}}`)
	writeFile(t, filepath.Join(dir, "shop.tsx"), strings.Replace(shop, "{ h } from '_lib/h'", "{ w } from '@lib/w'", 1))
	after, _, err := sandbox.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, was := range before {
		changed := after[i].Hash != was.Hash
		if want := was.Name == "shop" || was.Name == "deep.shop"; changed != want {
			t.Errorf("%s: its version changed: %v", was.Name, changed)
		}
	}
	if got := Got[string](t, b.Run(call("shop"))); got != "b:10,2.5" {
		t.Errorf("after a change: got %q", got)
	}
}

// A failure has the class name of the thrown error, even if the class does not set its name. Missing modules are
// resolved from the handler's file, not from the compiled copy.
func TestFailuresAreNamedAsInTheHandlersFile(t *testing.T) {
	dir := files(t, map[string]string{
		"thrown.mjs": "class NoCredit extends Error {}\nclass Late extends TypeError { name = 'TooLate'; }\n" +
			"export const own = () => { throw new NoCredit('declined'); };\n" +
			"export const named = () => { throw new Late('no'); };\n" +
			"export const known = () => null.x;\nexport const text = () => { throw 'words'; };\n",
		"absent.ts": "import { z } from 'nowhere-to-be-found';\nexport const main = (x: unknown) => z(x);\n",
	})
	b := Open(t, Targets[1], sandbox.Options{Handlers: dir, Blank: -1})
	needNode(t, b)
	call := func(activity, entry string) sandbox.Invocation {
		inv := b.Call(entry)
		inv.Activity = activity
		return In("s", 1, inv)
	}
	for entry, class := range map[string]string{
		"own": "NoCredit", "named": "TooLate", "known": "TypeError", "text": "Error",
	} {
		if e := WantType(t, b.Fail(call("thrown", entry)), sandbox.UserError); e.Class != class {
			t.Errorf("%s failed as %s, want %s: %v", entry, e.Class, class, e)
		}
	}
	e := WantType(t, b.Fail(call("absent", "main")), sandbox.UserError)
	path := filepath.Join(dir, "absent.ts")
	if !strings.Contains(e.Message, path) || strings.Contains(e.Message+e.Stack, ".code") {
		t.Errorf("failed with %s\n%s", e.Message, e.Stack)
	}
}
