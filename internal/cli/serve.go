package cli

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/server"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/web"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	enforceFlags
	listen, scalerListen string
	logFormat, lease     string
	// Of the simulated account.
	speed, length, truth, history string
	observe                       bool
	iam                           policyFlags
}

// defaultListen is where a service listens: on this machine alone.
const defaultListen = "127.0.0.1:8787"

// How far back the costs of the simulated account go, and at most.
const (
	demoHistory    = 16 * 24 * time.Hour
	maxDemoHistory = 60 * 24 * time.Hour
)

func (a *app) newServe() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Watch accounts and let policies act, for as long as it runs",
		Long: `Runs until it is stopped. Each pass reads one account, determines the duty of its
machines, updates the ledger, and moves proposals of policies up the safety ladder.

By default it only observes. Warnings and actions need --enforce, a policy whose
mode is enforce, and governance of the resource. See docs/serve.md.`,
		Example: `  curfew serve                                  # observe the configured accounts
  curfew serve --enforce                        # let policies act
  curfew serve --demo                           # the simulated account, a day in two minutes
  curfew serve --listen 127.0.0.1:9000 --log-format json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), f) },
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.Regions, "regions", nil, "regions to read, or all (default: the configured region)")
	fl.StringArrayVar(&f.AssumeRoles, "assume-role", nil,
		"`ARN` of a role in another account to read as well; repeatable")
	fl.StringVar(&f.Profile, "profile", "", "AWS profile")
	f.addMetrics(fl)
	fl.StringArrayVar(&f.policies, "policy", nil,
		"policy `file` or directory; repeatable (default: policies in curfew.yaml)")
	fl.BoolVar(&f.enforce, "enforce", false, "warn and act; without it nothing is sent and nothing changes")
	fl.StringVar(&f.window, "window", "", "how far back usage is read (default: enforce.window in curfew.yaml)")
	fl.StringVar(&f.listen, "listen", defaultListen, "`address` of the HTTP server")
	fl.StringVar(&f.scalerListen, "scaler-listen", "",
		"`address` of the external scaler for KEDA, such as :8788 (default: none)")
	fl.Var(ops.NewChoice("log-format", &f.logFormat, []string{"text", "json"}), "log-format",
		"form of the log: text or json")
	f.iam.add(fl, "by which the service assumes the configured roles and lists the organization")
	fl.StringVar(&f.lease, "lease", "",
		"for how long a process that died keeps its accounts from the others (default 8s)")
	fl.BoolVar(&f.demo, "demo", false,
		"serve the built-in simulated account, whose policies act and whose people answer")
	fl.Uint64Var(&f.seed, "seed", clouds.SimSeed, "with --demo: the `number` that varies the simulated account")
	fl.StringVar(&f.speed, "speed", "720",
		"with --demo: how much faster time goes: 720 makes a day last two minutes; max is as fast as it can")
	fl.StringVar(&f.length, "for", "", "with --demo: end after so much simulated time, such as 48h (default: no end)")
	fl.StringVar(&f.history, "history", "",
		"with --demo: how far back its costs go, such as 16d or 0 (default 16d; 0 with --for or --speed max)")
	fl.BoolVar(&f.observe, "observe", false, "with --demo: let no policy act")
	fl.StringVar(&f.truth, "demo-truth", "",
		"with --demo: write when each machine is made to work, as JSON, to a `file`")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	f.Cloud = "aws"
	if err := f.iam.check(); err != nil {
		return err
	}
	if f.iam.print {
		cfg, err := a.config()
		if err != nil {
			return err
		}
		partition, err := f.iam.in(f.Regions, cfg.AWS.Regions)
		if err != nil {
			return err
		}
		_, err = a.Stdout.Write(clouds.CentralPolicy(partition, cfg))
		return err
	}
	enforce, err := f.options()
	if err != nil {
		return err
	}
	o := server.ServeOptions{
		EnforceOptions: enforce, Listen: f.listen, ScalerListen: f.scalerListen, JSON: f.logFormat == "json",
		Version: a.Version, Out: a.Stdout,
		Hangup: a.hangups(), Mount: a.mount(ctx, f.demo),
	}
	if f.lease != "" {
		if o.LeaseTTL, err = config.ParseDuration(f.lease); err != nil || o.LeaseTTL < time.Second {
			return usageError("--lease %q: it is a duration from 1s such as 8s", f.lease)
		}
	}
	if f.demo {
		if f.scalerListen != "" {
			return usageError("--scaler-listen is not for --demo: the simulated account has no serving fleet")
		}
		return a.serveDemo(ctx, f, o)
	}
	if f.observe || f.length != "" || f.truth != "" || f.history != "" {
		return usageError("--observe, --for, --history and --demo-truth are for --demo")
	}
	a.quiet = true // a service shows no progress
	return server.Serve(ctx, a.req, o)
}

// mount returns a function that serves the API next to the service's own endpoints until the context
// ends.
func (a *app) mount(ctx context.Context, demo bool) func(*runtime.Request, *store.Store, config.Config,
	*slog.Logger) (server.Mounted, error) {
	return func(req *runtime.Request, s *store.Store, cfg config.Config, log *slog.Logger) (server.Mounted, error) {
		in := cfg.Serve.SignIn
		o := api.Options{
			Process: req.Process, State: s, PublicURL: cfg.Serve.PublicURL,
			OIDC: api.OIDC{Issuer: in.Issuer, ClientID: in.ClientID}, Done: ctx.Done(), Version: a.Version, Log: log,
			Now: a.Now,
		}
		if in.ClientSecretEnv != "" {
			secret, ok := a.Lookup(in.ClientSecretEnv)
			if !ok || secret == "" {
				return server.Mounted{}, usageError("serve.sign_in.client_secret_env: the environment has no %s",
					in.ClientSecretEnv)
			}
			o.OIDC.ClientSecret = secret
		}
		if cfg.DataDir == "" {
			log.Warn("there is no owner token: no data directory is given", "hint",
				"`curfew token create` with the same --database-url makes a token")
		} else {
			var err error
			if o.Owner, err = identity.MakeOwner(cfg.DataDir); err != nil {
				return server.Mounted{}, err
			}
			log.Info("callers need a credential", "owner_token", o.Owner.Path)
		}
		h, err := api.New(o)
		if err != nil {
			return server.Mounted{}, err
		}
		pages, err := web.New(web.Options{API: h, Process: req.Process, Now: a.Now, Log: log})
		if err != nil {
			return server.Mounted{}, err
		}
		return server.Mounted{
			Handlers: map[string]http.Handler{"/api/": h, "/auth/": h, "/openapi.json": h, "/": pages}, Known: h.Known,
			Listening: func(base string) { a.showLink(o, h, base, demo) },
		}, nil
	}
}

// showLink shows the person who starts a service on a terminal how a browser signs in. It goes to
// no file and no journal: whoever reads it within its time is the owner. A service that shows the
// simulated account has nothing to protect, and shows its link also where a script started it.
func (a *app) showLink(o api.Options, h *api.Server, base string, demo bool) {
	if a.Width == 0 && !demo || o.Owner == nil {
		return
	}
	if o.PublicURL != "" {
		base = strings.TrimSuffix(o.PublicURL, "/")
	}
	plain.Fprintf(a.Stdout, "Open this link within 10 minutes to sign one browser in:\n%s\n", base+h.Link())
}

// serveDemo serves the simulated account.
func (a *app) serveDemo(ctx context.Context, f serveFlags, serve server.ServeOptions) error {
	if f.enforce {
		return usageError("--enforce is for real accounts: the policies of --demo act, and with --observe they do not")
	}
	if len(f.Regions)+len(f.AssumeRoles)+len(f.Metrics) > 0 || f.Profile != "" {
		return usageError(
			"--regions, --assume-role, --profile and --metrics-source are for real accounts, not for --demo")
	}
	o := server.ServeDemoOptions{ServeOptions: serve, Seed: f.seed, Observe: f.observe, Truth: f.truth}
	if f.speed != "max" {
		var err error
		if o.Speed, err = strconv.ParseFloat(f.speed, 64); err != nil || !(o.Speed > 0) || o.Speed > 1e6 {
			return usageError("--speed %q: it is a number such as 720, or max", f.speed)
		}
	}
	if f.length != "" {
		var err error
		if o.For, err = config.ParseDuration(f.length); err != nil || o.For <= 0 {
			return usageError("--for %q: it is a duration such as 48h", f.length)
		}
	}
	switch f.history {
	case "":
		if f.length == "" && f.speed != "max" {
			o.History = demoHistory
		}
	case "0":
	default:
		var err error
		o.History, err = config.ParseDuration(f.history)
		if err != nil || o.History < 0 || o.History > maxDemoHistory {
			return usageError("--history %q: it is a duration up to 60d such as 16d, or 0", f.history)
		}
		o.History = o.History.Truncate(time.Hour)
	}
	return server.ServeDemo(ctx, a.req, o)
}

// hangups are the requests to read the configuration again; nil if there are none.
func (a *app) hangups() <-chan os.Signal {
	if a.Hangups == nil {
		return nil
	}
	return a.Hangups()
}
