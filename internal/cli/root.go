package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// app is what the commands share: the process and the global flags.
type app struct {
	*Process
	configPath string
	dataDir    string
	// databaseURL is the database of --database-url.
	databaseURL string
	quiet       bool
	// overlay is the price overlay of the shared settings, nil where there are none.
	overlay *string
	// reviewed are requests that this process decided by reviews that it read.
	reviewed map[string]bool
	// warned says that refused prices were told.
	warned bool
	// bars is where progress is drawn.
	bars io.Writer
}

func newRoot(p *Process, bars io.Writer) *cobra.Command {
	a := &app{Process: p, bars: bars}
	root := &cobra.Command{
		Use:   "curfew",
		Short: "GPUs that go home when the work is done",
		Long: `curfew sees every meter that runs in a cloud account, tells used dollars from
wasted ones, and says exactly how to stop what does nothing.`,
		Example: `  curfew scan --demo                 the audit on a simulated account
  curfew scan                        the audit of your AWS account (read-only)
  curfew scan -o html > audit.html   the same as a report with pictures
  curfew price show g6.2xlarge       what the price book knows`,
		Version:           p.Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetVersionTemplate("curfew {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
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
	flags.StringVar(&a.configPath, "config", "", "configuration `file` (default: curfew.yaml found upward, then the user's)")
	flags.StringVar(&a.dataDir, "data-dir", "", "`directory` for what curfew remembers (default: the user's data directory)")
	flags.StringVar(&a.databaseURL, "database-url", "", "PostgreSQL database that several machines share, postgres://…")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "no progress")
	root.AddCommand(a.newInit("init"), a.newScan(), a.newFix(), a.newPolicy(), a.newBacktest(), a.newEnforce(), a.newKeep(), a.newConsent(), a.newTag(), a.newConfirm(), a.newFreeze(), a.newUnfreeze(),
		a.newCosts(), a.newBudget(), a.newBill(), a.newEstimate(), a.newGate(), a.newApprove(), a.newDeny(), a.newApprovals(), a.newWhoami(), a.newSettings(), a.newAudit(),
		a.newPlan(), a.newPrice())
	root.RunE = func(c *cobra.Command, args []string) error { return c.Help() }
	root.Args = noSuchVerb
	return root
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
		return &failure{exit: ExitUsage, code: "usage", err: fmt.Errorf("%s takes no argument, got %q", c.CommandPath(), args[0]),
			hint: "see " + c.CommandPath() + " --help"}
	}
	return nil
}

// config reads the configuration that --config names or that is found.
func (a *app) config() (config.Config, error) {
	var c config.Config
	var err error
	hint := "docs/configuration.md lists every key"
	if a.configPath != "" {
		c, err = config.Load(a.path(a.configPath), a.Lookup)
	} else {
		path := config.Find(a.Dir, a.ConfigDir)
		if c, err = config.LoadFound(path, a.Lookup); err != nil && config.Trust(path) != nil {
			hint = "read it, then give --config " + plain.Shell(path) + " to use it, or `chmod go-w` it if it is yours"
		}
	}
	if err != nil {
		return config.Config{}, &failure{exit: ExitUsage, code: "invalid_file", err: err, hint: hint}
	}
	if a.dataDir != "" {
		c.DataDir = a.path(a.dataDir)
	}
	if c.DataDir == "" {
		c.DataDir = a.DataDir
	}
	if a.databaseURL != "" {
		c.DatabaseURL = a.databaseURL
	}
	if err := config.TrustState(c.DataDir); err != nil {
		return config.Config{}, &failure{exit: ExitError, code: "untrusted_state", err: fmt.Errorf("the state is not used: %w", err),
			hint: "`chmod go-w` it if it is yours, or give another --data-dir"}
	}
	return c, nil
}

// path returns a file's path as seen from the working directory.
func (a *app) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	if rel := filepath.Join(a.Dir, p); a.Dir != "" {
		if wd, err := os.Getwd(); err != nil || wd != a.Dir {
			return rel
		}
	}
	return p
}

// priceFile is the user's own prices, read over the embedded book.
const priceFile = "prices.csv"

// prices returns the embedded book with the updates of the shared settings, or of the
// user where there are none. What does not pass the quarantine is not used, and is told.
func (a *app) prices(c config.Config) (*price.Book, error) {
	name := filepath.Join(c.DataDir, priceFile)
	if a.overlay != nil {
		book, refused, err := a.quarantined(*a.overlay, "the prices of the shared settings")
		return a.told(book, refused, "the prices of the shared settings", err)
	}
	if c.DataDir == "" {
		return price.Embedded()
	}
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return price.Embedded()
	}
	if err != nil {
		return nil, fmt.Errorf("read the updated prices: %w", err)
	}
	book, refused, err := a.quarantined(string(text), name)
	return a.told(book, refused, name, err)
}

// quarantined returns the book with the prices of a text that are plausible.
func (a *app) quarantined(text, name string) (*price.Book, []price.Refusal, error) {
	book, err := price.Embedded()
	if err != nil || text == "" {
		return book, nil, err
	}
	book, refused, err := book.Quarantined(strings.NewReader(text))
	if err != nil {
		return nil, nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s: %w", name, err),
			hint: "delete the file to go back to the built-in prices"}
	}
	return book, refused, nil
}

// told says once which prices are not used.
func (a *app) told(book *price.Book, refused []price.Refusal, name string, err error) (*price.Book, error) {
	if err == nil && len(refused) > 0 && !a.warned {
		a.warned = true
		r := refused[0]
		plain.Fprintf(a.Stderr, "curfew: %s of %s not used; the first is %s in %s: %s\n", plain.Count(len(refused), "price"), name, r.Entry.Type, r.Entry.Region, r.Reason)
	}
	return book, err
}

// color says whether output may be colored: only on a terminal, and not with
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
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return usageError("--%s %q: it is one of %s%s", flag, value, strings.Join(allowed, ", "), document.DidYouMean(value, allowed))
}
