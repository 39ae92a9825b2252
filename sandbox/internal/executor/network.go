package executor

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
)

// useProxy has requests of [http.DefaultTransport] go through the worker's proxy, where that is the way to the network:
// those to loopback addresses too, which the library leaves out, and over a Unix socket where the network is refused.
func useProxy() {
	proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
	t, ok := http.DefaultTransport.(*http.Transport)
	if err != nil || proxy.User == nil || !ok {
		return
	}
	t.Proxy = http.ProxyURL(proxy)
	path, dial := os.Getenv("SOJOURN_EGRESS_SOCKET"), t.DialContext
	if path == "" || dial == nil {
		return
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == proxy.Host {
			network, address = "unix", path
		}
		return dial(ctx, network, address)
	}
}
