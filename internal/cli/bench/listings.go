package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// search is one kind of filter that the listing benchmark measures, over the runs of a simulated shop.
type search struct {
	name string
	// query returns the search's filter, a new one each time, for a number of runs
	query func(s *seeker) string
	// partial is set for searches without an index: people receive the results found within a short time, programs
	// receive all results or a timeout.
	partial bool
}

// seeker makes random filters, the same ones at every size.
type seeker struct {
	*rand.Rand
	size int
	now  time.Time
}

func (s *seeker) run() keptRun { return keptNumber(s.IntN(s.size), s.size, s.now) }

func (s *seeker) buyer() string { return s.run().values["Buyer"].(string) } //nolint:forcetypeassert // it is made so

// ago returns the time before the end of the runs' period by a fraction of the period.
func (s *seeker) ago(part float64) string {
	return s.now.Add(-time.Duration(float64(keptFor) * part)).UTC().Format(time.RFC3339)
}

// span returns a random interval with a fraction of the period.
func (s *seeker) span(name string, part float64) string {
	from := part + s.Float64()*(1-part)
	return fmt.Sprintf("%s BETWEEN '%s' AND '%s'", name, s.ago(from), s.ago(from-part))
}

// few is the fraction of the time in which about 200 runs start.
func (s *seeker) few() float64 { return 200 / float64(max(s.size, 2_000)) }

func searches() []search {
	of := func(format string, args ...func(*seeker) any) func(*seeker) string {
		return func(s *seeker) string {
			values := make([]any, len(args))
			for i, arg := range args {
				values[i] = arg(s)
			}
			return fmt.Sprintf(format, values...)
		}
	}
	buyer := func(s *seeker) any { return s.buyer() }
	id := func(s *seeker) any { return s.run().head.WorkflowID }
	key := func(s *seeker) any { return fmt.Sprintf("B-%07d", s.IntN(max(1, s.size/2))) }
	region := func(s *seeker) any { return shopRegions[s.IntN(len(shopRegions))] }
	span := func(name string, part float64) func(*seeker) string {
		return func(s *seeker) string { return s.span(name, part) }
	}
	spanOfFew := func(name string) func(*seeker) string {
		return func(s *seeker) string { return s.span(name, s.few()) }
	}
	half := func(s *seeker) any { return s.ago(0.5) }
	fewAgo := func(s *seeker) any { return s.ago(s.few()) }
	amount := func(from, to float64) func(*seeker) any {
		return func(s *seeker) any { return fmt.Sprintf("%.2f", from+s.Float64()*(to-from)) }
	}
	ids := func(s *seeker) string {
		all := make([]string, 10)
		for i := range all {
			all[i] = "'" + s.run().head.WorkflowID + "'"
		}
		return "WorkflowId IN (" + strings.Join(all, ", ") + ")"
	}
	return []search{
		{"all", of(""), false},
		{"WorkflowId =", of("WorkflowId = '%s'", id), false},
		{"WorkflowId IN ten", ids, false},
		{"WorkflowId STARTS_WITH, few", func(s *seeker) string {
			id := s.run().head.WorkflowID
			return "WorkflowId STARTS_WITH '" + id[:len(id)-2] + "'"
		}, false},
		{"WorkflowId STARTS_WITH, many", of("WorkflowId STARTS_WITH 'invoice-'"), false},
		{"RunId =", of("RunId = '%s'", func(s *seeker) any { return s.run().head.ID }), false},
		{"BusinessKey =", of("BusinessKey = '%s'", key), false},
		{"BusinessKey STARTS_WITH", of("BusinessKey STARTS_WITH '%.7s'", key), false},
		{"WorkflowType =", of("WorkflowType = 'refund'"), false},
		{"TaskQueue IN", of("TaskQueue IN ('mail', 'logistics')"), false},
		{"Status =, rare", of("Status = 'timed_out'"), false},
		{"Status IN", of("Status IN ('failed', 'terminated')"), false},
		{"Status !=", of("Status != 'completed'"), false},
		{"Status, rare, of a type", of("Status = 'timed_out' AND WorkflowType = 'report'"), false},
		{"BuildId =", of("BuildId = '2026.3'"), false},
		{"BuildId STARTS_WITH", of("BuildId STARTS_WITH '2026.3'"), false},
		{"open of an old build", of("BuildId = '2026.3' AND Status = 'running'"), false},
		{"StartTime >", of("StartTime > '%s'", fewAgo), false},
		{"StartTime <", of("StartTime < '%s'", half), false},
		{"StartTime BETWEEN, few", spanOfFew("StartTime"), false},
		{"StartTime BETWEEN, a tenth", span("StartTime", 0.1), false},
		{"CloseTime >", of("CloseTime > '%s'", fewAgo), false},
		{"CloseTime <", of("CloseTime < '%s'", half), false},
		{"CloseTime BETWEEN, few", spanOfFew("CloseTime"), false},
		{"CloseTime BETWEEN, a tenth", span("CloseTime", 0.1), false},
		{"a type, CloseTime BETWEEN, a tenth", func(s *seeker) string {
			return "WorkflowType = 'refund' AND " + s.span("CloseTime", 0.1)
		}, false},
		{"keyword =, few", of("Buyer = '%s'", buyer), false},
		{"keyword =, many", of("Region = '%s'", region), false},
		{"keyword IN", of("Buyer IN ('%s', '%s', '%s')", buyer, buyer, buyer), false},
		{"keyword STARTS_WITH, few", of("Buyer STARTS_WITH '%.10s'", buyer), false},
		{"keyword STARTS_WITH, many", of("Region STARTS_WITH 'eu-'"), false},
		{"keyword <", of("Buyer < 'buyer-2'"), false},
		{"keyword_list =", of("Tags = 'gift'"), false},
		{"keyword =, rare", of("Campaign = 'spring-1'"), false},
		{"keyword IS NOT NULL, rare", of("Campaign IS NOT NULL"), false},
		{"bool =", of("Paid = false"), false},
		{"int =", of("Items = %d", func(s *seeker) any { return 1 + s.IntN(6) }), false},
		{"int >, few", of("Items > 25"), false},
		{"int BETWEEN, many", of("Items BETWEEN 2 AND 5"), false},
		{"double >, few", of("Amount > %s", amount(1_000, 1_100)), false},
		{"double BETWEEN, few", of("Amount BETWEEN %[1]s AND %[1]s", amount(10, 300)), false},
		{"double BETWEEN, many", of("Amount BETWEEN 20 AND %s", amount(100, 200)), false},
		{"double <, many", of("Amount < %s", amount(100, 200)), false},
		{"datetime >", of("OrderedAt > '%s'", fewAgo), false},
		{"datetime <, half", of("OrderedAt < '%s'", half), false},
		{"datetime BETWEEN, few", spanOfFew("OrderedAt"), false},
		{"datetime BETWEEN, a tenth", span("OrderedAt", 0.1), false},
		{"datetime <, half, and keyword", of("OrderedAt < '%s' AND Region = '%s'", half, region), false},
		{"rare status of a keyword", of("Region = '%s' AND Status = 'timed_out'", region), false},
		{"rare status of a range", of("Amount > 300 AND Status = 'terminated'"), false},
		{"keyword and double >", of("Buyer = '%s' AND Amount > 50", buyer), false},
		{"keyword, many, and double >", of("Region = '%s' AND Amount > 500", region), false},
		{"keyword, many, and failed", of("Region = '%s' AND Status = 'failed'", region), false},
		{"two ranges, many", of("Amount > 100 AND Items > 2"), false},
		{"two ranges, few", of("Amount > 600 AND Items > 15"), false},
		{"range, many, and an old start", func(s *seeker) string {
			return "Amount > 100 AND " + s.span("StartTime", 0.1)
		}, false},
		{"type and queue and keyword", of("WorkflowType = 'refund' AND TaskQueue = 'mail' AND Region = '%s'", region), false},
		{"one or the other", of("Buyer = '%s' OR BusinessKey = '%s'", buyer, key), false},
		{"NOT of a keyword", of("NOT Region = '%s'", region), true},
		{"keyword IS NULL", of("Campaign IS NULL"), true},
		{"keyword IS NULL, none", of("Region IS NULL"), true},
		{"part of an id", of("%s", func(s *seeker) any { return fmt.Sprint("r-0", s.IntN(10)) }), true},
		{"part of an id, few", of("%s", func(s *seeker) any { return fmt.Sprintf("-%07d", s.IntN(s.size)) }), true},
		{"part of an id, none", of("nobody"), true},
	}
}

// These are the pages of a listing that are measured.
const (
	firstPage = "page 1"
	deepPage  = "a deep page"
	wholePage = "whole or too broad"
	listPage  = 50
	deepPages = 20 // number of pages of 200 runs before a deep page
)

// listings returns the parts that measure each search: its first page and a deep page; for searches without an index,
// the complete page of a program instead.
func listings() (parts []growingPart) {
	for _, s := range searches() {
		ways := []string{firstPage, deepPage}
		if s.partial {
			ways = []string{firstPage, wholePage}
		}
		for _, way := range ways {
			ops := fixed(100, 5)
			switch way { // reaching the page takes long
			case deepPage:
				ops = fixed(10, 3)
			case wholePage:
				ops = fixed(5, 3)
			}
			parts = append(parts, growingPart{
				id: "LISTINGS", transport: s.name + "; " + way, unit: "ms, 95 %", ops: ops, reads: true, figure: slowestTwentieth,
				measure: func(size int) func(context.Context, *node, int) (sample, error) {
					return func(ctx context.Context, n *node, ops int) (sample, error) {
						return n.search(ctx, s, way, size, ops)
					}
				},
			})
		}
	}
	for _, r := range numbers() {
		parts = append(parts, growingPart{
			id: "LISTINGS", transport: r.name, unit: "ms, 95 %", ops: fixed(20, 5), reads: true, figure: slowestTwentieth,
			measure: sameAtEverySize(func(ctx context.Context, n *node, ops int) (sample, error) {
				return runMany(ops, 1, func() error {
					return n.app.Store().View(ctx, func(in store.Reader) error { return r.read(ctx, in) })
				})
			}),
		})
	}
	return parts
}

// slowestTwentieth returns the 95th percentile of the duration in milliseconds.
func slowestTwentieth(s sample) float64 { return millis(percentile(s.each, 95)) }

// search sends the given number of listing requests over HTTP, one after the other.
func (n *node) search(ctx context.Context, s search, way string, size, ops int) (sample, error) {
	hc := httpClient(1)
	defer hc.CloseIdleConnections()
	api, err := apiclient.New(apiclient.Options{URLs: []string{n.app.URL()}, HTTP: hc})
	if err != nil {
		return sample{}, err
	}
	list := func(q url.Values) (a protocol.ListResponse, took time.Duration, err error) {
		begun := time.Now()
		err = api.Call(ctx, http.MethodGet, "/api/workflows?"+q.Encode(), nil, &a)
		return a, time.Since(begun), err
	}
	newest, _, err := list(url.Values{"page_size": {"1"}})
	if err != nil || len(newest.Workflows) == 0 {
		return sample{}, fmt.Errorf("the database has no runs: %w", err)
	}
	// Latest start of the runs, which may be from an earlier measurement.
	now := newest.Workflows[0].StartedAt.Time
	seek := &seeker{rand.New(rand.NewPCG(1, 2)), size, now} //nolint:gosec // nothing is to be kept secret
	all := sample{each: make([]time.Duration, ops)}
	for i := range ops {
		q := url.Values{"query": {s.query(seek)}, "page_size": {fmt.Sprint(listPage)}}
		if s.partial && way != wholePage {
			q.Set("partial", "true")
		}
		if way == deepPage {
			if err := deepPageQuery(q, list); err != nil {
				return all, fmt.Errorf("%s: %w", q.Get("query"), err)
			}
		}
		_, took, err := list(q)
		if err != nil && !tooBroad(err) { // a broad search is measured as well: it used its whole time budget
			return all, fmt.Errorf("%s: %w", q.Get("query"), err)
		}
		all.each[i], all.elapsed = took, all.elapsed+took
	}
	return all, nil
}

func tooBroad(err error) bool { return protocol.ReasonOf(err) == protocol.ReasonQueryTooBroad }

// deepPageQuery moves the query to a page after many others, or to the last page.
func deepPageQuery(q url.Values, list func(url.Values) (protocol.ListResponse, time.Duration, error)) error {
	q.Set("page_size", "200")
	defer q.Set("page_size", fmt.Sprint(listPage))
	for range deepPages {
		a, _, err := list(q)
		if tooBroad(err) { // no further page: the page with the error is measured
			break
		}
		if err != nil {
			return err
		}
		if a.NextPageToken == nil {
			break
		}
		q.Set("next_page_token", *a.NextPageToken)
	}
	return nil
}

// numbers lists the reads of the operators' overview; the app shares each result between all viewers.
func numbers() []struct {
	name string
	read func(context.Context, store.Reader) error
} {
	return []struct {
		name string
		read func(context.Context, store.Reader) error
	}{
		{"runs by status, up to 10,000", func(ctx context.Context, r store.Reader) error {
			_, err := r.RunCountsUpTo(ctx, keptNamespace, 10_001)
			return err
		}},
		{"runs by status, all", func(ctx context.Context, r store.Reader) error {
			_, err := r.RunCounts(ctx, keptNamespace)
			return err
		}},
		{"tasks by queue", func(ctx context.Context, r store.Reader) error {
			_, err := r.Queues(ctx, keptNamespace)
			return err
		}},
		{"tasks by queue, up to 10,000", func(ctx context.Context, r store.Reader) error {
			_, err := r.QueuesUpTo(ctx, keptNamespace, 10_001)
			return err
		}},
		{"order of a queue", func(ctx context.Context, r store.Reader) error {
			_, err := r.QueueOrder(ctx, engine.QueueKey{Namespace: keptNamespace, Name: "shop"}, 200)
			return err
		}},
		{"repair", func(ctx context.Context, r store.Reader) error {
			_, err := r.Quarantined(ctx, keptNamespace, 100)
			return err
		}},
		{"due activities", func(ctx context.Context, r store.Reader) error {
			_, err := r.DueActivities(ctx, keptNamespace, time.Now(), 100)
			return err
		}},
		{"sessions by status", func(ctx context.Context, r store.Reader) error {
			_, err := r.SessionCounts(ctx, keptNamespace)
			return err
		}},
	}
}
