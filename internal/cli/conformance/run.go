package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options of a run.
type Options struct {
	URL    string // URL of the server, without /api
	Token  string // token with all rights; empty: none is sent
	Client *http.Client
	Only   string         // contract or sojourn; empty: both
	Filter *regexp.Regexp // pattern of case IDs; nil: all cases
	With   []string       // settings of the server, as cases name them: max-polls=1
	// Done is called after each case.
	Done func(Result)
	// Around wraps the requests of a case's steps, for tests that check more than HTTP; nil: no wrapper.
	Around func(c Case, s Step, send func() error) error
}

// Result is the result of one case.
type Result struct {
	Case    string  `json:"case"`
	Part    string  `json:"part"`
	Outcome string  `json:"outcome"` // passed, failed, skipped
	Why     string  `json:"why,omitempty"`
	Seconds float64 `json:"seconds"`
}

// These are the outcomes of a case.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// Run runs the selected cases against a server one after another. An error means that they could not be run.
func Run(ctx context.Context, cases []Case, o Options) ([]Result, error) {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 90 * time.Second}
	}
	r := runner{Options: o}
	r.URL = strings.TrimSuffix(strings.TrimSuffix(r.URL, "/"), "/api")
	if err := r.probe(ctx); err != nil {
		return nil, err
	}
	results := []Result{}
	for _, c := range Selected(cases, o.Only, o.Filter) {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		began := time.Now()
		res := Result{Case: c.ID(), Part: c.Part, Outcome: Passed}
		if why := r.lacks(c); why != "" {
			res.Outcome, res.Why = Skipped, why
		} else if err := r.story(ctx, c); err != nil {
			res.Outcome, res.Why = Failed, err.Error()
		}
		res.Seconds = time.Since(began).Seconds()
		results = append(results, res)
		if o.Done != nil {
			o.Done(res)
		}
	}
	return results, nil
}

// lacks returns why this server does not support a case; empty if it does.
func (r *runner) lacks(c Case) string {
	for _, need := range c.Needs {
		switch {
		case need == "authentication" && r.open:
			return "the server does not require authentication"
		case need != "authentication" && !slices.Contains(r.With, need):
			return fmt.Sprintf("the case requires a server that was started with %s (--with %[1]s)", need)
		}
	}
	return ""
}

// Selected returns the cases of a part whose IDs match.
func Selected(cases []Case, only string, filter *regexp.Regexp) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool {
		return only != "" && c.Part != only || filter != nil && !filter.MatchString(c.ID())
	})
}

type runner struct {
	Options
	open bool // the server requires no token
}

// probe checks whether the server responds, and whether it requires a token.
func (r *runner) probe(ctx context.Context) error {
	a, err := r.send(
		ctx, Request{Method: http.MethodGet, Path: "/api/cluster/info", Headers: map[string]*string{"Authorization": nil}},
		nil,
	)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", r.URL, err)
	}
	if r.open = a.status == http.StatusOK; r.open {
		return nil
	}
	if a, err = r.send(ctx, Request{Method: http.MethodGet, Path: "/api/cluster/info"}, nil); err != nil {
		return fmt.Errorf("connect to %s: %w", r.URL, err)
	}
	if a.status != http.StatusOK {
		return fmt.Errorf(
			"GET %s/api/cluster/info returned status %d; check the URL and the token", r.URL, a.status,
		)
	}
	return nil
}

// story runs one case.
func (r *runner) story(ctx context.Context, c Case) error {
	vars := map[string]any{"id": "c" + unique(), "token": r.Token}
	for _, part := range []struct {
		name  string
		steps []Step
	}{{"before", c.Before}, {"step", c.Steps}, {"after", c.After}} {
		for i, s := range part.steps {
			send := func() error { return r.step(ctx, s, vars) }
			if r.Around != nil && part.name == "step" {
				plain := send
				send = func() error { return r.Around(c, s, plain) }
			}
			if err := send(); err != nil {
				about := ""
				if s.About != "" {
					about = " (" + s.About + ")"
				}
				return fmt.Errorf("%s %d%s: %s: %w", part.name, i+1, about, s.Request.requestLine(vars), err)
			}
		}
	}
	return nil
}

// requestLine returns the method and path of the request, as they were sent if all variables are known.
func (q Request) requestLine(vars map[string]any) string {
	path, err := fill(q.Path, vars)
	if err != nil {
		return q.Method + " " + q.Path
	}
	return fmt.Sprint(q.Method, " ", path)
}

func unique() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (r *runner) step(ctx context.Context, s Step, vars map[string]any) error {
	before, err := r.states(ctx, s.Unchanged, vars)
	if err != nil {
		return err
	}
	if err := r.answered(ctx, s, vars); err != nil {
		return err
	}
	after, err := r.states(ctx, s.Unchanged, vars)
	if err != nil {
		return err
	}
	for i, path := range s.Unchanged {
		if err := Match(before[i], after[i]); err != nil {
			return fmt.Errorf("GET %s: the response differs after the step: %w", path, err)
		}
		if err := Match(after[i], before[i]); err != nil {
			return fmt.Errorf("GET %s: the response differs after the step: %w", path, err)
		}
	}
	return nil
}

// patience is the time for which a step with Eventually is repeated.
const patience = 30 * time.Second

// answered sends a step's request and checks the response; with eventually, it repeats the request until the response
// matches.
func (r *runner) answered(ctx context.Context, s Step, vars map[string]any) error {
	for end := time.Now().Add(patience); ; {
		a, err := r.during(ctx, s, vars)
		if err != nil {
			return err
		}
		if err = r.judge(s, a, vars); err == nil || !s.Eventually || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// during sends a step's request and runs its Meanwhile steps while the request waits at the server.
func (r *runner) during(ctx context.Context, s Step, vars map[string]any) (answer, error) {
	if len(s.Meanwhile) == 0 {
		return r.send(ctx, s.Request, vars)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type sent struct {
		answer
		error
	}
	sentRequests, asked := make(chan sent, 1), maps.Clone(vars)
	go func() {
		a, err := r.send(ctx, s.Request, asked)
		sentRequests <- sent{a, err}
	}()
	for i, inner := range s.Meanwhile {
		if err := r.step(ctx, inner, vars); err != nil {
			err = fmt.Errorf("meanwhile step %d: %s: %w", i+1, inner.Request.requestLine(vars), err)
			select {
			case early := <-sentRequests: // the response may have arrived while the error occurred
				return answer{}, fmt.Errorf("the request must still wait, but it returned status %d: %.400s: %w", early.status, early.raw, err)
			default:
				return answer{}, err
			}
		}
	}
	done := <-sentRequests
	return done.answer, done.error
}

// states returns the responses that must not change.
func (r *runner) states(ctx context.Context, paths []string, vars map[string]any) ([]any, error) {
	list := make([]any, len(paths))
	for i, path := range paths {
		path, part, _ := strings.Cut(path, "#")
		a, err := r.send(ctx, Request{Method: http.MethodGet, Path: path}, vars)
		if err != nil {
			return nil, err
		}
		if part != "" {
			a.body, _ = resolvePointer(a.body, part) // a missing part is a state, too
		}
		list[i] = map[string]any{"status": json.Number(fmt.Sprint(a.status)), "body": a.body}
	}
	return list, nil
}

func (r *runner) judge(s Step, a answer, vars map[string]any) error {
	if a.status != s.Answer.Status {
		return fmt.Errorf("status %d, want %d: %.400s", a.status, s.Answer.Status, a.raw)
	}
	for name, want := range s.Answer.Headers {
		got := a.header.Get(name)
		if want == "*" && got == "" || want != "*" && got != want {
			return fmt.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if len(s.Answer.Body) > 0 {
		pattern, err := decode(s.Answer.Body)
		if err == nil {
			pattern, err = filled(pattern, vars)
		}
		if err != nil {
			return err
		}
		if err := Match(pattern, a.body); err != nil {
			return fmt.Errorf("%w: %.400s", err, a.raw)
		}
	}
	for name, pointer := range s.Save {
		v, ok := resolvePointer(a.body, pointer)
		if !ok {
			return fmt.Errorf("the response has no value at %s to save: %.400s", pointer, a.raw)
		}
		vars[name] = v
	}
	return nil
}

// resolvePointer resolves a JSON pointer.
func resolvePointer(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch at := v.(type) {
		case map[string]any:
			inner, there := at[name]
			if !there {
				return nil, false
			}
			v = inner
		case []any:
			i := slices.Index([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, name)
			if i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

type answer struct {
	status int
	header http.Header
	raw    []byte
	body   any // nil if it is not JSON
}

func (r *runner) send(ctx context.Context, q Request, vars map[string]any) (answer, error) {
	path, err := fill(q.Path, vars)
	if err != nil {
		return answer{}, err
	}
	raw, err := q.body(vars)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, r.URL+path, bytes.NewReader(raw))
	if err != nil {
		return answer{}, err
	}
	if len(raw) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if strings.HasPrefix(path, "/api/worker/") {
		req.Header.Set("X-Durable-Workflow-Protocol-Version", "1.20")
	} else {
		req.Header.Set("X-Durable-Workflow-Control-Plane-Version", "2")
	}
	for name, value := range q.Headers {
		if req.Header.Del(name); value == nil {
			continue
		}
		text, err := fill(*value, vars)
		if err != nil {
			return answer{}, err
		}
		req.Header.Set(name, text)
	}
	res, err := r.Client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); q.Events > 0 && kind == "text/event-stream" {
		a.body, a.raw, err = events(res.Body, q.Events)
		return a, err
	}
	if a.raw, err = io.ReadAll(io.LimitReader(res.Body, 32<<20)); err != nil {
		return a, fmt.Errorf("read the response: %w", err)
	}
	if body, err := decode(a.raw); err == nil {
		a.body = body
	}
	return a, nil
}

// events reads server-sent events until the maximum number or the end of the stream: objects with id, event and data,
// which is decoded if it is JSON.
func events(body io.Reader, most int) (list []any, raw []byte, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 32<<20)
	event := map[string]any{}
	for len(list) < most && lines.Scan() {
		line := lines.Text()
		raw = append(append(raw, line...), '\n')
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && event["data"] != nil:
			if v, err := decode([]byte(event["data"].(string))); err == nil {
				event["data"] = v
			}
			list, event = append(list, event), map[string]any{}
		case name == "data" && event["data"] != nil:
			event["data"] = event["data"].(string) + "\n" + value
		case name == "id" || name == "event" || name == "data":
			event[name] = value
		}
	}
	return list, raw, lines.Err()
}

func (q Request) body(vars map[string]any) ([]byte, error) {
	switch {
	case q.Text != nil:
		return []byte(*q.Text), nil
	case q.Repeat != nil:
		return json.Marshal(map[string]string{q.Repeat.Member: strings.Repeat("x", q.Repeat.Bytes)})
	case len(q.Body) == 0:
		return nil, nil
	}
	v, err := decode(q.Body)
	if err == nil {
		v, err = filled(v, vars)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
