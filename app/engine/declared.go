package engine

import (
	"encoding/json"
	"slices"
)

// Workers may say which queries, signals and updates their workflow types have. Knowing that lets a mistyped
// name be refused at once. Where one living worker says nothing, nothing is refused: it may well have the name.

// Declarations are what the living workers of a namespace said their workflow types have: by type, then queries,
// signals or updates, the names.
type Declarations map[string]map[string][]string

// Declared reads the contracts of living workers. A type that one worker runs without saying what it has is
// left out, and so is a kind of names that one contract leaves out, since then nothing is known about it.
func Declared(workers []*Worker) Declarations {
	all := Declarations{}
	silent, unsaid := map[string]bool{}, map[[2]string]bool{}
	for _, w := range workers {
		var said map[string]map[string]json.RawMessage
		if json.Unmarshal(w.Contracts, &said) != nil {
			said = nil
		}
		for _, typ := range w.WorkflowTypes {
			contract, ok := said[typ]
			if !ok {
				silent[typ] = true
				continue
			}
			if all[typ] == nil {
				all[typ] = map[string][]string{}
			}
			for what, raw := range contract {
				all[typ][what] = append(all[typ][what], namesIn(raw)...)
			}
			for _, what := range []string{"queries", "signals", "updates"} {
				if _, ok := contract[what]; !ok {
					unsaid[[2]string{typ, what}] = true
				}
			}
		}
	}
	for typ := range silent {
		delete(all, typ)
	}
	for k := range unsaid {
		delete(all[k[0]], k[1])
	}
	return all
}

// Declares are the queries, signals, updates or validators that a worker said its workflow types have, by type.
func (w *Worker) Declares(what string) map[string][]string {
	var said map[string]map[string]json.RawMessage
	if json.Unmarshal(w.Contracts, &said) != nil {
		return nil
	}
	names := map[string][]string{}
	for typ, contract := range said {
		names[typ] = namesIn(contract[what])
	}
	return names
}

// namesIn reads a list of names, or of objects that have one.
func namesIn(raw json.RawMessage) []string {
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

// Has says whether living workers said that a workflow type has this query, signal, update or validator.
func (d Declarations) Has(typ, what, name string) bool { return slices.Contains(d[typ][what], name) }

// Lacks says whether it is known that a workflow type does not have this query, signal or update.
func (d Declarations) Lacks(typ, what, name string) bool {
	names, said := d[typ][what]
	return said && !slices.Contains(names, name)
}
