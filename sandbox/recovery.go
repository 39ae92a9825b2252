package sandbox

import (
	"bytes"
	"context"
)

// Recovery returns the recovery policy that a handler's file exports under this name, as JSON; nil for none. It loads
// the file once for each content, in an executor outside of any session, which runs its top-level code an additional
// time. It returns an error if the file cannot be loaded or no executor is available.
func (p *Pool) Recovery(ctx context.Context, activity string) ([]byte, error) {
	_, b, err := p.find(activity, "")
	if err != nil || b == nil {
		return nil, err
	}
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.asked {
		return b.recovery, nil
	}
	res, err := p.Invoke(ctx, Invocation{ID: "recovery", Activity: activity, Export: "recovery", Hash: b.Hash}, Hooks{})
	if err != nil {
		return nil, err
	}
	if raw := bytes.TrimSpace(res.Output); !bytes.Equal(raw, []byte("null")) {
		b.recovery = raw
	}
	b.asked = true
	return b.recovery, nil
}
