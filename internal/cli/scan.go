package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// sourceFlags choose the account to read, and recorded usage for it.
type sourceFlags struct {
	clouds.Source
	demo bool
}

func (f *sourceFlags) add(fl *pflag.FlagSet) {
	f.addAccount(fl)
	fl.StringVar(&f.Profile, "profile", "", "AWS profile")
	f.addUsage(fl)
}

// addUsage adds the flags that name recorded usage.
func (f *sourceFlags) addUsage(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.Usage, "usage", nil,
		"recorded GPU samples (CSV, CSV.gz, Parquet or nvidia-smi CSV) `file`, or - for a pipe; repeatable")
	f.addMetrics(fl)
	fl.StringVar(&f.Columns, "map", "", "columns of --usage under other names: `resource=host,time=ts`")
	fl.StringVar(&f.Step, "step", "", "sampling step of --usage, such as 60s (default: seen in the file)")
	fl.StringVar(&f.Resource, "resource", "", "the resource that nvidia-smi's output in --usage is about: id or name")
	fl.StringVar(&f.TZ, "tz", "",
		"time `zone` of times in --usage without one, such as Europe/Berlin or +09:00 (default: that of this machine)")
}

// addAccount adds the flags that say which account is read, but for the profile.
func (f *sourceFlags) addAccount(fl *pflag.FlagSet) {
	fl.BoolVar(&f.demo, "demo", false, "the built-in simulated account (the same as --cloud sim)")
	f.addRealAccount(fl)
}

// addRealAccount adds those flags that apply to real accounts of commands with simulated charges.
func (f *sourceFlags) addRealAccount(fl *pflag.FlagSet) {
	fl.StringVar(&f.Cloud, "cloud", "aws",
		"what to read: aws, sim, local (sessions on this machine), or with scan and enforce onprem (machines in "+
			"curfew.yaml); scan and enforce read the clouds of curfew.yaml without it")
	fl.StringSliceVar(&f.Regions, "regions", nil, "regions to read, or all (default: the configured region)")
	fl.StringArrayVar(&f.AssumeRoles, "assume-role", nil,
		"`ARN` of a role in another account to read as well; repeatable")
}

// check settles which cloud is meant, of those on which something can be carried out.
func (f *sourceFlags) check() error {
	if f.Cloud == local.OnPremises && !f.demo {
		return usageError(
			"--cloud onprem: curfew acts on no on-premises machine; `curfew scan --cloud onprem` says which do nothing")
	}
	return f.checkAudit()
}

// checkAudit settles which cloud is meant, of those that can be audited.
func (f *sourceFlags) checkAudit() error {
	if f.demo {
		f.Cloud = sim.CloudName
	}
	return oneOf("cloud", f.Cloud, clouds.Names()...)
}

// scanFlags are the flags of scan.
type scanFlags struct {
	sourceFlags
	window string
	bill   string
	noSave bool
	failOn string
	min    string
	all    bool
	iam    policyFlags
	last   bool
}

// The help of flags that every command which audits has.
const (
	billUse = "bill to read with the account: FOCUS or CUR 2.0 in a file, a folder or " +
		"s3://bucket/prefix, or imported (the bills in the state)"
	saveUse = "store neither the findings nor, in the ledger, the observations"
)

func (a *app) newScan() *cobra.Command {
	var f scanFlags
	c := &cobra.Command{
		Use:   "scan",
		Short: "Audit an account: what runs, what it costs, what is wasted",
		Long: `Reads an account (only ever Describe, List and Get calls), judges what its
resources do, and ranks the waste in dollars a month with the exact fix.

Unreadable sources are listed as blind spots and never counted as waste. Savings
exclude the part that commitments cover and charges that continue after a fix.`,
		Example: `  curfew scan --demo                            # a simulated account, no credentials needed
  curfew scan --regions us-east-1,us-west-2     # two regions of the account you are in
  curfew scan --assume-role arn:aws:iam::123456789012:role/audit
  curfew scan --usage gpus.csv.gz               # with GPU samples you recorded yourself
  curfew scan --cloud onprem --usage fleet.csv  # the machines that curfew.yaml lists
  curfew scan --bill focus-2026-11.csv.gz       # with transfers and commitments from the bill
  curfew scan --fail-on 500 -o json             # in CI: exit code 3 above $500 a month
  curfew scan --last -o html > audit.html       # the kept audit again, without reading the account
  curfew scan --print-iam-policy                # the exact read-only permissions it uses`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.last {
				return a.lastScan(c.Context(), f, c.Flags())
			}
			named := c.Flags().Changed("cloud") || f.demo || f.iam.print
			return a.eachCloud(&f.sourceFlags, "curfew scan", named, func() error { return a.scan(c.Context(), f) })
		},
	}
	fl := c.Flags()
	f.add(fl)
	fl.StringVar(&f.window, "window", "", "how far back usage is read (default 14d)")
	fl.StringVar(&f.bill, "bill", "", billUse)
	fl.StringVar(&f.failOn, "fail-on", "", "exit with 3 when waste is over this many `dollars` a month")
	a.outputs(c, scanOutputs...)
	fl.BoolVar(&f.all, "all", false, "every finding, not only the largest")
	fl.StringVar(&f.min, "min", "1",
		"fold findings about fewer `dollars` a month, and missing tags, into a line with their count; 0 shows each")
	fl.BoolVar(&f.noSave, "no-save", false, saveUse)
	fl.BoolVar(&f.last, "last", false, "show the audit that the last scan kept, with its age; the account is not read")
	f.iam.add(fl, "with the permissions that scan uses")
	return c
}

var scanOutputs = []string{"table", "json", "yaml", "csv", "html", "md", "summary"}

func (a *app) scan(ctx context.Context, f scanFlags) error {
	if err := f.checkAudit(); err != nil {
		return err
	}
	if err := f.iam.check(); err != nil {
		return err
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if f.iam.print {
		partition, err := f.iam.in(f.Regions, cfg.AWS.Regions)
		if err != nil {
			return err
		}
		_, err = a.Stdout.Write(clouds.ReadPolicy(partition))
		return err
	}
	limit, err := failOn(f.failOn, cfg.Scan.FailOn)
	if err != nil {
		return err
	}
	if _, err := dollarsAMonth("--min", f.min); err != nil {
		return err // before the account is read
	}
	o := audit.ScanOptions{Source: f.Source, Bill: f.bill, NoSave: f.noSave, Version: a.Version}
	if f.window != "" {
		if o.Window, err = config.ParseDuration(f.window); err != nil || o.Window <= 0 {
			return usageError("--window %q: it is a duration such as 14d or 72h", f.window)
		}
	}
	audit, err := audit.Scan(ctx, a.req, cfg, o, func(doc view.Scan, kept bool) error {
		f.noSave = !kept
		return a.render(doc, f, 0)
	})
	if err != nil {
		return err
	}
	return scanExit(len(audit.BlindSpots) > 0, limit, audit.Totals.Waste)
}

// scanExit is the exit code of an audit that was shown.
func scanExit(partial bool, limit *money.Amount, waste money.Amount) error {
	switch {
	case partial:
		return &failure{exit: ExitPartial}
	case limit != nil && waste > *limit:
		return &failure{exit: ExitHeld, code: "waste_over_limit",
			err: fmt.Errorf("waste of %s a month is over the limit of %s", waste.Dollars(), limit.Dollars())}
	}
	return nil
}

// lastScan shows the kept audit of the cloud that the flags name, else the newest.
func (a *app) lastScan(ctx context.Context, f scanFlags, set *pflag.FlagSet) error {
	var reads []string
	set.Visit(func(fl *pflag.Flag) {
		if slices.Contains([]string{
			"regions", "assume-role", "profile", "usage", "map", "step", "resource", "tz", "window", "bill", "no-save",
			"print-iam-policy", "partition",
		}, fl.Name) {
			reads = append(reads, "--"+fl.Name)
		}
	})
	if len(reads) > 0 {
		return usageError("curfew scan --last shows the kept audit and reads nothing: leave out %s",
			strings.Join(reads, ", "))
	}
	if err := f.checkAudit(); err != nil {
		return err
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	limit, err := failOn(f.failOn, cfg.Scan.FailOn)
	if err != nil {
		return err
	}
	cloud := ""
	if f.demo || set.Changed("cloud") {
		cloud = f.Cloud
	}
	doc, err := ops.GetLastScan.Call(ctx, a.at, ops.LastScanInput{Cloud: cloud, Samples: true})
	if err != nil {
		return err
	}
	f.Cloud = doc.Cloud
	age := max(a.Now().Sub(doc.FinishedAt).Round(time.Second), time.Second)
	if slices.Contains([]string{"json", "yaml", "csv"}, a.format) {
		plain.Fprintf(a.Stderr, "curfew: the kept audit of %s, %s old; `curfew scan` reads the account again\n",
			doc.Cloud,
			plain.Duration(age))
	}
	if err := a.render(doc, f, age); err != nil {
		return err
	}
	return scanExit(len(doc.BlindSpots) > 0, limit, doc.MonthlyWasteUSD.Or(0))
}

// again returns the command that shows this audit in another form: from the kept audit, or with the
// same flags if none was kept.
func (a *app) again(f scanFlags) string {
	words := []string{"curfew scan"}
	switch {
	case clouds.Of(f.Cloud).Simulated:
		words = append(words, "--demo")
	case f.Cloud != "aws":
		words = append(words, "--cloud", f.Cloud)
	}
	if f.noSave {
		add := func(name string, values ...string) {
			for _, v := range values {
				if v != "" {
					words = append(words, "--"+name, plain.Shell(v))
				}
			}
		}
		add("regions", strings.Join(f.Regions, ","))
		add("assume-role", f.AssumeRoles...)
		add("profile", f.Profile)
		add("usage", f.Usage...)
		add("map", f.Columns)
		add("step", f.Step)
		add("resource", f.Resource)
		add("tz", f.TZ)
		add("window", f.window)
		add("bill", f.bill)
		words = append(words, "--no-save")
	} else {
		words = append(words, "--last")
	}
	return strings.Join(words, " ") + a.globals()
}

// globals are the flags of every command that the user gave, to follow a suggested
// command; a database URL may hold a password and is not repeated.
func (a *app) globals() string {
	out := ""
	if a.req.ConfigFlag != "" {
		out += " --config " + plain.Shell(a.req.ConfigFlag)
	}
	if a.req.DataFlag != "" {
		out += " --data-dir " + plain.Shell(a.req.DataFlag)
	}
	return out
}

// failOn reads the limit of --fail-on or of the configuration; nil if there is none.
func failOn(flag, configured string) (*money.Amount, error) {
	name, text := "--fail-on", flag
	if text == "" {
		name, text = "scan.fail_on", configured
	}
	if text == "" {
		return nil, nil
	}
	v, err := dollarsAMonth(name, text)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// dollarsAMonth reads an amount of dollars a month of a flag or a key; name is its name.
func dollarsAMonth(name, text string) (money.Amount, error) {
	v, err := money.ParseAmount(strings.TrimPrefix(text, "$"))
	if err != nil || v < 0 {
		return 0, usageError("%s %q: it is an amount of dollars a month such as 500", name, text)
	}
	return v, nil
}

// render writes an audit; age is how old a kept one is.
func (a *app) render(doc view.Scan, f scanFlags, age time.Duration) error {
	least, err := dollarsAMonth("--min", f.min)
	if err != nil {
		return err
	}
	o := report.Options{
		Width: a.Width, Color: a.color(), All: f.all, Min: least, Again: a.again(f), Globals: a.globals(), Age: age,
		Kept: !f.noSave,
	}
	render := map[string]func(io.Writer, view.Scan, report.Options) error{
		"table": report.Table, "csv": report.CSV, "html": report.HTML, "md": report.Markdown,
		"summary": report.Summary,
		"json":    func(w io.Writer, d view.Scan, _ report.Options) error { return view.WriteJSON(w, d.Public()) },
		"yaml":    func(w io.Writer, d view.Scan, _ report.Options) error { return view.WriteYAML(w, d.Public()) },
	}[a.format]
	if err := render(a.Stdout, doc, o); err != nil {
		return fmt.Errorf("write the %s output: %w", a.format, err)
	}
	return nil
}
