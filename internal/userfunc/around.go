package userfunc

import (
	"context"
	"fmt"
)

// Around runs code inside interceptors that users registered, the first one outermost. of calls one interceptor, which
// must call next or return an error. An interceptor may replace the error of the code, but not remove it.
func Around[I any](
	ctx context.Context, interceptors []I, of func(i I, ctx context.Context, next func(context.Context) error) error,
	code func(context.Context) error,
) error {
	if len(interceptors) == 0 {
		return code(ctx)
	}
	called, failed := false, error(nil)
	err := of(interceptors[0], ctx, func(ctx context.Context) error {
		called = true
		failed = Around(ctx, interceptors[1:], of, code)
		return failed
	})
	switch {
	case err != nil:
		return err
	case !called:
		return fmt.Errorf("interceptor %T neither called next nor returned an error", interceptors[0])
	}
	return failed
}
