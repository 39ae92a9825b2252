package apptest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/web"
)

func TestTheCodecEndpointOfANamespaceIsSetKeptAndRemoved(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		const endpoint = "https://codec.example.com/decode"
		if r := here.ask("POST", "/api/namespaces", `{"name":"team","codec_endpoint":"`+endpoint+`"}`); r.status != 201 ||
			r.text("codec_endpoint") != endpoint {
			t.Fatalf("create: %d %s", r.status, r.raw)
		}
		if r := here.ask("PUT", "/api/namespaces/team", `{"description":"of the team"}`); r.text("codec_endpoint") != endpoint {
			t.Errorf("a change of the description: %s", r.raw)
		}
		if r := there.ask("GET", "/api/namespaces/team", ""); r.text("codec_endpoint") != endpoint {
			t.Errorf("at the other app: %s", r.raw)
		}
		if r := here.ask("PUT", "/api/namespaces/team", `{"codec_endpoint":"http://codec.example.com/decode"}`); r.status !=
			http.StatusUnprocessableEntity || !strings.Contains(r.raw, "https://") {
			t.Errorf("without TLS: %d %s", r.status, r.raw)
		}
		if web.Built() {
			there.within(time.Minute, "/", func(page response) bool { // the app caches the endpoints
				return strings.Contains(page.header.Get("Content-Security-Policy"), "connect-src 'self' "+endpoint+";")
			})
		}
		if r := here.ask("PUT", "/api/namespaces/team", `{"codec_endpoint":""}`); r.status != 200 ||
			r.text("codec_endpoint") != "" {
			t.Errorf("removed: %d %s", r.status, r.raw)
		}
	})
}
