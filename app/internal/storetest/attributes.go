package storetest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

// FoundAfterMigration starts runs with search attributes, calls forget to migrate the database down to a schema without
// their index, and checks that the store finds them after migrating up.
func FoundAfterMigration(t *testing.T, s Suite, forget func(t *testing.T)) {
	w := s.New(t)
	long := "" // a random text, which a database cannot compress
	for i := range 100 {
		long += fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)}))
	}
	for id, attributes := range map[string]string{
		"a": `{"Who":"x","N":7,"Tags":["p","q"]}`, "b": `{"Who":"y"}`, "none": "",
		"long": `{"Who":"x","Text":"` + long + `"}`, // a value from a release without a limit for values
	} {
		in := start(w, id)
		in.Request.SearchAttributes = json.RawMessage(attributes)
		if id == "b" { // a memo may contain characters that a database refuses
			in.BuildID, in.Request.Memo = "b<1>", json.RawMessage(`{"m":"a\u0000b","build_id":"x"}`)
		}
		w.StartAs(in)
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	forget(t)
	w = s.New(t)
	for _, c := range []struct {
		where store.Condition
		want  int
	}{
		{attribute("Who", store.In, "x"), 2},
		{attribute("Who", store.In, "y"), 1},
		{attribute("N", store.In, 7), 1},
		{attribute("Tags", store.In, "q"), 1},
		{attribute("Who", store.In, "z"), 0},
		{column(store.FieldBuild, store.In, "b<1>"), 1},
		{column(store.FieldBuild, store.In, "x"), 0},
	} {
		w.View(func(r store.Reader) error {
			list, err := r.Runs(t.Context(), store.RunQuery{Namespace: Namespace, Where: []store.Condition{c.where}})
			if len(list.Heads) != c.want {
				t.Errorf("%+v finds %d runs, want %d", c.where, len(list.Heads), c.want)
			}
			return err
		})
	}
}
