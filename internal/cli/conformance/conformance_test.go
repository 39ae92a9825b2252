package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/docs"
	"github.com/sojourn-run/sojourn/internal/cli/conformance"
)

const token = "conformance-test-token-0123456789"

func cases(t *testing.T) []conformance.Case {
	t.Helper()
	all, err := conformance.Load(docs.Conformance, "conformance")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func start(t *testing.T, database string, sweeps *sync.Mutex) *apptest.App {
	return apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
		o.NoAuth, o.Token, o.MaxPolls = false, token, 1 // no case needs two of them
		o.Open = func(ctx context.Context, id string, d store.Dispatcher) (s store.Store, err error) {
			so := sqldb.Options{App: id, Dispatch: d}
			if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
				s, err = sqlite.Open(ctx, path, so)
			} else {
				s, err = postgres.Open(ctx, database, so)
			}
			return &swept{Store: s, sweeps: sweeps}, err
		}
	}})
}

// swept is a store whose sweeper holds a mutex while it applies due work, such as expired leases.
type swept struct {
	store.Store
	sweeps *sync.Mutex
	held   bool // only the goroutine of the sweeper uses it
}

type sweptReader struct {
	store.Reader
	of *swept
}

func (s *swept) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(sweptReader{r, s}) })
}

// end unlocks the mutex: the sweeper reads due work, or the time of the next, when it has applied what it had read.
func (s *swept) end() {
	if s.held {
		s.held = false
		s.sweeps.Unlock()
	}
}

func (r sweptReader) Due(ctx context.Context, now time.Time, limit int) ([]store.Due, error) {
	r.of.end()
	r.of.sweeps.Lock()
	r.of.held = true
	due, err := r.Reader.Due(ctx, now, limit)
	if len(due) == 0 {
		r.of.end()
	}
	return due, err
}

func (r sweptReader) NextDue(ctx context.Context, after time.Time) (next, now time.Time, err error) {
	r.of.end()
	return r.Reader.NextDue(ctx, after)
}

// The app passes every case, and a refused request changes no table.
func TestAnAppConformsAndWhatItRefusesChangesNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var sweeps sync.Mutex
		a := start(t, database, &sweeps)
		refused := 0
		o := conformance.Options{URL: a.URL(), Token: token, With: []string{"max-polls=1"}, Around: func(
			c conformance.Case, s conformance.Step, send func() error,
		) error {
			// the event that a held request waits for may change rows
			if s.Answer.Status < 400 || len(s.Meanwhile) > 0 {
				return send()
			}
			refused++
			sweeps.Lock() // a lease of an earlier case may expire at any time
			defer sweeps.Unlock()
			before := a.Dump()
			if err := send(); err != nil {
				return err
			}
			var but []string
			if strings.HasSuffix(c.Name, "the run waits for a repair") && s.Answer.Status == http.StatusUnprocessableEntity {
				but = []string{"runs"} // only the run's row records it
			}
			after := a.Dump()
			if len(before["workers"]) == len(after["workers"]) {
				but = append(but, "workers") // an earlier heartbeat of a worker may be stored meanwhile
			}
			if diff := before.Diff(after, but...); diff != "" {
				return fmt.Errorf("a refused request changed what is stored:\n%s", diff)
			}
			return nil
		}}
		results, err := conformance.Run(t.Context(), cases(t), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Outcome != conformance.Passed {
				t.Errorf("%s: %s: %s", r.Case, r.Outcome, r.Why)
			}
		}
		if len(results) < 177 || refused < 120 {
			t.Errorf("only %d cases with %d refusals were asked", len(results), refused)
		}
	})
}

func TestWithoutAuthenticationItsCasesAreSkipped(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	needs := map[string]string{}
	for _, c := range cases(t) {
		needs[c.ID()] = strings.Join(c.Needs, " ")
	}
	results, err := conformance.Run(t.Context(), cases(t), conformance.Options{URL: a.URL()})
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, r := range results {
		switch r.Outcome {
		case conformance.Failed:
			t.Errorf("%s: %s", r.Case, r.Why)
		case conformance.Skipped:
			if skipped++; needs[r.Case] == "" {
				t.Errorf("%s: skipped, and needs nothing: %s", r.Case, r.Why)
			}
		}
	}
	if skipped < 5 {
		t.Errorf("%d cases were skipped", skipped)
	}
}

// changed returns an app's responses with one error in them.
func changed(t *testing.T, a *apptest.App, change func(*http.Response, []byte) []byte) string {
	t.Helper()
	to, err := url.Parse(a.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = ""
		r.Out.Header.Set("Accept-Encoding", "identity")
	}}
	proxy.ModifyResponse = func(res *http.Response) error {
		if res.Header.Get("Content-Type") == "text/event-stream" { // the stream may have no end
			return nil
		}
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		raw = change(res, raw)
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		res.Header.Set("Content-Length", fmt.Sprint(len(raw)))
		return nil
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}

func TestAServerThatIsWrongInOneThingFailsTheCasesAboutIt(t *testing.T) {
	a := start(t, apptest.SQLite(t), &sync.Mutex{})
	for name, c := range map[string]struct {
		change func(*http.Response, []byte) []byte
		fails  string // one of the cases that must fail
	}{
		"a start answers 200": {func(res *http.Response, raw []byte) []byte {
			if res.StatusCode == 201 && strings.HasSuffix(res.Request.URL.Path, "/workflows") {
				res.StatusCode = 200
			}
			return raw
		}, "workflows/a start returns the new run"},
		"refusals have no reason": {func(_ *http.Response, raw []byte) []byte {
			return bytes.ReplaceAll(raw, []byte(`"reason":"`), []byte(`"cause":"`))
		}, "tasks/a wrong lease owner is refused with the actual one"},
		"no control_plane object": {func(_ *http.Response, raw []byte) []byte {
			return bytes.ReplaceAll(raw, []byte(`"control_plane":`), []byte(`"plane":`))
		}, "workflows/a signal is received"},
		"events say type": {func(_ *http.Response, raw []byte) []byte {
			return bytes.ReplaceAll(raw, []byte(`"event_type":`), []byte(`"type":1,"event_type":`))
		}, "workers/events have event_type and no type"},
		"queries are answered with nothing": {func(res *http.Response, raw []byte) []byte {
			return bytes.ReplaceAll(raw, []byte(`"result":"Ada"`), []byte(`"result":null`))
		}, "questions/a worker answers a query"},
		"no protocol header": {func(res *http.Response, raw []byte) []byte {
			res.Header.Del("X-Durable-Workflow-Protocol-Version")
			return raw
		}, "workers/the response to a registration repeats it"},
	} {
		t.Run(name, func(t *testing.T) {
			one := slices.DeleteFunc(cases(t), func(of conformance.Case) bool { return of.ID() != c.fails })
			results, err := conformance.Run(
				t.Context(), one, conformance.Options{URL: changed(t, a, c.change), Token: token},
			)
			if err != nil {
				t.Fatal(err)
			}
			if len(results) != 1 || results[0].Outcome != conformance.Failed || results[0].Why == "" {
				t.Errorf("of %q: %+v", c.fails, results)
			}
		})
	}
}

func TestAServerThatChangesWhatItRefusesIsFound(t *testing.T) {
	reads := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/cluster/info":
			fmt.Fprint(w, `{}`)
		case r.Method == http.MethodGet:
			reads++
			fmt.Fprintf(w, `{"n":%d}`, reads)
		default:
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer s.Close()
	files := fstest.MapFS{"c/a.json": {Data: []byte(`{"suite":"s","about":"a","part":"contract","cases":[{"name":"n","steps":[
		{"request":{"method":"POST","path":"/api/x"},"answer":{"status":409},"unchanged":["/api/y"]}]}]}`)}}
	list, err := conformance.Load(files, "c")
	if err != nil {
		t.Fatal(err)
	}
	results, err := conformance.Run(t.Context(), list, conformance.Options{URL: s.URL})
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Why, "the response differs after the step") {
		t.Errorf("got %+v, %v", results, err)
	}
}

func TestAddressWithoutAServerIsAnError(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	for _, at := range []string{s.URL, "http://127.0.0.1:1"} {
		if results, err := conformance.Run(t.Context(), cases(t), conformance.Options{URL: at}); err == nil ||
			len(results) > 0 {
			t.Errorf("%s: got %d results", at, len(results))
		}
	}
}

func TestTheSuitesFitTheirSchema(t *testing.T) {
	c := jsonschema.NewCompiler()
	s, err := c.Compile("../../../docs/schemas/conformance-suite.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("../../../docs/conformance/*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no suites: %v", err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{
		`{}`, `{"suite":"s","about":"a","part":"other","cases":[]}`,
		`{"suite":"s","about":"a","part":"contract","cases":[{"name":"n","steps":[{"request":{"method":"GET","path":"/api/x"},"answer":{"status":200,"body":{"a":{"$novel":1}}}}]}]}`,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(wrong))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(v) == nil {
			t.Errorf("%s fits", wrong)
		}
	}
}

func TestSuitesThatAreWrongAreNotLoaded(t *testing.T) {
	const step = `[{"request":{"method":"GET","path":"/api/x"},"answer":{"status":200}}]`
	for _, wrong := range []string{
		`{`, `{"suite":"s","part":"contract","cases":[]}`,
		`{"suite":"s","part":"x","cases":[{"name":"n","steps":` + step + `}]}`,
		`{"suite":"s","part":"contract","cases":[{"name":"n"}]}`,
		`{"suite":"s","part":"contract","cases":[{"steps":` + step + `}]}`,
		`{"suite":"s","part":"contract","cases":[{"name":"n","given":["g"],"steps":` + step + `}]}`,
		`{"suite":"s","part":"contract","cases":[{"name":"n","steps":` + step + `},{"name":"n","steps":` + step + `}]}`,
		`{"suite":"s","part":"contract","more":1,"cases":[{"name":"n","steps":` + step + `}]}`,
	} {
		if list, err := conformance.Load(fstest.MapFS{"c/a.json": {Data: []byte(wrong)}}, "c"); err == nil {
			t.Errorf("%s gave %d cases", wrong, len(list))
		}
	}
}
