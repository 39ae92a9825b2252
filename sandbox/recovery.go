package sandbox

import (
	"bytes"
	"context"
)

// Recovery is the recovery policy that a handler's file exports under that name, as JSON; nil for none. The file itself
// is asked, once for each content of it, in an executor outside of any session: what its top level does is done there
// once more. The error is that of a file that cannot be loaded, or of no executor for it.
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
