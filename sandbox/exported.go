package sandbox

import (
	"bytes"
	"context"
)

// Exported returns the value that a handler's file exports under this name, as JSON; nil for none. It loads the file
// once for each content and name, in an executor outside of any session, which runs its top-level code an additional
// time. Other calls for the file wait until it is loaded or until their context ends. It returns an error if the file
// cannot be loaded or no executor is available.
func (p *Pool) Exported(ctx context.Context, activity, name string) ([]byte, error) {
	_, b, err := p.find(activity, "")
	if err != nil || b == nil {
		return nil, err
	}
	select {
	case b.reading <- struct{}{}:
		defer func() { <-b.reading }()
	case <-ctx.Done():
		return nil, &Error{Type: Cancelled, Message: context.Cause(ctx).Error()}
	}
	if value, ok := b.exports[name]; ok {
		return value, nil
	}
	res, err := p.Invoke(ctx, Invocation{ID: name, Activity: activity, Export: name, Hash: b.Hash}, Hooks{})
	if err != nil {
		return nil, err
	}
	if b.exports == nil {
		b.exports = map[string][]byte{}
	}
	value := bytes.TrimSpace(res.Output)
	if bytes.Equal(value, []byte("null")) {
		value = nil
	}
	b.exports[name] = value
	return value, nil
}
