package auth_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
)

func TestOnlyATrustedProxySetsTheCallersAddress(t *testing.T) {
	a := auth.New(auth.Options{TrustedProxies: auth.Proxies{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/64"),
	}})
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"a peer that is no proxy", "192.0.2.1:1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"no header", "10.0.0.1:1", nil, "10.0.0.1"},
		{"one proxy", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"what the client wrote itself", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"two proxies", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.7, 10.9.9.9"}, "198.51.100.7"},
		{"two headers", "10.0.0.1:1", []string{"203.0.113.9", "198.51.100.7"}, "198.51.100.7"},
		{"only proxies", "10.0.0.1:1", []string{"10.1.1.1"}, "10.1.1.1"},
		{"no address", "10.0.0.1:1", []string{"198.51.100.7, unknown"}, "10.0.0.1"},
		{"no address behind a proxy", "10.0.0.1:1", []string{"unknown, 10.1.1.1"}, "10.1.1.1"},
		{"IPv6", "[fd00::1]:1", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv4 as IPv6", "[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"no address of the peer", "@", []string{"198.51.100.7"}, "@"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if got := a.Address(r); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
