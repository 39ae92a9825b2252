package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/internal/certs"
	"github.com/sojourn-run/sojourn/internal/mask"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// neverText is displayed for a missing time, such as that of the last use.
const neverText = "never"

func (p *program) tokenCommand() *cobra.Command {
	var in auth.TokenRequest
	var roles []string
	var lasts time.Duration
	create := &cobra.Command{
		Use: "create", Short: "Create a token; it is printed once", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			in.ExpiresIn = int64(lasts.Seconds())
			for _, r := range roles {
				in.Roles = append(in.Roles, auth.Role(r))
			}
			return send(p, c, http.MethodPost, "/api/tokens", in, func(t auth.NewToken) error { return p.printf("%s", t.Token) })
		},
	}
	create.Flags().StringVar(&in.Name, "name", "", "name of the token")
	create.Flags().StringSliceVar(
		&roles, "role", []string{"worker"}, "admin, operator, writer, viewer, worker, completer; several, comma separated",
	)
	create.Flags().StringSliceVar(&in.Namespaces, "for-namespace", nil, "restrict to these namespaces")
	create.Flags().StringSliceVar(&in.Queues, "for-queue", nil, "restrict a worker's token to these queues")
	create.Flags().StringVar(&in.Group, "group", "", "group of workers with this token")
	create.Flags().DurationVar(&lasts, "lasts", 0, "lifetime, such as 720h; 0: until it is revoked")
	show := &cobra.Command{
		Use: "list", Short: "List tokens without their secrets", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return list(p, c, listing{path: "/api/tokens", member: "tokens"}, table.Row{
				"id", "name", "roles", "namespaces", "status", "created", "expires", "last used",
			},
				func(v auth.TokenView) table.Row {
					return table.Row{
						v.ID, v.Name, strings.Join(v.Roles, " "), strings.Join(v.Namespaces, " "), v.Status, stamp(v.CreatedAt),
						cmp.Or(stamp(v.ExpiresAt), neverText), cmp.Or(stamp(v.LastUsedAt), neverText),
					}
				})
		},
	}
	become := &cobra.Command{
		Use: "roles ID ROLE...", Short: "Change the roles of a token; its secret does not change",
		Example: "  sojourn token roles dpewngyqzm3j4 writer",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageErr(c, fmt.Errorf("%s requires a token ID, as shown by sojourn token list, and one or more roles", c.CommandPath()))
			}
			return nonEmptyArgs(c, args[:1], "token ID")
		},
		RunE: func(c *cobra.Command, args []string) error {
			var in auth.RolesRequest
			for _, r := range args[1:] {
				in.Roles = append(in.Roles, auth.Role(r))
			}
			return send(p, c, http.MethodPut, "/api/tokens/"+url.PathEscape(args[0])+"/roles", in, func(v auth.TokenView) error {
				return p.printf("%s has the roles %s", v.ID, strings.Join(v.Roles, ", "))
			})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token at once",
		Args: oneArg("token ID, as shown by sojourn token list"),
		RunE: func(c *cobra.Command, args []string) error {
			return send(p, c, http.MethodDelete, "/api/tokens/"+url.PathEscape(args[0]), nil, func(v auth.TokenView) error {
				return p.printf("revoked %s", v.ID)
			})
		},
	}
	return p.group("token", "Create, list, change and revoke the tokens of an app", nil, create, show, become, revoke)
}

// call sends a request to the first app that responds.
func (p *program) call(c *cobra.Command, method, path string, in, out any) error {
	app, err := p.client(c)
	if err != nil {
		return err
	}
	return withHint(app.Call(c.Context(), method, path, in, out))
}

// client returns a client of the apps in the settings.
func (p *program) client(c *cobra.Command) (*apiclient.Client, error) {
	if p.sharedClient != nil {
		return p.sharedClient, nil
	}
	s, err := p.settings(c)
	if err != nil {
		return nil, err
	}
	if s.Token == "" {
		if s.Token, err = process.ReadToken(s.DataDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	rules, err := certs.Client(s.AppCA, s.ClientCert, s.ClientKey)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if err := rules.Transport(transport); err != nil {
		return nil, err
	}
	p.sharedClient, err = apiclient.New(apiclient.Options{
		URLs: s.AppURLs, Token: s.Token, Namespace: s.Namespace, HTTP: &http.Client{Transport: transport},
		Warned: p.warn,
	})
	return p.sharedClient, err
}

// warn prints the warnings of a response, one line each. It prints each text once: every page of a list repeats its
// warnings.
func (p *program) warn(list []protocol.Warning) {
	p.warnings.Lock()
	defer p.warnings.Unlock()
	for _, w := range list {
		if !p.warned[w.Message] {
			p.warned[w.Message] = true
			fmt.Fprintln(p.err, "warning:", w.Message)
		}
	}
}

// withHint adds to an error the setting that may correct it.
func withHint(err error) error {
	var away *apiclient.Unreachable
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonUnauthorized:
		return fmt.Errorf("%w (set --token or SOJOURN_TOKEN, or --data-dir to the app's)", err)
	case errors.As(err, &away):
		return fmt.Errorf("no app answers at %s (--app-url): %w", mask.URL(away.URL), away.Err)
	}
	return err
}
