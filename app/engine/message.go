package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// No decision changes two runs, so a run affects another run by a message. The message is stored in the same commit as
// the step that made it, and deleted from the sender in the commit that applies it to its target. So a crash neither
// loses nor repeats it.

// The kinds of messages.
const (
	SignalMessage = "signal"
	ChildEnded    = "child_ended" // to the parent: a run of its child closed or continued as new
	CloseChild    = "close_child" // to a child: cancel, terminate or request its cancellation; Name selects which
)

// Message is sent by one run to another. It is stored with the step that made it and applied as a step of its target.
type Message struct {
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace"`
	WorkflowID string             `json:"workflow_id,omitempty"` // to the current run of a workflow
	ToRun      string             `json:"to_run,omitempty"`      // or to one run
	ToSeq      int64              `json:"to_seq,omitempty"`
	FromRun    string             `json:"from_run"`
	FromSeq    int64              `json:"from_seq"` // its place in the table of the run that owes it
	Name       string             `json:"name,omitempty"`
	Value      string             `json:"value,omitempty"`
	Reason     string             `json:"reason,omitempty"`
	Run        string             `json:"run,omitempty"`
	Number     int64              `json:"number,omitempty"`
	Status     protocol.RunStatus `json:"status,omitempty"`
	Failure    *history.Failure   `json:"failure,omitempty"`
	At         history.Time       `json:"at,omitzero"`
}

// enqueueMessage stores a message under the number of the step's last event. Each such event sends one message, so the
// number is unique.
func (st *step) enqueueMessage(m Message) {
	m.Namespace, m.FromRun, m.FromSeq, m.At = st.Namespace, st.ID, st.LastSeq, st.now
	st.Undelivered.Put(m.FromSeq, m)
}

// Input returns the input that the message applies to its target. For a signal it names the sending step, so that the
// receiver's history contains its origin.
func (m Message) Input() Input {
	switch m.Kind {
	case ChildEnded:
		return ChildReport{m}
	case CloseChild:
		return m.closing()
	}
	return SignalRun{Name: m.Name, Value: m.Value, RequestID: StepID(m.FromRun, m.FromSeq), Identity: "run " + m.FromRun}
}

// Delivered returns the decision that removes a delivered message from the undelivered messages of the run.
func (s *Run) Delivered(seq int64) Decision {
	f := s.Fork()
	f.Undelivered.Delete(seq)
	return Decision{After: s.LastSeq, Next: f}
}
