package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

// kind is the special purpose of an address; empty for a public address.
type kind string

const (
	public      kind = ""
	loopback    kind = "a loopback"
	private     kind = "a private"
	uniqueLocal kind = "a unique local"
	shared      kind = "a shared" // carrier-grade NAT
	linkLocal   kind = "a link-local"
	metadata    kind = "a metadata"
	multicast   kind = "a multicast"
	unspecified kind = "an unspecified"
	reserved    kind = "a reserved"
	own         kind = "this machine's own"
)

// byName reports whether a name on the allow list may resolve to an address of this kind. Addresses of other kinds must
// be on the allow list themselves, because the owner of a name can make it resolve to any address. Reserved IPv4
// addresses are allowed: networks whose DNS redirects names, for example to mirrors of registries or to transparent
// proxies, use them. Reserved IPv6 addresses are not, since they may embed an IPv4 address of any kind.
func (k kind) byName(a netip.Addr) bool {
	switch k {
	case public, loopback, private, uniqueLocal, shared, own:
		return true
	case reserved:
		return a.Is4()
	}
	return false
}

// blocks are the address ranges that are not public, specific ranges before the ranges that contain them. IPv6
// addresses outside 2000::/3 are not public either.
var blocks = []struct {
	prefix netip.Prefix
	kind   kind
}{
	{netip.MustParsePrefix("169.254.169.254/32"), metadata},
	{netip.MustParsePrefix("169.254.170.0/24"), metadata},   // for containers at Amazon
	{netip.MustParsePrefix("168.63.129.16/32"), metadata},   // at Azure, in its public address range
	{netip.MustParsePrefix("100.100.100.200/32"), metadata}, // Alibaba's
	{netip.MustParsePrefix("192.0.0.192/32"), metadata},     // Oracle's
	{netip.MustParsePrefix("fd00:ec2::/32"), metadata},
	{netip.MustParsePrefix("fd20:ce::254/128"), metadata}, // Google's

	{netip.MustParsePrefix("0.0.0.0/8"), unspecified},
	{netip.MustParsePrefix("10.0.0.0/8"), private},
	{netip.MustParsePrefix("100.64.0.0/10"), shared},
	{netip.MustParsePrefix("127.0.0.0/8"), loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), linkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), private},
	{netip.MustParsePrefix("192.0.0.0/24"), reserved},
	{netip.MustParsePrefix("192.0.2.0/24"), reserved},
	{netip.MustParsePrefix("192.88.99.0/24"), reserved},
	{netip.MustParsePrefix("192.168.0.0/16"), private},
	{netip.MustParsePrefix("198.18.0.0/15"), reserved},
	{netip.MustParsePrefix("198.51.100.0/24"), reserved},
	{netip.MustParsePrefix("203.0.113.0/24"), reserved},
	{netip.MustParsePrefix("224.0.0.0/4"), multicast},
	{netip.MustParsePrefix("240.0.0.0/4"), reserved},

	{netip.MustParsePrefix("::/128"), unspecified},
	{netip.MustParsePrefix("::1/128"), loopback},
	{netip.MustParsePrefix("fc00::/7"), uniqueLocal},
	{netip.MustParsePrefix("fe80::/10"), linkLocal},
	{netip.MustParsePrefix("fec0::/10"), private},
	{netip.MustParsePrefix("ff00::/8"), multicast},
	{netip.MustParsePrefix("2001::/23"), reserved}, // includes Teredo, whose addresses contain an IPv4 address
	{netip.MustParsePrefix("2001:db8::/32"), reserved},
	{netip.MustParsePrefix("2002::/16"), reserved}, // 6to4, which also contain an IPv4 address
	{netip.MustParsePrefix("3fff::/20"), reserved},
}

var (
	global = netip.MustParsePrefix("2000::/3")
	// NAT64 addresses, whose last four bytes are an IPv4 address
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

// kindOf returns the kind of an address in any of its forms.
func kindOf(a netip.Addr) kind {
	if a.Zone() != "" {
		return linkLocal
	}
	a = a.Unmap()
	if translated.Contains(a) {
		b := a.As16()
		return kindOf(netip.AddrFrom4([4]byte(b[12:])))
	}
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return b.kind
		}
	}
	if a.Is6() && !global.Contains(a) || !a.IsValid() {
		return reserved
	}
	return public
}

// literal parses a host that is an address, in any of the forms that C libraries accept: 127.1, 0x7f.1, 0177.0.0.1 and
// 2130706433 are 127.0.0.1. No host name ends in a number: if such a host is not an address, bad is true.
func literal(host string) (a netip.Addr, is, bad bool) {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return a, true, false
	}
	parts := strings.Split(host, ".")
	last := parts[len(parts)-1]
	if _, err := number(last); err != nil {
		digits := last != "" && strings.Trim(last, "0123456789") == ""
		return netip.Addr{}, false, digits || strings.Contains(host, ":")
	}
	if len(parts) > 4 {
		return netip.Addr{}, false, true
	}
	var all uint64
	for i, part := range parts {
		n, err := number(part)
		room := uint64(1) << 8
		if i == len(parts)-1 { // the last part fills all remaining bytes
			room = 1 << (8 * (4 - i))
		}
		if err != nil || n >= room {
			return netip.Addr{}, false, true
		}
		if i == len(parts)-1 {
			all |= n
		} else {
			all |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true, false
}

// number reads one part of an address: hexadecimal after 0x, octal after 0.
func number(part string) (uint64, error) {
	lower := strings.ToLower(part)
	switch {
	case lower == "0x":
		return 0, nil
	case strings.HasPrefix(lower, "0x"):
		return strconv.ParseUint(lower[2:], 16, 40)
	case len(lower) > 1 && lower[0] == '0':
		return strconv.ParseUint(lower, 8, 40)
	}
	return strconv.ParseUint(lower, 10, 40)
}
