package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/cloud/onprem"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// sourceFlags say which account is read, and which recorded usage with it.
type sourceFlags struct {
	cloud       string
	demo        bool
	regions     []string
	assumeRoles []string
	profile     string
	usage       []string
	columns     string
	step        string
	resource    string
	// transient says that nothing is kept.
	transient bool
}

func (f *sourceFlags) add(fl *pflag.FlagSet) {
	f.addAccount(fl)
	fl.StringVar(&f.profile, "profile", "", "AWS profile")
	fl.StringArrayVar(&f.usage, "usage", nil, "recorded GPU samples (CSV, CSV.gz, Parquet or nvidia-smi CSV) `file`; repeatable")
	fl.StringVar(&f.columns, "map", "", "columns of --usage under other names: `resource=host,time=ts`")
	fl.StringVar(&f.step, "step", "", "sampling step of --usage, such as 60s (default: seen in the file)")
	fl.StringVar(&f.resource, "resource", "", "the resource that nvidia-smi's output in --usage is about: id or name")
}

// addAccount adds the flags that say which account is read, but for the profile.
func (f *sourceFlags) addAccount(fl *pflag.FlagSet) {
	fl.StringVar(&f.cloud, "cloud", "aws", "what to read: aws, sim, or with scan onprem (machines in curfew.yaml)")
	fl.BoolVar(&f.demo, "demo", false, "the built-in simulated account (the same as --cloud sim)")
	fl.StringSliceVar(&f.regions, "regions", nil, "regions to read, or all (default: the configured region)")
	fl.StringArrayVar(&f.assumeRoles, "assume-role", nil, "`ARN` of a role in another account to read as well; repeatable")
}

// source is the account and the recorded usage that the flags name.
func (f sourceFlags) source() daemon.Source {
	return daemon.Source{Cloud: f.cloud, Regions: f.regions, AssumeRoles: f.assumeRoles, Profile: f.profile,
		Usage: f.usage, Columns: f.columns, Step: f.step, Resource: f.resource, Transient: f.transient}
}

// reach adds how kept scans reached these resources: their profile and roles.
func (f *sourceFlags) reach(cfg config.Config, docs []view.Scan, refs []inventory.Ref) {
	s := f.source()
	daemon.ReachAgain(cfg, &s, docs, refs)
	f.profile, f.assumeRoles = s.Profile, s.AssumeRoles
}

// check settles which cloud is meant, of those on which something can be carried out.
func (f *sourceFlags) check() error {
	if f.cloud == onprem.CloudName && !f.demo {
		return usageError("--cloud onprem: curfew acts on no on-premises machine; `curfew scan --cloud onprem` says which do nothing")
	}
	return f.checkAudit()
}

// checkAudit settles which cloud is meant, of those that can be audited.
func (f *sourceFlags) checkAudit() error {
	if f.demo {
		f.cloud = "sim"
	}
	return oneOf("cloud", f.cloud, "aws", "sim", onprem.CloudName)
}

// scanFlags are the flags of scan.
type scanFlags struct {
	sourceFlags
	window      string
	bill        string
	failOn      string
	output      string
	all         bool
	noSave      bool
	printPolicy bool
	last        bool
}

func (a *app) newScan() *cobra.Command {
	var f scanFlags
	c := &cobra.Command{
		Use:   "scan",
		Short: "Audit an account: what runs, what it costs, what is wasted",
		Long: `Reads an account (only ever Describe, List and Get calls), judges what its
resources do, and ranks the waste in dollars a month with the exact fix.

What cannot be read is named as a blind spot and never counted as waste. Savings
are net of reserved instances and savings plans, and of what keeps costing.`,
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
				return a.lastScan(f, c.Flags())
			}
			return a.scan(c.Context(), f)
		},
	}
	fl := c.Flags()
	f.add(fl)
	fl.StringVar(&f.window, "window", "", "how far back usage is read (default 14d)")
	fl.StringVar(&f.bill, "bill", "", "bill to read with the account: FOCUS or CUR 2.0 in a file, a folder or s3://bucket/prefix, or imported (the bills in the state)")
	fl.StringVar(&f.failOn, "fail-on", "", "exit with 3 when waste is over this many `dollars` a month")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json, yaml, csv, html, md, or summary (short Markdown for a pull request or a chat)")
	fl.BoolVar(&f.all, "all", false, "every finding, not only the largest")
	fl.BoolVar(&f.noSave, "no-save", false, "keep neither the findings nor, in the ledger, what was observed")
	fl.BoolVar(&f.last, "last", false, "show the audit that the last scan kept, with its age; the account is not read")
	fl.BoolVar(&f.printPolicy, "print-iam-policy", false, "print the IAM policy with the permissions that scan uses, and do nothing else")
	return c
}

var scanOutputs = []string{"table", "json", "yaml", "csv", "html", "md", "summary"}

func (a *app) scan(ctx context.Context, f scanFlags) error {
	if err := oneOf("output", f.output, scanOutputs...); err != nil {
		return err
	}
	if err := f.checkAudit(); err != nil {
		return err
	}
	if f.printPolicy {
		_, err := a.Stdout.Write(daemon.ReadPolicy())
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
	if f.window != "" {
		if cfg.Scan.Window, err = config.ParseDuration(f.window); err != nil || cfg.Scan.Window <= 0 {
			return usageError("--window %q: it is a duration such as 14d or 72h", f.window)
		}
	}
	billed, err := a.auditedBill(ctx, cfg, f)
	if err != nil {
		return err
	}
	f.transient = f.noSave
	setting, err := a.setting(ctx, cfg, f.sourceFlags)
	if err != nil {
		return err
	}
	keeps := !f.noSave && cfg.DataDir != ""
	if keeps && f.cloud != sim.CloudName { // what the simulated account spends is not spent
		books := &openedBooks{open: func(ctx context.Context) (*store.Store, error) { return a.open(ctx, cfg) }}
		defer books.close()
		setting.Books = books
	}
	bar := a.newProgress(f.cloud)
	setting.Source, setting.Query = "scan", round.Query{Window: cfg.Scan.Window, Progress: bar.report}
	if cfg.Thresholds.Interruptions, err = a.interruptions(cfg); err != nil {
		return err
	}
	setting.Audit = &round.Audit{Thresholds: cfg.Thresholds, Rules: daemon.RulesOf(f.cloud), Required: cfg.RequiredTags, Owners: cfg.Owners, Tags: cfg.Tags, Bill: billed}
	audit, err := round.New(setting).Round(ctx)
	bar.finish()
	if err != nil {
		return daemon.CloudError(err)
	}
	f.noSave = !keeps
	doc := view.NewScan(audit, view.ScanOptions{Version: a.Version, Profile: f.profile})
	if err := a.render(doc, f, 0); err != nil {
		return err
	}
	if keeps {
		err := saveScan(cfg.DataDir, f.cloud, doc)
		if err == nil {
			err = daemon.SaveInventory(cfg.DataDir, f.cloud, audit)
		}
		if err != nil {
			return &failure{exit: ExitError, code: "not_saved", err: fmt.Errorf("keep the findings: %w", err),
				hint: "the audit itself is complete; give --data-dir, or --no-save to keep nothing"}
		}
	}
	if len(audit.Unposted) > 0 {
		return unposted(audit, "what was shown is complete")
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
func (a *app) lastScan(f scanFlags, set *pflag.FlagSet) error {
	var reads []string
	set.Visit(func(fl *pflag.Flag) {
		if slices.Contains([]string{"regions", "assume-role", "profile", "usage", "map", "step", "resource", "window", "bill", "no-save", "print-iam-policy"}, fl.Name) {
			reads = append(reads, "--"+fl.Name)
		}
	})
	if len(reads) > 0 {
		return usageError("curfew scan --last shows the kept audit and reads nothing: leave out %s", strings.Join(reads, ", "))
	}
	if err := errors.Join(oneOf("output", f.output, scanOutputs...), f.checkAudit()); err != nil {
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
	kept, err := daemon.KeptScans(cfg.DataDir)
	if err != nil {
		return err
	}
	if f.demo || set.Changed("cloud") {
		kept = slices.DeleteFunc(kept, func(d view.Scan) bool { return d.Cloud != f.cloud })
	}
	if len(kept) == 0 {
		return &failure{exit: ExitError, code: "no_scan", err: fmt.Errorf("there is no kept scan of %s", f.cloud), hint: "run `curfew scan --cloud " + f.cloud + "` first"}
	}
	doc := slices.MaxFunc(kept, func(x, y view.Scan) int { return x.FinishedAt.Compare(y.FinishedAt) })
	f.cloud = doc.Cloud
	age := max(a.Now().Sub(doc.FinishedAt).Round(time.Second), time.Second)
	if slices.Contains([]string{"json", "yaml", "csv"}, f.output) {
		plain.Fprintf(a.Stderr, "curfew: the kept audit of %s, %s old; `curfew scan` reads the account again\n", doc.Cloud, plain.Duration(age))
	}
	if err := a.render(doc, f, age); err != nil {
		return err
	}
	return scanExit(len(doc.BlindSpots) > 0, limit, doc.MonthlyWasteUSD.Or(0))
}

// again is the command that shows this audit in another form: from what was kept, or with
// the same flags where nothing was.
func (a *app) again(f scanFlags) string {
	words := []string{"curfew scan"}
	switch {
	case f.cloud == sim.CloudName:
		words = append(words, "--demo")
	case f.cloud != "aws":
		words = append(words, "--cloud", f.cloud)
	}
	if f.noSave {
		add := func(name string, values ...string) {
			for _, v := range values {
				if v != "" {
					words = append(words, "--"+name, plain.Shell(v))
				}
			}
		}
		add("regions", strings.Join(f.regions, ","))
		add("assume-role", f.assumeRoles...)
		add("profile", f.profile)
		add("usage", f.usage...)
		add("map", f.columns)
		add("step", f.step)
		add("resource", f.resource)
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
	if a.rt.ConfigFlag != "" {
		out += " --config " + plain.Shell(a.rt.ConfigFlag)
	}
	if a.rt.DataFlag != "" {
		out += " --data-dir " + plain.Shell(a.rt.DataFlag)
	}
	return out
}

// auditedBill reads the bill that --bill names; nil without one.
func (a *app) auditedBill(ctx context.Context, cfg config.Config, f scanFlags) (*round.Bill, error) {
	if f.bill == "" {
		return nil, nil
	}
	var rows iter.Seq[bill.Row]
	var broken error
	if f.bill == importedBill {
		s, err := a.open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		rows = bill.RowsOf(ctx, s.Bills(), bill.Query{From: a.Now().UTC().AddDate(0, 0, -billedDays)}, &broken)
	} else {
		b, err := a.readBill(ctx, cfg, f.bill, f.profile)
		if err != nil {
			return nil, err
		}
		rows = b.Rows()
	}
	out, err := round.BillOf(rows, f.cloud, f.bill)
	if err := errors.Join(err, broken); err != nil {
		return nil, fmt.Errorf("add up the bill: %w", err)
	}
	return out, nil
}

// importedBill names, in place of a path, what was imported before, of which the newest
// billedDays are read.
const (
	importedBill = "imported"
	billedDays   = 60
)

// failOn reads the limit of --fail-on or of the configuration; nil is none.
func failOn(flag, configured string) (*money.Amount, error) {
	name, text := "--fail-on", flag
	if text == "" {
		name, text = "scan.fail_on", configured
	}
	if text == "" {
		return nil, nil
	}
	v, err := money.ParseAmount(strings.TrimPrefix(text, "$"))
	if err != nil || v < 0 {
		return nil, usageError("%s %q: it is an amount of dollars a month such as 500", name, text)
	}
	return &v, nil
}

// render writes an audit; age is how old a kept one is.
func (a *app) render(doc view.Scan, f scanFlags, age time.Duration) error {
	o := report.Options{Width: a.Width, Color: a.color(), All: f.all, Again: a.again(f), Globals: a.globals(), Age: age}
	render := map[string]func(io.Writer, view.Scan, report.Options) error{
		"table": report.Table, "csv": report.CSV, "html": report.HTML, "md": report.Markdown, "summary": report.Summary,
		"json": func(w io.Writer, d view.Scan, _ report.Options) error { return view.WriteJSON(w, d.Public()) },
		"yaml": func(w io.Writer, d view.Scan, _ report.Options) error { return view.WriteYAML(w, d.Public()) },
	}[f.output]
	if err := render(a.Stdout, doc, o); err != nil {
		return fmt.Errorf("write the %s output: %w", f.output, err)
	}
	return nil
}

// saveScan keeps the findings for later commands: the whole file or none.
func saveScan(dir, cloud string, doc view.Scan) error {
	dir = filepath.Join(dir, "scans")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return daemon.ReplaceFile(filepath.Join(dir, cloud+".json"), func(w io.Writer) error { return view.WriteJSON(w, doc) })
}
