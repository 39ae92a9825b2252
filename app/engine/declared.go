package engine

import (
	"encoding/json"
	"slices"
)

// Workers may register which queries, signals and updates their workflow types have, so that the app can refuse a
// misspelled name immediately. If a live worker of the type registers no names, nothing is refused, since that worker
// may have the name.

// Declarations are the handlers that the live workers of a namespace registered: by workflow type, then queries,
// signals or updates, then names.
type Declarations map[string]map[string][]string

// Declared reads the declarations of live workers. It omits a type that a worker runs without declarations, and a kind
// of names that one worker does not declare, because then the names are not known.
func Declared(workers []*Worker) Declarations {
	all := Declarations{}
	silent, undeclared := map[string]bool{}, map[[2]string]bool{}
	for _, w := range workers {
		var declared map[string]map[string]json.RawMessage
		if json.Unmarshal(w.Contracts, &declared) != nil {
			declared = nil
		}
		for _, typ := range w.WorkflowTypes {
			contract, ok := declared[typ]
			if !ok {
				silent[typ] = true
				continue
			}
			if all[typ] == nil {
				all[typ] = map[string][]string{}
			}
			for what, raw := range contract {
				all[typ][what] = append(all[typ][what], decodeNames(raw)...)
			}
			for _, what := range []string{"queries", "signals", "updates"} {
				if _, ok := contract[what]; !ok {
					undeclared[[2]string{typ, what}] = true
				}
			}
		}
	}
	for typ := range silent {
		delete(all, typ)
	}
	for k := range undeclared {
		delete(all[k[0]], k[1])
	}
	return all
}

// Declares returns the queries, signals, updates or validators that a worker registered, by workflow type.
func (w *Worker) Declares(member string) map[string][]string {
	var declared map[string]map[string]json.RawMessage
	if json.Unmarshal(w.Contracts, &declared) != nil {
		return nil
	}
	names := map[string][]string{}
	for typ, contract := range declared {
		names[typ] = decodeNames(contract[member])
	}
	return names
}

// decodeNames decodes a list of names, or of objects with names.
func decodeNames(raw json.RawMessage) []string {
	var names []string
	if json.Unmarshal(raw, &names) == nil {
		return names
	}
	var objects []struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &objects) != nil {
		return nil
	}
	for _, o := range objects {
		names = append(names, o.Name)
	}
	return names
}

// Has reports whether live workers registered this query, signal, update or validator for a workflow type.
func (d Declarations) Has(typ, member, name string) bool {
	return slices.Contains(d[typ][member], name)
}

// Lacks reports whether all live workers of a workflow type declared their names and none has this query, signal or
// update.
func (d Declarations) Lacks(typ, member, name string) bool {
	names, declared := d[typ][member]
	return declared && !slices.Contains(names, name)
}
