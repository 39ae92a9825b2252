package worker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// handOverFiles are, by language, a session definition with a hand-over, and a handler that returns the process of the
// set-up, whether the set-up had an epoch, and whether the call has one.
var handOverFiles = map[string]map[string]string{
	"node": {
		"model.session.mjs": `export const options = { handOver: 'prepare' };
		export function setUp(input, ctx) { return { pid: process.pid, epoch: ctx.session.epoch || 0, fence: ctx.fence }; }`,
		"who.mjs": `export const session = 'model';
		export function main(input, ctx) {
			const { pid, epoch, fence } = ctx.session.state;
			const now = ctx.fence.epoch === ctx.session.epoch && ctx.session.epoch > 0;
			return [pid === process.pid, epoch === 0 && !fence ? 'prepared' : 'in its epoch', now].join(' ');
		}`,
	},
	"python3": {
		"model.session.py": "import os\n\noptions = {'hand_over': 'prepare'}\n\ndef set_up(args, ctx):\n" +
			"\treturn {'pid': os.getpid(), 'epoch': ctx.session.epoch or 0, 'fence': ctx.fence}\n",
		"who.py": "import os\n\nsession = 'model'\n\ndef main(_, ctx):\n\ts = ctx.session.state\n" +
			"\tnow = ctx.fence.epoch == ctx.session.epoch and ctx.session.epoch > 0\n" +
			"\tkind = 'prepared' if s['epoch'] == 0 and not s['fence'] else 'in its epoch'\n" +
			"\treturn '%s %s %s' % (str(s['pid'] == os.getpid()).lower(), kind, str(now).lower())\n",
	},
}

// A session definition in a file is prepared in the executor that later runs the tasks of the session. The set-up has
// no epoch; the calls after the hand-over have one.
func TestHandlersHandSessionsOver(t *testing.T) {
	for program, files := range handOverFiles {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			for name, code := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := apptest.Start(t, apptest.Options{})
			ready := func(id string) {
				t.Helper()
				start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) { o.Handlers, o.WorkerID = dir, id })
				eventually(t, "the worker declares the hand-over", func() bool {
					list, err := a.View().Workers(t.Context(), "default", "", "")
					if err != nil {
						t.Fatal(err)
					}
					for _, w := range list {
						if w.WorkerID == id && strings.Contains(strings.Join(w.Capabilities, " "), protocol.PrepareCapability("model")) {
							return true
						}
					}
					return false
				})
			}
			ready("A")
			if got := who(t, a); got != "true in its epoch true" {
				t.Fatal(got)
			}
			ready("B")
			if _, err := a.Broker().Fleet().OperateFleet(t.Context(), protocol.FleetRequest{
				FleetTarget: protocol.FleetTarget{WorkerID: "A"}, Verb: protocol.FleetDrain,
			}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the hand-over", func() bool {
				s, err := a.View().Session(t.Context(), "default", "s")
				return err == nil && s.LeaseOwner != nil && *s.LeaseOwner == "B"
			})
			if got := who(t, a); got != "true prepared true" {
				t.Errorf("after the hand-over: %s", got)
			}
		})
	}
}

// A worker warns of a definition that exports the option for hand-overs outside of its options, and does not declare
// the hand-over. It does not warn of other definitions that mention hand-overs.
func TestAHandOverOutsideOfTheOptionsIsIgnoredWithAWarning(t *testing.T) {
	for program, files := range map[string]map[string]string{
		"node": {
			"apart.session.mjs": "export const handOver = 'prepare';\nexport function setUp() { return {}; }\n",
			"plain.session.mjs": "export const options = { handOver: 'release' };\nexport function setUp() { return {}; }\n",
			"right.session.mjs": "export const options = { handOver: 'prepare' };\nexport function setUp() { return {}; }\n",
		},
		"python3": {
			"apart.session.py": "hand_over = 'prepare'\n\ndef set_up(args, ctx):\n\treturn {}\n",
			"plain.session.py": "options = {'hand_over': 'release'}\n\ndef set_up(args, ctx):\n\treturn {}\n",
			"right.session.py": "options = {'hand_over': 'prepare'}\n\ndef set_up(args, ctx):\n\treturn {}\n",
		},
	} {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			for name, code := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := apptest.Start(t, apptest.Options{})
			var log warnings
			start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
				o.Handlers, o.WorkerID, o.Logger = dir, "A", slogbridge.Slog(zerolog.New(&log))
			})
			declared := func(name string) bool {
				list, err := a.View().Workers(t.Context(), "default", "", "")
				if err != nil {
					t.Fatal(err)
				}
				return slices.ContainsFunc(list, func(w protocol.WorkerView) bool {
					return slices.Contains(w.Capabilities, protocol.PrepareCapability(name))
				})
			}
			// The worker declares hand-overs after it has read all files.
			eventually(t, "the worker declares the hand-over", func() bool { return declared("right") })
			if got := strings.Count(log.String(), "as a separate value, which is ignored"); got != 1 ||
				!strings.Contains(log.String(), `"definition":"apart"`) {
				t.Errorf("%d warnings:\n%s", got, log.String())
			}
			if declared("apart") || declared("plain") {
				t.Error("the worker declares a hand-over that its options do not allow")
			}
		})
	}
}
