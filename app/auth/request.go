package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Cookie is the name of the dashboard's cookie.
const Cookie = "sojourn_session"

// Request says who makes a request: by its Authorization header, else by the dashboard's cookie. When authentication is off, the request must come
// from this machine, name it as its host and come from none but its own pages: otherwise any page in a browser here could speak for the user.
func (a *Auth) Request(r *http.Request) (*Principal, error) {
	if a.opt.None {
		if err := loopback(r); err != nil {
			return nil, err
		}
		return Local(), SameOrigin(r)
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, protocol.Refuse(protocol.ReasonUnauthorized, "only Authorization: Bearer TOKEN is understood")
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

// SameOrigin refuses a request that a page of another origin made in a browser, which sends cookies along and passes every loopback check.
func SameOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		if site == "" || site == "same-origin" || site == "none" || r.Method == http.MethodGet || r.Method == http.MethodHead {
			return nil
		}
		return protocol.Refuse(protocol.ReasonForbidden, "requests of other sites are refused")
	}
	if u, err := url.Parse(origin); err == nil && strings.EqualFold(u.Host, r.Host) && u.Host != "" {
		return nil
	}
	return protocol.Refuse(protocol.ReasonForbidden, "requests of the origin %.100q are refused", origin)
}

// loopback refuses requests from other machines, and those sent to this one under another name, as a page does that rebinds its own name to
// 127.0.0.1.
func loopback(r *http.Request) error {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if ip := net.ParseIP(strings.Split(host, "%")[0]); ip != nil && !ip.IsLoopback() {
			return protocol.Refuse(protocol.ReasonForbidden, "authentication is off, so only this machine is served")
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
	return protocol.Refuse(protocol.ReasonForbidden, "authentication is off, so the host must be localhost, not %.100q", r.Host)
}

// SignIn takes a token once and sets the cookie that stands for it from then on.
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
	body := id + "." + strconv.FormatInt(until.Unix(), 10) + "." + text(10)
	http.SetCookie(w, a.cookie(r, body+"."+a.sign(body), until))
	return p, nil
}

// SignOut ends the sign-in of the request, if it has one.
func (a *Auth) SignOut(w http.ResponseWriter, r *http.Request) error {
	if err := SameOrigin(r); err != nil {
		return err
	}
	if c, err := r.Cookie(Cookie); err == nil {
		if _, until, ok := a.open(c.Value); ok {
			a.mu.Lock()
			for v, end := range a.signed {
				if time.Now().After(end) {
					delete(a.signed, v)
				}
			}
			a.signed[c.Value] = until
			a.mu.Unlock()
		}
	}
	gone := a.cookie(r, "", time.Unix(1, 0))
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	return nil
}

func (a *Auth) cookie(r *http.Request, value string, until time.Time) *http.Cookie {
	return &http.Cookie{
		Name: Cookie, Value: value, Path: "/", Expires: until, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}

// sign seals what a cookie says. It holds no token, so whoever reads it cannot use it elsewhere or longer.
func (a *Auth) sign(body string) string {
	m := hmac.New(sha256.New, a.cookieKey[:])
	m.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// open reads a cookie that this deployment made and whose time is not over.
func (a *Auth) open(value string) (id string, until time.Time, ok bool) {
	i := strings.LastIndexByte(value, '.')
	if i < 0 || !hmac.Equal([]byte(a.sign(value[:i])), []byte(value[i+1:])) {
		return "", time.Time{}, false
	}
	parts := strings.Split(value[:i], ".")
	if len(parts) != 3 {
		return "", time.Time{}, false
	}
	sec, err := strconv.ParseInt(parts[1], 10, 64)
	until = time.Unix(sec, 0)
	return parts[0], until, err == nil && time.Now().Before(until)
}

func (a *Auth) signedIn(r *http.Request, value string) (*Principal, error) {
	over := protocol.Refuse(protocol.ReasonUnauthorized, "sign in: this sign-in is over")
	id, _, ok := a.open(value)
	if !ok {
		return nil, over
	}
	a.mu.Lock()
	_, out := a.signed[value]
	a.mu.Unlock()
	if out {
		return nil, over
	}
	if id == "-" {
		return a.root(ByCookie), nil
	}
	t, found, err := a.lookup(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, over
	}
	return good(t, ByCookie, time.Now())
}
