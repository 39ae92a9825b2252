package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// pages returns an iterator over a paged list. It requests the next page when the caller has consumed the previous one.
// member is the name of the response member with the items, most the size of a page; 0: the list has no pages. Each
// range over the iterator reads the list from its first page; several goroutines may range over it at once.
func pages[T any](ctx context.Context, c *Client, path, member string, most int, q url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		q := maps.Clone(q) // each range has its own page token
		if most > 0 {
			q.Set("page_size", strconv.Itoa(most))
		}
		for {
			var page map[string]json.RawMessage
			if err := c.Call(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &page); err != nil {
				yield(none, err)
				return
			}
			var items []T
			var next string // a null token leaves it empty
			for name, to := range map[string]any{member: &items, "next_page_token": &next} {
				if raw, ok := page[name]; ok {
					if err := json.Unmarshal(raw, to); err != nil {
						yield(none, fmt.Errorf("read %s of the response: %w", name, err))
						return
					}
				}
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			q.Set("next_page_token", next)
		}
	}
}

// Runs lists runs, newest start first: all, or the runs that match a filter like "WorkflowType = 'order' AND Amount >
// 100". See [Where].
func (c *Client) Runs(ctx context.Context, filter Filter) iter.Seq2[RunInfo, error] {
	q := url.Values{}
	if filter != "" {
		q.Set("query", string(filter))
		q.Set("partial", "true") // a slow search returns partial pages; without this parameter the app refuses it
	}
	return pages[RunInfo](ctx, c, "/api/workflows", "workflows", 200, q)
}
