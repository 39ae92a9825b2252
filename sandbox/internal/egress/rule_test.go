package egress

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
)

// zone resolves names; other names do not exist.
type zone struct {
	mu    sync.Mutex
	names map[string][][]string // results in order; the last one repeats
	asked []string
}

func (z *zone) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, host)
	answers := z.names[host]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	if len(answers) > 1 {
		z.names[host] = answers[1:]
	}
	var all []netip.Addr
	for _, a := range answers[0] {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, nil
}

func names(pairs map[string]string) *zone {
	z := &zone{names: map[string][][]string{}}
	for name, addrs := range pairs {
		z.names[name] = [][]string{strings.Split(addrs, " ")}
	}
	return z
}

func TestRuleOfAddresses(t *testing.T) {
	zone := map[string]string{
		"public.test": "1.1.1.1 2606:4700::1111", "private.test": "10.0.0.5", "mixed.test": "1.1.1.1 10.0.0.5",
		"mapped.test": "::ffff:127.0.0.1", "db.test": "10.0.0.5", "meta.test": "169.254.169.254", "machine.test": "5.5.5.5",
		"app.test": "10.0.0.7", "wild.test": "0.0.0.0", "lo.test": "127.0.0.1",
		"mirror.test": "198.18.0.9", "six.test": "2002:a00:5::1",
	}
	for _, c := range []struct {
		name, host string
		port       uint16
		allow      []string
		app        string
		want       string // addresses, or words of the refusal
	}{
		{name: "a public address", host: "1.1.1.1", want: "1.1.1.1:443"},
		{name: "a public name", host: "public.test", want: "1.1.1.1:443 [2606:4700::1111]:443"},
		{
			name: "a name with a dot at its end and capitals", host: "Public.TEST.",
			want: "1.1.1.1:443 [2606:4700::1111]:443",
		},
		{name: "loopback", host: "127.0.0.1", want: "it is a loopback address that egress-allow does not list"},
		{name: "loopback of IPv6", host: "::1", want: "a loopback"},
		{name: "loopback in a decimal", host: "2130706433", want: "resolves to 127.0.0.1, a loopback"},
		{name: "loopback in hexadecimal", host: "0x7f.1", want: "a loopback"},
		{name: "loopback in octal", host: "0177.0.0.1", want: "a loopback"},
		{name: "loopback mapped", host: "::ffff:127.0.0.1", want: "a loopback"},
		{name: "metadata", host: "169.254.169.254", want: "a metadata"},
		{name: "a name that leads inside", host: "private.test", want: "resolves to 10.0.0.5, a private"},
		{name: "a name that leads inside too", host: "mixed.test", want: "resolves to 10.0.0.5, a private"},
		{name: "a name that leads to a mapped address", host: "mapped.test", want: "resolves to 127.0.0.1, a loopback"},
		{name: "the machine by its public address", host: "machine.test", want: "this machine's own"},
		{name: "a name that does not exist", host: "nowhere.test", want: "no such host"},
		{name: "no name", host: "1.2.3.4.5", want: "neither a name nor an address"},
		{name: "nothing", host: "", want: "neither a name nor an address"},

		{name: "allowed by name", host: "db.test", port: 5432, allow: []string{"db.test:5432"}, want: "10.0.0.5:5432"},
		{
			name: "allowed by name, in capitals", host: "DB.test.", port: 5432, allow: []string{"Db.Test"},
			want: "10.0.0.5:5432",
		},
		{name: "at another port", host: "db.test", port: 22, allow: []string{"db.test:5432"}, want: "a private"},
		{name: "its address without its name", host: "10.0.0.5", allow: []string{"db.test"}, want: "a private"},
		{name: "another name of it", host: "private.test", allow: []string{"db.test"}, want: "a private"},
		{name: "allowed by address", host: "private.test", allow: []string{"10.0.0.5"}, want: "10.0.0.5:443"},
		{name: "allowed by range", host: "private.test", allow: []string{"10.0.0.0/8"}, want: "10.0.0.5:443"},
		{name: "beside a range", host: "private.test", allow: []string{"10.1.0.0/16"}, want: "a private"},
		{name: "allowed by address of IPv6", host: "::1", port: 80, allow: []string{"[::1]:80"}, want: "[::1]:80"},
		{name: "mapped, allowed", host: "::ffff:127.0.0.1", allow: []string{"127.0.0.1"}, want: "127.0.0.1:443"},
		{name: "a mirror at a reserved address", host: "mirror.test", want: "a reserved"},
		{name: "the mirror, allowed", host: "mirror.test", allow: []string{"mirror.test"}, want: "198.18.0.9:443"},
		{name: "6to4 of a private address, allowed", host: "six.test", allow: []string{"six.test"}, want: "a reserved"},
		{name: "an allowed name opens no metadata", host: "meta.test", allow: []string{"meta.test"}, want: "a metadata"},
		{name: "an address does", host: "meta.test", allow: []string{"169.254.169.254"}, want: "169.254.169.254:443"},
		{name: "the machine, allowed", host: "machine.test", allow: []string{"machine.test"}, want: "5.5.5.5:443"},

		{
			name: "the app", host: "10.0.0.7", port: 7700, app: "http://app.test:7700", allow: []string{"10.0.0.0/8"},
			want: "the app's",
		},
		{
			name: "the app by name", host: "app.test", port: 7700, app: "http://app.test:7700", allow: []string{"app.test"},
			want: "the app's",
		},
		{
			name: "beside the app", host: "app.test", port: 7701, app: "http://app.test:7700", allow: []string{"app.test"},
			want: "10.0.0.7:7701",
		},
		{name: "a public app", host: "public.test", app: "https://public.test", want: "the app's"},
		{
			name: "an app here, at another address", host: "127.0.0.2", port: 7700, app: "http://127.0.0.1:7700",
			allow: []string{"127.0.0.0/8"},
			want:  "the app's",
		},
		{
			name: "an app here, from outside", host: "machine.test", port: 7700, app: "http://lo.test:7700",
			allow: []string{"machine.test"},
			want:  "the app's",
		},
		{
			name: "an app here, at no address", host: "wild.test", port: 7700, app: ":7700", allow: []string{"0.0.0.0/8"},
			want: "the app's",
		},
		{name: "an app nobody can find", host: "1.1.1.1", port: 7700, app: "http://lost.test:7700", want: "the app's"},
		{name: "an app nobody can find, another port", host: "1.1.1.1", app: "http://lost.test:7700", want: "1.1.1.1:443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rule{
				resolver: names(zone), resolved: map[string]lookup{},
				machine: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("5.5.5.5")}, nil },
			}
			for _, text := range c.allow {
				e, err := ParseEntry(text)
				if err != nil {
					t.Fatal(err)
				}
				r.allow = append(r.allow, e)
			}
			if c.app != "" {
				e, err := parseEndpoint(c.app, "the app's")
				if err != nil {
					t.Fatal(err)
				}
				r.closed = append(r.closed, e)
			}
			if c.port == 0 {
				c.port = 443
			}
			all, err := r.check(t.Context(), c.host, c.port)
			var got []string
			for _, a := range all {
				got = append(got, a.String())
			}
			switch {
			case err != nil && !strings.Contains(err.Error(), c.want):
				t.Errorf("got %v", err)
			case err == nil && strings.Join(got, " ") != c.want:
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// If the app's name resolves to a new address, the old address stays closed, also while lookups of the name fail.
func TestAppThatMovesStaysClosed(t *testing.T) {
	z := &zone{names: map[string][][]string{"app.test": {{"10.0.0.7"}, {"10.0.0.8"}}}}
	r := rule{resolver: z, resolved: map[string]lookup{}, machine: func() ([]netip.Addr, error) { return nil, nil }}
	r.allow = []Entry{{prefix: netip.MustParsePrefix("10.0.0.0/8")}}
	r.closed = []endpoint{{"app.test", 7700, "the app's"}}
	old := func() {
		known := r.resolved["app.test"]
		known.at = known.at.Add(-resolvedTTL)
		r.resolved["app.test"] = known
	}
	closed := func(host string) bool {
		_, err := r.check(t.Context(), host, 7700)
		var refused *Refused
		return errors.As(err, &refused)
	}
	if !closed("10.0.0.7") || closed("10.0.0.8") {
		t.Error("the first answer does not count")
	}
	if asked := len(z.asked); asked != 1 {
		t.Errorf("asked %d times within %s", asked, resolvedTTL)
	}
	old()
	if !closed("10.0.0.7") || !closed("10.0.0.8") {
		t.Error("the second answer does not count beside the first")
	}
	delete(z.names, "app.test")
	old()
	if !closed("10.0.0.7") || !closed("10.0.0.8") {
		t.Error("without an answer the app is open")
	}
}

func TestEntriesOfTheList(t *testing.T) {
	for text, want := range map[string]Entry{
		"db":               {name: "db"},
		"Db.Example.:5432": {name: "db.example", port: 5432},
		"10.0.0.1":         {prefix: netip.MustParsePrefix("10.0.0.1/32")},
		"10.0.0.1:80":      {prefix: netip.MustParsePrefix("10.0.0.1/32"), port: 80},
		"10.1.2.3/8":       {prefix: netip.MustParsePrefix("10.0.0.0/8")},
		"::1":              {prefix: netip.MustParsePrefix("::1/128")},
		"[::1]":            {prefix: netip.MustParsePrefix("::1/128")},
		"[fd00::1]:443":    {prefix: netip.MustParsePrefix("fd00::1/128"), port: 443},
		"fd00::/8":         {prefix: netip.MustParsePrefix("fd00::/8")},
		"::ffff:10.0.0.1":  {prefix: netip.MustParsePrefix("10.0.0.1/32")},
	} {
		if got, err := ParseEntry(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", ":", ":80", "host:", "host:0", "host:65536", "host:http", "http://host", "host/path", "*.example", "10.0.0.0/33",
		"127.1", "0x7f.1", "1.2.3.4.5", "a b", "user@host", "fe80::1%eth0", "::ffff:10.0.0.0/104", "a:b:c",
	} {
		if e, err := ParseEntry(text); err == nil {
			t.Errorf("%q is %+v", text, e)
		}
	}
}

// Names are resolved once: the proxy connects to the address that it checked.
func TestNameIsLookedUpOnce(t *testing.T) {
	z := &zone{names: map[string][][]string{"rebind.test": {{"127.0.0.1"}, {"127.0.0.2"}}}}
	at := server(t)
	p := listen(t, Options{Allow: []string{"127.0.0.1"}, Resolver: z})
	status, text := get(t, p.Admit("a").URL(), "http://rebind.test:"+at)
	if status != 200 || text != "reached 127.0.0.1" || !slices.Equal(z.asked, []string{"rebind.test"}) {
		t.Errorf("got %d %q, asked for %q", status, text, z.asked)
	}
}
