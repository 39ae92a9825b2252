// Package userfunc calls functions that users register as workflows, activities and handlers, with encoded arguments.
package userfunc

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// Func is a user's function that can be called with encoded arguments.
type Func struct {
	fn        reflect.Value
	in        []reflect.Type
	hasResult bool
}

// New returns the Func of fn, which must be func(first, args…) (result, error), or return only an error.
func New(fn any, first reflect.Type) (*Func, error) {
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
	in, _, err := f.DecodeGiven(args)
	return in, err
}

// DecodeGiven is like Decode, and also returns the number of arguments in args.
func (f *Func) DecodeGiven(args payload.Payload) (in []reflect.Value, given int, err error) {
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

// Run calls the function with the arguments from Decode and returns its result: nil for a function without a result.
func (f *Func) Run(first any, in []reflect.Value) (result any, err error) {
	in[0] = reflect.ValueOf(first)
	out := f.fn.Call(in)
	if err, _ := out[len(out)-1].Interface().(error); err != nil {
		return nil, err
	}
	if f.hasResult {
		result = out[0].Interface()
	}
	return result, nil
}

// Call is like Run, and encodes the result.
func (f *Func) Call(first any, in []reflect.Value) (payload.Payload, error) {
	return f.CallWith(payload.Encode, first, in)
}

// CallWith is like Run, and encodes the result with the given function.
func (f *Func) CallWith(
	encode func(any) (payload.Payload, error), first any, in []reflect.Value,
) (payload.Payload, error) {
	result, err := f.Run(first, in)
	if err != nil {
		return payload.Payload{}, err
	}
	p, err := encode(result)
	if err != nil {
		if errors.Is(err, payload.ErrTooLarge) {
			return payload.Payload{}, fmt.Errorf("the result is %w", err)
		}
		return payload.Payload{}, fmt.Errorf("result: %w", err)
	}
	return p, nil
}

// NumArgs returns the number of arguments of the function, without the first one.
func (f *Func) NumArgs() int { return len(f.in) }

var ofActivity func(definition any) *Func

// RegisterActivities sets how [OfActivity] reads a definition. Package activity calls it when it is initialised.
func RegisterActivities(of func(definition any) *Func) { ofActivity = of }

// OfActivity returns the function of an *activity.Definition, which its package does not export.
func OfActivity(definition any) *Func { return ofActivity(definition) }
