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

// A long history contains mostly repeated names. Pages are compressed inside the JSON, and only on request, because
// SDKs decompress them themselves, whatever their HTTP library does.

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

// packedTask and packedPage contain a compressed page; the members of packed are at a shallower depth, so they hide the
// plain events.
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

// withHistory returns a workflow task with the history in the form that the client requested: plain or compressed.
func withHistory(t *protocol.WorkflowTask, accepts string) (any, error) {
	small, err := pack(t.Events, accepts)
	if small == nil || err != nil {
		return t, err
	}
	return packedTask{&task{t}, *small}, nil
}

// pack compresses a page for a client that accepts that; nil if it does not, or if the page is short.
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
