package executor

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
)

// useProxy sends requests of [http.DefaultTransport] through the worker's proxy, if the executor reaches the network
// only through it. This includes requests to loopback addresses, which the library would send directly. If the network
// is refused, the proxy is reached over a Unix socket.
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
