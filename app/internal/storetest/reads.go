package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func testListings(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	for i := range 5 {
		in := start(w, fmt.Sprintf("Order_%d", i))
		in.Request.BusinessKey = fmt.Sprint("key%", i)
		if i == 3 {
			in.Request.WorkflowType = "other"
		}
		w.StartAs(in)
		w.Pass(time.Second)
	}
	list := func(q store.RunQuery) (ids []string, heads []engine.Head) {
		w.View(func(r store.Reader) error {
			list, err := r.Runs(t.Context(), q)
			heads = list.Heads
			for _, h := range heads {
				ids = append(ids, h.WorkflowID)
			}
			return err
		})
		return ids, heads
	}
	for want, q := range map[string]store.RunQuery{
		"[Order_4 Order_3 Order_2 Order_1 Order_0]": {},
		"[Order_4 Order_3]":                         {Namespace: Namespace, Limit: 2},
		"[Order_3]":                                 {Type: "other"},
		"[Order_2]":                                 {Text: "order_2"},
		"[Order_1]":                                 {Text: "KEY%1"},
		"[]":                                        {Text: "r%d"},
	} {
		if got, _ := list(q); fmt.Sprint(got) != want {
			t.Errorf("%+v lists %v, want %s", q, got, want)
		}
	}
	_, page := list(store.RunQuery{Limit: 2})
	last := page[1]
	if got, _ := list(store.RunQuery{
		Limit: 2, AfterStart: last.StartedAt, AfterRun: last.ID,
	}); fmt.Sprint(got) != "[Order_2 Order_1]" {
		t.Errorf("second page is %v", got)
	}
	if got, _ := list(store.RunQuery{Text: last.ID}); fmt.Sprint(got) != "["+last.WorkflowID+"]" {
		t.Errorf("the run id %s finds %v", last.ID, got)
	}
	if got, _ := list(store.RunQuery{Text: last.ID[:len(last.ID)-1]}); len(got) != 0 {
		t.Errorf("a part of a run id finds %v", got)
	}
	if last.BusinessKey != "key%3" || last.Priority == 0 {
		t.Errorf("listed %+v", last)
	}
	w.Do(page[0].ID, engine.EndRun{})
	w.View(func(r store.Reader) error {
		among := []string{page[1].ID, "none", page[0].ID}
		open, err := r.OpenRuns(t.Context(), among)
		if len(open) != 1 || open[page[1].ID] == nil {
			t.Errorf("open among %v: %v", among, open)
		}
		if none, err := r.OpenRuns(t.Context(), nil); err != nil || len(none) != 0 {
			t.Errorf("open among none: %v, %v", none, err)
		}
		return err
	})
	w.View(func(r store.Reader) error {
		counts, err := r.RunCounts(t.Context(), Namespace)
		if counts[protocol.RunRunning] != 4 || counts[protocol.RunCancelled] != 1 {
			t.Errorf("counts %v", counts)
		}
		some, serr := r.RunCountsUpTo(t.Context(), Namespace, 3)
		if serr != nil || len(some) != 2 || some[protocol.RunRunning] != 3 || some[protocol.RunCancelled] != 1 {
			t.Errorf("counts up to three: %v, %v", some, serr)
		}
		heads, herr := r.RunsOf(t.Context(), engine.WorkflowKey{Namespace: Namespace, ID: "Order_0"})
		if herr != nil || len(heads) != 1 {
			t.Errorf("runs of Order_0: %v, %v", heads, herr)
		}
		k, kerr := r.Workflow(t.Context(), engine.WorkflowKey{Namespace: Namespace, ID: "Order_0"})
		if kerr != nil || k.RunID != heads[0].ID {
			t.Errorf("workflow %+v, %v", k, kerr)
		}
		return err
	})
	listSessions(w, worker)
}

func listSessions(w *Fixture, worker *engine.Worker) {
	t := w.T
	w.startInSessions("alpha", "beta", "waiting")
	w.claimActivity(worker)
	w.Pass(time.Second)
	w.claimActivity(worker)
	defer func() { w.releasedIsNotActive("alpha") }()
	w.View(func(r store.Reader) error {
		list, err := r.Sessions(t.Context(), store.SessionQuery{Namespace: Namespace})
		if len(list) != 2 || list[0].ID != "beta" || list[0].Lease == 0 {
			t.Errorf("sessions %+v, want beta and alpha", list)
		}
		rest, rerr := r.Sessions(
			t.Context(), store.SessionQuery{AfterUpdated: list[0].UpdatedAt, AfterID: "beta", Owner: "w", Text: "ALP"},
		)
		if rerr != nil || len(rest) != 1 || rest[0].ID != "alpha" {
			t.Errorf("then %+v, %v", rest, rerr)
		}
		none, nerr := r.Sessions(t.Context(), store.SessionQuery{Statuses: []protocol.SessionStatus{protocol.SessionClosed}})
		counts, cerr := r.SessionCounts(t.Context(), Namespace)
		if nerr != nil || cerr != nil || len(none) != 0 || counts[protocol.SessionActive] != 2 {
			t.Errorf("closed %v, counts %v (%v, %v)", none, counts, nerr, cerr)
		}
		tasks, terr := r.SessionTasks(t.Context(), engine.SessionKey{Namespace: Namespace, ID: "waiting"}, 5)
		if terr != nil || len(tasks) != 1 || tasks[0].State != engine.Ready {
			t.Errorf("tasks %+v, %v", tasks, terr)
		}
		workers, werr := r.Workers(t.Context(), store.WorkerQuery{Namespace: Namespace, Queue: Queue})
		if werr != nil || len(workers) != 1 || workers[0].MaxSessions != 10 {
			t.Errorf("workers %+v, %v", workers, werr)
		}
		if some, err := r.Workers(t.Context(), store.WorkerQuery{Holding: true}); err != nil || len(some) != 1 {
			t.Errorf("workers that hold something %+v, %v", some, err)
		}
		if off, _ := r.Workers(t.Context(), store.WorkerQuery{Queue: "elsewhere"}); len(off) != 0 {
			t.Errorf("workers of another queue: %+v", off)
		}
		return err
	})
}

func testSmall(t *testing.T, s Suite) {
	w := s.New(t)
	at := history.At(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	key := store.ReceiptKey{Namespace: Namespace, WorkflowID: "w", RequestID: "r"}
	token := store.Token{
		ID: "t1", Hash: []byte{1, 2, 255}, Name: "ci", Roles: []string{"writer"}, Queues: []string{"q"}, CreatedAt: at,
		ExpiresAt: at,
	}
	worker := NewWorker("w1")
	w.Commit(store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{
			Receipts: []store.Receipt{{ReceiptKey: key, Hash: "h", Body: []byte(`{"a":1}`), At: at}},
			Tokens:   []store.Token{token, {ID: "t0", CreatedAt: at}}, Workers: []engine.Worker{*worker},
			Audit: []store.Audit{
				{At: at, Identity: "me", Action: "one", Namespace: Namespace}, {At: at, Action: "two", Namespace: "", Detail: "d"},
			},
		}, nil
	}})
	needs := store.Keys{
		Receipts: []store.ReceiptKey{key}, Tokens: []string{"t1", "none"}, Workers: []engine.WorkerKey{worker.Key()},
	}
	read := func(check func(store.Rows) store.Writes) {
		t.Helper()
		w.Commit(store.Transaction{Needs: needs, Decide: func(r store.Rows, _ time.Time) (store.Writes, error) {
			return check(r), nil
		}})
	}
	w.View(func(r store.Reader) error {
		idle, err := r.Workers(t.Context(), store.WorkerQuery{Holding: true})
		if len(idle) != 0 {
			t.Errorf("a worker with nothing holds something: %+v", idle)
		}
		return err
	})
	read(func(r store.Rows) store.Writes {
		got := r.Token("t1")
		if got == nil || fmt.Sprint(*got) != fmt.Sprint(token) || r.Token("none") != nil {
			t.Errorf("token %+v, want %+v", got, token)
		}
		if c := r.Receipt(key); c == nil || string(c.Body) != `{"a":1}` || c.Hash != "h" || !c.At.Equal(at.Time) {
			t.Errorf("receipt %+v", c)
		}
		if got := r.Worker(worker.Key()); got == nil || got.MaxSessions != 10 || got.Incarnation != "1" {
			t.Errorf("worker %+v", got)
		}
		revoked := *got
		revoked.RevokedAt, revoked.UsedAt = at, at
		return store.Writes{
			Tokens: []store.Token{revoked}, DropTokens: []string{"t0"}, DropWorkers: []engine.WorkerKey{worker.Key()},
		}
	})
	later := history.At(at.Add(time.Minute))
	read(func(r store.Rows) store.Writes {
		if r.Worker(worker.Key()) != nil {
			t.Error("the dropped worker is still there")
		}
		used := *r.Token("t1")
		if !used.UsedAt.Equal(at.Time) {
			t.Errorf("used %v, want %v", used.UsedAt, at)
		}
		used.UsedAt = later
		return store.Writes{TokenUses: []store.Token{used}}
	})
	w.View(func(r store.Reader) error {
		list, err := r.Tokens(t.Context())
		if len(list) != 1 || list[0].ID != "t1" || list[0].RevokedAt.IsZero() ||
			!list[0].UsedAt.Equal(later.Time) {
			t.Errorf("tokens %+v", list)
		}
		if _, err := r.Token(t.Context(), "t0"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("dropped token: %v", err)
		}
		if _, err := r.Worker(t.Context(), worker.Key()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("dropped worker: %v", err)
		}
		audits, aerr := r.Audits(t.Context(), Namespace, true, 10)
		if aerr != nil || len(audits) != 2 || audits[0].Action != "two" || !audits[1].At.Equal(at.Time) {
			t.Errorf("audits %+v, %v", audits, aerr)
		}
		if some, _ := r.Audits(t.Context(), Namespace, false, 10); len(some) != 1 {
			t.Errorf("audits of the namespace %+v", some)
		}
		return errors.Join(err, r.Ping(t.Context()))
	})
}

// releasedIsNotActive releases one of two sessions and checks that readers list it as expired.
func (w *Fixture) releasedIsNotActive(id string) {
	t := w.T
	w.Commit(SessionStep(id, engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "w"}, Why: "test"}))
	w.View(func(r store.Reader) error {
		for status, want := range map[protocol.SessionStatus]bool{
			protocol.SessionActive: false, protocol.SessionExpired: true,
		} {
			list, err := r.Sessions(
				t.Context(), store.SessionQuery{Namespace: Namespace, Statuses: []protocol.SessionStatus{status}},
			)
			if err != nil || len(list) != 1 || (list[0].ID == id) != want || list[0].Shown() != status {
				t.Errorf("%s: %+v, %v", status, list, err)
			}
		}
		counts, err := r.SessionCounts(t.Context(), Namespace)
		if counts[protocol.SessionActive] != 1 || counts[protocol.SessionExpired] != 1 {
			t.Errorf("counts %v", counts)
		}
		return err
	})
}
