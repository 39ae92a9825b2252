package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sojourn-run/sojourn/app/store/sqldb/db"
)

// The driver could send a batch as well. But what it makes for each statement and each value on the way, and the
// buffer that it lets go of every time, were a third of all garbage of a workflow. The committer's statements have few
// forms and only two types, so they are put together here, in a buffer that stays, and the driver sends it and knows
// no more of it.

// trip is what goes to the server together, in the form of the protocol. To the driver it is one message.
type trip struct{ buf []byte }

// The most that a buffer may have to be kept, and that the server takes for one statement.
const (
	mostKept    = 1 << 20
	mostMessage = 1<<30 - 2
)

// The numbers by which the server knows types.
const (
	typeText = 25
	typeBig  = 20
)

// prepared is a statement as the server knows it on this connection: the name it has there, and which columns of its
// rows are numbers.
type prepared struct {
	name string
	nums []bool
}

// Frontend, Decode and Encode make a trip a message of the driver.
func (*trip) Frontend() {}

// Decode is of messages that are read.
func (*trip) Decode([]byte) error { return errors.ErrUnsupported }

// Encode hands over what is to be sent. The driver's own buffer is empty then, and may be this one.
func (t *trip) Encode(dst []byte) ([]byte, error) {
	if len(dst) > 0 {
		return nil, errors.New("something else was to be sent")
	}
	return t.buf, nil
}

// begin empties the buffer.
func (t *trip) begin() {
	if cap(t.buf) > mostKept {
		t.buf = nil
	}
	t.buf = t.buf[:0]
}

// execute runs what was bound last, for all of its rows.
const execute = "E\x00\x00\x00\x09\x00\x00\x00\x00\x00"

// add puts a call into the buffer.
func (t *trip) add(p *prepared, args []any) error {
	b, begin := t.buf, len(t.buf)+1
	b = append(b, 'B', 0, 0, 0, 0, 0)
	b = append(append(b, p.name...), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(args)))
	for _, a := range args {
		format := uint16(pgproto3.TextFormat)
		switch a.(type) {
		case *[]string, *[]int64, []string, []int64:
			format = pgproto3.BinaryFormat
		}
		b = binary.BigEndian.AppendUint16(b, format)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(args)))
	for _, a := range args {
		at := len(b)
		b = append(b, 0, 0, 0, 0)
		switch a := a.(type) {
		case nil:
			binary.BigEndian.PutUint32(b[at:], math.MaxUint32)
			continue
		case *[]string:
			b = appendTexts(b, *a)
		case *[]int64:
			b = appendBigs(b, *a)
		case []string:
			b = appendTexts(b, a)
		case []int64:
			b = appendBigs(b, a)
		case string:
			b = append(b, a...)
		case int64:
			b = strconv.AppendInt(b, a, 10)
		case int:
			b = strconv.AppendInt(b, int64(a), 10)
		default:
			return fmt.Errorf("a parameter is a %T", a)
		}
		binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	b = append(b, 0, 0) // rows come as text
	if len(b)-begin > mostMessage {
		return fmt.Errorf("a statement with %d bytes of values, where PostgreSQL takes %d", len(b)-begin, mostMessage)
	}
	binary.BigEndian.PutUint32(b[begin:], uint32(len(b)-begin))
	b = append(b, execute...)
	t.buf = b
	return nil
}

// appendArray begins an array of so many elements: one dimension, no NULL in it, counted from 1.
func appendArray(b []byte, typ uint32, n int) []byte {
	for _, v := range []uint32{1, 0, typ, uint32(n), 1} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func appendTexts(b []byte, list []string) []byte {
	b = appendArray(b, typeText, len(list))
	for _, v := range list {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b
}

func appendBigs(b []byte, list []int64) []byte {
	b = appendArray(b, typeBig, len(list))
	for _, v := range list {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
	}
	return b
}

// receive reads what the server answers to calls. An error of the server is its last word on them. Rows are read to
// their end whatever becomes of them, since those of the next call are behind them.
func (c *conn) receive(calls []*db.Call) (failed error) {
	fail := func(call *db.Call, err error) {
		if failed == nil && err != nil {
			failed = fmt.Errorf("%s: %w", head(call.Stmt.SQL), err)
		}
	}
	for i := 0; i < len(calls); {
		call := calls[i]
		m, err := c.c.PgConn().Frontend().Receive()
		if err != nil {
			fail(call, err)
			return failed
		}
		switch m := m.(type) {
		case *pgproto3.DataRow:
			if call.Row != nil && failed == nil {
				fail(call, c.row(call, m.Values))
			}
		case *pgproto3.CommandComplete:
			fail(call, done(call, m.CommandTag))
			i++
		case *pgproto3.ErrorResponse:
			fail(call, pgconn.ErrorResponseToPgError(m))
			return failed
		}
	}
	return failed
}

// row hands over a row.
func (c *conn) row(call *db.Call, columns [][]byte) error {
	nums := c.stmts[call.Stmt].nums
	if len(columns) != len(nums) {
		return fmt.Errorf("%d columns where there were %d", len(columns), len(nums))
	}
	c.values = c.values[:0]
	for i, raw := range columns {
		switch {
		case raw == nil:
			c.values = append(c.values, nil)
		case nums[i]:
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil {
				return err
			}
			c.values = append(c.values, n)
		default:
			c.values = append(c.values, string(raw))
		}
	}
	return call.Row(c.values)
}

// done notes what the server says at the end of a call: a word or two, and how many rows it was.
func done(call *db.Call, tag []byte) error {
	if call.Stmt.Control {
		if string(tag) == "ROLLBACK" { // COMMIT of a transaction that had failed
			return errors.New("rolled back")
		}
		return nil
	}
	if call.Row == nil || string(tag[:min(6, len(tag))]) != "SELECT" {
		call.Affected = pgconn.NewCommandTag(string(tag)).RowsAffected()
	}
	return nil
}
