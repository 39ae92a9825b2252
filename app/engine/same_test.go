package engine

import (
	"reflect"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session counts as changed if any field of its row changed. Its counts are not part of the row.
func TestAChangeOfAnyFieldOfASessionIsNoticed(t *testing.T) {
	values := map[reflect.Type]reflect.Value{
		reflect.TypeFor[history.Time]():       reflect.ValueOf(history.At(time.Unix(1, 0))),
		reflect.TypeFor[*Numbers]():           reflect.ValueOf(&Numbers{Lease: 1}),
		reflect.TypeFor[*Preparation]():       reflect.ValueOf(&Preparation{Worker: "b"}),
		reflect.TypeFor[[]string]():           reflect.ValueOf([]string{"gpu"}),
		reflect.TypeFor[protocol.Resources](): reflect.ValueOf(protocol.Resources{"gpu_mem": protocol.Bytes(1)}),
		reflect.TypeFor[SessionCounts]():      reflect.ValueOf(SessionCounts{Active: 1}),
		reflect.TypeFor[*Snapshot]():          reflect.ValueOf(&Snapshot{Worker: "b"}),
		reflect.TypeFor[*Loan]():              reflect.ValueOf(&Loan{Step: "b"}),
		reflect.TypeFor[*SnapshotRequest]():   reflect.ValueOf(&SnapshotRequest{By: "b"}),
	}
	session := reflect.TypeFor[Session]()
	for i := range session.NumField() {
		f := session.Field(i)
		var a, b Session
		to := reflect.ValueOf(&b).Elem().Field(i)
		switch v, ok := values[f.Type]; {
		case ok:
			to.Set(v)
		case f.Type.Kind() == reflect.String:
			to.SetString("x")
		case f.Type.Kind() == reflect.Bool:
			to.SetBool(true)
		case to.CanInt():
			to.SetInt(1)
		default:
			t.Fatalf("%s: no value of a %s", f.Name, f.Type)
		}
		if same := a.Same(&b); same != (f.Name == "SessionCounts") {
			t.Errorf("%s: the same is %v", f.Name, same)
		}
		if !b.Same(&b) {
			t.Errorf("%s: a session differs from itself", f.Name)
		}
	}
	a, b := Session{Next: &Numbers{Lease: 1}}, Session{Next: &Numbers{Lease: 2}}
	if a.Same(&b) || !a.Same(&Session{Next: &Numbers{Lease: 1}}) {
		t.Error("requested numbers are not compared by value")
	}
	fields := reflect.TypeFor[Preparation]()
	for i := range fields.NumField() {
		var p, q Preparation
		switch to := reflect.ValueOf(&q).Elem().Field(i); {
		case to.CanInt():
			to.SetInt(1)
		case to.Kind() == reflect.String:
			to.SetString("x")
		case to.Kind() == reflect.Bool:
			to.SetBool(true)
		default:
			to.Set(values[to.Type()])
		}
		if p.same(&q) || !q.same(new(q)) {
			t.Errorf("%s of a preparation is not compared by value", fields.Field(i).Name)
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.Same(&b) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
