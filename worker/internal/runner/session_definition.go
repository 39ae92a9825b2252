package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// setUpTimeout is the default timeout of a set-up.
const setUpTimeout = 10 * time.Minute

// tearDownTime is the timeout of a tear-down.
const tearDownTime = 10 * time.Second

// Types of failures of attempts whose set-up failed before or without its function.
const (
	typeSetUpTimeout   = "SessionSetUpTimeout"
	typeInvalidOptions = "InvalidSessionOptions" // the file of the definition exports invalid options
)

// SessionDefinition is a registered session definition.
type SessionDefinition struct {
	Name      string
	timeout   time.Duration
	policy    activity.SetUpFailurePolicy
	handOver  activity.HandOver
	resources protocol.Resources
	setUp     *userfunc.Func
	tearDown  reflect.Value // zero: none
	handler   string        // name by which executors find the set-up; empty: it runs in the worker's process
	entry     string        // set-up function in the file that defines it; empty: it is in Go

	onHandOver      reflect.Value // zero: none
	restore         reflect.Value // zero: none
	snapshots       bool          // the file exports the two functions
	onHandOverEntry string        // function in the executor that takes a snapshot
}

// Isolated reports whether the functions of a definition in Go run in the executor of the session.
func (d *SessionDefinition) Isolated() bool { return d.handler != "" && d.entry == "" }

// setUpEntries are the names of the set-up function in files, by runtime.
var setUpEntries = map[string]string{sandbox.RuntimeNode: "setUp", sandbox.RuntimePython: "set_up"}

// HandlerSession returns the session definition in a handler file. Its functions run in the executor of the session,
// which keeps the state and runs the tear-down. snapshots: the file exports functions that store and restore the state.
func HandlerSession(name, handler, runtime string, snapshots bool) *SessionDefinition {
	return &SessionDefinition{
		Name: name, timeout: setUpTimeout, handler: handler, entry: setUpEntries[runtime], snapshots: snapshots,
		onHandOverEntry: onHandOverEntries[runtime],
	}
}

// NewSessionDefinition checks the functions of a definition and returns the definition.
func NewSessionDefinition(name string, d activity.SessionDefinition) (*SessionDefinition, error) {
	bad := func(format string, args ...any) (*SessionDefinition, error) {
		return nil, fmt.Errorf("session definition %q: %w", name, fmt.Errorf(format, args...))
	}
	if name == "" {
		return nil, errors.New("a session definition has no name")
	}
	if len(name) > maxDefinitionName {
		return bad("the name is longer than %d bytes", maxDefinitionName)
	}
	setUp, err := userfunc.New(d.SetUp, reflect.TypeFor[context.Context]())
	if err != nil {
		return bad("SetUp: %w", err)
	}
	def := &SessionDefinition{Name: name, timeout: d.SetUpTimeout, policy: d.OnFailure, handOver: d.HandOver, setUp: setUp}
	result := reflect.TypeOf(d.SetUp)
	if result.NumOut() != 2 {
		return bad("SetUp: %s returns no state; want func(context.Context, args…) (T, error)", result)
	}
	if d.Isolated {
		def.handler, def.onHandOverEntry = sandbox.SessionPrefix+name, entryOnHandOver
	}
	if d.TearDown != nil {
		def.tearDown = reflect.ValueOf(d.TearDown)
		if err := checkTearDown(def.tearDown.Type(), result.Out(0)); err != nil {
			return bad("TearDown: %w", err)
		}
	}
	if err := def.checkSnapshots(d, result.Out(0)); err != nil {
		return bad("%w", err)
	}
	switch {
	case d.SetUpTimeout < 0:
		return bad("SetUpTimeout is negative")
	case d.SetUpTimeout == 0:
		def.timeout = setUpTimeout
	}
	if def.resources, err = protocol.ReadResources(d.Resources); err != nil {
		return bad("Resources: %w", err)
	}
	if !knownPolicy(d.OnFailure) {
		return bad("unknown OnFailure %q", d.OnFailure)
	}
	if !knownHandOver(d.HandOver) {
		return bad("unknown HandOver %q", d.HandOver)
	}
	return def, nil
}

// maxDefinitionName is the maximum length of the name of a definition, as in protocol.SessionDefinition.
const maxDefinitionName = 200

// checkTearDown returns an error if t is not a function that releases a value of type state.
func checkTearDown(t, state reflect.Type) error {
	ok := t.Kind() == reflect.Func && t.NumIn() == 2 && t.In(0) == reflect.TypeFor[context.Context]() &&
		state.AssignableTo(t.In(1)) && !t.IsVariadic() &&
		(t.NumOut() == 0 || t.NumOut() == 1 && t.Out(0) == reflect.TypeFor[error]())
	if !ok {
		return fmt.Errorf("got %s, want func(context.Context, %s) error", t, state)
	}
	return nil
}

// parseOptions applies the options that a file exports: an object with set_up_timeout_seconds, on_failure, hand_over
// and resources, or the same names in camel case.
func (d *SessionDefinition) parseOptions(raw []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return errors.New("options is not an object")
	}
	for member, value := range members {
		var err error
		switch strings.ToLower(strings.ReplaceAll(member, "_", "")) {
		case "setuptimeoutseconds":
			var seconds float64
			if err = json.Unmarshal(value, &seconds); err == nil && (seconds <= 0 || seconds > maxSetUpTimeout.Seconds()) {
				err = fmt.Errorf("want seconds between 0 and %.0f, got %v", maxSetUpTimeout.Seconds(), seconds)
			}
			d.timeout = time.Duration(seconds * float64(time.Second))
		case "handover":
			if err = json.Unmarshal(value, &d.handOver); err == nil && !knownHandOver(d.handOver) {
				err = fmt.Errorf("want %s or %s, got %q", activity.HandOverRelease, activity.HandOverPrepare, d.handOver)
			}
		case "resources":
			if err = json.Unmarshal(value, &d.resources); err == nil {
				err = protocol.CheckResources(d.resources, "resources", false, func(member string) string { return member })
			}
		case "onfailure":
			if err = json.Unmarshal(value, &d.policy); err == nil && !knownPolicy(d.policy) {
				err = fmt.Errorf("want %s or %s, got %q", activity.FailActivity, activity.TryAnotherWorker, d.policy)
			}
		default:
			err = errors.New("unknown member; want set_up_timeout_seconds, on_failure, hand_over or resources")
		}
		if err != nil {
			return fmt.Errorf("options: %s: %w", member, err)
		}
	}
	return nil
}

// maxSetUpTimeout is the maximum timeout of a set-up that a file sets.
const maxSetUpTimeout = 7 * 24 * time.Hour

// Resources returns the resources that a session uses unless its options set them.
func (d *SessionDefinition) Resources() protocol.Resources { return d.resources }

// ResourcesIn returns the resources in the valid options of a file.
func ResourcesIn(options []byte) protocol.Resources {
	var d SessionDefinition
	if options == nil || d.parseOptions(options) != nil {
		return nil
	}
	return d.resources
}

// AllowsPreparation reports whether valid options of a file allow the set-up while another worker holds the session.
func AllowsPreparation(options []byte) bool {
	var d SessionDefinition
	return options != nil && d.parseOptions(options) == nil && d.Prepares()
}

func knownHandOver(h activity.HandOver) bool {
	return h == "" || h == activity.HandOverRelease || h == activity.HandOverPrepare
}

// Prepares reports whether the set-up may run while another worker holds the session.
func (d *SessionDefinition) Prepares() bool { return d.handOver == activity.HandOverPrepare }

func knownPolicy(p activity.SetUpFailurePolicy) bool {
	return p == "" || p == activity.FailActivity || p == activity.TryAnotherWorker
}

// SetUp runs the set-up function and stores its result in values, which calls the tear-down function when the session
// ends or the result is replaced. failed receives an error of the tear-down function.
func (d *SessionDefinition) SetUp(
	ctx context.Context, args payload.Payload, values *activity.SessionValues, failed func(error),
) error {
	values.TearDown() // of a state that the code declared lost, once no other activity uses it
	state, err := d.run(ctx, args)
	if err != nil {
		return err
	}
	values.SetUp(state, func() {
		if err := d.release(state); err != nil {
			failed(err)
		}
	})
	return nil
}

// run calls the set-up function. It returns a panic as an error of type TypePanic, as for an activity.
func (d *SessionDefinition) run(ctx context.Context, args payload.Payload) (state any, err error) {
	if args.IsZero() {
		if args, err = payload.EncodeArgs(); err != nil {
			return nil, err
		}
	}
	in, err := d.setUp.Decode(args)
	if err != nil {
		return nil, activity.NewError(activity.TypeArguments, "", activity.NonRetryable, activity.CausedBy(err))
	}
	defer func() {
		if r := recover(); r != nil {
			state, err = nil, panicError(r)
		}
	}()
	return d.setUp.Run(ctx, in)
}

// release calls the tear-down function.
func (d *SessionDefinition) release(state any) (err error) {
	if !d.tearDown.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tearDownTime)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	value := reflect.ValueOf(state)
	if !value.IsValid() { // SetUp returned a nil interface
		value = reflect.Zero(d.tearDown.Type().In(1))
	}
	if out := d.tearDown.Call([]reflect.Value{reflect.ValueOf(ctx), value}); len(out) > 0 {
		err, _ = out[0].Interface().(error)
	}
	return err
}

func (d *SessionDefinition) timedOut() error {
	return activity.NewError(
		typeSetUpTimeout, fmt.Sprintf("the set-up of session definition %s did not end within %s", d.Name, d.timeout),
	)
}
