package engine

import (
	"errors"
	"iter"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Signals that no run has handled are inherited from run to run. If each run stored copies, a backlog of n signals of
// which each run handles one would cost n²/2 copies. Therefore a signal is copied once, when it is inherited for the
// first time, into the inbox of the chain of runs. Each run records only the numbers of the signals that it inherits.
//
// The history of such a run contains the same events as with copies: SignalReceived events directly after
// WorkflowStarted. The store has one row for all of them, which contains the numbers, and reads the signals from the
// inbox when the history is read.

// maxCopied is the maximum number of inherited signals that a run stores as separate events, and maxCopiedBytes the
// maximum size of their values. Below these limits copies cost less than an inbox. A chain that has an inbox uses it
// until all of its signals are handled.
//
// maxInboxRanges is the maximum number of ranges in which a run records the signals that it inherits. Signals of one
// name are handled in order, so there are more ranges only if code receives several names out of order. The signals are
// then copied into a new inbox, where they are one range. Tests change two of these limits.
var maxCopied, maxInboxRanges = 16, 256

const maxCopiedBytes = 16 << 10

// Inbox is the part of an inbox that a run inherits. It is immutable, because forks of the run share it.
type Inbox struct {
	ID string `json:"id"` // ID of the run whose end created the inbox
	// numbers of the inherited signals in the inbox, in the order of their events
	Ranges []Range `json:"ranges"`
	Next   int64   `json:"next"`             // number of the next signal that will be added
	Bytes  int64   `json:"bytes"`            // payload size of all signals that were ever added
	Unread []Range `json:"unread,omitempty"` // events of inherited signals that the run has not handled
}

// InboxEntry is a signal in an inbox. Body is the payload of its event. Bytes is the size of this payload and of those
// of all earlier signals of the inbox.
type InboxEntry struct {
	Number int64
	Body   []byte
	Bytes  int64
}

// InheritedSignals are the events of a new run's inherited signals, from First to Last, and the signals that must first
// be added to the inbox.
type InheritedSignals struct {
	Inbox       string
	Ranges      []Range
	First, Last int64
	Bytes       int64 // payload size of the events
	Added       []InboxEntry
}

// InboxSignals is data about inherited signals that a decision needs and that only the inbox contains. The caller reads
// it before the decision; it never changes.
type InboxSignals struct {
	Signals []Signal            // all inherited signals in the order of their events; nil: not loaded
	Sizes   map[int64]InboxSize // sizes by number in the inbox
}

// InboxSize has two payload sizes: of all signals of an inbox before one signal, and including that signal.
type InboxSize struct{ Before, Through int64 }

// ErrInboxUnread means that a decision needs InboxSignals.Signals. Clients never receive it: the broker loads the
// signals and decides again.
var ErrInboxUnread = errors.New("the decision needs the inherited signals of the run")

// First returns the event number of the first inherited signal: inherited signals follow WorkflowStarted.
func (b *Inbox) First() int64 { return 2 }

// Last returns the event number of the last inherited signal.
func (b *Inbox) Last() int64 { return b.First() + elementCount(b.Ranges) - 1 }

// Lowest returns the lowest number of an inherited signal.
func (b *Inbox) Lowest() int64 {
	n := b.Ranges[0][0]
	for _, r := range b.Ranges {
		n = min(n, r[0])
	}
	return n
}

// Numbers returns the numbers of the inherited signals with these events, in the same order.
func (b *Inbox) Numbers(events []Range) (numbers []Range) {
	for _, e := range events {
		at := b.First() // event number of the first signal of r
		for _, r := range b.Ranges {
			n := r[1] - r[0] + 1
			if from, to := max(e[0], at), min(e[1], at+n-1); from <= to {
				numbers = appendRange(numbers, Range{r[0] + from - at, r[0] + to - at})
			}
			at += n
		}
	}
	return numbers
}

// Boundaries returns the first and last numbers of the ranges: the sizes at these numbers yield the size of all signals
// in the ranges.
func Boundaries(numbers []Range) (list []int64) {
	for _, r := range numbers {
		list = append(list, r[0])
		if r[1] != r[0] {
			list = append(list, r[1])
		}
	}
	return list
}

// InheritedOf splits a sorted list of event numbers of signals into ranges of inherited signals and other events.
func (b *Inbox) InheritedOf(events []int64) (inherited []Range, own []int64) {
	for i, e := range events {
		if b == nil || e > b.Last() {
			return inherited, events[i:]
		}
		inherited = appendRange(inherited, Range{e, e})
	}
	return inherited, nil
}

// Unreceived returns the signals that a continue-as-new command passes on: ranges of inherited signals, and other
// events.
func (b *Inbox) Unreceived(c *protocol.Command) (inherited []Range, own []int64) {
	inherited, own = b.InheritedOf(c.Unreceived)
	if r := c.UnreceivedRange; r != nil {
		inherited = appendRange(inherited, Range{r.First, r.Last})
	}
	return inherited, own
}

// appendRange appends a range to ranges, or enlarges the last one if they are adjacent.
func appendRange(ranges []Range, r Range) []Range {
	if n := len(ranges); n > 0 && ranges[n-1][1]+1 == r[0] {
		ranges[n-1][1] = r[1]
		return ranges
	}
	return append(ranges, r)
}

// elementCount returns the number of elements of all ranges.
func elementCount(ranges []Range) (n int64) {
	for _, r := range ranges {
		n += r[1] - r[0] + 1
	}
	return n
}

// firstElements returns the ranges of the first n elements.
func firstElements(ranges []Range, n int64) []Range {
	for i, r := range ranges {
		if size := r[1] - r[0] + 1; size >= n {
			short := slices.Clone(ranges[:i+1])
			short[i][1] = r[0] + n - 1
			return short
		} else if n -= size; n == 0 {
			return ranges[:i+1]
		}
	}
	return ranges
}

// removeFrom returns the ranges without one element.
func removeFrom(ranges []Range, e int64) (rest []Range) {
	for _, r := range ranges {
		if e < r[0] || e > r[1] {
			rest = append(rest, r)
			continue
		}
		if r[0] < e {
			rest = append(rest, Range{r[0], e - 1})
		}
		if e < r[1] {
			rest = append(rest, Range{e + 1, r[1]})
		}
	}
	return rest
}

// inheritedUnread returns the number of inherited signals that the run has not handled.
func (s *Run) inheritedUnread() int64 {
	if s.Inbox == nil {
		return 0
	}
	return elementCount(s.Inbox.Unread)
}

// unseenInherited returns the number of inherited signals that no completed workflow task contained.
func (s *Run) unseenInherited() int64 {
	if s.Inbox == nil || s.Seen >= s.Inbox.Last() {
		return 0
	}
	return s.inheritedUnread()
}

// setInheritedUnread replaces the inherited signals that the run has not handled. It copies the Inbox, which forks
// share.
func (s *Run) setInheritedUnread(unread []Range) {
	if s.Inbox == nil || len(unread)+len(s.Inbox.Unread) == 0 {
		return
	}
	b := *s.Inbox
	b.Unread = unread
	s.Inbox = &b
}

// inheritedSignals iterates over the inherited signals that the run has not handled, by event. If the decision has not
// loaded the signals, only their event numbers are known.
func (s *Run) inheritedSignals() iter.Seq2[int64, Signal] {
	return func(yield func(int64, Signal) bool) {
		if s.Inbox == nil {
			return
		}
		for _, r := range s.Inbox.Unread {
			for e := r[0]; e <= r[1]; e++ {
				var sig Signal
				if i := e - s.Inbox.First(); i < int64(len(s.inbox.Signals)) {
					sig = s.inbox.Signals[i]
				}
				if !yield(e, sig) {
					return
				}
			}
		}
	}
}

// answerFromInbox resolves a new wait with the first inherited signal of its name that the run has not handled.
func (s *Run) answerFromInbox(w *Wait) (event int64, sig Signal, ok bool) {
	for k, sig := range s.inheritedSignals() {
		if sig.Name == w.Name {
			w.answered(k, sig)
			s.setInheritedUnread(removeFrom(s.Inbox.Unread, k))
			return k, sig, true
		}
	}
	return 0, Signal{}, false
}

// needsInbox reports whether deciding on these commands requires the inherited signals. Code that buffers its signals
// itself has received them from its history, and names the signals that it did not receive.
func (s *Run) needsInbox(commands []protocol.Command) bool {
	if s.inheritedUnread() == 0 || s.inbox.Signals != nil {
		return false
	}
	return slices.ContainsFunc(commands, func(c protocol.Command) bool {
		return !c.Buffers && (c.Type == protocol.OpenSignalWait || c.Type == protocol.ContinueAsNew)
	})
}

// inherit decides how the next run inherits the signals that this run passes on: as copies or by the inbox.
func (st *step) inherit(next *Start, events []Range, own []Signal) error {
	if st.Inbox == nil || len(events) == 0 {
		if len(own) == 0 || len(own) <= maxCopied && sizeOf(own) <= maxCopiedBytes {
			next.Carry = own
			return nil
		}
		return next.add(Inbox{ID: st.ID, Next: 1}, 0, own)
	}
	numbers := st.Inbox.Numbers(events)
	if len(numbers) > maxInboxRanges {
		if st.inbox.Signals == nil {
			return ErrInboxUnread
		}
		all := make([]Signal, 0, int(elementCount(events))+len(own))
		for _, r := range events {
			all = append(all, st.inbox.Signals[r[0]-st.Inbox.First():r[1]-st.Inbox.First()+1]...)
		}
		return next.add(Inbox{ID: st.ID, Next: 1}, 0, append(all, own...))
	}
	bytes := int64(0)
	for _, r := range numbers {
		from, known := st.inbox.Sizes[r[0]]
		to, also := st.inbox.Sizes[r[1]]
		if !known || !also {
			return ErrInboxUnread
		}
		bytes += to.Through - from.Before
	}
	return next.add(Inbox{ID: st.Inbox.ID, Ranges: numbers, Next: st.Inbox.Next, Bytes: st.Inbox.Bytes}, bytes, own)
}

// add adds signals after those in b, whose payload size is bytes, and makes the next run inherit all of them by an
// inbox.
func (in *Start) add(b Inbox, bytes int64, signals []Signal) error {
	var added []InboxEntry
	for _, s := range signals {
		body, err := history.EncodeData(signalReceived(s))
		if err != nil {
			return err
		}
		bytes += int64(len(body))
		b.Bytes += int64(len(body))
		added = append(added, InboxEntry{Number: b.Next, Body: body, Bytes: b.Bytes})
		b.Ranges = appendRange(b.Ranges, Range{b.Next, b.Next})
		b.Next++
	}
	b.Unread = []Range{{b.First(), b.Last()}}
	in.Inbox = &b
	in.Inherits = &InheritedSignals{
		Inbox: b.ID, Ranges: b.Ranges, First: b.First(), Last: b.Last(), Bytes: bytes, Added: added,
	}
	return nil
}

// signalReceived returns the event of an inherited signal.
func signalReceived(s Signal) *history.SignalReceived {
	return &history.SignalReceived{
		SignalName: s.Name, SignalID: s.ID, Value: s.Value, PayloadCodec: codecOf(s.Value), Headers: s.Headers,
		Trace: s.Trace,
	}
}

func sizeOf(signals []Signal) (n int) {
	for _, s := range signals {
		n += len(s.Value) + s.Headers.Size() + s.Trace.Size()
	}
	return n
}
