package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// TokenRequest is a request to create a token.
type TokenRequest struct {
	Name       string       `json:"name" maxLength:"255"`
	Roles      []Role       `json:"roles" minItems:"1"`
	Namespaces []string     `json:"namespaces,omitempty" maxItems:"1000" each:"128"` // empty: all namespaces
	Queues     []string     `json:"queues,omitempty" maxItems:"1000" each:"255"`     // task queues of a worker's token; empty: all
	Group      string       `json:"group,omitempty" maxLength:"255"`
	ExpiresIn  int64        `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"315360000"` // 0: see ExpiresAt
	ExpiresAt  history.Time `json:"expires_at,omitzero"`                                          // zero: never
}

// TokenView is a token in listings: never its secret.
type TokenView struct {
	ID         string       `json:"id"`
	Name       string       `json:"name"`
	Roles      []string     `json:"roles"`
	Namespaces []string     `json:"namespaces"`
	Queues     []string     `json:"queues"`
	Group      string       `json:"group,omitempty"`
	Status     string       `json:"status"` // active, expired, revoked
	CreatedAt  history.Time `json:"created_at"`
	ExpiresAt  history.Time `json:"expires_at"`
	RevokedAt  history.Time `json:"revoked_at"`
	LastUsedAt history.Time `json:"last_used_at"` // rounded to a minute; null: never
}

// RolesRequest contains the new roles of a token.
type RolesRequest struct {
	Roles []Role `json:"roles" minItems:"1"`
}

// NewToken is a created token. Only this response contains the secret; the store has its hash.
type NewToken struct {
	TokenView
	Token string `json:"token"`
}

// Create creates a token for a caller. The token cannot have namespaces that the caller has no access to.
func (a *Auth) Create(ctx context.Context, by *Principal, in TokenRequest) (NewToken, error) {
	if err := check(in, by); err != nil {
		return NewToken{}, err
	}
	id, secret := randomText(8), randomText(32)
	hash := sha256.Sum256([]byte(secret))
	made, err := a.opt.Store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Tokens: []string{id}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			if rows.Token(id) != nil {
				return store.Writes{}, fmt.Errorf("token ID %s already exists", id)
			}
			t := store.Token{
				ID: id, Hash: hash[:], Name: strings.TrimSpace(in.Name), Namespaces: in.Namespaces, Queues: in.Queues,
				Group:     in.Group,
				CreatedAt: history.At(now), ExpiresAt: in.ExpiresAt,
			}
			for _, r := range in.Roles {
				t.Roles = append(t.Roles, string(r))
			}
			if in.ExpiresIn > 0 {
				t.ExpiresAt = history.At(now.Add(time.Duration(in.ExpiresIn) * time.Second))
			}
			return store.Writes{Tokens: []store.Token{t}, Audit: audited(now, by, "token.create", t), Answer: t}, nil
		},
	})
	a.Changed(ctx, []string{id}, false)
	if err != nil {
		return NewToken{}, err
	}
	return NewToken{TokenView: view(made.(store.Token), time.Now()), Token: prefix + id + "_" + secret}, nil
}

func checkRoles(roles []Role) error {
	if len(roles) == 0 {
		return protocol.Invalid("roles", "must have at least one of %v", Roles)
	}
	for i, r := range roles {
		switch {
		case !slices.Contains(Roles, r):
			return protocol.Invalid(fmt.Sprintf("roles.%d", i), "must be one of %v", Roles)
		case slices.Contains(roles[:i], r):
			return protocol.Invalid(fmt.Sprintf("roles.%d", i), "names %s twice", r)
		}
	}
	return nil
}

func check(in TokenRequest, by *Principal) error {
	if err := checkRoles(in.Roles); err != nil {
		return err
	}
	if err := protocol.CheckLimits(in); err != nil {
		return err
	}
	if err := checkRestriction(in.Roles, in.Queues, in.Group); err != nil {
		return err
	}
	if !bindsCompleter(in.Roles, in.Namespaces) {
		return protocol.Invalid("namespaces", "must name at least one namespace for a token with the role %s", Completer)
	}
	if len(by.Namespaces) > 0 && len(in.Namespaces) == 0 {
		return protocol.Refuse(protocol.ReasonForbidden, "this caller may only create tokens for its own namespaces").
			With("namespaces", by.Namespaces)
	}
	for _, n := range in.Namespaces {
		if !by.In(n) {
			return protocol.Refuse(protocol.ReasonForbidden, "this caller may not create tokens for namespace %s", n).
				With("namespaces", by.Namespaces)
		}
	}
	return nil
}

// bindsCompleter reports whether a token with the role completer is restricted to namespaces. Such tokens are given to
// other systems, which should reach the awakeables of their workflows only.
func bindsCompleter(roles []Role, namespaces []string) bool {
	return len(namespaces) > 0 || !slices.Contains(roles, Completer)
}

// checkRestriction rejects queues and a group for a token without the worker role: they restrict the tasks that a
// worker gets, and have no other effect.
func checkRestriction(roles []Role, queues []string, group string) error {
	if slices.Contains(roles, Worker) {
		return nil
	}
	const message = "only a worker's token can be restricted to %s; add role worker, or leave %[1]s out"
	switch {
	case len(queues) > 0:
		return protocol.Invalid("queues", message, "queues")
	case group != "":
		return protocol.Invalid("group", message, "a group")
	}
	return nil
}

// List returns the tokens that a caller may see, oldest first.
func (a *Auth) List(ctx context.Context, by *Principal) ([]TokenView, error) {
	var stored []store.Token
	err := a.opt.Store.View(ctx, func(r store.Reader) (err error) {
		stored, err = r.Tokens(ctx)
		return err
	})
	views, now := []TokenView{}, time.Now()
	for _, t := range stored {
		if mayList(by, &t) {
			views = append(views, view(t, now))
		}
	}
	slices.SortFunc(views, func(x, y TokenView) int {
		if c := x.CreatedAt.Compare(y.CreatedAt.Time); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return views, err
}

// Revoke makes a token invalid: at once at this app, within a second at others. Revoking it again changes nothing. drop
// also removes it from listings.
func (a *Auth) Revoke(ctx context.Context, by *Principal, id string, drop bool) (TokenView, error) {
	done, err := a.opt.Store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Tokens: []string{id}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			old := rows.Token(id)
			if old == nil || !mayList(by, old) {
				return store.Writes{}, protocol.Refuse(protocol.ReasonTokenNotFound, "token %s not found", id)
			}
			t, fresh := *old, old.RevokedAt.IsZero()
			w := store.Writes{}
			if fresh {
				t.RevokedAt = history.At(now)
				w.Audit = audited(now, by, "token.revoke", t)
			}
			switch {
			case drop:
				w.DropTokens = []string{id}
			case fresh:
				w.Tokens = []store.Token{t}
			}
			w.Answer = t
			return w, nil
		},
	})
	a.Changed(ctx, []string{id}, false)
	if err != nil {
		return TokenView{}, err
	}
	return view(done.(store.Token), time.Now()), nil
}

// SetRoles changes the roles of a token: at once in this app, within a second in others. Running requests of the token
// end, whether it gains or loses roles, since they were authorized with the previous roles. Setting the same roles
// changes nothing.
func (a *Auth) SetRoles(ctx context.Context, by *Principal, id string, in RolesRequest) (TokenView, error) {
	if err := checkRoles(in.Roles); err != nil {
		return TokenView{}, err
	}
	done, err := a.opt.Store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Tokens: []string{id}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			old := rows.Token(id)
			if old == nil || !mayList(by, old) {
				return store.Writes{}, protocol.Refuse(protocol.ReasonTokenNotFound, "token %s not found", id)
			}
			t := *old
			if err := checkRestriction(in.Roles, t.Queues, t.Group); err != nil {
				return store.Writes{}, protocol.Invalid("roles",
					"token %s is restricted to queues or a group, which requires the role worker", id)
			}
			if !bindsCompleter(in.Roles, t.Namespaces) {
				return store.Writes{}, protocol.Invalid("roles",
					"token %s is not restricted to namespaces, which the role %s requires", id, Completer)
			}
			t.Roles = nil
			for _, r := range in.Roles {
				t.Roles = append(t.Roles, string(r))
			}
			if slices.Equal(t.Roles, old.Roles) {
				return store.Writes{Answer: t}, nil
			}
			return store.Writes{Tokens: []store.Token{t}, Audit: audited(now, by, "token.roles", t), Answer: t}, nil
		},
	})
	a.Changed(ctx, []string{id}, false)
	if err != nil {
		return TokenView{}, err
	}
	return view(done.(store.Token), time.Now()), nil
}

// mayList reports whether a caller may learn that a token exists: the caller must have access to all namespaces of the
// token.
func mayList(by *Principal, t *store.Token) bool {
	if strings.HasPrefix(t.ID, signedOut) {
		return false
	}
	if len(by.Namespaces) == 0 {
		return true
	}
	return len(t.Namespaces) > 0 && !slices.ContainsFunc(t.Namespaces, func(n string) bool { return !by.In(n) })
}

func audited(now time.Time, by *Principal, action string, t store.Token) []store.Audit {
	namespace := ""
	if len(t.Namespaces) == 1 {
		namespace = t.Namespaces[0]
	}
	return []store.Audit{{
		At: history.At(now), Identity: by.Name, Action: action, Namespace: namespace, Target: t.ID,
		Detail: strings.TrimSpace(t.Name + " " + strings.Join(t.Roles, ",")),
	}}
}

func view(t store.Token, now time.Time) TokenView {
	v := TokenView{
		ID: t.ID, Name: t.Name, Roles: t.Roles, Namespaces: protocol.OrEmpty(t.Namespaces),
		Queues: protocol.OrEmpty(t.Queues), Group: t.Group,
		Status:    "active",
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt, LastUsedAt: t.UsedAt,
	}
	switch {
	case !t.RevokedAt.IsZero():
		v.Status = "revoked"
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt.Time):
		v.Status = "expired"
	}
	return v
}

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// randomText returns n random letters and digits.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return lower.EncodeToString(b)
}
