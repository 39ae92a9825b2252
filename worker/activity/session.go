package activity

import "context"

// SessionInfo describes the session in which an attempt runs.
type SessionInfo struct {
	ID string
	// Epoch rises with every acquisition of the session. State that was stored under a lower epoch is outdated.
	Epoch int64
	// IsNew is true for the first task of an epoch, which finds no session state in this process.
	IsNew bool
}

// Session returns the session of the attempt; false for an activity outside any session.
func Session(ctx context.Context) (SessionInfo, bool) {
	if rt, ok := FromContext(ctx); ok {
		if s := rt.Session(); s != nil {
			return *s, true
		}
	}
	return SessionInfo{}, false
}

// SessionID returns the ID of the attempt's session as the workflow wrote it, or "" outside a session.
func SessionID(ctx context.Context) string {
	s, _ := Session(ctx)
	return s.ID
}

// SessionEpoch returns the epoch under which the worker holds the attempt's session, or 0 outside a session.
func SessionEpoch(ctx context.Context) int64 {
	s, _ := Session(ctx)
	return s.Epoch
}

// SessionState returns the values that the activities of one session share in this process. They exist while the worker
// holds the session under one epoch. Outside a session SessionState returns nil; a nil *SessionValues is valid and
// stores nothing.
func SessionState(ctx context.Context) *SessionValues {
	if rt, ok := FromContext(ctx); ok {
		return rt.State()
	}
	return nil
}

// GetOrCreate calls SessionValues.GetOrCreate for the attempt's session, with a typed value: it returns the value
// stored under key, or creates and stores it.
func GetOrCreate[T any](ctx context.Context, key string, create func(context.Context) (T, error)) (T, error) {
	v, err := SessionState(ctx).GetOrCreate(ctx, key, func(ctx context.Context) (any, error) { return create(ctx) })
	if err != nil {
		var zero T
		return zero, err
	}
	t, ok := v.(T)
	if !ok {
		return t, mistyped(key, v, t)
	}
	return t, nil
}

// Get returns the value stored in the attempt's session under key. If the value is missing or has another type, Get
// returns an error that wraps ErrSessionLost. An activity may return this error unchanged: a recovery policy then
// rebuilds the state.
func Get[T any](ctx context.Context, key string) (T, error) {
	v, ok := SessionState(ctx).Get(key)
	if !ok {
		var zero T
		return zero, SessionLost("no " + key + " in this session")
	}
	t, ok := v.(T)
	if !ok {
		return t, mistyped(key, v, t)
	}
	return t, nil
}
