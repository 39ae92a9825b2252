package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file generates rows of the runs of a simulated shop over three weeks, without histories, for the listing
// benchmark. Run n is always the same except for its time, so that each filter has known results.

// keptFor is the period in which the runs began, which ends now. It is shorter than the retention of namespaces.
const keptFor = 20 * 24 * time.Hour

const (
	keptNamespace = "default"
	openOf        = 50 // one run of this many is open, and two at the end of the period
	buyers        = 50_000
)

var (
	shopTypes = []string{
		"order", "order", "order", "order", "invoice", "invoice", "shipping", "refund", "signup", "report",
	}
	shopQueues  = []string{"shop", "shop", "shop", "billing", "billing", "logistics", "mail"}
	shopRegions = []string{"eu-west", "eu-west", "eu-north", "us-east", "us-east", "us-west", "ap-south", "sa-east"}
	shopTags    = []string{"express", "gift", "b2b", "fragile", "returning", "voucher"}
)

// shopAttributes are the search attributes of these runs. The attribute Campaign is set in one of 5,000 runs.
var shopAttributes = map[string]string{
	"Buyer": engine.AttributeKeyword, "Region": engine.AttributeKeyword, "Tags": engine.AttributeKeywordList,
	"Amount": engine.AttributeDouble, "Items": engine.AttributeInt, "OrderedAt": engine.AttributeTime,
	"Paid": engine.AttributeBool, "Campaign": engine.AttributeKeyword,
}

// keptRun is one run of the shop.
type keptRun struct {
	head   engine.Head
	values map[string]any
	task   *engine.Activity // ready for a worker, in half of the open runs
}

// keptNumber returns run n of all runs; the last run starts at the given time.
func keptNumber(n, all int, now time.Time) keptRun {
	r := rand.New(rand.NewPCG(uint64(n), 7)) //nolint:gosec // nothing is to be kept secret
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	started := now.Add(-keptFor + time.Duration(float64(keptFor)*float64(n+1)/float64(all)))
	h := engine.Head{
		Namespace: keptNamespace, Type: pick(shopTypes), Number: 1, Queue: pick(shopQueues), Status: protocol.RunCompleted,
		StartedAt: history.At(started), LastSeq: 2, BuildID: fmt.Sprint("2026.", 1+10*n/all), Priority: 5,
		Memo: json.RawMessage(`{"note":"` + strings.Repeat("kept as it was ordered ", 8) + `"}`),
	}
	var random [16]byte
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	h.ID = ulid.MustNew(ulid.Timestamp(started), strings.NewReader(string(random[:]))).String()
	h.WorkflowID = keptID(h.Type, n)
	if n%2 == 1 {
		h.BusinessKey = fmt.Sprintf("B-%07d", n/2)
	}
	closed := history.At(started.Add(time.Duration(r.ExpFloat64() * float64(20*time.Minute))))
	switch one := r.IntN(10_000); {
	case one < 200:
		h.Status, h.Failure = protocol.RunFailed, "card declined: the bank says no (code 51)"
	case one < 250:
		h.Status = protocol.RunCancelled
	case one < 270:
		h.Status = protocol.RunTimedOut
	case one < 280:
		h.Status = protocol.RunTerminated
	case n%openOf == 3 || n > all-all/openOf:
		h.Status, closed = protocol.RunRunning, history.Time{}
	}
	h.ClosedAt = closed
	k := keptRun{values: map[string]any{
		"Buyer": fmt.Sprintf("buyer-%05d", int(buyers*math.Pow(r.Float64(), 2))), "Region": pick(shopRegions),
		"Amount": math.Round(r.ExpFloat64()*12_000) / 100, "Items": 1 + int(r.ExpFloat64()*3),
		"OrderedAt": started.Add(-time.Duration(r.ExpFloat64() * float64(24*time.Hour))).UTC().Format(time.RFC3339),
		"Paid":      r.IntN(10) > 0, "Tags": []string{pick(shopTags), pick(shopTags)},
	}}
	if n%5_000 == 11 {
		k.values["Campaign"] = fmt.Sprint("spring-", n%3)
	}
	h.SearchAttributes, _ = json.Marshal(k.values) // texts, numbers and lists of them: encoding cannot fail
	k.head = h
	if h.Status.Open() && r.IntN(2) == 0 {
		k.task = &engine.Activity{
			RunID: h.ID, Seq: 1, Type: "charge", Queue: h.Queue, Event: 2, Priority: 5, ScheduledAt: h.StartedAt,
			State: engine.Ready, ReadyAt: h.StartedAt,
		}
	}
	return k
}

// keptID returns the workflow ID of run n.
func keptID(kind string, n int) string { return fmt.Sprintf("%s-%07d", kind, n) }

// keptColumns lists the columns that a run fills, by table.
var keptColumns = []struct {
	table   string
	columns []string
}{
	{"workflows", []string{"namespace", "workflow_id", "run_id", "runs"}},
	{"runs", []string{
		"run_id", "namespace", "workflow_id", "type", "number", "status", "queue", "started_at", "closed_at", "last_seq",
		"business_key", "state", "build_id",
	}},
	{"run_attributes", []string{"run_id", "name", "value", "namespace", "started_at"}},
	{"tasks", []string{"run_id", "seq", "namespace", "queue", "kind", "state", "priority", "ready_at", "body"}},
}

// rows returns the rows of the run for each of keptColumns.
func (k keptRun) rows() ([4][][]any, error) {
	h, or := k.head, func(there bool, v any) any {
		if there {
			return v
		}
		return nil
	}
	state, err := json.Marshal(h)
	if err != nil {
		return [4][][]any{}, err
	}
	at := h.StartedAt.Micros()
	rows := [4][][]any{
		{{h.Namespace, h.WorkflowID, h.ID, int64(1)}},
		{{
			h.ID, h.Namespace, h.WorkflowID, h.Type, h.Number, string(h.Status), h.Queue, at,
			or(!h.ClosedAt.IsZero(), h.ClosedAt.Micros()), h.LastSeq, or(h.BusinessKey != "", h.BusinessKey), string(state),
			or(h.BuildID != "", h.BuildID),
		}},
	}
	for name, v := range k.values {
		raw, err := json.Marshal(v)
		if err != nil {
			return rows, err
		}
		for _, key := range engine.AttributeKeys(raw) {
			rows[2] = append(rows[2], []any{h.ID, name, key, h.Namespace, at})
		}
	}
	if t := k.task; t != nil {
		body, err := json.Marshal(t)
		if err != nil {
			return rows, err
		}
		rows[3] = [][]any{{
			h.ID, t.Seq, h.Namespace, t.Queue, string(protocol.KindActivity), string(t.State), int64(t.Priority),
			t.ReadyAt.Micros(), string(body),
		}}
	}
	return rows, nil
}

// createRuns inserts these runs directly into the store, because the app would need hours to run them. None of them is
// in the app's caches, as after a restart.
func createRuns(ctx context.Context, n *node, size int, report func(there int)) error {
	for name, typ := range shopAttributes {
		_, err := n.app.Broker().CreateSearchAttribute(ctx, keptNamespace, protocol.SearchAttribute{Name: name, Type: typ})
		if err != nil {
			return err
		}
	}
	if n.server != "" {
		return keepInPostgres(ctx, n.server, size, report)
	}
	return keepInSQLite(ctx, n.path, size, report)
}

// eachKeptRow calls write with the rows of consecutive runs, in the order of keptColumns.
func eachKeptRow(size int, report func(there int), write func(table int, rows [][]any) error) error {
	now := time.Now().Truncate(time.Microsecond) // the last run contains this time, from which later searches start
	for from := 0; from < size; from += reportEvery {
		var all [4][][]any
		for n := from; n < min(size, from+reportEvery); n++ {
			rows, err := keptNumber(n, size, now).rows()
			if err != nil {
				return err
			}
			for i := range rows {
				all[i] = append(all[i], rows[i]...)
			}
		}
		for i, rows := range all {
			if err := write(i, rows); err != nil {
				return fmt.Errorf("fill %s: %w", keptColumns[i].table, err)
			}
		}
		report(min(size, from+reportEvery))
	}
	return nil
}

func keepInPostgres(ctx context.Context, server string, size int, report func(int)) (err error) {
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	err = eachKeptRow(size, report, func(i int, rows [][]any) error {
		to := keptColumns[i]
		_, err := c.CopyFrom(ctx, pgx.Identifier{to.table}, to.columns, pgx.CopyFromRows(rows))
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "VACUUM ANALYZE workflows, runs, run_attributes, tasks") // as its autovacuum would do later
	return err
}

func keepInSQLite(ctx context.Context, file string, size int, report func(int)) (err error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(60000)&_pragma=synchronous(off)&_pragma=cache_size(-400000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return eachKeptRow(size, report, func(i int, rows [][]any) error {
		to := keptColumns[i]
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		insert, err := tx.PrepareContext(ctx, "INSERT INTO "+to.table+" ("+strings.Join(to.columns, ", ")+") VALUES ("+
			strings.Repeat(", ?", len(to.columns))[2:]+")")
		if err != nil {
			return err
		}
		defer func() { _ = insert.Close() }()
		for _, row := range rows {
			if _, err := insert.ExecContext(ctx, row...); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
}
