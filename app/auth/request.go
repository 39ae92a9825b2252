package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Cookie is the name of the dashboard's cookie.
const Cookie = "sojourn_session"

// Request returns the caller of a request: from the Authorization header, else from the dashboard's cookie. With
// authentication off, the request must come from this machine, name it as its host, and have no foreign origin:
// otherwise any web page in a local browser could act for the user.
func (a *Auth) Request(r *http.Request) (*Principal, error) {
	if a.opt.None {
		return Local(), a.CheckOrigin(r)
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, protocol.Refuse(
				protocol.ReasonUnauthorized, "unsupported Authorization header; use Authorization: Bearer TOKEN",
			)
		}
		return a.Authenticate(r.Context(), strings.TrimSpace(token))
	}
	c, err := r.Cookie(Cookie)
	if err != nil {
		return a.Authenticate(r.Context(), "")
	}
	p, err := a.signedIn(r, c.Value)
	if err != nil {
		return nil, err
	}
	return p, SameOrigin(r)
}

// CheckOrigin rejects requests by their origin if authentication is off; see Request. Sockets call it before the
// upgrade, which stops DNS rebinding: a web page cannot poll tasks through a name that it points at this machine. With
// authentication on, CheckOrigin accepts every request.
func (a *Auth) CheckOrigin(r *http.Request) error {
	if !a.opt.None {
		return nil
	}
	if err := loopback(r); err != nil {
		return err
	}
	return SameOrigin(r)
}

// SameOrigin refuses a request that a page of another origin made in a browser, which sends cookies along and passes
// every loopback check.
func SameOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		if site == "" || site == "same-origin" || site == "none" || r.Method == http.MethodGet ||
			r.Method == http.MethodHead {
			return nil
		}
		return protocol.Refuse(protocol.ReasonForbidden, "cross-site requests are rejected")
	}
	if u, err := url.Parse(origin); err == nil && strings.EqualFold(u.Host, r.Host) && u.Host != "" {
		return nil
	}
	return protocol.Refuse(protocol.ReasonForbidden, "requests from origin %.100q are rejected", origin)
}

// loopback rejects requests from other machines, and requests with another host name, as in DNS rebinding.
func loopback(r *http.Request) error {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if ip := net.ParseIP(strings.Split(host, "%")[0]); ip != nil && !ip.IsLoopback() {
			return protocol.Refuse(
				protocol.ReasonForbidden, "authentication is off, so only requests from this machine are accepted",
			)
		}
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	if ip := net.ParseIP(name); strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback() {
		return nil
	}
	return protocol.Refuse(
		protocol.ReasonForbidden, "authentication is off, so the Host header must be localhost, not %.100q", r.Host,
	)
}

// SignIn authenticates a token once and sets the cookie that replaces the token from then on.
func (a *Auth) SignIn(w http.ResponseWriter, r *http.Request, token string) (*Principal, error) {
	if a.opt.None {
		return a.Request(r)
	}
	if err := SameOrigin(r); err != nil {
		return nil, err
	}
	p, err := a.Authenticate(r.Context(), strings.TrimSpace(token))
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(a.opt.CookieFor)
	id := p.TokenID
	if id == "" {
		id = "-" // the bootstrap token
	}
	body := id + "." + strconv.FormatInt(until.Unix(), 10) + "." + randomText(10)
	http.SetCookie(w, a.cookie(r, body+"."+a.sign(body), until))
	return p, nil
}

// SignOut revokes the sign-in of the request's cookie, if there is one, on all apps, and deletes the cookie.
func (a *Auth) SignOut(w http.ResponseWriter, r *http.Request) error {
	if err := SameOrigin(r); err != nil {
		return err
	}
	if c, err := r.Cookie(Cookie); err == nil {
		if in, ok := a.openCookie(c.Value); ok {
			if err := a.endSignIn(r.Context(), in); err != nil {
				return err
			}
		}
	}
	gone := a.cookie(r, "", time.Unix(1, 0))
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	if gone.Path != "/" { // also delete the cookie of a build without base paths
		gone.Path = "/"
		http.SetCookie(w, gone)
	}
	return nil
}

// signedOut is the prefix of the row IDs that record a sign-out before the cookie expired. Such a row is a token
// without rights, is not listed, and is deleted when the cookie would have expired. No real token has such an ID.
const signedOut = "signed-out."

// endSignIn stores the end of a sign-in, and deletes the stored ends of sign-ins that have expired.
func (a *Auth) endSignIn(ctx context.Context, in signIn) error {
	var all []store.Token
	err := a.opt.Store.View(ctx, func(r store.Reader) (err error) {
		all, err = r.Tokens(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var past []string
	for _, t := range all {
		if strings.HasPrefix(t.ID, signedOut) && time.Now().After(t.ExpiresAt.Time) {
			past = append(past, t.ID)
		}
	}
	_, err = a.opt.Store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Tokens: append([]string{in.id}, past...)},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			w := store.Writes{DropTokens: past}
			if rows.Token(in.id) == nil {
				w.Tokens = []store.Token{{
					ID: in.id, Name: "sign-in of " + in.token, CreatedAt: history.At(now), ExpiresAt: history.At(in.until),
					RevokedAt: history.At(now),
				}}
			}
			return w, nil
		},
	})
	a.Changed(ctx, []string{in.id}, false)
	return err
}

// cookiePath returns the path below which browsers reach the app, so that other services on the host do not get the
// cookie. The app sets the header from its base path; a proxy that strips the path must set it.
func cookiePath(r *http.Request) string {
	if prefix := strings.TrimRight(r.Header.Get("X-Forwarded-Prefix"), "/"); strings.HasPrefix(prefix, "/") {
		return prefix
	}
	return "/"
}

func (a *Auth) cookie(r *http.Request, value string, until time.Time) *http.Cookie {
	return &http.Cookie{
		Name: Cookie, Value: value, Path: cookiePath(r), Expires: until, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}

// sign returns the HMAC of a cookie's body. The cookie contains no token, so it cannot be used elsewhere or for longer.
func (a *Auth) sign(body string) string {
	m := hmac.New(sha256.New, a.cookieKey[:])
	m.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// signIn is the content of a cookie.
type signIn struct {
	id    string // ID of the row that records the sign-out
	token string // ID of the token; "-" for the bootstrap token
	until time.Time
}

// openCookie reads a cookie that was created by this deployment and has not expired.
func (a *Auth) openCookie(value string) (in signIn, ok bool) {
	i := strings.LastIndexByte(value, '.')
	if i < 0 || !hmac.Equal([]byte(a.sign(value[:i])), []byte(value[i+1:])) {
		return in, false
	}
	parts := strings.Split(value[:i], ".")
	if len(parts) != 3 {
		return in, false
	}
	sec, err := strconv.ParseInt(parts[1], 10, 64)
	in = signIn{id: signedOut + parts[2], token: parts[0], until: time.Unix(sec, 0)}
	return in, err == nil && time.Now().Before(in.until)
}

func sessionEnded() error {
	return protocol.Refuse(protocol.ReasonUnauthorized, "sign in again: the session expired")
}

func (a *Auth) signedIn(r *http.Request, value string) (*Principal, error) {
	in, ok := a.openCookie(value)
	if !ok {
		return nil, sessionEnded()
	}
	if _, out, err := a.lookup(r.Context(), in.id); err != nil || out {
		return nil, cmp.Or(err, sessionEnded())
	}
	if in.token == "-" {
		p := a.bootstrapPrincipal(ByCookie)
		p.signIn = in.id
		return p, nil
	}
	t, found, err := a.lookup(r.Context(), in.token)
	if err != nil || !found {
		return nil, cmp.Or(err, sessionEnded())
	}
	p, err := principalOf(t, ByCookie, time.Now())
	if err == nil {
		p.signIn = in.id
		a.RecordUse(p)
	}
	return p, err
}
