package transaction

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A page is limited by number of events and by bytes, and its token contains the last event number, not a count. So
// pages stay correct while the history grows, and a repeated request returns the same page.

// Limits of history pages: the default number of events, the maximum number, and the maximum size in bytes.
const (
	DefaultPage = 500
	MaxPage     = 1000
	MaxPageSize = engine.MaxPageBytes
)

// Reads is the part of a store that reads.
type Reads interface {
	View(ctx context.Context, read func(store.Reader) error) error
}

// Page reads one page of a run's history.
func Page(
	ctx context.Context, s Reads, run string, after, through int64, size int,
) (protocol.HistoryPage, error) {
	return PageOfSize(ctx, s, run, after, through, size, MaxPageSize)
}

// PageOfSize is like Page, but limits the page to a number of bytes.
func PageOfSize(
	ctx context.Context, s Reads, run string, after, through int64, size, bytes int,
) (protocol.HistoryPage, error) {
	size = min(max(1, size), MaxPage)
	var events []history.Event
	err := s.View(ctx, func(r store.Reader) (err error) {
		events, err = r.Events(ctx, run, after, through, size, bytes)
		return err
	})
	if events == nil {
		events = []history.Event{}
	}
	p := NewPage(events, through)
	if through == 0 && len(events) == size {
		p.NextPageToken = PageToken(events[size-1].Seq)
	}
	return p, err
}

// NewPage returns the page of these events, of a history that is shown up to through.
func NewPage(events []history.Event, through int64) protocol.HistoryPage {
	p := protocol.HistoryPage{TotalEvents: through, Events: events}
	if n := len(events); n > 0 && events[n-1].Seq < through {
		p.NextPageToken = PageToken(events[n-1].Seq)
	}
	return p
}

// PageToken returns the token of the page after event seq.
func PageToken(seq int64) *string {
	t := base64.StdEncoding.EncodeToString(strconv.AppendInt(nil, seq, 10))
	return &t
}

// ParsePage returns the event after which the page of a token begins; 0 without a token.
func ParsePage(token string) (int64, error) {
	if token == "" {
		return 0, nil
	}
	raw, err := base64.StdEncoding.DecodeString(token)
	if err == nil {
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n >= 0 {
			return n, nil
		}
	}
	return 0, protocol.Refuse(protocol.ReasonInvalidPageToken, "invalid page token %q", token)
}
