package activity

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Definition is a registered activity.
type Definition struct {
	Name    string
	Options Options
	fn      *Func
}

// NewDefinition creates an activity from func(context.Context, args…) (result, error), or with error as its only
// result. It returns an error for other signatures.
func NewDefinition(name string, fn any, opts ...Options) (*Definition, error) {
	if name == "" {
		return nil, fmt.Errorf("activity %T has no name", fn)
	}
	f, err := NewFunc(fn, reflect.TypeFor[context.Context]())
	if err != nil {
		return nil, fmt.Errorf("activity %q: %w", name, err)
	}
	d := &Definition{Name: name, Options: Merge(opts...), fn: f}
	if r := d.Options.Recovery; r != nil {
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("activity %q: %w", name, err)
		}
		if r.RebuildActivity == name {
			return nil, fmt.Errorf("activity %q: %w", name, errSelf)
		}
	}
	return d, nil
}

// NumArgs returns the number of arguments of the activity without its context.
func (d *Definition) NumArgs() int { return len(d.fn.in) }

// Invoke decodes the encoded arguments, runs the activity and encodes its result. A panic becomes an *Error of
// TypePanic with the stack. Arguments that do not match the parameters become an *Error of TypeArguments, which is not
// retried.
func (d *Definition) Invoke(ctx context.Context, args payload.Payload) (result payload.Payload, err error) {
	in, given, err := d.fn.decodeGiven(args)
	if takes := d.NumArgs(); err == nil && given < takes {
		// The function may have got a new parameter after the workflow scheduled the call.
		Logger(ctx).Warn("activity received fewer arguments than it has parameters; the missing ones have zero values",
			"arguments", given, "parameters", takes)
	}
	if err != nil {
		return payload.Payload{}, NewError(TypeArguments, "", NonRetryable, CausedBy(err))
	}
	defer func() {
		if r := recover(); r != nil {
			failed := &Error{Type: TypePanic, Message: fmt.Sprint(r), Stack: stack.OfPanic()}
			if cause, is := r.(error); is {
				failed.Message, failed.Cause = "", cause
			}
			result, err = payload.Payload{}, failed
		}
	}()
	return d.fn.Call(ctx, in)
}

// Func is a user's function that can be called with encoded arguments.
type Func struct {
	fn        reflect.Value
	in        []reflect.Type
	hasResult bool
}

// NewFunc returns the Func of fn, which must be func(first, args…) (result, error), or return only an error.
func NewFunc(fn any, first reflect.Type) (*Func, error) {
	v := reflect.ValueOf(fn)
	want := fmt.Sprintf("want func(%s, args…) (result, error) or func(%s, args…) error", first, first)
	if v.Kind() != reflect.Func {
		return nil, fmt.Errorf("%T is not a function; %s", fn, want)
	}
	t := v.Type()
	switch {
	case v.IsNil():
		return nil, fmt.Errorf("the function is nil; %s", want)
	case t.NumIn() == 0 || t.In(0) != first:
		return nil, fmt.Errorf("%s does not take a %s first; %s", t, first, want)
	case t.IsVariadic():
		return nil, fmt.Errorf("%s is variadic, take a slice instead; %s", t, want)
	case t.NumOut() == 0 || t.NumOut() > 2:
		return nil, fmt.Errorf("%s returns %d values; %s", t, t.NumOut(), want)
	case t.Out(t.NumOut()-1) != reflect.TypeFor[error]():
		return nil, fmt.Errorf("%s does not return an error last; %s", t, want)
	}
	f := &Func{fn: v, hasResult: t.NumOut() == 2}
	for i := 1; i < t.NumIn(); i++ {
		f.in = append(f.in, t.In(i))
	}
	return f, nil
}

// Decode decodes an argument list into Go values. Missing arguments become zero values; too many arguments are an
// error.
func (f *Func) Decode(args payload.Payload) ([]reflect.Value, error) {
	in, _, err := f.decodeGiven(args)
	return in, err
}

// decodeGiven is like Decode, and also returns the number of arguments in args.
func (f *Func) decodeGiven(args payload.Payload) (in []reflect.Value, given int, err error) {
	in = make([]reflect.Value, len(f.in)+1)
	outs := make([]any, len(f.in))
	for i, t := range f.in {
		p := reflect.New(t)
		outs[i], in[i+1] = p.Interface(), p.Elem()
	}
	if given, err = payload.DecodeSomeArgs(args, outs...); err == nil && given > len(outs) {
		err = payload.DecodeArgs(args, outs...) // the error contains both numbers
	}
	return in, given, err
}

// Call calls the function with the arguments from Decode and encodes its result: null for a function without a result.
func (f *Func) Call(first any, in []reflect.Value) (payload.Payload, error) {
	in[0] = reflect.ValueOf(first)
	out := f.fn.Call(in)
	if err, _ := out[len(out)-1].Interface().(error); err != nil {
		return payload.Payload{}, err
	}
	if !f.hasResult {
		return payload.Encode(nil)
	}
	p, err := payload.Encode(out[0].Interface())
	if err != nil {
		if errors.Is(err, payload.ErrTooLarge) {
			return payload.Payload{}, fmt.Errorf("the result is %w", err)
		}
		return payload.Payload{}, fmt.Errorf("result: %w", err)
	}
	return p, nil
}
