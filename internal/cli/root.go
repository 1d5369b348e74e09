package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
)

// app is shared by all commands: the process and the global flags.
type app struct {
	*Process
	// req is the request of the command.
	req *runtime.Request
	// at is the place of the state: this machine, or a server.
	at    *ops.Place
	quiet bool
	// format is the form of output that -o names.
	format   string
	progress *progress
	// said are the events of sessions that were told.
	said map[string]bool
	// saidSince is the start of the command: older messages belong to an earlier one.
	saidSince time.Time
	// raw are the outputs of the process for a program that it runs: not a byte is changed.
	raw streams
}

// streams are the outputs of a process. A program gets a terminal itself; other outputs are copied,
// so that a program's descendants do not hold them open. file is the output itself.
type streams struct{ out, err, file io.Writer }

// Commands returns the tree of all commands with their flags, for documentation.
func Commands() *cobra.Command {
	return newRoot(&Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}, io.Discard)
}

func newRoot(p *Process, bars io.Writer) *cobra.Command {
	a := newApp(p)
	a.progress = &progress{to: bars}
	return a.root()
}

// root is the command line.
func (a *app) root() *cobra.Command {
	p := a.Process
	version := false
	root := &cobra.Command{
		Use:   "curfew",
		Short: "GPUs that go home when the work is done",
		Long: `curfew sees every meter that runs in a cloud account, separates used dollars from
wasted ones, and shows how to stop what is not used.`,
		Example: `  curfew scan --demo                 # the audit on a simulated account
  curfew scan                        # the audit of your AWS account (read-only)
  curfew scan -o html > audit.html   # the same as a report with pictures
  curfew price show g6.2xlarge       # what the price book knows`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			if version {
				return nil
			}
			if a.Progress && !a.quiet {
				a.progress.what = c.CommandPath()
				go a.progress.watch(c.Context())
			}
			return a.locate(c, args)
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if f := (*failure)(nil); errors.As(err, &f) {
			return f
		}
		if invalid := (*runtime.Error)(nil); errors.As(err, &invalid) {
			return invalid
		}
		hint := "see " + c.CommandPath() + " --help"
		if name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --"); unknown {
			var names []string
			c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			if near := document.Nearest(name, names); near != "" {
				hint = "did you mean --" + near + "?"
			}
		}
		return &failure{exit: ExitUsage, code: "usage", err: fmt.Errorf("%s: %w", c.CommandPath(), err), hint: hint}
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.req.ConfigFlag, "config", "",
		"configuration `file` (default: curfew.yaml found upward, then the user's)")
	flags.StringVar(&a.req.DataFlag, "data-dir", "",
		"`directory` for what curfew remembers (default: the user's data directory)")
	flags.StringVar(&a.req.DatabaseFlag, "database-url", "",
		"PostgreSQL database that several machines share, postgres://…")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "no progress")
	root.AddCommand(a.newInit("init"), a.newScan(), a.newWhy(), a.newDoctor(), a.newAlerts(), a.newRecord(),
		a.newFix(),
		a.newPolicy(), a.newBacktest(), a.newEnforce(), a.newServe(), a.newKeep(), a.newConsent(),
		a.newTag(), a.newConfirm(),
		a.newFreeze(), a.newUnfreeze(),
		a.newCosts(), a.newBudget(), a.newBill(), a.newEstimate(), a.newGate(), a.newApprove(), a.newDeny(),
		a.newApprovals(), a.newWhoami(), a.newLogin(), a.newLogout(), a.newSettings(), a.newState(), a.newToken(),
		a.newAudit(),
		a.newRun(), a.newCancel(), a.newExplain(), a.newProfile(),
		a.newUp(), a.newLs(), a.newStatus(), a.newLogs(), a.newSessionExtend(), a.newDown(),
		a.newConnect(), a.newSession(),
		a.newCI(), a.newCage(), a.newAgent(),
		a.newCheckpoint(), a.newGateway(), a.newFleets(), a.newPlan(), a.newPrice(), a.newVersion())
	setHelp(root)
	// cobra's own --version needs text/template for its words, and that keeps methods in the binary.
	root.Flags().BoolVarP(&version, "version", "v", false, "version for curfew")
	root.RunE = func(c *cobra.Command, args []string) error {
		if version {
			_, err := plain.Fprintf(c.OutOrStdout(), "curfew %s\n", p.Version)
			return err
		}
		return c.Help()
	}
	root.Args = func(c *cobra.Command, args []string) error {
		if version {
			return nil
		}
		return noSuchVerb(c, args)
	}
	refuseUnread(root)
	return root
}

// refuseUnread lets every command refuse the arguments that it does not read, as a mistake of
// usage: cobra ignores those of a command that says nothing of arguments.
func refuseUnread(c *cobra.Command) {
	switch {
	case c.Args != nil:
	case c.HasSubCommands():
		c.Args = noSuchVerb
	default:
		c.Args = noArgs
	}
	count := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		err := count(c, args)
		if f := (*failure)(nil); err == nil || errors.As(err, &f) {
			return err
		}
		return usageError("%s: %w", c.CommandPath(), err)
	}
	for _, sub := range c.Commands() {
		refuseUnread(sub)
	}
}

func noSuchVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q", strings.Join(append([]string{c.CommandPath()}, args[0]), " "))
	hint := "see " + c.CommandPath() + " --help"
	c.SuggestionsMinimumDistance = 2
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		hint = "did you mean " + c.CommandPath() + " " + s[0] + "?"
	}
	return &failure{exit: ExitUsage, code: "usage", err: err, hint: hint}
}

// noArgs refuses arguments with the exit code of a usage mistake.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &failure{
			exit: ExitUsage, code: "usage", err: fmt.Errorf("%s takes no argument, got %q", c.CommandPath(), args[0]),
			hint: "see " + c.CommandPath() + " --help"}
	}
	return nil
}

// oneArg requires one argument and describes it.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError("%s takes %s", c.CommandPath(), what)
		}
		return nil
	}
}

// color reports whether output may be colored: only on a terminal, and not with
// NO_COLOR (https://no-color.org) or TERM=dumb.
func (p *Process) color() bool {
	if p.Width == 0 {
		return false
	}
	if v, ok := p.Lookup("NO_COLOR"); ok && v != "" {
		return false
	}
	t, _ := p.Lookup("TERM")
	return t != "dumb"
}

// oneOf checks a flag's value.
func oneOf(flag, value string, allowed ...string) error { return ops.OneOf(flag, value, allowed...) }
