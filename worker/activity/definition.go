package activity

import (
	"context"
	"fmt"
	"reflect"

	"github.com/sojourn-run/sojourn/internal/userfunc"
)

// Definition is a registered activity.
type Definition struct {
	Name    string
	Options Options
	fn      *userfunc.Func
}

// NewDefinition creates an activity from func(context.Context, args…) (result, error), or with error as its only
// result. It returns an error for other signatures.
func NewDefinition(name string, fn any, opts ...Options) (*Definition, error) {
	if name == "" {
		return nil, fmt.Errorf("activity %T has no name", fn)
	}
	f, err := userfunc.New(fn, reflect.TypeFor[context.Context]())
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
func (d *Definition) NumArgs() int { return d.fn.NumArgs() }

func init() {
	userfunc.RegisterActivities(func(definition any) *userfunc.Func { return definition.(*Definition).fn })
}
