package auth

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the networks of reverse proxies whose X-Forwarded-For header is trusted.
type Proxies []netip.Prefix

func (p Proxies) trust(a netip.Addr) bool {
	for _, network := range p {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// Address returns the client address of a request: the peer's address or, if the peer is a trusted proxy, the last
// address in X-Forwarded-For that is not a trusted proxy. Earlier addresses may be forged by the client and are
// ignored.
func (a *Auth) Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host // address of a test, or a socket without addresses
	}
	at = at.Unmap().WithZone("")
	if !a.opt.TrustedProxies.trust(at) {
		return at.String()
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break // use the last valid address
		}
		at = hop.Unmap().WithZone("")
		if !a.opt.TrustedProxies.trust(at) {
			break
		}
	}
	return at.String()
}
