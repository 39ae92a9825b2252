package workflow

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand/v2"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SideEffect runs fn once per run and returns its value; replays return the recorded value. Use it for small values
// such as a random number; code that can fail or takes time belongs in an activity. If the worker dies before the value
// is recorded, fn runs again.
func SideEffect[T any](ctx Context, fn func() T) (T, error) {
	var v T
	p, err := ctx.inner().m.sideEffect(func() any { return fn() })
	if err != nil {
		return v, err
	}
	if err := payload.Decode(p, &v); err != nil {
		return v, fmt.Errorf("value of a side effect: %w", err)
	}
	return v, nil
}

func (m *machine) sideEffect(fn func() any) (payload.Payload, error) {
	m.currentBranch()
	c := &protocol.Command{Type: protocol.RecordSideEffect}
	if e := m.recorded[m.sequence+1]; e != nil {
		if d, ok := e.Data.(*history.SideEffectRecorded); ok {
			c.Result = payload.Payload{Blob: d.Result}
		}
		m.issue(c) // issue does not return if history records another command
		return c.Result, nil
	}
	if m.forQueries {
		m.current.halt()
	}
	p, err := m.compute(fn)
	if err != nil {
		return p, fmt.Errorf("side effect: %w", err)
	}
	c.Result = p
	m.issue(c)
	return p, nil
}

func (m *machine) compute(fn func() any) (payload.Payload, error) {
	m.readOnlyCode = "a side effect"
	defer func() { m.readOnlyCode = "" }()
	return m.codecs.NewValue(fn())
}

// DefaultVersion is the version of a change for runs that passed the call of Version before the change was made.
const DefaultVersion = -1

// Version returns the version of a change in this run, so that code can be changed while runs are open: latest for a
// run that reaches this call for the first time, the recorded version in replays, and DefaultVersion for a run that
// passed this point before the change was added. A run with a version outside oldest … latest cannot continue with this
// code: its workflow task fails. A change ID has 1 to 255 bytes; otherwise Version panics, which fails the workflow
// task.
//
//	if workflow.Version(ctx, "two-step approval", workflow.DefaultVersion, 1) >= 1 { … } else { … }
func Version(ctx Context, changeID string, oldest, latest int) int {
	m := ctx.inner().m
	co := m.currentBranch()
	v := m.version(changeID, oldest, latest)
	if v < oldest || v > latest {
		co.stop(&NonDeterminismError{
			RunID: m.info.RunID, Recorded: fmt.Sprintf("version %d of change %q", v, changeID),
			Issued: fmt.Sprintf("versions %d to %d", oldest, latest),
		})
	}
	return v
}

func (m *machine) version(changeID string, oldest, latest int) int {
	if v, ok := m.versions[changeID]; ok {
		return v
	}
	v := latest
	next := m.sequence + 1
	marker := false
	if e := m.recorded[next]; e != nil {
		var d *history.VersionMarkerRecorded
		if d, marker = e.Data.(*history.VersionMarkerRecorded); marker && d.ChangeID == changeID {
			v = d.Version
		}
		marker = marker && d.ChangeID == changeID
	}
	if !marker && m.recordedUpTo >= next {
		v = DefaultVersion // the run passed this call before it recorded a version
	} else {
		c := &protocol.Command{
			Type: protocol.RecordVersionMarker, ChangeID: changeID, Version: &v, MinSupported: &oldest, MaxSupported: &latest,
		}
		if err := m.check(c); err != nil {
			panic(fmt.Errorf("workflow: version of change %q: %w", changeID, err))
		}
		m.issue(c)
	}
	m.versions[changeID] = v
	return v
}

// newID returns the hash of the run ID and a counter. Interceptors have their own counter, so that they do not change
// the identifiers that the code gets.
func (m *machine) newID() string {
	if m.readOnlyCode == interceptorCode && m.onBranch() {
		m.interceptorIDs++
		return m.hashID("interceptor", m.interceptorIDs)
	}
	m.currentBranch()
	m.ids++
	return m.hashID("id", m.ids)
}

func (m *machine) hashID(kind string, n int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", m.runOfIDs(), kind, n))
	return ids.EncodeToString(sum[:16])
}

// runOfIDs returns the run ID from which identifiers are derived: the ID of the run, or, in code that a copied event
// woke, the ID of the run in which that code ran first. Its recorded results depend on those identifiers.
func (m *machine) runOfIDs() string {
	for _, r := range m.copied {
		if m.at <= r.SeenEvent() {
			return r.RunID
		}
	}
	return m.info.RunID
}

// Random returns a generator of random numbers whose sequence is the same in every replay. Each call returns a
// generator with another seed, which is derived from the run ID. Use it on one branch only, and not for secrets.
func Random(ctx Context) *rand.Rand {
	m := ctx.inner().m
	m.currentBranch()
	m.generators++
	seed := sha256.Sum256(fmt.Appendf(nil, "%s/random/%d", m.runOfIDs(), m.generators))
	return rand.New(rand.NewChaCha8(seed))
}

var ids = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
