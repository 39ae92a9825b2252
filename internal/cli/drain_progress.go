package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// drainProgress prints the progress of a drain until it has ended: a line for each change of the drain and for each
// change of a session of its workers. With --json each line is an object.
type drainProgress struct {
	p        *program
	c        *cobra.Command
	target   protocol.FleetTarget
	sessions map[string]*drainedSession // by ID
	shown    string                     // last line of the drain itself
}

// drainedSession is a session of a drained worker, as a line of JSON reports it.
type drainedSession struct {
	SessionID string `json:"session_id"`
	WorkerID  string `json:"worker_id"` // owner that drains
	// State is held while the owner has the session and no other worker prepares it, then preparing, prepared, and
	// handed_over, or the event that ended the ownership: released, expired, closed, …
	State     string `json:"state"`
	Successor string `json:"successor,omitempty"` // worker that prepares the session, or to which it was handed over
	Running   int    `json:"active_activity_count"`

	epoch int64
	ended bool
}

const drainHeld = "held"

func (s *drainedSession) text() string {
	switch s.State {
	case drainHeld:
		return fmt.Sprintf("session %s: held by %s, %d running", s.SessionID, s.WorkerID, s.Running)
	case protocol.SessionPreparing:
		return fmt.Sprintf("session %s: preparing at %s, %d running", s.SessionID, s.Successor, s.Running)
	case protocol.SessionPrepared:
		return fmt.Sprintf("session %s: prepared at %s, waits for %d running", s.SessionID, s.Successor, s.Running)
	case protocol.EndedHandedOver:
		return fmt.Sprintf("session %s: handed over to %s", s.SessionID, s.Successor)
	}
	return fmt.Sprintf("session %s: %s by %s", s.SessionID, s.State, s.WorkerID)
}

// same reports whether a line for the session would repeat the last one. The number of running activities is progress
// only while nothing else changes.
func (s *drainedSession) same(o *drainedSession) bool {
	return s.State == o.State && s.Successor == o.Successor && s.epoch == o.epoch && s.ended == o.ended &&
		(s.Running == o.Running || s.State == protocol.SessionPreparing)
}

// owned reads the sessions of the workers to be drained. Idle sessions are released as soon as the drain begins, so
// the caller reads them before that.
func (d *drainProgress) owned() error {
	workers := []string{d.target.WorkerID}
	if d.target.WorkerID == "" {
		var all struct {
			Workers []protocol.WorkerView `json:"workers"`
		}
		if err := d.p.call(d.c, http.MethodGet, "/api/workers", nil, &all); err != nil {
			return err
		}
		workers = nil
		for _, w := range all.Workers {
			if d.covers(w) {
				workers = append(workers, w.WorkerID)
			}
		}
	}
	for _, w := range workers {
		if _, err := d.read(w); err != nil {
			return err
		}
	}
	for _, s := range d.sessions {
		s.State = "" // no line has been printed yet
	}
	return nil
}

func (d *drainProgress) covers(w protocol.WorkerView) bool {
	switch t := d.target; {
	case t.Group != "":
		return w.Group == t.Group
	case t.BuildID != "":
		return stringOf(w.BuildID) == t.BuildID
	default:
		return w.Release == t.Release
	}
}

// read records the sessions of a worker and returns those that changed.
func (d *drainProgress) read(worker string) (changed []*drainedSession, err error) {
	items, err := d.p.readList(d.c, listing{
		path: sessionsPath, member: "sessions", page: 200, query: url.Values{"owner": {worker}, "status": {"active"}},
	})
	if err != nil {
		return nil, err
	}
	owned := map[string]bool{}
	for _, raw := range items {
		var v protocol.SessionView
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		s := &drainedSession{
			SessionID: v.SessionID, WorkerID: worker, State: drainHeld, Running: v.Active, epoch: v.Epoch,
		}
		if next := v.Successor; next != nil {
			s.State, s.Successor = protocol.SessionPreparing, next.WorkerID
			if !next.PreparedAt.IsZero() {
				s.State = protocol.SessionPrepared
			}
		}
		old := d.sessions[s.SessionID]
		if old != nil && old.epoch != s.epoch && !old.ended {
			continue // a drained worker acquired the session since; the end of the former epoch is read first
		}
		owned[s.SessionID] = true
		if old == nil || !s.same(old) {
			changed = append(changed, s)
		}
		d.sessions[s.SessionID] = s
	}
	for id, s := range d.sessions {
		if s.WorkerID != worker || s.ended || owned[id] {
			continue
		}
		if err := d.readEnd(s); err != nil {
			return nil, err
		}
		if s.ended {
			changed = append(changed, s)
		}
	}
	slices.SortFunc(changed, func(a, b *drainedSession) int { return cmp.Compare(a.SessionID, b.SessionID) })
	return changed, nil
}

// readEnd reads whether and how the drained worker's ownership of a session ended, and which worker acquired the
// session. A list that is read page after page may miss a session that changes meanwhile, so only the timeline counts.
func (d *drainProgress) readEnd(s *drainedSession) error {
	timeline, err := d.p.wholeTimeline(d.c, sessionsPath+"/"+url.PathEscape(s.SessionID))
	if err != nil {
		return err
	}
	for i, e := range timeline {
		if e.Epoch != s.epoch || !e.Ends() {
			continue
		}
		s.State, s.Successor, s.Running, s.ended = e.What, "", 0, true
		handedOver := e.Why == protocol.EndedHandedOver || e.Why == protocol.EndedRebalanced
		if next := i + 1; handedOver && next < len(timeline) {
			s.State, s.Successor = protocol.EndedHandedOver, timeline[next].Worker
		}
	}
	return nil
}

// show prints the sessions that changed, and the drain if it changed: first when the drain begins, and last when it
// ends.
func (d *drainProgress) show(s protocol.FleetDrainState) error {
	text := drainText(s)
	if d.shown == "" {
		d.shown = text
		if err := d.line(text, s); err != nil {
			return err
		}
	}
	if err := d.showSessions(s); err != nil || text == d.shown {
		return err
	}
	d.shown = text
	return d.line(text, s)
}

func (d *drainProgress) showSessions(s protocol.FleetDrainState) error {
	workers := map[string]bool{}
	for _, m := range s.Members {
		if m.Sessions > 0 {
			workers[m.WorkerID] = true
		}
	}
	for _, x := range d.sessions {
		if !x.ended {
			workers[x.WorkerID] = true
		}
	}
	for w := range workers {
		changed, err := d.read(w)
		if err != nil {
			return err
		}
		for _, x := range changed {
			if err := d.line(x.text(), x); err != nil {
				return err
			}
		}
	}
	return nil
}

// line prints a line: text for people, or an object with --json.
func (d *drainProgress) line(text string, object any) error {
	if !asJSON(d.c) {
		return d.p.printf("%s", text)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return d.p.printf("%s", raw)
}

// follow prints the progress until the drain has ended or was resumed.
func (d *drainProgress) follow(s protocol.FleetDrainState) error {
	for {
		if err := d.show(s); err != nil || s.State == protocol.DrainEnded {
			return err
		}
		select {
		case <-d.c.Context().Done():
			return d.c.Context().Err()
		case <-time.After(time.Second):
		}
		var all protocol.FleetDrains
		if err := d.p.call(d.c, http.MethodGet, fleetPath+"drains", nil, &all); err != nil {
			return err
		}
		i := slices.IndexFunc(all.Drains, func(x protocol.FleetDrainState) bool { return x.FleetTarget == s.FleetTarget })
		if i < 0 {
			return fmt.Errorf("the drain of %s was ended by a resume", s.Text())
		}
		s = all.Drains[i]
	}
}
