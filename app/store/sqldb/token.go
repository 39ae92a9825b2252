package sqldb

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Of a token only its hash is stored: whoever reads the database can let nobody in. What is asked by is a column, the
// rest one JSON text.

// tokenBody is the JSON part of a token's row.
type tokenBody struct {
	Name       string   `json:"name,omitempty"`
	Roles      []string `json:"roles,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Queues     []string `json:"queues,omitempty"`
	Group      string   `json:"group,omitempty"`
	Used       int64    `json:"used_at,omitempty"` // microseconds
}

// The time of its last use is in the document: it is written once in a while, and nothing is found by it.
func addToken(r *rowset, t *store.Token) error {
	body, err := document(tokenBody{t.Name, t.Roles, t.Namespaces, t.Queues, t.Group, t.UsedAt.Micros()})
	if err != nil {
		return fmt.Errorf("token %s: %w", t.ID, err)
	}
	r.s(t.ID).s(hex.EncodeToString(t.Hash)).i(t.CreatedAt.Micros()).i(t.ExpiresAt.Micros()).i(t.RevokedAt.Micros()).s(body)
	return nil
}

// A hash that cannot be read is an error: without one the token could be compared with nothing.
func readToken(v []any) (store.Token, error) {
	var b tokenBody
	if err := json.Unmarshal([]byte(str(v[5])), &b); err != nil {
		return store.Token{}, fmt.Errorf("token %s: %w", str(v[0]), err)
	}
	hash, err := hex.DecodeString(str(v[1]))
	if err != nil {
		return store.Token{}, fmt.Errorf("hash of token %s: %w", str(v[0]), err)
	}
	return store.Token{
		ID: str(v[0]), Hash: hash, Name: b.Name, Roles: b.Roles, Namespaces: b.Namespaces, Queues: b.Queues, Group: b.Group,
		CreatedAt: history.Micros(integer(v[2])), ExpiresAt: history.Micros(integer(v[3])),
		RevokedAt: history.Micros(integer(v[4])), UsedAt: history.Micros(b.Used),
	}, nil
}
