package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
)

// locate settles where a command runs, before it runs.
func (a *app) locate(c *cobra.Command, args []string) error {
	name := strings.TrimPrefix(c.CommandPath(), "curfew ")
	placement := ops.Placements()[name]
	at, flag := placement.Locate(c.Flags(), args)
	if at == ops.Here || at == ops.AtService || a.req.DataFlag != "" || a.req.DatabaseFlag != "" {
		return nil
	}
	read := a.req.Config
	if name == "freeze" { // it works with a configuration that has mistakes too
		read = a.req.LenientConfig
	}
	cfg, err := read()
	if f := (*runtime.Error)(nil); name == "freeze" && errors.As(err, &f) {
		f.Hint = action.FreezeByHand
	}
	if err != nil || cfg.Server == "" {
		return err
	}
	if at == ops.ByState {
		what := strings.TrimSpace(c.CommandPath() + " " + flag)
		return &failure{
			exit: ExitUsage, code: "needs_state",
			err: fmt.Errorf("%s needs a state of this machine, and server is configured (%s): %s", what, cfg.Server,
				whyState(placement, flag)),
			hint: "give --data-dir DIR for a state here, or unset server"}
	}
	a.at.Service, err = a.service(cfg)
	return err
}

// whyState returns the reason why a command needs the state of this machine.
func whyState(p ops.Placement, flag string) string {
	if flag != "" && p.At != ops.ByState {
		return "the server reads no file and no account for one command"
	}
	if _, saves := p.Flags["no-save"]; saves {
		return p.Why + ", unless --no-save is given; --last shows the audit of the server"
	}
	return p.Why
}

// logins are the tokens that the user keeps.
func (a *app) logins() client.Logins {
	if a.ConfigDir == "" {
		return client.Logins{}
	}
	return client.Logins{Dir: filepath.Join(a.ConfigDir, "curfew", "servers")}
}

// reach returns a client of the configured server.
func (a *app) reach(cfg config.Config, o client.Options) (*client.Client, error) {
	o.Timeout, o.Version = cfg.ServerTimeout, a.Version
	if cfg.ServerCAFile != "" {
		var err error
		if o.Roots, err = os.ReadFile(a.path(cfg.ServerCAFile)); err != nil {
			return nil, &failure{
				exit: ExitUsage, code: "invalid_file",
				err: fmt.Errorf("read server_ca_file %s: %w", cfg.ServerCAFile, runtime.Cause(err)),
			}
		}
	}
	c, err := client.New(o)
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: err, hint: "server_ca_file names a PEM file"}
	}
	return c, nil
}

// service returns a client of the configured service, with the token that is kept for it.
func (a *app) service(cfg config.Config) (*client.Client, error) {
	u, err := config.ServerURL(cfg.Server)
	if err != nil {
		return nil, usageError("server: %w", err)
	}
	login, err := a.logins().Load(u.String())
	switch {
	case errors.Is(err, client.ErrNoLogin):
		return a.owned(cfg, u)
	case err != nil:
		return nil, &failure{
			exit: ExitUsage, code: "no_token", err: err, hint: "`curfew login " + u.String() + "` keeps a new one",
		}
	}
	return a.reach(cfg, client.Options{URL: u, Token: login.Token})
}

// owned returns a client of a service on this machine with the owner token of the data directory;
// without a token if there is none.
func (a *app) owned(cfg config.Config, u *url.URL) (*client.Client, error) {
	o := client.Options{URL: u}
	if cfg.DataDir != "" && config.OnThisMachine(u) {
		token, err := identity.ReadOwner(cfg.DataDir)
		switch {
		case err == nil:
			o.Token, o.Owner = token, true
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission): // it is a service of another user
		default:
			return nil, &failure{
				exit: ExitUsage, code: "invalid_owner_token", err: err,
				hint: "remove the file, and start `curfew serve` again to have another one",
			}
		}
	}
	return a.reach(cfg, o)
}

// unreachedHint returns the next step when a server cannot be reached.
func unreachedHint(e *client.Unreached) string {
	if e.Certificate {
		return "server_ca_file in curfew.yaml names the file of the authorities that count"
	}
	return "look whether `curfew serve` runs there; --data-dir DIR takes a state of this machine instead"
}

// serverFailure returns the exit code and the hint for the answer of a server, or for its absence;
// nil for another error.
func serverFailure(err error) *failure {
	var said *client.Error
	var silent *client.Unreached
	var unproven *client.Unproven
	switch {
	case errors.As(err, &unproven):
		return &failure{exit: ExitError, code: "unproven_server", err: err,
			hint: "another program, or another user's service, may listen there; `curfew login " + unproven.Server +
				"` keeps a token for a service that you trust"}
	case errors.As(err, &said) && said.Shown:
		return &failure{exit: said.Exit}
	case errors.As(err, &said):
		return &failure{exit: said.Exit, code: said.Code, err: err, hint: said.Hint}
	case errors.As(err, &silent):
		return &failure{exit: ExitError, code: "no_server", err: err, hint: unreachedHint(silent)}
	}
	return nil
}
