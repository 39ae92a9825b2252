package egress

import (
	"net/netip"
	"testing"
)

func TestKindOfAddress(t *testing.T) {
	for text, want := range map[string]kind{
		"1.1.1.1": public, "8.8.8.8": public, "172.15.255.255": public, "172.32.0.0": public, "100.63.255.255": public,
		"100.128.0.0": public, "192.167.255.255": public, "169.253.255.255": public, "223.255.255.255": public,
		"2606:4700::1111": public, "2a00::1": public, "::ffff:1.1.1.1": public, "64:ff9b::1.1.1.1": public,
		"127.0.0.1": loopback, "127.255.255.254": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"64:ff9b::127.0.0.1": loopback,
		"10.0.0.1":           private, "172.16.0.1": private, "172.31.255.255": private,
		"192.168.1.1": private, "fec0::1": private,
		"::ffff:10.0.0.1": private, "64:ff9b::a00:1": private,
		"fc00::1": uniqueLocal, "fdff::1": uniqueLocal,
		"100.64.0.1": shared, "100.127.255.255": shared,
		"169.254.0.1": linkLocal, "fe80::1": linkLocal, "febf::1": linkLocal,
		"fe80::1%eth0":    linkLocal,
		"::1%lo":          linkLocal,
		"169.254.169.254": metadata, "169.254.170.2": metadata, "168.63.129.16": metadata, "100.100.100.200": metadata,
		"192.0.0.192": metadata, "fd00:ec2::254": metadata, "fd20:ce::254": metadata, "::ffff:169.254.169.254": metadata,
		"64:ff9b::a9fe:a9fe": metadata,
		"224.0.0.1":          multicast, "239.255.255.255": multicast, "ff02::1": multicast,
		"0.0.0.0": unspecified, "0.1.2.3": unspecified, "::": unspecified,
		"240.0.0.1": reserved, "255.255.255.255": reserved, "192.0.2.1": reserved, "198.18.0.1": reserved,
		"198.51.100.1": reserved, "203.0.113.1": reserved, "192.88.99.1": reserved,
		"2001::1": reserved, "2001:db8::1": reserved, "2002:7f00:1::": reserved, "3fff::1": reserved, "4000::1": reserved,
		"::7f00:1": reserved, "64:ff9b:1::1": reserved, "5f00::1": reserved, "100::1": reserved,
	} {
		if got := kindOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	if got := kindOf(netip.Addr{}); got == public {
		t.Error("no address is public")
	}
}

func TestAddressInAnySpelling(t *testing.T) {
	const none, bad = "a name", "bad"
	for host, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "127.1": "127.0.0.1", "127.0.1": "127.0.0.1", "2130706433": "127.0.0.1",
		"0x7f000001": "127.0.0.1", "0X7F.1": "127.0.0.1", "0177.0.0.1": "127.0.0.1", "017700000001": "127.0.0.1",
		"0x7f.0x0.0x0.0x1": "127.0.0.1", "0": "0.0.0.0", "0x": "0.0.0.0", "10.256": "10.0.1.0",
		"0xa9fea9fe": "169.254.169.254",
		"::1":        "::1", "[::1]": "::1", "::ffff:127.0.0.1": "::ffff:127.0.0.1",
		"example.com": none, "localhost": none, "1.example": none, "a.0b": none, "dead.beef": none, "0xname": none,
		"256.1.1.1": bad, "1.2.3.4.5": bad, "4294967296": bad, "1.2.3.256": bad, "name.1": bad, "1..1": bad, "08.1.1.1": bad,
		"a:b": bad, "1.2.3.09": bad,
	} {
		a, is, wrong := literal(host)
		got := none
		switch {
		case wrong:
			got = bad
		case is:
			got = a.String()
		}
		if got != want {
			t.Errorf("%s is %s, want %s", host, got, want)
		}
	}
}
