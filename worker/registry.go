// Package worker is the worker process: programs register workflows and activities with it and run it.
package worker

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"runtime"
	"slices"

	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Registry holds the workflows and activities of a worker, by the names that cross the wire. It is filled before the
// worker starts and only read after that. A name that is registered twice, or a function of the wrong shape, panics at
// once, since no such worker should start.
type Registry struct {
	workflows  map[string]*workflow.Definition
	activities map[string]*activity.Definition
	names      map[uintptr][]string // of activity functions, by their code
	flows      map[uintptr][]string // of workflow functions, by their code
	validated  map[string][]string  // updates that are judged before they are accepted, by workflow
	sessions   map[string]*runner.SessionDefinition
	examples   map[string]bool // activities that give way to handlers of their name
}

// WorkflowOptions of a registered workflow.
type WorkflowOptions struct {
	// Validated are the names of updates whose validator (workflow.UpdateOptions) runs before the update is accepted. A
	// rejected update leaves no event in history, and callers that wait only for acceptance receive the rejection too.
	// This costs a replay for each of these updates. All validators run when workflow code handles the update, so
	// validators of these updates run twice.
	Validated []string
}

var _ workflow.Names = (*Registry)(nil)

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		workflows: map[string]*workflow.Definition{}, activities: map[string]*activity.Definition{},
		names: map[uintptr][]string{}, sessions: map[string]*runner.SessionDefinition{},
		flows: map[uintptr][]string{}, validated: map[string][]string{}, examples: map[string]bool{},
	}
}

// Workflow registers func(workflow.Context, args…) (result, error), or error alone, as the workflow's version 1.
func (r *Registry) Workflow(name string, fn any, opts ...WorkflowOptions) {
	r.addWorkflow(name, fn, opts, func(d *workflow.Definition) error { return d.Plain(fn) })
}

// WorkflowVersion registers a version of a workflow. A workflow may have several versions. A new run uses the highest
// version, records it in its history and uses it until the run closes. Runs that started while the workflow was
// registered without a version use the lowest version. A run created by continue-as-new counts as a new run.
func (r *Registry) WorkflowVersion(name string, version int, fn any, opts ...WorkflowOptions) {
	r.addWorkflow(name, fn, opts, func(d *workflow.Definition) error { return d.Add(version, fn) })
}

func (r *Registry) addWorkflow(name string, fn any, opts []WorkflowOptions, add func(*workflow.Definition) error) {
	d, ok := r.workflows[name]
	if !ok {
		d = &workflow.Definition{Name: name}
	}
	if err := add(d); err != nil {
		panic(fmt.Sprintf("register: %v (%s)", err, where(fn)))
	}
	r.workflows[name] = d
	for _, o := range opts {
		for _, update := range o.Validated {
			if !slices.Contains(r.validated[name], update) {
				r.validated[name] = append(r.validated[name], update)
			}
		}
	}
	if code := reflect.ValueOf(fn).Pointer(); !slices.Contains(r.flows[code], name) {
		r.flows[code] = append(r.flows[code], name)
	}
}

// Activity registers func(context.Context, args…) (result, error), or error alone.
func (r *Registry) Activity(name string, fn any, opts ...activity.Options) {
	d, err := activity.NewDefinition(name, fn, opts...)
	if err == nil && r.activities[name] != nil {
		err = fmt.Errorf("activity %q is registered twice", name)
	}
	if err != nil {
		panic(fmt.Sprintf("register: %v (%s)", err, where(fn)))
	}
	r.activities[name] = d
	code := reflect.ValueOf(fn).Pointer()
	r.names[code] = append(r.names[code], name)
}

// Session registers the definition of sessions: how a worker creates and releases their state. Only workers that
// registered a definition acquire the sessions that name it.
func (r *Registry) Session(name string, d activity.SessionDefinition) {
	def, err := runner.NewSessionDefinition(name, d)
	if err == nil && r.sessions[name] != nil {
		err = fmt.Errorf("session definition %q is registered twice", name)
	}
	if err != nil {
		panic(fmt.Sprintf("register: %v", err))
	}
	r.sessions[name] = def
}

// SessionDefinitions returns the names of the session definitions, sorted.
func (r *Registry) SessionDefinitions() []string { return slices.Sorted(maps.Keys(r.sessions)) }

// Examples registers example activities. A user's handler with the same name replaces an example.
func (r *Registry) Examples(register func(*Registry)) {
	own := maps.Clone(r.activities)
	register(r)
	for name := range r.activities {
		if own[name] == nil {
			r.examples[name] = true
		}
	}
}

// ReplaceActivity runs another function of activities under a name that is registered, with the options it has; callers
// by the first function reach it, too. It is for tests.
func (r *Registry) ReplaceActivity(name string, fn any) {
	was, ok := r.activities[name]
	if !ok {
		panic(fmt.Sprintf("replace: no activity %q is registered", name))
	}
	d, err := activity.NewDefinition(name, fn, was.Options)
	if err != nil {
		panic(fmt.Sprintf("replace: %v (%s)", err, where(fn)))
	}
	r.activities[name] = d
}

// ReplaceWorkflow runs another function of workflows under a name that is registered, as ReplaceActivity does for
// activities: for a child whose parent is tested alone.
func (r *Registry) ReplaceWorkflow(name string, fn any) {
	if _, ok := r.workflows[name]; !ok {
		panic(fmt.Sprintf("replace: no workflow %q is registered", name))
	}
	d, err := workflow.NewDefinition(name, fn)
	if err != nil {
		panic(fmt.Sprintf("replace: %v (%s)", err, where(fn)))
	}
	r.workflows[name] = d
}

// Check returns an error if a recovery policy names a rebuild activity that is missing or runs in another place.
func (r *Registry) Check() error {
	var all []error
	for _, name := range r.ActivityTypes() {
		p := r.activities[name].Options.Recovery
		if p == nil {
			continue
		}
		if rebuild, ok := r.activities[p.RebuildActivity]; !ok {
			all = append(all, fmt.Errorf("activity %q: its rebuild activity %q is not registered", name, p.RebuildActivity))
		} else if rebuild.Options.Isolated != r.activities[name].Options.Isolated {
			all = append(
				all,
				fmt.Errorf("activity %q and its rebuild activity %q must both be isolated, or neither", name, p.RebuildActivity),
			)
		}
	}
	return errors.Join(all...)
}

// FindWorkflow returns the workflow with a name.
func (r *Registry) FindWorkflow(name string) (*workflow.Definition, bool) {
	d, ok := r.workflows[name]
	return d, ok
}

// FindActivity returns the activity with a name.
func (r *Registry) FindActivity(name string) (*activity.Definition, bool) {
	d, ok := r.activities[name]
	return d, ok
}

// Validated returns the updates with validators, by the name of their workflow.
func (r *Registry) Validated() map[string][]string { return maps.Clone(r.validated) }

// WorkflowTypes returns the names of the workflows, sorted.
func (r *Registry) WorkflowTypes() []string { return slices.Sorted(maps.Keys(r.workflows)) }

// ActivityTypes returns the names of the activities, sorted.
func (r *Registry) ActivityTypes() []string { return slices.Sorted(maps.Keys(r.activities)) }

// ActivityName returns the name under which an activity function is registered. A function that is registered under
// several names, such as closures of one function or methods of several values, can only be called by name.
func (r *Registry) ActivityName(fn any) (string, error) { return nameOf("activity", fn, r.names) }

// ActivityArguments returns the number of arguments that the named activity takes, without its context. It returns
// false if the activity is not registered, or is an example that a handler may replace.
func (r *Registry) ActivityArguments(name string) (n int, registered bool) {
	d, ok := r.activities[name]
	if !ok || r.examples[name] {
		return 0, false
	}
	return d.NumArgs(), true
}

// WorkflowName returns the name under which a workflow function is registered, in any version, as ActivityName does for
// an activity.
func (r *Registry) WorkflowName(fn any) (string, error) { return nameOf("workflow", fn, r.flows) }

func nameOf(what string, fn any, all map[uintptr][]string) (string, error) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return "", fmt.Errorf("%s: %T is not a function", what, fn)
	}
	switch names := all[v.Pointer()]; len(names) {
	case 1:
		return names[0], nil
	case 0:
		return "", fmt.Errorf("%s function %s is not registered with this worker", what, where(fn))
	default:
		return "", fmt.Errorf("%s function %s is registered under several names (%q); call it by name", what, where(fn), names)
	}
}

// where returns the name of a function with its package, as in "lab.Free".
func where(fn any) string {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return fmt.Sprintf("%T", fn)
	}
	if f := runtime.FuncForPC(v.Pointer()); f != nil {
		return path.Base(f.Name())
	}
	return fmt.Sprintf("%T", fn)
}
