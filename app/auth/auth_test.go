package auth_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// counted is a real store that counts how often it is read.
type counted struct {
	store.Store
	reads atomic.Int64
}

func (c *counted) View(ctx context.Context, fn func(store.Reader) error) error {
	c.reads.Add(1)
	return c.Store.View(ctx, fn)
}

func open(t testing.TB) *counted {
	t.Helper()
	d := dispatch.New(dispatch.Options{})
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqldb.Options{App: "a", Dispatch: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &counted{Store: s}
}

const secret = "the-bootstrap-token"

func admin(t *testing.T, a *auth.Auth) *auth.Principal {
	t.Helper()
	p, err := a.Authenticate(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func create(t *testing.T, a *auth.Auth, by *auth.Principal, in auth.TokenRequest) auth.NewToken {
	t.Helper()
	n, err := a.Create(t.Context(), by, in)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantReason(t *testing.T, what string, err error, want protocol.Reason) {
	t.Helper()
	if got := protocol.ReasonOf(err); got != want {
		t.Errorf("%s: got %v, want reason %s", what, err, want)
	}
}

func TestRolesIncludeLowerRolesButNotWorker(t *testing.T) {
	contains := map[auth.Role][]auth.Role{
		auth.Viewer: {auth.Viewer}, auth.Writer: {auth.Viewer, auth.Writer},
		auth.Operator: {auth.Viewer, auth.Writer, auth.Operator},
		auth.Admin:    {auth.Viewer, auth.Writer, auth.Operator, auth.Admin}, auth.Worker: {auth.Worker},
		auth.Completer: {auth.Completer},
	}
	for _, have := range auth.Roles {
		for _, asked := range auth.Roles {
			p := auth.Principal{Roles: []auth.Role{have}}
			if got, want := p.Has(asked), slices.Contains(contains[have], asked); got != want {
				t.Errorf("%s has %s: got %v, want %v", have, asked, got, want)
			}
		}
	}
	if got := auth.Holders([]auth.Role{auth.Writer}); !slices.Equal(got, []auth.Role{
		auth.Writer, auth.Operator, auth.Admin,
	}) {
		t.Errorf("holders of writer: got %v", got)
	}
}

func TestATokenIsValidOnlyForItsRolesAndScope(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	n := create(t, a, admin(t, a), auth.TokenRequest{
		Name: "ci", Roles: []auth.Role{auth.Writer, auth.Worker}, Namespaces: []string{"blue"}, Queues: []string{"q1"},
		Group: "g",
	})
	if !strings.HasPrefix(n.Token, "sjn_"+n.ID+"_") || n.Status != "active" {
		t.Fatalf("token: %+v", n)
	}
	p, err := a.Authenticate(t.Context(), n.Token)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "ci" || p.TokenID != n.ID || p.Group != "g" || p.Method != auth.ByToken {
		t.Errorf("principal: %+v", p)
	}
	for _, c := range []struct {
		namespace string
		role      auth.Role
		want      bool
	}{
		{"blue", auth.Viewer, true},
		{"blue", auth.Worker, true},
		{"blue", auth.Operator, false},
		{"default", auth.Viewer, false},
	} {
		if got := p.Allows(c.namespace, c.role); got != c.want {
			t.Errorf("allows %s in %s: got %v", c.role, c.namespace, got)
		}
	}
	if err := p.CheckQueues("q1", ""); err != nil {
		t.Error(err)
	}
	wantReason(t, "another queue", p.CheckQueues("q1", "q2"), protocol.ReasonForbidden)
	wantReason(t, "no queue named", p.CheckQueues(""), protocol.ReasonForbidden)
}

func TestOnlyAHashOfTheSecretIsKept(t *testing.T) {
	s := open(t)
	a := auth.New(auth.Options{Store: s, Bootstrap: secret})
	n := create(t, a, admin(t, a), auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	var stored store.Token
	err := s.View(t.Context(), func(r store.Reader) (err error) {
		stored, err = r.Token(t.Context(), n.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256([]byte(strings.TrimPrefix(n.Token, "sjn_"+n.ID+"_")))
	if string(stored.Hash) != string(want[:]) {
		t.Errorf("hash: got %x, want %x", stored.Hash, want)
	}
}

func TestMalformedTokensAreRejectedAlike(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	n := create(t, a, admin(t, a), auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	_, unknown := a.Authenticate(t.Context(), "sjn_nobody_secret")
	for _, bearer := range []string{
		"x", "sjn_", "sjn__", "sjn_" + n.ID, "sjn_" + n.ID + "_", n.Token + "x", n.Token[:len(n.Token)-1], "sjn_../x_y",
		secret + "x",
		"sjn_" + strings.Repeat("a", 300) + "_x", "sjn_\x00_x",
	} {
		_, err := a.Authenticate(t.Context(), bearer)
		wantReason(t, bearer, err, protocol.ReasonUnauthorized)
		if err != nil && err.Error() != unknown.Error() {
			t.Errorf("%q: %v tells more than %v", bearer, err, unknown)
		}
	}
	_, err := a.Authenticate(t.Context(), "")
	wantReason(t, "none", err, protocol.ReasonUnauthorized)
	without := auth.New(auth.Options{Store: open(t)})
	_, err = without.Authenticate(t.Context(), "")
	wantReason(t, "no bootstrap token configured, none sent", err, protocol.ReasonUnauthorized)
}

func TestTokenLookupIsCachedAndInvalidatedByARevocation(t *testing.T) {
	s := open(t)
	a := auth.New(auth.Options{Store: s, Bootstrap: secret})
	by := admin(t, a)
	n := create(t, a, by, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	before := s.reads.Load()
	for range 20 {
		if _, err := a.Authenticate(t.Context(), n.Token); err != nil {
			t.Fatal(err)
		}
		_, _ = a.Authenticate(t.Context(), "sjn_nobody_secret")
	}
	if got := s.reads.Load() - before; got != 2 {
		t.Errorf("reads: got %d, want one for each id", got)
	}
	v, err := a.Revoke(t.Context(), by, n.ID, false)
	if err != nil || v.Status != "revoked" {
		t.Fatalf("revoke: %+v, %v", v, err)
	}
	_, err = a.Authenticate(t.Context(), n.Token)
	wantReason(t, "revoked", err, protocol.ReasonUnauthorized)
	second, err := a.Revoke(t.Context(), by, n.ID, false)
	if err != nil || second.RevokedAt != v.RevokedAt {
		t.Errorf("revoked again: got %+v, %v, want the first time %v", second, err, v.RevokedAt)
	}
	if _, err := a.Revoke(t.Context(), by, n.ID, true); err != nil {
		t.Fatal(err)
	}
	list, err := a.List(t.Context(), by)
	if err != nil || len(list) != 0 {
		t.Errorf("after it was dropped: got %v, %v", list, err)
	}
	_, err = a.Revoke(t.Context(), by, n.ID, false)
	wantReason(t, "dropped", err, protocol.ReasonTokenNotFound)
}

func TestATokenEndsAtItsTime(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	n := create(
		t, a, admin(t, a),
		auth.TokenRequest{Roles: []auth.Role{auth.Viewer}, ExpiresAt: history.At(time.Now().Add(-time.Minute))},
	)
	if n.Status != "expired" {
		t.Errorf("status: got %s", n.Status)
	}
	_, err := a.Authenticate(t.Context(), n.Token)
	wantReason(t, "expired", err, protocol.ReasonUnauthorized)
	n = create(t, a, admin(t, a), auth.TokenRequest{Roles: []auth.Role{auth.Viewer}, ExpiresIn: 3600})
	if left := time.Until(n.ExpiresAt.Time); left < 59*time.Minute || left > time.Hour {
		t.Errorf("expires in %v", left)
	}
	if _, err := a.Authenticate(t.Context(), n.Token); err != nil {
		t.Error(err)
	}
}

func TestCallerGrantsAndSeesOnlyItsNamespaces(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	root := admin(t, a)
	everywhere := create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	n := create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Admin}, Namespaces: []string{"blue"}})
	blue, err := a.Authenticate(t.Context(), n.Token)
	if err != nil {
		t.Fatal(err)
	}
	for _, spaces := range [][]string{nil, {"red"}, {"blue", "red"}} {
		_, err := a.Create(t.Context(), blue, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}, Namespaces: spaces})
		wantReason(t, "scope", err, protocol.ReasonForbidden)
	}
	mine := create(t, a, blue, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}, Namespaces: []string{"blue"}})
	list, err := a.List(t.Context(), blue)
	if err != nil || len(list) != 2 || list[0].ID != n.ID || list[1].ID != mine.ID {
		t.Errorf("list: got %+v, %v", list, err)
	}
	_, err = a.Revoke(t.Context(), blue, everywhere.ID, false)
	wantReason(t, "a token beyond its namespaces", err, protocol.ReasonTokenNotFound)
}

func TestWrongTokenRequestsAreRefusedByField(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	viewer := []auth.Role{auth.Viewer}
	for field, in := range map[string]auth.TokenRequest{
		"roles":              {},
		"roles.1":            {Roles: []auth.Role{auth.Viewer, "root"}},
		"expires_in_seconds": {Roles: viewer, ExpiresIn: -1},
		"name":               {Roles: viewer, Name: strings.Repeat("n", 256)},
		"queues.0":           {Roles: viewer, Queues: []string{""}},
		"queues":             {Roles: viewer, Queues: []string{"q1"}},
		"group":              {Roles: []auth.Role{auth.Viewer, auth.Writer, auth.Operator, auth.Admin}, Group: "g"},
		"namespaces":         {Roles: []auth.Role{auth.Completer}},
		"namespaces.0":       {Roles: viewer, Namespaces: []string{strings.Repeat("n", 129)}},
	} {
		_, err := a.Create(t.Context(), admin(t, a), in)
		e, ok := err.(*protocol.Error)
		if !ok || e.Fields[field] == nil {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestMakingAndRevokingTokensIsAudited(t *testing.T) {
	s := open(t)
	a := auth.New(auth.Options{Store: s, Bootstrap: secret})
	n := create(
		t, a, admin(t, a), auth.TokenRequest{Name: "ci", Roles: []auth.Role{auth.Viewer}, Namespaces: []string{"default"}},
	)
	if _, err := a.Revoke(t.Context(), admin(t, a), n.ID, false); err != nil {
		t.Fatal(err)
	}
	var list []store.Audit
	err := s.View(t.Context(), func(r store.Reader) (err error) {
		list, err = r.Audits(t.Context(), "default", false, 10)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range list {
		actions = append(actions, e.Identity+" "+e.Action+" "+e.Target)
	}
	slices.Sort(actions)
	if want := []string{"bootstrap token.create " + n.ID, "bootstrap token.revoke " + n.ID}; !slices.Equal(actions, want) {
		t.Errorf("audit: got %q, want %q", actions, want)
	}
}

// Every caller that may create a token with these roles may change the roles of the token. The secret does not change,
// and each change has an audit record.
func TestOnlyCallersThatSeeATokenChangeItsRoles(t *testing.T) {
	s := open(t)
	a := auth.New(auth.Options{Store: s, Bootstrap: secret})
	root := admin(t, a)
	n := create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Admin}, Namespaces: []string{"red"}})
	set := func(by *auth.Principal, id string, roles ...auth.Role) error {
		_, err := a.SetRoles(t.Context(), by, id, auth.RolesRequest{Roles: roles})
		return err
	}
	for _, want := range []auth.Role{auth.Viewer, auth.Writer, auth.Writer} {
		if err := set(root, n.ID, want); err != nil {
			t.Fatal(err)
		}
		p, err := a.Authenticate(t.Context(), n.Token)
		if err != nil || !slices.Equal(p.Roles, []auth.Role{want}) || !slices.Equal(p.Namespaces, []string{"red"}) {
			t.Errorf("got %+v %v, want %v in red", p, err, want)
		}
	}
	blue, err := a.Authenticate(
		t.Context(),
		create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Admin}, Namespaces: []string{"blue"}}).Token,
	)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, "of another's namespace", set(blue, n.ID, auth.Admin), protocol.ReasonTokenNotFound)
	wantReason(t, "of no token", set(root, "nobody", auth.Admin), protocol.ReasonTokenNotFound)
	wantReason(t, "none", set(root, n.ID), protocol.ReasonValidation)
	restricted := create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Worker}, Queues: []string{"q"}})
	wantReason(t, "of a restricted token", set(root, restricted.ID, auth.Viewer), protocol.ReasonValidation)
	if err := set(root, restricted.ID, auth.Worker, auth.Viewer); err != nil {
		t.Error(err)
	}
	wantReason(t, "unknown", set(root, n.ID, "king"), protocol.ReasonValidation)
	wantReason(t, "twice", set(root, n.ID, auth.Viewer, auth.Viewer), protocol.ReasonValidation)
	if p, err := a.Authenticate(t.Context(), n.Token); err != nil || !p.Has(auth.Writer) {
		t.Errorf("refusals changed it: %+v %v", p, err)
	}
	var list []store.Audit
	if err := s.View(t.Context(), func(r store.Reader) (err error) {
		list, err = r.Audits(t.Context(), "red", false, 10)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		if e.Action == "token.roles" {
			names = append(names, e.Identity+" "+e.Target+" "+e.Detail)
		}
	}
	slices.Sort(names)
	if want := []string{"bootstrap " + n.ID + " viewer", "bootstrap " + n.ID + " writer"}; !slices.Equal(names, want) {
		t.Errorf("audit: got %q, want %q", names, want)
	}
}

func TestTheBootstrapTokenIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if got, made, err := auth.Bootstrap(dir, " given \n"); got != "given" || made || err != nil {
		t.Errorf("configured: got %q, %v, %v", got, made, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a configured token wrote to %s", dir)
	}
	first, made, err := auth.Bootstrap(dir, "")
	if err != nil || !made || !strings.HasPrefix(first, "sjn_") {
		t.Fatalf("first start: got %q, %v, %v", first, made, err)
	}
	info, err := os.Stat(filepath.Join(dir, process.TokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v", info.Mode(), err)
	}
	second, made, err := auth.Bootstrap(dir, "")
	if second != first || made || err != nil {
		t.Errorf("second start: got %q, %v, %v", second, made, err)
	}
	if left, _ := fs.Glob(os.DirFS(dir), "*"); !slices.Equal(left, []string{process.TokenFile}) {
		t.Errorf("left behind: %v", left)
	}
	a := auth.New(auth.Options{Store: open(t), Bootstrap: first})
	p, err := a.Authenticate(t.Context(), first)
	if err != nil || !slices.Equal(p.Roles, auth.Roles) {
		t.Errorf("principal: %+v, %v", p, err)
	}
	if err := os.WriteFile(filepath.Join(dir, process.TokenFile), []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := auth.Bootstrap(dir, ""); err == nil {
		t.Errorf("an empty file gave %q", got)
	}
}

// A guessed token causes one database read for each token ID, and evicts no valid token from the cache.
func TestAnUnknownTokenIsLookedUpOnceUntilTokensChange(t *testing.T) {
	s := open(t)
	a := auth.New(auth.Options{Store: s, Bootstrap: secret, CacheFor: time.Hour})
	n := create(t, a, admin(t, a), auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	if _, err := a.Authenticate(t.Context(), n.Token); err != nil {
		t.Fatal(err)
	}
	before := s.reads.Load()
	for range 100 {
		_, err := a.Authenticate(t.Context(), "sjn_aaaa_secret")
		wantReason(t, "an unknown token", err, protocol.ReasonUnauthorized)
	}
	if got := s.reads.Load() - before; got != 1 {
		t.Errorf("100 sign-ins with one unknown token read %d times, want 1", got)
	}
	for i := range 10_100 {
		_, err := a.Authenticate(t.Context(), fmt.Sprintf("sjn_b%d_secret", i))
		wantReason(t, "an unknown token", err, protocol.ReasonUnauthorized)
	}
	before = s.reads.Load()
	if _, err := a.Authenticate(t.Context(), n.Token); err != nil || s.reads.Load() != before {
		t.Errorf("a valid token after 10,100 guesses: %v, %d reads, want none", err, s.reads.Load()-before)
	}
	// An unknown ID is cached only until a token is created, here or at another app.
	_, err := a.Authenticate(t.Context(), "sjn_cccc_secret")
	wantReason(t, "a token that does not exist yet", err, protocol.ReasonUnauthorized)
	hash := sha256.Sum256([]byte("secret"))
	if _, err := s.Commit(t.Context(), store.Transaction{
		Needs: store.Keys{Tokens: []string{"cccc"}},
		Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
			return store.Writes{Tokens: []store.Token{{
				ID: "cccc", Hash: hash[:], Roles: []string{"viewer"}, CreatedAt: history.At(now),
			}}}, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	a.Changed(t.Context(), []string{"cccc"}, false)
	if _, err := a.Authenticate(t.Context(), "sjn_cccc_secret"); err != nil {
		t.Errorf("a token that was created after it had been looked up: %v", err)
	}
}
