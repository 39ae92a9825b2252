package budget

import "context"

// LoadFactor is the memory per byte loaded for a response: the stored form, the decoded value, and the JSON text.
const LoadFactor = 3

type loadKey struct{}

// Context is a context under which loaded bytes are counted by Grant.
type Context struct {
	context.Context
	Grant Grant
}

// NewContext returns a context under which loaded bytes are counted for an owner until its Grant is released.
func NewContext(ctx context.Context, b *Budget, o Owner) *Context {
	c := &Context{Context: ctx}
	c.Grant.Open(b, o)
	return c
}

// Value returns the grant for its key.
func (c *Context) Value(key any) any {
	if _, ok := key.(loadKey); ok {
		return &c.Grant
	}
	return c.Context.Value(key)
}

// From returns the grant by which loaded bytes are counted; nil if they are not counted.
func From(ctx context.Context) *Grant {
	if g, _ := ctx.Value(loadKey{}).(*Grant); !g.uncounted() {
		return g
	}
	return nil
}

// Load waits until n bytes may be loaded for the response to the request of ctx. The error is ErrOverloaded or that of
// ctx.
func Load(ctx context.Context, n int64) error { return From(ctx).Grow(ctx, LoadFactor*n) }

// Loaded gives back the part of a reservation for loading that was not needed: n bytes were reserved, used were loaded.
func Loaded(ctx context.Context, n, used int64) {
	switch g := From(ctx); {
	case used < n:
		g.Return(LoadFactor * (n - used))
	case used > n:
		g.Force(LoadFactor * (used - n))
	}
}
