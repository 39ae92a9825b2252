package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/shared/history"
)

// The events that a batch adds to a run's history are packed into few rows. The key of a packed row is the sequence of
// its first event, and another column holds that of its last event. The payloads are stored one per line; the other
// members of the events are in the column heads, in the same order. A row of one event leaves both columns empty, as
// rows of earlier releases do.
//
// Every batch begins a new row, at the event that follows the last committed one. A writer that decided on outdated
// state therefore begins at an event that already has a row, and its insert violates the primary key. The key alone
// fences two writers of a run, as it did when each event had its own row.

// These are the maximum numbers of events and bytes of a row. A single larger event has its own row.
const (
	maxPackedEvents = 64
	maxPackedBytes  = 256 << 10
)

// head holds the members of one event in a packed row, without the payload.
type head struct {
	Type  string `json:"type"`
	At    int64  `json:"at"`
	Bytes int    `json:"bytes"` // size of the payload
	Seen  int64  `json:"seen,omitempty"`
	Task  string `json:"task,omitempty"`
	Ended bool   `json:"ended,omitempty"` // the event ended an attempt in the row's session
}

// Packing contains the events of one run that a batch is about to write.
type Packing struct {
	Events   []history.Event
	Payloads [][]byte
	Sessions []string // by event: the session of the attempt that the event ended; empty if there is none
	Lead     Lead     // the leading row that rows of a session may follow; updated by the rows
}

func (p *Packing) session(k int) string {
	if k >= len(p.Sessions) {
		return ""
	}
	return p.Sessions[k]
}

// Rows adds the rows of the events to r.
func (p *Packing) Rows(r *db.Rowset, run string) {
	for from := 0; from < len(p.Events); {
		to, attemptEnd := p.row(from)
		p.addRow(r, run, from, to, attemptEnd)
		from = to
	}
}

// row returns the end of the row that begins at from, and the position of its first event that ends an attempt in a
// session, or from. A row has such events of only one session and one time, so that the rows of a session are ordered
// by the ends of attempts.
func (p *Packing) row(from int) (to, attemptEnd int) {
	size, in := 0, ""
	attemptEnd = from
	for to = from; to < len(p.Events) && to-from < maxPackedEvents; to++ {
		size += len(p.Payloads[to])
		// Events of inherited signals may lie between two events; they have their own row.
		if to > from && (size > maxPackedBytes || p.Events[to].Seq != p.Events[to-1].Seq+1) {
			break
		}
		switch s := p.session(to); {
		case s == "":
		case in == "":
			in, attemptEnd = s, to
		case s != in || !p.Events[to].At.Equal(p.Events[attemptEnd].At.Time):
			return to, attemptEnd
		}
	}
	return to, attemptEnd
}

// addRow adds a row with the events at the positions from to to-1. The session and the time of the row are those of the
// event at attemptEnd.
func (p *Packing) addRow(r *db.Rowset, run string, from, to, attemptEnd int) {
	e := &p.Events[from]
	session := p.session(attemptEnd)
	r.S(run).I(e.Seq).I(p.Events[attemptEnd].At.Micros()).S(e.Type()).S(e.TaskID).I(e.SeenThrough)
	if to == from+1 {
		follows := p.Lead.next(session, e.Seq, p.Events[attemptEnd].At.Micros(), len(p.Payloads[from]))
		r.S(string(p.Payloads[from])).S(session).I(0).I(0).S("").I(follows)
		return
	}
	ended, size := int64(0), to-from-1
	for k := from; k < to; k++ {
		size += len(p.Payloads[k])
	}
	var payloads strings.Builder
	payloads.Grow(size)
	heads := make([]byte, 0, 112*(to-from)) // the head of an attempt that ended in a session has about 105 bytes
	for k := from; k < to; k++ {
		if k > from {
			payloads.WriteByte('\n')
		}
		payloads.Write(p.Payloads[k])
		h := head{
			Type: p.Events[k].Type(), At: p.Events[k].At.Micros(), Bytes: len(p.Payloads[k]), Seen: p.Events[k].SeenThrough,
			Task: p.Events[k].TaskID, Ended: p.session(k) != "",
		}
		if h.Ended {
			ended++
		}
		heads = h.appendJSON(heads)
	}
	if ended == 1 {
		ended = 0 // rows of earlier releases do not contain it
	}
	follows := p.Lead.next(session, e.Seq, p.Events[attemptEnd].At.Micros(), payloads.Len())
	r.S(payloads.String()).S(session).I(p.Events[to-1].Seq).I(ended).S(string(append(heads, ']'))).I(follows)
}

// appendJSON appends the JSON of h to a list of heads.
func (h *head) appendJSON(b []byte) []byte {
	if len(b) == 0 {
		b = append(b, '[')
	} else {
		b = append(b, ',')
	}
	b = rawjson.AppendString(append(b, `{"type":`...), h.Type)
	b = strconv.AppendInt(append(b, `,"at":`...), h.At, 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), int64(h.Bytes), 10)
	if h.Seen != 0 {
		b = strconv.AppendInt(append(b, `,"seen":`...), h.Seen, 10)
	}
	if h.Task != "" {
		b = rawjson.AppendString(append(b, `,"task":`...), h.Task)
	}
	if h.Ended {
		b = append(b, `,"ended":true`...)
	}
	return append(b, '}')
}

// Packed is a row of events that was read: it contains one event, or several.
type Packed struct {
	Run     string
	First   int64
	heads   []head
	payload string
	// Inherited is set if the events of the row are inherited signals, which have to be read from their inbox.
	Inherited *Inherited
	at        int64
}

// EventColumns are the columns that ReadEvents expects.
const EventColumns = "t.run_id, t.seq, t.at, t.type, t.task_id, t.seen_through, t.payload, t.last, t.session, t.heads"

// ReadEvents reads a row of Events, by EventColumns.
func ReadEvents(v []any) (p Packed, err error) {
	p = Packed{Run: db.Str(v[0]), First: db.Int(v[1]), payload: db.Str(v[6])}
	if v[7] == nil {
		p.heads = []head{{
			Type: db.Str(v[3]), At: db.Int(v[2]), Bytes: len(p.payload), Seen: db.Int(v[5]), Task: db.Str(v[4]),
			Ended: v[8] != nil,
		}}
		return p, nil
	}
	if heads := db.Str(v[9]); strings.HasPrefix(heads, "{") {
		p.Inherited, p.at = &Inherited{}, db.Int(v[2])
		if err := json.Unmarshal([]byte(heads), p.Inherited); err != nil {
			return p, fmt.Errorf("inherited signals of run %s: %w", p.Run, err)
		}
		if n := p.Inherited.count(); p.First+n-1 != db.Int(v[7]) {
			return p, fmt.Errorf("events %d to %d of run %s are damaged: %d signals", p.First, db.Int(v[7]), p.Run, n)
		}
		return p, nil
	}
	if err := json.Unmarshal([]byte(db.Str(v[9])), &p.heads); err != nil {
		return p, fmt.Errorf("heads of event %d of run %s: %w", p.First, p.Run, err)
	}
	size := len(p.heads) - 1
	for _, h := range p.heads {
		size += h.Bytes
	}
	if last := p.First + int64(len(p.heads)) - 1; len(p.heads) == 0 || last != db.Int(v[7]) || size != len(p.payload) {
		return p, fmt.Errorf("events %d to %d of run %s are damaged: %d heads and %d bytes, for %d",
			p.First, db.Int(v[7]), p.Run, len(p.heads), len(p.payload), size)
	}
	return p, nil
}

// Last returns the sequence of the row's last event.
func (p *Packed) Last() int64 {
	if p.Inherited != nil {
		return p.First + p.Inherited.count() - 1
	}
	return p.First + int64(len(p.heads)) - 1
}

// Each calls fn for the events after the event `after` up to through, and stops at an error of fn. It omits inherited
// signals.
func (p *Packed) Each(after, through int64, fn func(e history.Event, bytes int, ended bool) error) error {
	return p.eachBody(after, through, func(seq int64, h *head, body []byte) error {
		data, err := history.DecodeData(h.Type, body)
		if err != nil {
			return fmt.Errorf("event %d of run %s: %w", seq, p.Run, err)
		}
		e := history.Event{Seq: seq, At: history.Micros(h.At), Data: data, TaskID: h.Task, SeenThrough: h.Seen}
		return fn(e, h.Bytes, h.Ended)
	})
}

// eachBody is like Each, but passes the payloads as they are stored.
func (p *Packed) eachBody(after, through int64, fn func(seq int64, h *head, body []byte) error) error {
	for k, from := 0, 0; k < len(p.heads); k++ {
		h := &p.heads[k]
		seq, at := p.First+int64(k), from
		from += h.Bytes + 1
		if seq <= after || seq > through {
			continue
		}
		if err := fn(seq, h, []byte(p.payload[at:at+h.Bytes])); err != nil {
			return err
		}
	}
	return nil
}

// All returns all events of the row.
func (p *Packed) All() (list []history.Event, err error) {
	list = make([]history.Event, 0, len(p.heads))
	err = p.Each(0, p.Last(), func(e history.Event, _ int, _ bool) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

// RowOf returns a subquery for the sequence of the row that contains an event, given the SQL expressions of run and
// sequence.
func RowOf(run, seq string) string {
	return "(SELECT max(m.seq) FROM events AS m WHERE m.run_id = " + run + " AND m.seq <= " + seq + ")"
}

// RowsOf returns the query of the rows that contain the given events. Each row is returned once.
func RowsOf(d db.Dialect) string {
	keys := "(SELECT DISTINCT w.run_id, " + RowOf("w.run_id", "w.seq") + " AS seq FROM " + d.List(Events.Key()) +
		" AS w)"
	return d.ProbeIn(keys, Events.Key(), EventColumns, "events", "", "")
}
