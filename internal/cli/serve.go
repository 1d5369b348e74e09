package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	enforceFlags
	listen, logFormat, lease string
}

// defaultListen is where a service listens: on this machine alone.
const defaultListen = "127.0.0.1:8787"

func (a *app) newServe() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Watch accounts and let policies act, for as long as it runs",
		Long: `Runs rounds until it is told to end: reads every account by itself, judges what its
machines do, keeps the books, and takes what policies propose up the safety ladder.

It begins by observing. Nothing is warned of or acted on without --enforce, a policy whose
mode is enforce, and governance of the resource. docs/serve.md says how to run it.`,
		Example: `  curfew serve                                  # observe the configured accounts
  curfew serve --enforce                        # let policies act
  curfew serve --listen 127.0.0.1:9000 --log-format json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), f) },
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.Regions, "regions", nil, "regions to read, or all (default: the configured region)")
	fl.StringArrayVar(&f.AssumeRoles, "assume-role", nil, "`ARN` of a role in another account to read as well; repeatable")
	fl.StringVar(&f.Profile, "profile", "", "AWS profile")
	f.addMetrics(fl)
	fl.StringArrayVar(&f.policies, "policy", nil, "policy `file` or directory; repeatable (default: policies in curfew.yaml)")
	fl.BoolVar(&f.enforce, "enforce", false, "warn and act; without it nothing is sent and nothing changes")
	fl.StringVar(&f.window, "window", "", "how far back usage is read (default: enforce.window in curfew.yaml)")
	fl.StringVar(&f.listen, "listen", defaultListen, "`address` of the HTTP server")
	fl.Var(&choice{"log-format", &f.logFormat, []string{"text", "json"}}, "log-format", "form of the log: text or json")
	fl.StringVar(&f.lease, "lease", "", "for how long a process that died keeps its accounts from the others (default 8s)")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	f.Cloud = "aws"
	enforce, err := f.options()
	if err != nil {
		return err
	}
	o := daemon.ServeOptions{EnforceOptions: enforce, Listen: f.listen, JSON: f.logFormat == "json", Out: a.Stdout, Hangup: a.hangups()}
	if f.lease != "" {
		if o.LeaseTTL, err = config.ParseDuration(f.lease); err != nil || o.LeaseTTL < time.Second {
			return usageError("--lease %q: it is a duration from 1s such as 8s", f.lease)
		}
	}
	a.quiet = true // a service shows no progress
	a.rt.NewBar = nil
	return a.rt.Serve(ctx, o)
}

// hangups are the requests to read the configuration again; nil where there are none.
func (a *app) hangups() <-chan os.Signal {
	if a.Hangups == nil {
		return nil
	}
	return a.Hangups()
}
