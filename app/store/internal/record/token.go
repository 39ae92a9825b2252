package record

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Only the hash of a token is stored, so a reader of the database cannot authenticate with it. Fields used in
// conditions are columns; the others are one JSON text.

// tokenBody is the JSON part of a token's row.
type tokenBody struct {
	Name       string   `json:"name,omitempty"`
	Roles      []string `json:"roles,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Queues     []string `json:"queues,omitempty"`
	Group      string   `json:"group,omitempty"`
	Used       int64    `json:"used_at,omitempty"` // microseconds
}

// AddToken adds the row of a token. The time of its last use needs no column: it is written rarely, and no query
// selects by it.
func AddToken(r *db.Rowset, t *store.Token) error {
	body, err := Document(tokenBody{t.Name, t.Roles, t.Namespaces, t.Queues, t.Group, t.UsedAt.Micros()})
	if err != nil {
		return fmt.Errorf("token %s: %w", t.ID, err)
	}
	r.S(t.ID).S(hex.EncodeToString(t.Hash)).I(t.CreatedAt.Micros()).I(t.ExpiresAt.Micros()).I(t.RevokedAt.Micros()).S(body)
	return nil
}

// ReadToken reads a row of Tokens. A hash that cannot be read is an error, because a request could not be compared with
// it.
func ReadToken(v []any) (store.Token, error) {
	var b tokenBody
	if err := json.Unmarshal([]byte(db.Str(v[5])), &b); err != nil {
		return store.Token{}, fmt.Errorf("token %s: %w", db.Str(v[0]), err)
	}
	hash, err := hex.DecodeString(db.Str(v[1]))
	if err != nil {
		return store.Token{}, fmt.Errorf("hash of token %s: %w", db.Str(v[0]), err)
	}
	return store.Token{
		ID: db.Str(v[0]), Hash: hash, Name: b.Name, Roles: b.Roles, Namespaces: b.Namespaces, Queues: b.Queues,
		Group: b.Group, CreatedAt: history.Micros(db.Int(v[2])), ExpiresAt: history.Micros(db.Int(v[3])),
		RevokedAt: history.Micros(db.Int(v[4])), UsedAt: history.Micros(b.Used),
	}, nil
}
