package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Resolver resolves names; [net.Resolver] implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Refused reports that connecting to an address is not allowed, as a sentence for the caller.
type Refused struct {
	Host string
	Port uint16
	Why  string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("the worker denied the connection to %s: %s", hostPort(r.Host, r.Port), r.Why)
}

// Entry is an entry of the allow list: a name or an address, at one port or at all ports, or a range of addresses. It
// may allow addresses that are not public.
type Entry struct {
	name   string
	prefix netip.Prefix // a single address is a prefix of full length
	port   uint16       // 0 for any
}

// ParseEntry reads HOST, HOST:PORT or CIDR.
func ParseEntry(text string) (Entry, error) {
	bad := func(why string) (Entry, error) {
		return Entry{}, fmt.Errorf("%q is not a HOST[:PORT] or CIDR: %s", text, why)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		if p.Addr().Is4In6() {
			return bad("write an IPv4 address without the IPv6 prefix")
		}
		return Entry{prefix: p.Masked()}, nil
	}
	var e Entry
	host := text
	if _, err := netip.ParseAddr(text); err != nil && strings.Contains(text, ":") {
		h, port, err := net.SplitHostPort(text)
		switch {
		case err == nil:
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return bad("the port must be a number from 1 to 65535")
			}
			host, e.port = h, uint16(n)
		case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
			host = strings.Trim(text, "[]")
		default:
			return bad("put an IPv6 address with a port in brackets, as in [::1]:80")
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return bad("an address must not have a zone")
		}
		a = a.Unmap()
		e.prefix = netip.PrefixFrom(a, a.BitLen())
		return e, nil
	}
	if e.name = canonical(host); e.name == "" || strings.ContainsAny(e.name, "/*%@?#[]: \t") {
		return bad("the host must be a name or an address")
	}
	if _, is, wrong := literal(e.name); is || wrong {
		return bad("write the address with four numbers")
	}
	return e, nil
}

// covers reports whether the entry allows an address of a kind to which host resolves.
func (e Entry) covers(host string, a netip.AddrPort, k kind) bool {
	if e.port != 0 && e.port != a.Port() {
		return false
	}
	if e.name != "" {
		return e.name == host && k.byName(a.Addr())
	}
	return e.prefix.Contains(a.Addr())
}

// rule decides which addresses are allowed.
type rule struct {
	allow    []Entry
	closed   []endpoint // refused even if the allow list contains them: the app, and the proxy
	resolver Resolver
	machine  func() ([]netip.Addr, error) // the machine's own addresses

	mu       sync.Mutex // guards the fields below
	resolved map[string]lookup
}

// endpoint is an address that is never allowed.
type endpoint struct {
	host  string
	port  uint16
	owner string // for messages, such as "that is the app's address"
}

// lookup is the cached result of resolving a closed name, and its time.
type lookup struct {
	addrs []netip.Addr
	at    time.Time
}

const (
	resolveTime = 5 * time.Second
	resolvedTTL = 10 * time.Second // time for which an allowed name is not resolved again
)

// parseEndpoint reads a URL or host:port.
func parseEndpoint(text, what string) (endpoint, error) {
	e := endpoint{owner: what}
	hostport := text
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		hostport = u.Host
		if u.Port() == "" {
			port := "80"
			if u.Scheme == "https" || u.Scheme == "wss" {
				port = "443"
			}
			hostport = net.JoinHostPort(u.Hostname(), port)
		}
	}
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return e, fmt.Errorf("address %q: %w", text, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return e, fmt.Errorf("address %q: the port: %w", text, err)
	}
	if e.host, e.port = canonical(host), uint16(n); e.host == "" {
		e.host = "0.0.0.0" // a listener on all addresses of this machine
	}
	return e, nil
}

// check resolves host and returns the addresses that are allowed for it and port. The caller must connect to these
// addresses, since a second lookup may return others. check refuses the name if one of its addresses is refused.
func (r *rule) check(ctx context.Context, name string, port uint16) ([]netip.AddrPort, error) {
	host := canonical(name)
	refuse := func(why string) error { return &Refused{Host: name, Port: port, Why: why} }
	var addrs []netip.Addr
	a, is, bad := literal(host)
	switch {
	case host == "" || bad:
		return nil, refuse("the host is neither a name nor an address")
	case is:
		addrs = []netip.Addr{a}
	default:
		within, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		var err error
		if addrs, err = r.resolver.LookupNetIP(within, "ip", host); err != nil {
			return nil, fmt.Errorf("look up %s: %w", host, err)
		}
		if len(addrs) == 0 {
			return nil, fmt.Errorf("look up %s: %w", host, errors.New("it has no address"))
		}
	}
	machine, err := r.machine()
	if err != nil {
		return nil, refuse("the worker could not list the addresses of its machine")
	}
	ours := func(a netip.Addr) bool {
		k := kindOf(a)
		return k == loopback || k == unspecified || slices.Contains(machine, a)
	}
	all := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		k := kindOf(a)
		a = a.Unmap()
		to := netip.AddrPortFrom(a, port)
		where := "it resolves to " + a.String() + ", "
		if is && a.String() == host {
			where = "it is "
		}
		if what := r.isClosed(ctx, to, ours); what != "" {
			return nil, refuse("this is " + what + " address, which no setting allows")
		}
		if k == public && slices.Contains(machine, a) {
			k = own
		}
		if k != public && !slices.ContainsFunc(r.allow, func(e Entry) bool { return e.covers(host, to, k) }) {
			return nil, refuse(where + string(k) + " address that egress-allow does not list")
		}
		all[i] = to
	}
	return all, nil
}

// isClosed returns the owner of a closed address, or "" if the address is not closed. An app on this machine is closed
// at all addresses of the machine, since it may listen on all of them. An app whose name cannot be resolved is closed
// at its port on all addresses.
func (r *rule) isClosed(ctx context.Context, to netip.AddrPort, ours func(netip.Addr) bool) string {
	for _, e := range r.closed {
		if e.port != to.Port() {
			continue
		}
		addrs := r.addresses(ctx, e.host)
		if len(addrs) == 0 || slices.Contains(addrs, to.Addr()) || ours(to.Addr()) && slices.ContainsFunc(addrs, ours) {
			return e.owner
		}
	}
	return ""
}

// addresses returns the addresses of a closed host; the last known ones if it cannot be resolved now.
func (r *rule) addresses(ctx context.Context, host string) []netip.Addr {
	if a, is, _ := literal(host); is {
		return []netip.Addr{a.Unmap()}
	}
	r.mu.Lock()
	known, there := r.resolved[host]
	r.mu.Unlock()
	if there && time.Since(known.at) < resolvedTTL {
		return known.addrs
	}
	within, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	found, err := r.resolver.LookupNetIP(within, "ip", host)
	if err != nil || len(found) == 0 {
		return known.addrs
	}
	fresh := lookup{at: time.Now(), addrs: known.addrs}
	for _, a := range found {
		if a = a.Unmap(); !slices.Contains(fresh.addrs, a) { // after a change of DNS, the old address stays closed
			fresh.addrs = append(slices.Clip(fresh.addrs), a)
		}
	}
	if n := len(fresh.addrs); n > 64 {
		fresh.addrs = fresh.addrs[n-64:]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resolved[host] = fresh
	return fresh.addrs
}

// ownAddresses returns the addresses of the machine's interfaces.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs, nil
}

// canonical returns a host in the form in which hosts are compared.
func canonical(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(int(port)))
}
