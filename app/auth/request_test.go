package auth_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func request(method string, set map[string]string) *http.Request {
	r := httptest.NewRequest(method, "http://app.example:7700/api/x", nil)
	r.RemoteAddr = "127.0.0.1:5000"
	for name, v := range set {
		switch name {
		case "Host":
			r.Host = v
		case "From":
			r.RemoteAddr = v
		default:
			r.Header.Set(name, v)
		}
	}
	return r
}

func TestWithoutAuthenticationOnlyLocalPagesAreServed(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), None: true})
	for _, c := range []struct {
		name string
		set  map[string]string
		want protocol.Reason
	}{
		{"curl", map[string]string{"Host": "localhost:7700"}, ""},
		{"curl by address", map[string]string{"Host": "127.0.0.1:7700"}, ""},
		{"IPv6", map[string]string{"Host": "[::1]:7700", "From": "[::1]:5000"}, ""},
		{"a pipe in a test", map[string]string{"Host": "localhost", "From": "pipe"}, ""},
		{"its own page", map[string]string{"Host": "localhost:7700", "Origin": "http://localhost:7700"}, ""},
		{"another machine", map[string]string{"Host": "localhost:7700", "From": "10.0.0.9:5000"}, protocol.ReasonForbidden},
		{"a name rebound to loopback", map[string]string{"Host": "evil.example:7700"}, protocol.ReasonForbidden},
		{"no host", map[string]string{"Host": ""}, protocol.ReasonForbidden},
		{
			"a page of another site",
			map[string]string{"Host": "localhost:7700", "Origin": "https://evil.example"},
			protocol.ReasonForbidden,
		},
		{
			"a page on another port",
			map[string]string{"Host": "localhost:7700", "Origin": "http://localhost:9999"},
			protocol.ReasonForbidden,
		},
		{"a sandboxed page", map[string]string{"Host": "localhost:7700", "Origin": "null"}, protocol.ReasonForbidden},
		{
			"a form of another site",
			map[string]string{"Host": "localhost:7700", "Sec-Fetch-Site": "cross-site"},
			protocol.ReasonForbidden,
		},
	} {
		p, err := a.Request(request(http.MethodPost, c.set))
		wantReason(t, c.name, err, c.want)
		if err == nil && !p.Has(auth.Admin) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

func TestABearerTokenIsReadOnlyFromItsHeader(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	for header, want := range map[string]protocol.Reason{
		"Bearer " + secret: "", "bearer  " + secret: "", "Basic " + secret: protocol.ReasonUnauthorized,
		secret:   protocol.ReasonUnauthorized,
		"Bearer": protocol.ReasonUnauthorized,
	} {
		_, err := a.Request(request(http.MethodGet, map[string]string{"Authorization": header}))
		wantReason(t, header, err, want)
	}
	_, err := a.Request(request(http.MethodGet, nil))
	wantReason(t, "nothing", err, protocol.ReasonUnauthorized)
	// A program on another machine may use a token, whatever host name it uses for this machine.
	_, err = a.Request(request(
		http.MethodPost, map[string]string{"Authorization": "Bearer " + secret, "From": "10.0.0.9:1", "Origin": "https://x"},
	))
	wantReason(t, "from afar", err, "")
}

// signIn returns the cookie of a sign-in with a token.
func signIn(t *testing.T, a *auth.Auth, token string, set map[string]string) *http.Cookie {
	t.Helper()
	w := httptest.NewRecorder()
	if _, err := a.SignIn(w, request(http.MethodPost, set), token); err != nil {
		t.Fatal(err)
	}
	cookies := w.Result().Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies: %v", cookies)
	}
	return cookies[0]
}

func TestASignInGivesACookieThatIsNoToken(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	c := signIn(t, a, secret, nil)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" ||
		strings.Contains(c.Value, secret) {
		t.Errorf("cookie: %+v", c)
	}
	if c := signIn(t, a, secret, map[string]string{"X-Forwarded-Proto": "https"}); !c.Secure {
		t.Error("the cookie of a request over TLS is not Secure")
	}
	for prefix, want := range map[string]string{"/team/sojourn": "/team/sojourn", "/a/": "/a", "/": "/", "evil": "/"} {
		set := map[string]string{"X-Forwarded-Prefix": prefix}
		if c := signIn(t, a, secret, set); c.Path != want {
			t.Errorf("below %s: the cookie is for %s, want %s", prefix, c.Path, want)
		}
		w := httptest.NewRecorder()
		if err := a.SignOut(w, request(http.MethodPost, set)); err != nil {
			t.Fatal(err)
		}
		if gone := w.Result().Cookies(); gone[0].Path != want || gone[0].MaxAge >= 0 {
			t.Errorf("below %s: signed out by %v", prefix, gone)
		}
	}
	with := func(value string, set map[string]string) *http.Request {
		r := request(http.MethodPost, set)
		r.AddCookie(&http.Cookie{Name: auth.Cookie, Value: value})
		return r
	}
	p, err := a.Request(with(c.Value, nil))
	if err != nil || p.Method != auth.ByCookie || !p.Has(auth.Admin, auth.Worker) {
		t.Fatalf("principal: %+v, %v", p, err)
	}
	_, err = a.Request(with(c.Value, map[string]string{"Origin": "https://evil.example"}))
	wantReason(t, "another origin", err, protocol.ReasonForbidden)
	for _, forged := range []string{
		"", ".", c.Value + "x", c.Value[1:], strings.Replace(c.Value, "-", "abc", 1), "-.99999999999.x.", "a.b.c.d.e",
	} {
		_, err := a.Request(with(forged, nil))
		wantReason(t, forged, err, protocol.ReasonUnauthorized)
	}
	same := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	if _, err := same.Request(with(c.Value, nil)); err != nil {
		t.Errorf("another app of the deployment: %v", err)
	}
	other := auth.New(auth.Options{Store: open(t), Bootstrap: "another"})
	_, err = other.Request(with(c.Value, nil))
	wantReason(t, "another deployment", err, protocol.ReasonUnauthorized)
	w := httptest.NewRecorder()
	if err := a.SignOut(w, with(c.Value, nil)); err != nil {
		t.Fatal(err)
	}
	if gone := w.Result().Cookies(); len(gone) != 1 || gone[0].MaxAge >= 0 {
		t.Errorf("signed out: %v", gone)
	}
	_, err = a.Request(with(c.Value, nil))
	wantReason(t, "signed out", err, protocol.ReasonUnauthorized)
}

func TestACookieEndsWithItsToken(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	n := create(t, a, admin(t, a), auth.TokenRequest{Name: "eve", Roles: []auth.Role{auth.Viewer}})
	r := request(http.MethodGet, nil)
	r.AddCookie(signIn(t, a, n.Token, nil))
	p, err := a.Request(r)
	if err != nil || p.Name != "eve" || p.Has(auth.Writer) {
		t.Fatalf("principal: %+v, %v", p, err)
	}
	if _, err := a.Revoke(t.Context(), admin(t, a), n.ID, false); err != nil {
		t.Fatal(err)
	}
	_, err = a.Request(r)
	wantReason(t, "its token was revoked", err, protocol.ReasonUnauthorized)
	w := httptest.NewRecorder()
	_, err = a.SignIn(w, request(http.MethodPost, nil), n.Token)
	wantReason(t, "sign in with it", err, protocol.ReasonUnauthorized)
	if len(w.Result().Cookies()) != 0 {
		t.Error("a refused sign-in set a cookie")
	}
}

func TestANamespaceIsTheOneOfTheHeaderThenOfTheQuery(t *testing.T) {
	blue := &auth.Principal{Namespaces: []string{"blue"}}
	for _, c := range []struct {
		header, query string
		who           *auth.Principal
		want          string
		reason        protocol.Reason
	}{
		{"", "", auth.Local(), "default", ""},
		{" Blue ", "red", auth.Local(), "blue", ""},
		{"", "red", auth.Local(), "red", ""},
		{"blue", "", blue, "blue", ""},
		{"", "", blue, "", protocol.ReasonForbidden},
		{"a/b", "", auth.Local(), "", protocol.ReasonValidation},
		{strings.Repeat("n", 129), "", auth.Local(), "", protocol.ReasonValidation},
	} {
		r := request(http.MethodGet, map[string]string{"X-Namespace": c.header})
		r.URL.RawQuery = "namespace=" + c.query
		got, err := auth.Namespace(r, c.who)
		wantReason(t, c.header+"|"+c.query, err, c.reason)
		if got != c.want {
			t.Errorf("%q, %q: got %q, want %q", c.header, c.query, got, c.want)
		}
	}
}
