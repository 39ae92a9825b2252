package workerapi

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A long history is mostly names that repeat. Pages travel compressed inside the JSON, and only on request, because
// clients of the contract unpack them themselves, whatever their HTTP library does.

// compressHistory is the minimum number of events of a page that is sent compressed, if the client asked for
// compression.
const compressHistory = 50

// packed replaces the events of a page: Compressed contains the JSON list, compressed with Encoding (gzip or raw
// deflate) and in base64.
type packed struct {
	Events     []history.Event `json:"history_events"`
	Compressed string          `json:"history_events_compressed"`
	Encoding   string          `json:"history_events_encoding"`
}

// packedTask and packedPage carry a compressed page; the members of packed, being at a shallower depth, hide the plain
// events.
type (
	packedTask struct {
		*task
		packed
	}
	task struct{ *protocol.WorkflowTask } // one level down, so that packed is nearer

	packedPage struct {
		*page
		packed
	}
	page struct{ *protocol.HistoryPage }
)

// withHistory is a workflow task as its client wants the history: plain, or compressed.
func withHistory(t *protocol.WorkflowTask, accepts string) (any, error) {
	small, err := pack(t.Events, accepts)
	if small == nil || err != nil {
		return t, err
	}
	return packedTask{&task{t}, *small}, nil
}

// pack compresses a page for a client that accepts that; nil when it does not, or the page is short.
func pack(events []history.Event, accepts string) (*packed, error) {
	encoding := ""
	for e := range strings.SplitSeq(strings.ToLower(accepts), ",") {
		if e = strings.TrimSpace(e); encoding == "" && (e == "gzip" || e == "deflate") {
			encoding = e
		}
	}
	if encoding == "" || len(events) < compressHistory {
		return nil, nil
	}
	raw, err := json.Marshal(events)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	var z io.WriteCloser = gzip.NewWriter(&b)
	if encoding == "deflate" { // raw, without the zlib header
		if z, err = flate.NewWriter(&b, flate.DefaultCompression); err != nil {
			return nil, err
		}
	}
	if _, err := z.Write(raw); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return &packed{
		Events: []history.Event{}, Compressed: base64.StdEncoding.EncodeToString(b.Bytes()), Encoding: encoding,
	}, nil
}
