package worker_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/worker"
)

// Options without a carrier need only the URL of an app; they may select the protocol and a TLS configuration.
func TestAWorkerConnectsToTheURLsOfItsOptions(t *testing.T) {
	for _, way := range []string{"", "auto", "socket", "http"} {
		t.Run("link "+way, func(t *testing.T) {
			a := apptest.Start(t, apptest.Options{})
			start(t, a, nil, func(o *worker.Options) { o.URLs, o.Link = []string{a.URL()}, way })
			if got := result[string](t, run(t, a, "greet", "URL")); got != "hello URL" {
				t.Errorf("got %q", got)
			}
		})
	}
	t.Run("TLS", func(t *testing.T) {
		a := apptest.Start(t, apptest.Options{})
		app, err := url.Parse(a.URL())
		if err != nil {
			t.Fatal(err)
		}
		proxy := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(app))
		t.Cleanup(proxy.Close)
		start(t, a, nil, func(o *worker.Options) {
			o.URLs = []string{proxy.URL}
			o.TLS = func() (*tls.Config, error) {
				return proxy.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), nil
			}
		})
		if got := result[string](t, run(t, a, "greet", "TLS")); got != "hello TLS" {
			t.Errorf("got %q", got)
		}
	})
}

func TestOptionsWithoutURLsOrWithAnUnknownLinkAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*worker.Options)
		want   string
	}{
		{func(*worker.Options) {}, "registry and URLs are required"},
		{func(o *worker.Options) { o.URLs, o.Link = []string{"http://127.0.0.1:1"}, "tcp" }, `unknown link "tcp"`},
	} {
		o := worker.Options{Registry: registry()}
		c.change(&o)
		if _, err := worker.New(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}
