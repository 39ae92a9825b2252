package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An epoch is a fencing token for programs: it rises with every acquisition to a large number. Commands show the number
// of the acquisition within its session, as the dashboard does, and the epoch itself with --json.

// epochs numbers the epochs of a session.
type epochs map[int64]int

// epochsOf numbers the acquisitions of a session from its newest backwards; claims is their total. It does not count
// acquisitions before the session's current row.
func epochsOf(timeline []protocol.SessionEvent, claims int) epochs {
	claimed := map[int64]bool{}
	for _, e := range timeline {
		if (e.What == "claimed" || e.What == "reclaimed") && e.Epoch > 0 {
			claimed[e.Epoch] = true
		}
	}
	found := epochs{}
	for _, epoch := range slices.Backward(slices.Sorted(maps.Keys(claimed))) {
		if claims < 1 {
			break
		}
		found[epoch] = claims
		claims--
	}
	return found
}

// name returns an epoch in a few characters; an epoch without a number is returned unchanged.
func (n epochs) name(epoch int64) string {
	switch {
	case epoch == 0:
		return ""
	case n[epoch] == 0:
		return fmt.Sprint(epoch)
	}
	return claimNumber(n[epoch])
}

func claimNumber(n int) string { return fmt.Sprintf("#%d", n) }

// claimOf returns the number of the session's current or last acquisition.
func claimOf(v protocol.SessionView) string {
	switch {
	case v.Claims > 0:
		return claimNumber(v.Claims)
	case v.Epoch > 0:
		return fmt.Sprint(v.Epoch)
	}
	return ""
}

// epochsAt numbers the epochs of the session at a path from its whole timeline. For a deleted session it counts all
// acquisitions that are still known, from the first.
func (p *program) epochsAt(c *cobra.Command, path string, timeline []protocol.SessionEvent) (epochs, error) {
	var a sessionResponse
	err := p.call(c, http.MethodGet, path, nil, &a)
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonWorkerSessionNotFound:
		return epochsOf(timeline, len(epochsOf(timeline, len(timeline)))), nil
	case err != nil:
		return nil, err
	}
	return epochsOf(timeline, a.Session.Claims), nil
}

// wholeTimeline reads all pages of a session's timeline, which start with the newest, and returns them in chronological
// order.
func (p *program) wholeTimeline(c *cobra.Command, path string) ([]protocol.SessionEvent, error) {
	all := []protocol.SessionEvent{}
	for query := (url.Values{"page_size": {"200"}}); ; {
		var page protocol.SessionTimelinePage
		if err := p.call(c, http.MethodGet, path+"/timeline?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(page.Timeline, all...)
		if page.NextPageToken == nil {
			return all, nil
		}
		query.Set("next_page_token", *page.NextPageToken)
	}
}
