// Package worker implements the worker process: programs register workflows and activities with it and run it.
package worker

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"runtime"
	"slices"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Registry holds the workflows and activities of a worker, by the names that requests and history use. It is filled
// before the worker starts and only read afterwards. Registering a name twice, or a function with a wrong signature,
// panics immediately, since a worker with such a registry must not start.
type Registry struct {
	workflows  map[string]*workflow.Definition
	activities map[string]*activity.Definition
	names      map[uintptr][]string // names of the activities, by the entry address of their function
	flows      map[uintptr][]string // names of the workflows, by the entry address of their function
	validated  map[string][]string  // names of the updates that are validated before they are accepted, by workflow
	sessions   map[string]*runner.SessionDefinition
	examples   map[string]bool // activities that a handler of the same name replaces

	interceptors []workflow.Interceptor
	codecs       []codec.Codec
}

// WorkflowOptions are options of a registered workflow.
type WorkflowOptions struct {
	// Validated are the names of updates whose validator (workflow.UpdateOptions) runs before the app accepts the
	// update. A rejected update leaves no event in history, and callers that wait only for acceptance receive the
	// rejection, too. The app sends each of these updates to a worker first, which costs a replay. All validators also
	// run when workflow code handles the update, so validators of these updates run twice.
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

// Register registers a workflow under its typed name, as its version 1. The compiler checks that the function has the
// argument and the result of the name.
func Register[In, Out any](
	r *Registry, name workflow.Name[In, Out], fn func(workflow.Context, In) (Out, error), opts ...WorkflowOptions,
) {
	r.Workflow(string(name), fn, opts...)
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

// Session registers a session definition: functions that create and release the state of a session. Only workers that
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

// Intercept registers interceptors of all workflows and activities of the registry, after those that are registered
// already: the first one is the outermost. Test environments and replays of recorded histories run them, too. The
// interceptors of a client are options of the client.
func (r *Registry) Intercept(interceptors ...workflow.Interceptor) {
	r.interceptors = append(r.interceptors, interceptors...)
}

// Interceptors returns the registered interceptors.
func (r *Registry) Interceptors() []workflow.Interceptor { return slices.Clone(r.interceptors) }

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

// UseCodecs sets the codecs of all payloads of the registry's workflows and activities, handlers in other languages
// included; see package codec. Payloads are encoded by the codecs in this order, and decoded by those that they name.
// Clients that start these workflows need the same codecs. Workers decode payloads without a codec, too, so that
// codecs can be added while runs are open.
func (r *Registry) UseCodecs(list ...codec.Codec) {
	if err := codecs.Of(list).Check(); err != nil {
		panic(fmt.Sprintf("register codecs: %v", err))
	}
	r.codecs = slices.Clone(list)
}

// Codecs returns the codecs that UseCodecs has set.
func (r *Registry) Codecs() []codec.Codec { return slices.Clone(r.codecs) }

// ReplaceActivity replaces the function of a registered activity and keeps its options. Code that passes the first
// function to workflow.ExecuteActivity runs the new one. Tests use it for test doubles.
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

// ReplaceWorkflow replaces the function of a registered workflow, as ReplaceActivity does for an activity. Tests use it
// to test a parent without the code of its children.
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

// Check returns an error if the recovery policy of an activity names a rebuild activity that is not registered, or if
// only one of the two is isolated.
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

// Validated returns the names of the updates with validators, by workflow name.
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
