package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	apphost "github.com/curfew-dev/curfew/internal/app/host"
)

func (a *app) newAgent() *cobra.Command {
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run a session on its machine: what curfew up starts there",
		Long: `The agent runs on the machine of a session. curfew up starts it; people rarely do. It
follows the orders of the session's keeper, saves the work folder, and ends the session by
its lease or its idle rule, even without a keeper. See docs/agent.md.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newAgentHost(), a.newAgentBootstrap(), a.newAgentEnter(), a.newAgentDoor())
	return c
}

// agentFlags are those of both commands.
type agentFlags struct{ apphost.AgentOptions }

func (f *agentFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.State, "state", "",
		"`folder` for what survives the process (default: agent/SESSION-NODE in the data directory)")
	c.Flags().StringVar(&f.Home, "home", "", "`folder` that ~ of the work folder means (default: the user's home)")
}

// with runs one of the commands.
func (f *agentFlags) with(a *app, run func(context.Context, apphost.AgentOptions) error) func(*cobra.Command,
	[]string) error {
	return func(c *cobra.Command, args []string) error {
		f.File, f.In, f.Out, f.Environ = args[0], a.Stdin, a.Stdout, os.Environ()
		if home, ok := a.Lookup("HOME"); ok && f.Home == "" {
			f.Home = home
		}
		return run(c.Context(), f.AgentOptions)
	}
}

func (a *app) newAgentHost() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "host FILE",
		Short: "Run a session on this machine until it ends",
		Long: `Sets the machine up, then obeys the orders below the control prefix that FILE names
(curfew.session-host/v1 as JSON; - is the standard input), reports the state of the session, and ends
it: by an order, by its lease, or by its idle rule after a warning.

The work folder is saved before the end, and the session ends only once that snapshot is
confirmed. The command may be killed at any point: started again, it goes on. It ends with exit
code 0 when the session has ended, or when it is asked to stop and the session goes on.`,
		Example: `  curfew agent host host.json
  curfew agent host - --state /var/lib/curfew/agent`,
		Args: oneArg("a file, or - for the standard input"),
		RunE: f.with(a, func(ctx context.Context, o apphost.AgentOptions) error {
			return apphost.AgentHost(ctx, a.req, o)
		}),
	}
	f.add(c)
	return c
}

func (a *app) newAgentBootstrap() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "bootstrap FILE",
		Short: "Set this machine up for a session, step by step",
		Long: `Carries out the remaining steps: check the NVIDIA driver, CUDA and PyTorch against each other;
restore the work folder; learn the addresses of the other nodes; read secrets; fetch data; start
Jupyter; run the set-up command. Each finished step is marked, so that the command may be
killed at any point and run again. curfew agent host does the same before it is ready.`,
		Example: `  curfew agent bootstrap host.json`,
		Args:    oneArg("a file, or - for the standard input"),
		RunE: f.with(a, func(ctx context.Context, o apphost.AgentOptions) error {
			return apphost.AgentBootstrap(ctx, a.req, o)
		}),
	}
	f.add(c)
	return c
}

// newAgentEnter returns the hidden command that connect runs on a machine.
func (a *app) newAgentEnter() *cobra.Command {
	return &cobra.Command{
		Use: "enter [-- COMMAND]", Short: "Begin a shell, or a command, in the session of this machine", Hidden: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return apphost.AgentEnter(a.req, os.Environ(), args, a.Stderr)
		},
	}
}

// newAgentDoor returns the hidden command that connect runs on a machine for SSH.
func (a *app) newAgentDoor() *cobra.Command {
	return &cobra.Command{
		Use: "ssh KEY", Short: "Let one SSH connection in, by one key", Hidden: true, Args: oneArg("a public key"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := a.untilHangup(c.Context()) // who connects may hang up before
			defer stop()
			return apphost.AgentDoor(ctx, a.req, args[0], os.Environ(), a.Stdout)
		},
	}
}
