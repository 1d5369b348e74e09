package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newLogin() *cobra.Command {
	var aws, browser bool
	var profile string
	c := &cobra.Command{
		Use:   "login [SERVER]",
		Short: "Sign in to a service, and keep a token for it",
		Long: `Keeps a token for a service in a file that only you can read, once the service has accepted it. SERVER
is its URL; without it that of server in curfew.yaml or CURFEW_SERVER. The token is read
without an echo, or from standard input: one of ` + "`curfew token create`" + `, or an ID token of the
service's sign-in provider.

--aws signs in by your AWS credentials: the service takes a presigned GetCallerIdentity and
answers with a token for an hour. The sign-in of browsers at /auth/login gives a browser
its session, and no token to keep here.

Your service on this machine needs no sign-in: commands find its owner token in the data
directory. --browser prints a link by which a browser has the same rights, for 8 hours.`,
		Example: `  printf %s "$TOKEN" | curfew login https://curfew.example.com
  curfew login https://curfew.example.com --aws --profile ana
  curfew login http://127.0.0.1:8787 --browser`,
		Args: oneServer,
		RunE: func(c *cobra.Command, args []string) error {
			return a.login(c.Context(), strings.Join(args, ""), aws, browser, profile)
		},
	}
	c.Flags().BoolVar(&aws, "aws", false, "sign in by AWS credentials")
	c.Flags().BoolVar(&browser, "browser", false,
		"print a link that signs a browser in to your own service, once and within 10 minutes")
	c.Flags().StringVar(&profile, "profile", "", "AWS profile, for --aws")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newLogout() *cobra.Command {
	c := &cobra.Command{
		Use:   "logout [SERVER]",
		Short: "Forget the token that is kept for a service",
		Long: `Removes the stored token for a service. A token from --aws is revoked at the service as well;
one of ` + "`curfew token create`" + ` stays valid until it is revoked there.`,
		Example: `  curfew logout https://curfew.example.com`,
		Args:    oneServer,
		RunE:    func(c *cobra.Command, args []string) error { return a.logout(c.Context(), strings.Join(args, "")) },
	}
	a.outputs(c, tableJSON...)
	return c
}

// oneServer takes the URL of a service, or none.
func oneServer(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError("%s takes one server, got %d", c.CommandPath(), len(args))
	}
	return nil
}

// server returns the URL of the named or configured service.
func (a *app) server(cfg config.Config, named string) (*url.URL, error) {
	text := first(named, cfg.Server)
	if text == "" {
		return nil, &failure{
			exit: ExitUsage, code: "no_server", err: errors.New("no server is given and none is configured"),
			hint: "give its URL, or set server in curfew.yaml or CURFEW_SERVER"}
	}
	u, err := config.ServerURL(text)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return u, nil
}

func (a *app) login(ctx context.Context, named string, aws, browser bool, profile string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	u, err := a.server(cfg, named)
	if err != nil {
		return err
	}
	if browser {
		return a.browserLink(ctx, cfg, u)
	}
	server := u.String()
	login := client.Login{Server: server}
	switch {
	case aws:
		err = a.signInByAWS(ctx, cfg, u, &login, profile)
	case profile != "":
		err = usageError("curfew login --profile goes with --aws")
	default:
		login.Token, err = a.secret(server)
	}
	if err != nil {
		return err
	}
	c, err := a.reach(cfg, client.Options{URL: u, Token: login.Token})
	if err != nil {
		return err
	}
	who, err := ops.Whoami.Call(ctx, &ops.Place{Service: c}, ops.None{})
	if said := (*client.Error)(nil); errors.As(err, &said) && said.Code == "unauthenticated" {
		said.Hint = "`curfew token create` at the service makes one"
	}
	if err != nil {
		return err
	}
	login.Name = who.Name
	if err := a.logins().Save(login); err != nil {
		return err
	}
	doc := view.Login{
		Schema: view.LoginSchema, Server: server, Name: who.Name, Roles: append([]string{}, who.Roles...),
		ExpiresAt: login.ExpiresAt,
	}
	lines := fmt.Sprintf("Signed in to %s as %s: %s", server, plain.Line(who.Name),
		plain.Line(first(strings.Join(who.Roles, ", "), "no role")))
	if login.ExpiresAt != nil {
		lines += ", until " + plain.Time(*login.ExpiresAt)
	}
	if configured, err := config.ServerURL(cfg.Server); err != nil || configured.String() != server {
		lines += "\nNext: set server: " + server + " in curfew.yaml, or CURFEW_SERVER"
	}
	return a.say(doc, "%s", plain.Text(lines))
}

// browserLink prints a link that signs a browser in as the owner of a service.
func (a *app) browserLink(ctx context.Context, cfg config.Config, u *url.URL) error {
	c, err := a.owned(cfg, u)
	if err != nil {
		return err
	}
	link, err := c.Link(ctx)
	if said := (*client.Error)(nil); errors.As(err, &said) && said.Code == "unauthenticated" {
		said.Hint = "run it as the user of the service, with the data directory of the service"
	}
	if err != nil {
		return err
	}
	at := u.JoinPath("/")
	if at, err = at.Parse(link.Path); err != nil || at.Host != u.Host || at.Scheme != u.Scheme {
		return fmt.Errorf("read the answer of %s: it gives no link of its own", u)
	}
	ends := a.Now().UTC().Add(time.Duration(link.ExpiresIn) * time.Second).Truncate(time.Second)
	who, err := ops.Whoami.Call(ctx, &ops.Place{Service: c}, ops.None{})
	if err != nil {
		return err
	}
	doc := view.Login{
		Schema: view.LoginSchema, Server: u.String(), Name: who.Name, Roles: append([]string{}, who.Roles...),
		ExpiresAt: &ends, Link: at.String(),
	}
	return a.say(doc, "%s",
		plain.Text(at.String()+"\nOpen it in a browser before "+plain.Time(ends)+". It counts once."))
}

// maxSecret bounds a token that is read.
const maxSecret = 64 << 10

// secret reads a token from the terminal without an echo, or from standard input.
func (a *app) secret(server string) (string, error) {
	var text string
	var err error
	if a.Secret != nil {
		a.progress.clear(true) // it waits for an answer
		plain.Fprintf(a.Stderr, "Token for %s: ", server)
		text, err = a.Secret()
		plain.Fprintln(a.Stderr)
	} else {
		text, err = bufio.NewReader(io.LimitReader(a.Stdin, maxSecret)).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &failure{
			exit: ExitUsage, code: "no_token", err: errors.New("no token was given"),
			hint: "`curfew token create` at the service makes one; --aws signs in by AWS credentials",
		}
	}
	return text, nil
}

// signInByAWS trades a presigned GetCallerIdentity for a token.
func (a *app) signInByAWS(ctx context.Context, cfg config.Config, u *url.URL, login *client.Login,
	profile string) error {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // it never fails
	nonce := hex.EncodeToString(raw)
	signed, err := identity.SignCall(ctx, a.req, cfg, profile, api.AWSBinding(login.Server, nonce))
	if err != nil {
		return &failure{
			exit: ExitError, code: "no_credentials",
			err:  fmt.Errorf("sign in to %s by AWS credentials: %w", login.Server, err),
			hint: "give --profile, or sign in to AWS",
		}
	}
	c, err := a.reach(cfg, client.Options{URL: u})
	if err != nil {
		return err
	}
	type session struct {
		Token     string `json:"token"`
		ExpiresIn int    `json:"expires_in"`
	}
	got, err := client.SignIn[session](ctx, c, map[string]string{"nonce": nonce, "signed": signed})
	if err != nil {
		return err
	}
	ends := a.Now().UTC().Add(time.Duration(got.ExpiresIn) * time.Second).Truncate(time.Second)
	login.Token, login.Session, login.ExpiresAt = got.Token, true, &ends
	return nil
}

func (a *app) logout(ctx context.Context, named string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	u, err := a.server(cfg, named)
	if err != nil {
		return err
	}
	server := u.String()
	login, err := a.logins().Load(server)
	none := errors.Is(err, client.ErrNoLogin)
	if err == nil && login.Session {
		c, err := a.reach(cfg, client.Options{URL: u, Token: login.Token})
		if err == nil {
			err = c.EndSession(ctx)
		}
		if err != nil { // it ends by itself within the hour
			plain.Fprintf(a.Stderr, "curfew: the session was not ended at the service: %s\n", plain.Line(err.Error()))
		}
	}
	if err := a.logins().Remove(server); err != nil {
		return err
	}
	doc := view.Login{Schema: view.LoginSchema, Server: server, Name: login.Name, Roles: []string{}}
	if none {
		return a.say(doc, "No token is kept for %s", server)
	}
	return a.say(doc, "The token for %s is forgotten", server)
}
