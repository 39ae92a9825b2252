package sandbox_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/internal/shim"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// The type declarations for editors have exactly the members that handlers receive.
func TestContextTypesMatchTheHandlers(t *testing.T) {
	for _, c := range []struct {
		target     Target
		file, code string
		types      string
		block      func(name string) string
		member     string
	}{
		{
			Targets[1], "h.mjs", `const all = (o) => {
  const names = new Set();
  for (; o && o !== Object.prototype && o !== Function.prototype; o = Object.getPrototypeOf(o))
    for (const n of Object.getOwnPropertyNames(o)) names.add(n);
  return [...names].filter((n) => !['constructor', 'length', 'name', 'making', 'closers', 'close'].includes(n)).sort();
};
export const main = (_, ctx) => ({ Context: all(ctx), Session: all(ctx.session), Log: all(ctx.log), Keys: all(ctx.keys) });`,
			"sojourn.d.ts", func(name string) string { return `(?s)export interface ` + name + `\b.*?\n\}` },
			`(?m)^  (?:readonly )?(\w+)[?(:<]`,
		},
		{
			Targets[2], "h.py", `def all(o):
    return sorted(n for n in set(dir(o)) if not n.startswith("_"))
def main(_, ctx):
    session = set(all(ctx.session)) | set(all(ctx.session._session))
    alias = {"isNew", "onClose", "getOrCreate"}
    return {"Context": all(ctx), "Session": sorted(session - alias), "Log": all(ctx.log), "Keys": sorted(ctx.keys)}`,
			"sojourn.pyi", func(name string) string { return `(?s)class ` + name + `\b.*?(?:\n\n[a-z]|\n\nclass|\z)` },
			`(?m)^    (?:def )?([a-z]\w*)[(:]`,
		},
	} {
		t.Run(c.target.Runtime, func(t *testing.T) {
			b := Open(t, c.target, sandbox.Options{Handlers: files(t, map[string]string{c.file: c.code})})
			inv := b.Call("main")
			inv.Activity = "h"
			inv.Keys = map[string]string{
				"activity_execution_id": "", "attempt_id": "", "run_id": "", "workflow_id": "", "task_id": "", "task_queue": "",
				"namespace": "", "worker_id": "", // the same members as in worker/internal/runner
			}
			got := Got[map[string][]string](t, b.Run(In("s", 1, inv)))
			text, err := shim.Types.ReadFile(c.types)
			if err != nil {
				t.Fatal(err)
			}
			for name, members := range got {
				block := regexp.MustCompile(c.block(name)).Find(text)
				var typed []string
				for _, m := range regexp.MustCompile(c.member).FindAllSubmatch(block, -1) {
					typed = append(typed, string(m[1]))
				}
				slices.Sort(typed)
				if d := cmp.Diff(typed, members); d != "" || len(members) == 0 {
					t.Errorf("%s in %s (-typed +there)\n%s", name, c.types, d)
				}
			}
		})
	}
}
