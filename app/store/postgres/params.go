package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The driver allocates an interface and a plan for each value, a copy of each text of an array, and a growing buffer.
// That would be a third of all memory that the app allocates for a workflow. The committer's statements have few forms
// and only two types, so this file encodes their values in the server's format, and the driver sends them in a
// pipeline.

// params encodes the parameters of one call. The next call reuses the memory, since the driver has copied the
// parameters by then.
type params struct {
	room    []byte
	values  [][]byte // slices of room; nil: NULL
	formats []int16
}

// sendable returns an error if a parameter has a type that this file cannot encode.
func sendable(args []any) error {
	for _, a := range args {
		switch a.(type) {
		case nil, *[]string, *[]int64, []string, []int64, string, int64, int:
		default:
			return fmt.Errorf("unsupported type %T of a statement parameter", a)
		}
	}
	return nil
}

// set encodes the parameters of a call.
func (p *params) set(args []any) {
	if p.room == nil || cap(p.room) > maxReusedBuffer {
		p.room = make([]byte, 0, 1024)
	}
	p.room, p.values, p.formats = p.room[:0], p.values[:0], p.formats[:0]
	for _, a := range args {
		at, format := len(p.room), int16(pgx.TextFormatCode)
		switch a := a.(type) {
		case nil:
			p.values, p.formats = append(p.values, nil), append(p.formats, format)
			continue
		case *[]string:
			p.room, format = appendTexts(p.room, *a), pgx.BinaryFormatCode
		case *[]int64:
			p.room, format = appendBigs(p.room, *a), pgx.BinaryFormatCode
		case []string:
			p.room, format = appendTexts(p.room, a), pgx.BinaryFormatCode
		case []int64:
			p.room, format = appendBigs(p.room, a), pgx.BinaryFormatCode
		case string:
			p.room = append(p.room, a...)
		case int64:
			p.room = strconv.AppendInt(p.room, a, 10)
		case int:
			p.room = strconv.AppendInt(p.room, int64(a), 10)
		}
		// When room is reallocated, earlier slices stay valid with their old memory.
		p.values, p.formats = append(p.values, p.room[at:]), append(p.formats, format)
	}
}

// appendArray appends the header of an array with n elements: one dimension, no NULL, indexes from 1.
func appendArray(b []byte, typ uint32, n int) []byte {
	for _, v := range []uint32{1, 0, typ, uint32(n), 1} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func appendTexts(b []byte, list []string) []byte {
	b = appendArray(b, pgtype.TextOID, len(list))
	for _, v := range list {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b
}

func appendBigs(b []byte, list []int64) []byte {
	b = appendArray(b, pgtype.Int8OID, len(list))
	for _, v := range list {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
	}
	return b
}

// maxReusedBuffer is the maximum size of a buffer that is reused. callOverhead is the protocol overhead of the driver
// per call.
const (
	maxReusedBuffer = 1 << 20
	callOverhead    = 128
)

// lent is the buffer in which the driver composes its messages; without it, the driver allocates a new one for every
// message above 1 KB. To pass the buffer to the driver, lent implements a message without content.
type lent struct {
	buf  []byte
	used int // size of the last message
}

// begin prepares the buffer, with the capacity of the last use.
func (l *lent) begin() {
	if l.used > cap(l.buf) && l.used <= maxReusedBuffer {
		l.buf = make([]byte, 0, l.used+l.used/4)
	}
	l.used = 0
}

// Frontend, Decode and Encode implement the driver's interface of a message.
func (*lent) Frontend() {}

// Decode is never called, because the driver decodes only messages that it receives.
func (*lent) Decode([]byte) error { return errors.ErrUnsupported }

// Encode replaces an empty dst by the buffer.
func (l *lent) Encode(dst []byte) ([]byte, error) {
	if len(dst) > 0 {
		return dst, nil
	}
	return l.buf[:0], nil
}
