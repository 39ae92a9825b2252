package dispatch

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// BenchmarkHandOver measures one poll that receives one task: enter, reserve, deliver, collect.
func BenchmarkHandOver(b *testing.B) {
	d, fake := newBacklog()
	fake.set(nil, 0)
	w := worker("a")
	s := spec(w, 1, map[protocol.TaskKind]int{protocol.KindActivity: 1, protocol.KindWorkflow: 1})
	for range 4 {
		if _, err := d.Enter(s).Wait(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
	o := store.Offer{Kind: protocol.KindActivity, Namespace: "default", Queue: "q", Type: "x", Now: time.Now()}
	leased := lease(o, 0)
	b.ReportAllocs()
	for b.Loop() {
		w := d.Enter(s)
		r := d.Reserve(o)
		r.Deliver(leased)
		if len(w.Collect(b.Context())) != 1 {
			b.Fatal("nothing was delivered")
		}
	}
}

// BenchmarkReserveBehindOthers measures a reservation while 500 polls of a worker that may not run the task wait in
// front.
func BenchmarkReserveBehindOthers(b *testing.B) {
	d, fake := newBacklog()
	fake.set(nil, 0)
	for range 500 {
		defer d.Enter(spec(worker("other", "y"), 1, oneActivity)).Close()
	}
	s := spec(worker("a"), 1, oneActivity)
	if _, err := d.Enter(s).Wait(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
	defer d.Enter(s).Close()
	o := store.Offer{Kind: protocol.KindActivity, Namespace: "default", Queue: "q", Type: "x", Now: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		d.Reserve(o).Undo()
	}
}
