package view

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A timeline lists the holdings of a session and is retained after the deletion of the session's row. The renewals of
// one holding are merged into one entry at its end, so that they do not hide other entries.

// timelineShown is the number of timeline entries in a session's detail, and the maximum size of a page.
const timelineShown = 500

// SessionTimeline pages through a session's timeline, from the newest entries to the oldest, also when the session's
// row was cleaned up.
func (v *View) SessionTimeline(ctx context.Context, in protocol.SessionTimeline) (protocol.SessionTimelinePage, error) {
	key := engine.SessionKey{Namespace: cmp.Or(in.Namespace, store.DefaultNamespace), ID: in.SessionID}
	p := protocol.SessionTimelinePage{Namespace: key.Namespace, SessionID: key.ID}
	before, err := parseEarlier(in.PageToken)
	if err != nil {
		return p, err
	}
	now, err := v.store.Now(ctx)
	if err != nil {
		return p, err
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		s, err := r.Session(ctx, key)
		gone := errors.Is(err, store.ErrNotFound)
		if err != nil && !gone {
			return err
		}
		list, earlier, err := readTimeline(ctx, r, key, before, pageSize(in.PageSize, 100, timelineShown))
		if gone && len(list) == 0 && before == 0 && err == nil {
			return protocol.Refuse(protocol.ReasonWorkerSessionNotFound, "session %s not found", key.ID)
		}
		p.Timeline, p.NextPageToken = withRenewals(list, &s, !gone && before == 0 && s.Held(now)), earlier
		return err
	})
	return p, err
}

// readTimeline reads the newest entries before a number, oldest first, and the token of the page before them.
func readTimeline(
	ctx context.Context, r store.Reader, key engine.SessionKey, before int64, size int,
) ([]protocol.SessionEvent, *string, error) {
	entries, err := r.Timeline(ctx, key, before, size+1)
	var earlier *string
	if len(entries) > size {
		entries = entries[1:]
		earlier = earlierToken(entries[0].Number)
	}
	list := make([]protocol.SessionEvent, len(entries))
	for i := range entries {
		list[i] = entries[i].SessionEvent
	}
	return list, earlier, err
}

func earlierToken(number int64) *string {
	t := base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, number, 10))
	return &t
}

func parseEarlier(token string) (int64, error) {
	if token == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	n, bad := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || bad != nil || n <= 0 {
		return 0, protocol.Refuse(protocol.ReasonInvalidPageToken, "invalid page token %q", token)
	}
	return n, nil
}

// withRenewals inserts the renewals of each holding into a timeline as one entry before the holding's end, or at the
// end of the timeline for the current holding.
func withRenewals(stored []protocol.SessionEvent, s *engine.Session, held bool) []protocol.SessionEvent {
	list := make([]protocol.SessionEvent, 0, len(stored)+1)
	for _, e := range stored {
		if e.Ends() && e.Renewals > 0 {
			list = append(list, renewed(e.Worker, e.Epoch, e.Renewals, e.FirstRenewal, e.LastRenewal))
		}
		list = append(list, e)
	}
	if held && s.Renewals > 0 {
		list = append(list, renewed(s.Owner, s.Epoch, s.Renewals, s.FirstRenewal, s.LastRenewal))
	}
	return list
}

func renewed(worker string, epoch int64, n int, first, last history.Time) protocol.SessionEvent {
	return protocol.SessionEvent{
		At: last, What: "renewed", Worker: worker, By: worker, Epoch: epoch, Renewals: n, FirstRenewal: first,
		LastRenewal: last,
	}
}
