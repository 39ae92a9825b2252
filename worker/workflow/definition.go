package workflow

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Definition is a registered workflow with one or several versions.
type Definition struct {
	Name      string
	versions  map[int]*userfunc.Func
	versioned bool // true if a version was registered with a number
}

// NewDefinition creates a workflow from func(workflow.Context, args…) (result, error), or with error as its only
// result, as version 1. It returns an error for other signatures.
func NewDefinition(name string, fn any) (*Definition, error) {
	d := &Definition{Name: name}
	return d, d.Plain(fn)
}

// Plain adds the code of a workflow without versions. Runs record no version while no other version is registered; once
// one is, this code counts as version 1.
func (d *Definition) Plain(fn any) error { return d.addVersion(1, fn) }

// Add adds a version of the workflow's code. A new run records the highest version and keeps it; runs that started
// before versions had numbers use the lowest version.
func (d *Definition) Add(version int, fn any) error {
	d.versioned = true
	return d.addVersion(version, fn)
}

func (d *Definition) addVersion(version int, fn any) error {
	if d.Name == "" {
		return fmt.Errorf("workflow %T has no name", fn)
	}
	if version < 1 {
		return fmt.Errorf("workflow %q: version %d: versions count from 1", d.Name, version)
	}
	if _, ok := d.versions[version]; ok {
		return fmt.Errorf("workflow %q: version %d is registered twice", d.Name, version)
	}
	f, err := userfunc.New(fn, reflect.TypeFor[Context]())
	if err != nil {
		return fmt.Errorf("workflow %q: %w", d.Name, err)
	}
	if d.versions == nil {
		d.versions = map[int]*userfunc.Func{}
	}
	d.versions[version] = f
	return nil
}

// Versions returns the registered versions, lowest first.
func (d *Definition) Versions() []int { return slices.Sorted(maps.Keys(d.versions)) }

// codeVersion is the change ID under which a run records the version of its workflow.
const codeVersion = "sojourn.workflow"

// code returns the workflow function of the version that this run uses.
func (m *machine) code() (*userfunc.Func, error) {
	all := m.def.Versions()
	marked := false
	if e := m.recorded[1]; e != nil {
		d, ok := e.Data.(*history.VersionMarkerRecorded)
		marked = ok && d.ChangeID == codeVersion
	}
	v := all[0]
	if marked || m.def.versioned || len(all) > 1 {
		if v = m.version(codeVersion, all[0], all[len(all)-1]); v == DefaultVersion {
			v = all[0]
		}
	}
	f, ok := m.def.versions[v]
	if !ok {
		return nil, &VersionError{WorkflowType: m.def.Name, Version: v, Registered: all}
	}
	return f, nil
}

// main runs the workflow function. It is the workflow's first branch.
func (m *machine) main(ctx Context, args payload.Payload) {
	f, err := m.code()
	if err != nil {
		m.current.stop(err)
	}
	in, err := f.Decode(args)
	if err != nil {
		bad := &InputError{WorkflowType: m.def.Name, Err: err}
		if m.recordedUpTo > 0 { // the run used other code so far, and can continue on a worker with matching code
			m.current.stop(bad)
		}
		m.finish(payload.Payload{}, bad) // no later version of the code would make the arguments match
		return
	}
	var result payload.Payload
	root := ctx.inner()
	call := m.callOf(OpExecuteWorkflow, m.info.WorkflowType, root.received)
	err = m.intercept(root, call, func(ctx *flow) (err error) {
		result, err = f.CallWith(m.codecs.NewValue, ctx, in)
		return err
	})
	m.finish(result, err)
}
