package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/session"
)

// A definition with OnHandOver and Restore moves the state of its sessions: the owner takes a snapshot when no attempt
// runs and no task is dispatched any more, and the next owner restores it after its set-up. The payload of the snapshot
// passes the worker's codecs. A payload above the app's limit is stored in the snapshot directory.

// maxEncoded is the maximum size of the encoded payload of a snapshot. Bytes that Go code returned are stored in files
// without encoding if the worker has no codecs, so this limit does not apply to them.
const maxEncoded = payload.MaxDecodedBytes

// rawSuffix ends the names of files with bytes that are not encoded.
const rawSuffix = "-raw"

// Functions of session definitions in files and isolated definitions, besides the set-up.
const (
	entryOnHandOver = "onHandOver"
	entryRestore    = "restore"
)

// onHandOverEntries are the names of the function in files that takes a snapshot, by runtime.
var onHandOverEntries = map[string]string{
	sandbox.RuntimeNode: entryOnHandOver, sandbox.RuntimePython: "on_hand_over",
}

// Snapshots reports whether the owner stores a snapshot of a session with the definition before it releases the
// session.
func (d *SessionDefinition) Snapshots() bool { return d.snapshots || d.onHandOver.IsValid() }

// checkSnapshots checks OnHandOver and Restore of a definition and stores them. state is the type of the state.
func (d *SessionDefinition) checkSnapshots(from activity.SessionDefinition, state reflect.Type) error {
	if from.OnHandOver == nil && from.Restore == nil {
		return nil
	}
	if from.OnHandOver == nil || from.Restore == nil {
		return errors.New("OnHandOver and Restore are only possible together")
	}
	d.onHandOver, d.restore = reflect.ValueOf(from.OnHandOver), reflect.ValueOf(from.Restore)
	ctx, failed := reflect.TypeFor[context.Context](), reflect.TypeFor[error]()
	bytes := reflect.TypeFor[[]byte]()
	t := d.onHandOver.Type()
	if t.Kind() != reflect.Func || t.NumIn() != 2 || t.In(0) != ctx || !state.AssignableTo(t.In(1)) || t.IsVariadic() ||
		t.NumOut() != 2 || t.Out(0) != bytes || t.Out(1) != failed {
		return fmt.Errorf("OnHandOver: got %s, want func(context.Context, %s) ([]byte, error)", t, state)
	}
	t = d.restore.Type()
	if t.Kind() != reflect.Func || t.NumIn() != 3 || t.In(0) != ctx || !state.AssignableTo(t.In(1)) || t.IsVariadic() ||
		t.In(2) != bytes || t.NumOut() != 1 || t.Out(0) != failed {
		return fmt.Errorf("Restore: got %s, want func(context.Context, %s, []byte) error", t, state)
	}
	return nil
}

// TakeSnapshot calls OnHandOver with the state in values.
func (d *SessionDefinition) TakeSnapshot(ctx context.Context, values *activity.SessionValues) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			data, err = nil, panicError(r)
		}
	}()
	state, err := d.stateOf(values, d.onHandOver.Type().In(1))
	if err != nil {
		return nil, err
	}
	out := d.onHandOver.Call([]reflect.Value{reflect.ValueOf(ctx), state})
	err, _ = out[1].Interface().(error)
	return out[0].Bytes(), err
}

// Restore calls the function Restore with the state in values.
func (d *SessionDefinition) Restore(ctx context.Context, values *activity.SessionValues, data []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError(r)
		}
	}()
	state, err := d.stateOf(values, d.restore.Type().In(1))
	if err != nil {
		return err
	}
	out := d.restore.Call([]reflect.Value{reflect.ValueOf(ctx), state, reflect.ValueOf(data)})
	err, _ = out[0].Interface().(error)
	return err
}

// InvokeSnapshot calls OnHandOver or Restore of an isolated definition in its executor.
func (d *SessionDefinition) InvokeSnapshot(
	ctx context.Context, entry string, values *activity.SessionValues, args payload.Payload,
) (payload.Payload, error) {
	if entry == entryOnHandOver {
		data, err := d.TakeSnapshot(ctx, values)
		if err != nil {
			return payload.Payload{}, err
		}
		return payload.EncodeUpTo(maxEncoded, data)
	}
	var data []byte
	if err := payload.DecodeArgs(args, &data); err != nil {
		return payload.Payload{}, err
	}
	if err := d.Restore(ctx, values, data); err != nil {
		return payload.Payload{}, err
	}
	return payload.Encode(nil)
}

func (d *SessionDefinition) stateOf(values *activity.SessionValues, t reflect.Type) (reflect.Value, error) {
	state, ok := values.SetUpResult()
	if !ok {
		return reflect.Value{}, errors.New("the session has no state")
	}
	if v := reflect.ValueOf(state); v.IsValid() {
		return v, nil
	}
	return reflect.Zero(t), nil
}

// Snapshot takes a snapshot of a held session for its next owner. The caller has ensured that no attempt runs in it.
func (r *Runner) Snapshot(
	ctx context.Context, h *session.Holding,
) (*protocol.SessionSnapshot, error) {
	info := &h.Affinity
	def, ok := r.opt.Definitions.FindSession(info.Definition)
	if !ok {
		return nil, fmt.Errorf("session definition %s is not registered here", info.Definition)
	}
	if !h.SetUpDone() {
		return nil, errors.New("the session has no state")
	}
	a := r.outsideOfAttempt(h, info, def)
	raw, value, err := a.takeSnapshot(ctx, def)
	if err != nil {
		return nil, fmt.Errorf("OnHandOver: %w", err)
	}
	out := &protocol.SessionSnapshot{MaxAge: protocol.Count(r.opt.Snapshots.MaxAge / time.Second)}
	if len(raw) > payload.MaxBytes && len(r.opt.Codecs) == 0 {
		out.File, err = r.storeFile(out, h, raw, rawSuffix)
		return out, err
	}
	if value.IsZero() {
		if value, err = payload.EncodeUpTo(maxEncoded, raw); err != nil {
			return nil, err
		}
	}
	if value, err = r.opt.Codecs.EncodeValueUpTo(maxEncoded, value); err != nil {
		return nil, err
	}
	if len(value.Blob) > payload.MaxBytes {
		out.File, err = r.storeFile(out, h, value.Text(), "")
		return out, err
	}
	describe(out, value.Text())
	out.Data = value
	return out, nil
}

func describe(out *protocol.SessionSnapshot, data []byte) {
	sum := sha256.Sum256(data)
	out.Bytes, out.Checksum = int64(len(data)), hex.EncodeToString(sum[:])
}

// storeFile stores a snapshot that is too large for the app in a file and returns its name.
func (r *Runner) storeFile(
	out *protocol.SessionSnapshot, h *session.Holding, data []byte, suffix string,
) (name string, err error) {
	if r.opt.Snapshots.Dir == "" {
		return "", fmt.Errorf(
			"%w; set snapshot-dir to a directory that all workers reach", payload.TooLarge(len(data)),
		)
	}
	describe(out, data)
	return r.opt.Snapshots.write(r.opt.Namespace, h.ID, h.Epoch, suffix, data)
}

// SnapshotStored removes earlier files of a session whose snapshot the app has stored.
func (r *Runner) SnapshotStored(id string, snap *protocol.SessionSnapshot) {
	if snap != nil {
		r.opt.Snapshots.replaced(r.opt.Namespace, id, snap.File)
	}
}

// RemoveSnapshot removes the file of a snapshot that the app refused.
func (r *Runner) RemoveSnapshot(snap *protocol.SessionSnapshot) {
	if snap != nil {
		r.opt.Snapshots.remove(r.opt.Namespace, snap.File)
	}
}

// takeSnapshot calls OnHandOver. It returns bytes from Go code in this process, and a payload from an executor.
func (a *attempt) takeSnapshot(ctx context.Context, def *SessionDefinition) ([]byte, payload.Payload, error) {
	if !a.setUpElsewhere(def) {
		raw, err := def.TakeSnapshot(activity.NewContext(ctx, runtime{a}), runtime{a}.State())
		return raw, payload.Payload{}, err
	}
	if a.r.opt.Executors == nil {
		return nil, payload.Payload{}, errors.New("this worker has no executor")
	}
	if end, ok := ctx.Deadline(); ok {
		a.info.Deadline = end
	}
	a.entry = def.onHandOverEntry
	value, err := a.invoke(ctx, def.handler, payload.Payload{})
	return nil, value, err
}

// outsideOfAttempt returns an attempt for a call of a definition's function outside of any activity.
func (r *Runner) outsideOfAttempt(h *session.Holding, s *protocol.SessionAffinity, def *SessionDefinition) *attempt {
	task := &protocol.ActivityTask{Session: s, LeaseOwner: r.opt.WorkerID, TaskQueue: s.Queue, Namespace: r.opt.Namespace}
	return &attempt{
		r: r, task: task, session: h, outside: true, activityLog: attemptLog{task: task}, beats: silentBeats(),
		info: activity.AttemptInfo{WorkerID: r.opt.WorkerID, Queue: s.Queue, Namespace: task.Namespace},
		log:  r.log.With().Str("session_id", h.ID).Str("definition", def.Name).Logger(),
		recovered: &protocol.Recovered{SetUp: &protocol.SetUp{
			Definition: def.Name, Outcome: protocol.RebuildRunning,
		}},
	}
}

// restoreError reports that the snapshot of a session could not be restored.
type restoreError struct{ err error }

func (e *restoreError) Error() string { return e.err.Error() }
func (e *restoreError) Unwrap() error { return e.err }

// restore restores a snapshot in the state that the set-up created. Every error except that of ctx is a *restoreError.
func (a *attempt) restore(ctx context.Context, def *SessionDefinition, snap *protocol.SessionSnapshot) error {
	err := a.restoreFrom(ctx, def, snap)
	if err == nil {
		a.r.opt.Snapshots.discard(a.r.opt.Namespace, snap.File)
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if unavailable, ok := errors.AsType[*unavailable](err); ok {
		return unavailable
	}
	return &restoreError{err}
}

func (a *attempt) restoreFrom(ctx context.Context, def *SessionDefinition, snap *protocol.SessionSnapshot) error {
	data := snap.Data.Text()
	if snap.File != "" {
		var err error
		if data, err = a.r.opt.Snapshots.read(a.r.opt.Namespace, snap.File); err != nil {
			return err
		}
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != snap.Checksum {
		return errors.New("the checksum of the snapshot is wrong")
	}
	inner, cancel := context.WithTimeout(ctx, def.timeout)
	defer cancel()
	raw := strings.HasSuffix(snap.File, rawSuffix)
	var value payload.Payload
	if !raw {
		var err error
		if value, err = a.r.opt.Codecs.DecodeValue(payload.OfText(data)); err != nil {
			return err
		}
	}
	if !a.setUpElsewhere(def) {
		if !raw {
			data = nil
			if err := payload.Decode(value, &data); err != nil {
				return err
			}
		}
		return def.Restore(activity.NewContext(inner, runtime{a}), runtime{a}.State(), data)
	}
	args, err := payload.EncodeArgsUpTo(maxEncoded, value)
	if err != nil {
		return err
	}
	deadline := a.info.Deadline
	defer func() { a.entry, a.rebuild, a.began, a.info.Deadline = "", false, false, deadline }()
	a.entry, a.info.Deadline = entryRestore, time.Now().Add(def.timeout)
	_, err = a.invoke(inner, def.handler, args)
	return err
}

// restoreState restores the snapshot of the previous owner, if there is one, after the set-up. If it fails, the state
// is lost: the attempt fails if the workflow asked for that, else the set-up runs again.
func (a *attempt) restoreState(ctx context.Context, def *SessionDefinition, setUp func() error) error {
	snap := a.session.Snapshot()
	if snap == nil {
		return nil
	}
	err := a.restore(ctx, def, snap)
	failed, ok := errors.AsType[*restoreError](err)
	if err != nil && !ok {
		return err
	}
	a.session.DropSnapshot()
	if err == nil {
		a.restored()
		return nil
	}
	a.restoreFailed = protocol.ErrorText(failed.Error())
	a.log.Warn().Str("error", a.restoreFailed).Str("session_id", a.session.ID).Int64("epoch", a.session.Epoch).
		Str("definition", def.Name).Msg("failed to restore the snapshot of a session; its state is lost")
	if a.task.Session.OnLost == protocol.OnLostFail && a.session.ShowLostSnapshot() {
		runtime{a}.State().TearDown()
		return activity.SessionLost(protocol.ReasonRestoreFailed + ": " + a.restoreFailed)
	}
	return setUp()
}

// restored records that the code finds the state of the previous owner.
func (a *attempt) restored() {
	known := *a.task.Session
	known.IsNew = false
	task := *a.task // an app in the same process may use the task too
	task.Session = &known
	a.task = &task
	a.log.Info().Str("session_id", a.session.ID).Int64("epoch", a.session.Epoch).Msg("session restored from a snapshot")
}

// restorePrepared restores the owner's snapshot in prepared state.
func (p *preparations) restorePrepared(one *preparation, s protocol.PreparationState) {
	one.snapshot = s.Snapshot.Checksum
	ctx, cancel := context.WithCancelCause(p.r.life)
	one.cancel = cancel
	h, info := one.holding, *one.session
	p.runs.Go(func() {
		defer cancel(nil)
		stack.Grow()
		def, ok := p.r.opt.Definitions.FindSession(info.Definition)
		err := errors.New("the session definition is not registered here")
		if ok {
			a := p.r.outsideOfAttempt(h, &info, def)
			a.prepares = true
			err = a.restore(ctx, def, s.Snapshot)
		}
		p.mu.Lock()
		if one.restored = err == nil; err != nil && one.failed == "" {
			one.failed = protocol.ErrorText(protocol.ReasonRestoreFailed + ": " + err.Error())
			p.r.log.Warn().Str("session_id", h.ID).Str("error", one.failed).
				Msg("failed to restore a snapshot for a hand-over; the owner keeps the session")
		}
		p.mu.Unlock()
		p.r.opt.Link.Beat()
	})
}
