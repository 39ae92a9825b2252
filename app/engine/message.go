package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// No decision changes two runs, so a run affects another run by a message. The message is stored in the commit of the
// step that sends it, and deleted from the sender in the commit that applies it to its target. So a crash neither loses
// nor duplicates it.

// These are the kinds of messages.
const (
	SignalMessage = "signal"
	ChildEnded    = "child_ended" // to the parent: a run of its child closed or continued as new
	CloseChild    = "close_child" // to a child: cancel, terminate or request cancellation, as Name says
)

// Message is sent by one run to another. It is stored in the step that sends it and applied as a step of its target.
type Message struct {
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace"`
	WorkflowID string             `json:"workflow_id,omitempty"` // target: the current run of a workflow ID
	ToRun      string             `json:"to_run,omitempty"`      // target: one run
	ToSeq      int64              `json:"to_seq,omitempty"`
	FromRun    string             `json:"from_run"`
	FromSeq    int64              `json:"from_seq"` // key of the message in the sender's table
	Name       string             `json:"name,omitempty"`
	Value      string             `json:"value,omitempty"`
	Headers    history.Headers    `json:"headers,omitempty"` // of a signal
	Reason     string             `json:"reason,omitempty"`
	Run        string             `json:"run,omitempty"`
	Number     int64              `json:"number,omitempty"`
	Status     protocol.RunStatus `json:"status,omitempty"`
	Failure    *history.Failure   `json:"failure,omitempty"`
	At         history.Time       `json:"at,omitzero"`
	// CloseChild: the chain of the child (Head.Chain), and whether it is known; earlier releases did not store it.
	Chain      string `json:"chain,omitempty"`
	ChainKnown bool   `json:"chain_known,omitempty"`
}

// enqueueMessage stores a message under the number of the step's last event. Each such event sends only one message, so
// the number is unique.
func (st *step) enqueueMessage(m Message) {
	m.Namespace, m.FromRun, m.FromSeq, m.At = st.Namespace, st.ID, st.LastSeq, st.now
	st.Undelivered.Put(m.FromSeq, m)
}

// Input returns the input that applies the message to its target. For a signal it names the sending step, so that the
// receiver's history shows where the signal came from.
func (m Message) Input() Input {
	switch m.Kind {
	case ChildEnded:
		return ChildReport{m}
	case CloseChild:
		return m.closeInput()
	}
	return SignalRun{
		Name: m.Name, Value: m.Value, RequestID: StepID(m.FromRun, m.FromSeq), Identity: "run " + m.FromRun,
		Headers: m.Headers,
	}
}

// Delivered returns the decision that removes a delivered message from the undelivered messages of the run.
func (s *Run) Delivered(seq int64) Decision {
	f := s.Fork()
	f.Undelivered.Delete(seq)
	return Decision{After: s.LastSeq, Next: f}
}
