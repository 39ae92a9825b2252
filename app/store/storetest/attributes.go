package storetest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

// FoundAfterMigration starts runs with search attributes, lets forget take the database back to where these were not
// indexed, and looks whether the store that migrate opens finds them.
func FoundAfterMigration(t *testing.T, s Suite, forget func(t *testing.T)) {
	w := s.New(t)
	long := "" // no database can make it short
	for i := range 100 {
		long += fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)}))
	}
	for id, attributes := range map[string]string{
		"a": `{"Who":"x","N":7,"Tags":["p","q"]}`, "b": `{"Who":"y"}`, "none": "",
		"long": `{"Who":"x","Text":"` + long + `"}`, // from when values had no limit
	} {
		in := start(w, id)
		in.Request.SearchAttributes = json.RawMessage(attributes)
		w.StartAs(in)
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	forget(t)
	w = s.New(t)
	for _, c := range []struct {
		name  string
		value any
		want  int
	}{{"Who", "x", 2}, {"Who", "y", 1}, {"N", 7, 1}, {"Tags", "q", 1}, {"Who", "z", 0}} {
		w.View(func(r store.Reader) error {
			list, err := r.Runs(
				t.Context(), store.RunQuery{Namespace: Namespace, Where: []store.Condition{attribute(c.name, store.In, c.value)}},
			)
			if len(list.Heads) != c.want {
				t.Errorf("%s = %v finds %d runs, want %d", c.name, c.value, len(list.Heads), c.want)
			}
			return err
		})
	}
}
