package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
)

// Handlers are the activities in other languages that a worker found in its handler folder.
type Handlers struct {
	found    []sandbox.Definition
	sessions []sandbox.Definition // session definitions in files; their names begin with sandbox.SessionPrefix
	omitted  []sandbox.Omission
}

// Names returns the activity types of the handlers.
func (h Handlers) Names() []string {
	var names []string
	for _, d := range h.found {
		names = append(names, d.Name)
	}
	return names
}

// maxListedOmissions is the maximum number of ignored files in a log line.
const maxListedOmissions = 5

// runtimeNames are the display names of the runtimes.
var runtimeNames = map[string]string{sandbox.RuntimeNode: "Node", sandbox.RuntimePython: "Python"}

// programNames are the interpreter programs that the handlers of a runtime need.
var programNames = map[string]string{sandbox.RuntimeNode: "node", sandbox.RuntimePython: "python3"}

// FindHandlers returns the handlers in dir. A handler must not have the name of a registered activity, unless that
// activity is a built-in example, which the handler replaces. Handlers whose interpreter is not in runtimes are ignored
// and listed.
func FindHandlers(dir string, r *Registry, runtimes map[string]string) (Handlers, error) {
	found, omitted, err := sandbox.Discover(dir)
	if err != nil {
		return Handlers{}, fmt.Errorf("worker: %w", err)
	}
	h := Handlers{omitted: omitted}
	for _, d := range found {
		if _, taken := r.FindActivity(d.Name); taken && !r.examples[d.Name] {
			return h, fmt.Errorf(
				"worker: activity %q is registered in Go and is also the handler %s; give the file another name", d.Name, d.Path,
			)
		}
		if _, here := runtimes[d.Runtime]; !here {
			path := strings.ReplaceAll(d.Name, ".", "/") + "." + d.Format
			h.omitted = append(h.omitted, sandbox.Omission{Path: path, Why: "no " + programNames[d.Runtime]})
			continue
		}
		if name, session := strings.CutPrefix(d.Name, sandbox.SessionPrefix); session {
			if r.sessions[name] != nil {
				return h, fmt.Errorf(
					"worker: session definition %q is registered in Go and is also the file %s; give one another name", name, d.Path,
				)
			}
			h.sessions = append(h.sessions, d)
			continue
		}
		h.found = append(h.found, d)
	}
	slices.SortFunc(h.omitted, func(a, b sandbox.Omission) int { return cmp.Compare(a.Path, b.Path) })
	return h, nil
}

// String counts the handlers by language and names the ignored files, as in "7 (5 Node, 2 Python), left out: x.sh (no
// runtime)".
func (h Handlers) String() string {
	text := "none"
	if len(h.found) > 0 {
		count := map[string]int{}
		for _, d := range h.found {
			count[runtimeNames[d.Runtime]]++
		}
		var kinds []string
		for _, name := range slices.Sorted(maps.Keys(count)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", count[name], name))
		}
		text = fmt.Sprintf("%d (%s)", len(h.found), strings.Join(kinds, ", "))
	}
	if len(h.omitted) == 0 {
		return text
	}
	var out []string
	for _, o := range h.omitted[:min(len(h.omitted), maxListedOmissions)] {
		out = append(out, fmt.Sprintf("%s (%s)", o.Path, o.Why))
	}
	text += ", left out: " + strings.Join(out, ", ")
	if more := len(h.omitted) - maxListedOmissions; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Handlers returns the current handlers in other languages and the ignored files.
func (w *Worker) Handlers() Handlers {
	w.found.Lock()
	defer w.found.Unlock()
	return w.handlers
}

func (w *Worker) setHandlers(h Handlers) {
	w.found.Lock()
	defer w.found.Unlock()
	w.handlers = h
}

// definitions are the Go workflows and activities that the worker runs. An example activity whose name a handler has is
// omitted.
type definitions struct {
	*Registry
	w *Worker
}

func (w *Worker) definitions() definitions { return definitions{w.opt.Registry, w} }

// FindActivity returns the Go activity with a name.
func (d definitions) FindActivity(name string) (*activity.Definition, bool) {
	def, ok := d.Registry.FindActivity(name)
	if ok && d.examples[name] && slices.ContainsFunc(d.w.Handlers().found, func(h sandbox.Definition) bool {
		return h.Name == name
	}) {
		return nil, false
	}
	return def, ok
}

// FindSession returns the session definition with a name.
func (d definitions) FindSession(name string) (*runner.SessionDefinition, bool) {
	if def, ok := d.sessions[name]; ok {
		return def, true
	}
	for _, h := range d.w.Handlers().sessions {
		if h.Name == sandbox.SessionPrefix+name {
			return runner.HandlerSession(name, h.Name, h.Runtime, d.w.storesSnapshots(h)), true
		}
	}
	return nil, false
}

// sessionDefinitions returns the names of the session definitions in Go and in handler files. It omits a file whose
// options may set resources until they were read: until then the worker would exceed its resources.
func (w *Worker) sessionDefinitions() []string {
	all := w.opt.Registry.SessionDefinitions()
	for _, h := range w.Handlers().sessions {
		if w.awaitsResources(h) {
			continue
		}
		all = append(all, strings.TrimPrefix(h.Name, sandbox.SessionPrefix))
	}
	return all
}

// preparedDefinitions returns the names of the session definitions whose set-up may run while another worker holds the
// session.
func (w *Worker) preparedDefinitions() (all []string) {
	for _, name := range w.opt.Registry.SessionDefinitions() {
		if w.opt.Registry.sessions[name].Prepares() {
			all = append(all, name)
		}
	}
	w.found.Lock()
	defer w.found.Unlock()
	for _, h := range w.handlers.sessions {
		if w.prepares[h.Name] == h.Hash {
			all = append(all, strings.TrimPrefix(h.Name, sandbox.SessionPrefix))
		}
	}
	return all
}

// fileResources are the resources in the options of the file of a session definition.
type fileResources struct {
	hash      string // of the file
	resources protocol.Resources
}

// awaitsResources reports whether the file of a session definition mentions resources and its options were not read.
func (w *Worker) awaitsResources(h sandbox.Definition) bool {
	w.found.Lock()
	known := w.fileResources[h.Name].hash == h.Hash
	w.found.Unlock()
	return !known && mentions(h, "resources")
}

// resourcesOf returns the resources in the options of the file of a session definition, if they were read.
func (w *Worker) resourcesOf(h sandbox.Definition) protocol.Resources {
	w.found.Lock()
	defer w.found.Unlock()
	if r := w.fileResources[h.Name]; r.hash == h.Hash {
		return r.resources
	}
	return nil
}

// mentions reports whether a file contains a word, in snake case or camel case.
func mentions(h sandbox.Definition, word string) bool {
	source, err := os.ReadFile(h.Path)
	return err == nil && strings.Contains(strings.ToLower(strings.ReplaceAll(string(source), "_", "")), word)
}

// handOverRetry is the pause before the options of a file are read again, for example while packages are installed.
const handOverRetry = 5 * time.Second

// findHandOvers reads the options of session definitions in files that mention a hand-over or resources. If one allows
// a hand-over or has resources, the worker registers again. Until then sessions of these definitions are neither
// prepared nor handed over.
func (w *Worker) findHandOvers(ctx context.Context) {
	left := w.Handlers().sessions
	for len(left) > 0 {
		var failed []sandbox.Definition
		found := false
		for _, h := range left {
			resources := mentions(h, "resources")
			if !resources && !mentions(h, "handover") {
				continue
			}
			raw, err := w.pool.Exported(ctx, h.Name, "options")
			if err == nil && resources {
				w.found.Lock()
				w.fileResources[h.Name], found = fileResources{h.Hash, runner.ResourcesIn(raw)}, true
				w.found.Unlock()
			}
			switch {
			case err != nil:
				failed = append(failed, h)
			case runner.AllowsPreparation(raw):
				w.found.Lock()
				w.prepares[h.Name], found = h.Hash, true
				w.found.Unlock()
			case mentions(h, "handover"):
				w.warnIgnoredHandOver(ctx, h)
			}
		}
		if found {
			if err := w.link.Reregister(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn().Err(err).Msg("failed to register session definitions with a hand-over; the next connection does")
			}
		}
		if left = failed; len(left) == 0 {
			return
		}
		select {
		case <-time.After(handOverRetry):
		case <-ctx.Done():
			return
		}
	}
}

// warnIgnoredHandOver logs a warning if a file exports the option for hand-overs as a separate value, which has no
// effect.
func (w *Worker) warnIgnoredHandOver(ctx context.Context, h sandbox.Definition) {
	name := "handOver"
	if h.Runtime == sandbox.RuntimePython {
		name = "hand_over"
	}
	if value, err := w.pool.Exported(ctx, h.Name, name); err == nil && value != nil {
		w.log.Warn().Str("definition", strings.TrimPrefix(h.Name, sandbox.SessionPrefix)).Str("file", h.Path).
			Msg("a session definition exports " + name + " as a separate value, which is ignored; set it in the exported options")
	}
}

// handlerVersions returns the version of each handler, by activity type.
func (w *Worker) handlerVersions() map[string]string {
	all := map[string]string{}
	for _, d := range w.Handlers().found {
		all[d.Name] = d.Hash
	}
	return all
}

// Isolation returns one line that describes the isolation of the worker's executors, or "" without handlers.
func (w *Worker) Isolation() string {
	if w.pool == nil || len(w.Handlers().found) == 0 {
		return ""
	}
	r := w.pool.Report()
	text := r.String()
	if len(r.Missing) > 0 {
		text += ": sojourn doctor lists them"
	}
	return text
}
