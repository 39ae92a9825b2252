package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/process"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) tokenCommand() *cobra.Command {
	var in auth.TokenRequest
	var roles []string
	var lasts time.Duration
	create := &cobra.Command{
		Use: "create", Short: "Make a token; it is shown once", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			in.ExpiresIn = int64(lasts.Seconds())
			for _, r := range roles {
				in.Roles = append(in.Roles, auth.Role(r))
			}
			return ask(p, c, http.MethodPost, "/api/tokens", in, func(t auth.NewToken) error { return p.say("%s", t.Token) })
		},
	}
	create.Flags().StringVar(&in.Name, "name", "", "what it is for")
	create.Flags().StringSliceVar(&roles, "role", []string{"worker"}, "admin, operator, writer, viewer, worker; several, comma separated")
	create.Flags().StringSliceVar(&in.Namespaces, "for-namespace", nil, "only these namespaces")
	create.Flags().StringSliceVar(&in.Queues, "for-queue", nil, "workers: only these queues")
	create.Flags().StringVar(&in.Group, "group", "", "workers: the group they belong to")
	create.Flags().DurationVar(&lasts, "lasts", 0, "how long it is good, like 720h; 0: until it is revoked")
	show := &cobra.Command{
		Use: "list", Short: "List the tokens, never their secrets", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return list(p, c, listing{path: "/api/tokens", member: "tokens"}, table.Row{"id", "name", "roles", "namespaces", "status", "created"},
				func(v auth.TokenView) table.Row {
					return table.Row{v.ID, v.Name, strings.Join(v.Roles, " "), strings.Join(v.Namespaces, " "), v.Status, v.CreatedAt.Format(time.RFC3339)}
				})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "End a token at once",
		Args: one("the id of one token, as list shows it"),
		RunE: func(c *cobra.Command, args []string) error {
			return ask(p, c, http.MethodDelete, "/api/tokens/"+url.PathEscape(args[0]), nil, func(v auth.TokenView) error {
				return p.say("revoked %s", v.ID)
			})
		},
	}
	return p.group("token", "Create, list and revoke the tokens of an app", nil, create, show, revoke)
}

// call asks the first app that answers.
func (p *program) call(c *cobra.Command, method, path string, in, out any) error {
	s, err := p.settings(c)
	if err != nil {
		return err
	}
	if s.Token == "" {
		if s.Token, err = process.ReadToken(s.DataDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var failed error
	for _, base := range s.AppURLs {
		switch failed = request(c.Context(), s, method, base+path, in, out); {
		case protocol.ReasonOf(failed) == protocol.ReasonUnauthorized:
			return fmt.Errorf("%w (set --token or SOJOURN_TOKEN, or --data-dir to the app's)", failed)
		case protocol.ReasonOf(failed) != "" || failed == nil:
			return failed
		case c.Context().Err() != nil:
			return context.Cause(c.Context())
		}
		failed = unreached(base, failed)
	}
	return failed
}

// unreached says in few words why an app was not reached.
func unreached(base string, err error) error {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no app answers at %s (--app-url): %w", base, dial.Err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the app at %s gave no answer in %s", base, patience)
	}
	return err
}

// patience is how long a request may take: the longest that an app holds one, and the time to answer.
const patience = 90 * time.Second

func request(ctx context.Context, s *settings, method, to string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Durable-Workflow-Control-Plane-Version", "2")
	r.Header.Set("X-Namespace", s.Namespace)
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		refusal := protocol.ErrorBody{Reason: protocol.Reason(answer.Status), Message: strings.TrimSpace(string(raw))}
		_ = json.Unmarshal(raw, &refusal) // an answer that is no JSON is shown as it is
		return protocol.Refuse(refusal.Reason, "%s", refusal.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}
