package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/plan"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/plan/tco"
	"github.com/curfew-dev/curfew/internal/spec"
)

// all returns a command and its subcommands, without help and completion.
func all(c *cobra.Command) (out []*cobra.Command) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return nil
	}
	out = append(out, c)
	for _, sub := range c.Commands() {
		out = append(out, all(sub)...)
	}
	return out
}

func (p *book) commands() error {
	root := cli.Commands()
	p.text("Every command prints its help with `--help`. [Exit codes](exit-codes.md) are the same for all commands; " +
		"documents of `-o json` have [schemas](documents.md).")
	p.heading(2, "Global flags")
	p.flags(root.PersistentFlags())
	for _, c := range all(root)[1:] {
		p.heading(2, c.CommandPath())
		about := c.Long
		if about == "" {
			about = c.Short + "."
		}
		p.text("%s", sentence(about))
		if c.Runnable() && !c.HasSubCommands() || c.HasLocalFlags() {
			p.b.WriteString("    " + c.UseLine() + "\n\n")
		}
		if c.HasSubCommands() {
			var rows [][]string
			for _, sub := range c.Commands() {
				if !sub.Hidden && sub.Name() != "help" {
					rows = append(rows, []string{
						fmt.Sprintf("[`%s`](#%s)", sub.CommandPath(), strings.ReplaceAll(sub.CommandPath(), " ", "-")),
						sub.Short,
					})
				}
			}
			p.table([]string{"command", "does"}, rows)
		}
		p.flags(c.LocalNonPersistentFlags())
		if c.Example != "" {
			p.b.WriteString("```console\n" + strings.TrimRight(c.Example, "\n") + "\n```\n\n")
		}
	}
	return nil
}

// flags writes a table of flags.
func (p *book) flags(flags *pflag.FlagSet) {
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		standard := f.DefValue
		if standard == "[]" || standard == "false" || standard == "0" || standard == "0s" {
			standard = ""
		}
		rows = append(rows, []string{code(name), code(standard), sentence(usage)})
	})
	if rows != nil {
		p.table([]string{"flag", "default", "meaning"}, rows)
	}
}

func (p *book) exitCodes() error {
	var rows [][]string
	for _, c := range p.code.listed["Exit"] {
		rows = append(rows, []string{code(c.value), c.doc})
	}
	p.table([]string{"code", "meaning"}, rows)
	p.text("When several apply, the order is 2, 1, 4, 5, 3. An error is one line on standard error: what was " +
		"attempted, why, and what to do. With `-o json` an object follows it: " +
		"`{\"error\":{\"code\":\"…\",\"message\":\"…\",\"hint\":\"…\"}}`.")
	return nil
}

// planner is a planner with its input files.
type planner struct {
	command, schema string
	files           []planFile
}

type planFile struct {
	flag, example string
	layout        plan.Layout
}

var planners = []planner{
	{"rightsize", rightsize.Schema, nil},
	{
		"mig", mig.Schema,
		[]planFile{
			{"--workloads", "examples/data/workloads.csv", mig.WorkloadsFile}, {"--current", "", mig.PlacementsFile},
		},
	},
	{
		"commit", commit.Schema,
		[]planFile{
			{"--usage", "examples/data/hourly.csv.gz", commit.UsageFile},
			{"--offers", "examples/data/offers.csv", commit.OffersFile}, {"--existing", "", commit.ExistingFile},
		},
	},
	{"capacity", capacity.Schema, []planFile{{"--arrivals", "examples/data/requests.csv.gz", capacity.ArrivalsFile}}},
	{"spot", spot.Schema, []planFile{{"--trace", "examples/data/spot.csv", spot.TraceFile}}},
	{"checkpoint", spot.CheckpointSchema, []planFile{{"--trace", "examples/data/spot.csv", spot.TraceFile}}},
	{"market", market.Schema, nil},
	{"tco", tco.Schema, nil},
}

func (p *book) planners() error {
	p.text(
		"Planners read CSV files with a header, and change nothing. Names ending in `.gz` are unpacked. `-o json` " +
			"prints a document; amounts are decimal texts, and null where they are unknown.")
	for _, planner := range planners {
		p.heading(2, "curfew plan "+planner.command)
		if planner.command == "rightsize" {
			p.text("`--usage` reads recorded usage: [traces](traces.md).")
		}
		for _, f := range planner.files {
			p.text("`%s FILE`:", f.flag)
			p.columns(f.layout)
			if f.example != "" {
				p.text("Example: [`%s`](../../%[1]s).", f.example)
			}
		}
		for _, o := range outputs {
			if o.schema == planner.schema {
				p.document(o, 3)
			}
		}
	}
	p.heading(2, "Other files")
	for _, f := range []planFile{
		{"curfew estimate --history", "", estimate.RunsFile},
		{"curfew costs units --counts", "examples/data/tokens.csv", costs.CountsFile},
		{"curfew costs shares", "examples/data/shares.csv", costs.SharesFile},
	} {
		p.text("`%s FILE`:", f.flag)
		p.columns(f.layout)
	}
	return nil
}

// columns writes the columns of a file.
func (p *book) columns(l plan.Layout) {
	var rows [][]string
	for _, c := range l.Required {
		rows = append(rows, []string{code(c.Name), "required", c.Doc})
	}
	for _, c := range l.Optional {
		rows = append(rows, []string{code(c.Name), "", c.Doc})
	}
	p.table([]string{"column", "", "meaning"}, rows)
	if l.Others {
		p.text("Other columns are ignored.")
	}
}

// document writes the fields of a document.
func (p *book) document(o output, level int) {
	s := o.reflected(p.code)
	forms := s.AnyOf
	if forms == nil {
		forms = []*jsonschema.Schema{s}
	}
	p.text("Printed by `%s`. Schema: [`schemas/%s`](../../schemas/%[2]s).", o.by, o.file())
	for _, form := range forms {
		if len(forms) > 1 && form.Description != "" {
			p.text("%s:", strings.ToUpper(form.Description[:1])+form.Description[1:])
		}
		p.fields(form, s.Definitions)
	}
	var names []string
	for name, def := range s.Definitions {
		if def.Properties != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		def := s.Definitions[name]
		p.heading(level, "`"+name+"` of `"+o.schema+"`")
		if def.Description != "" {
			p.text("%s.", strings.ToUpper(def.Description[:1])+sentence(def.Description[1:]))
		}
		p.fields(def, s.Definitions)
	}
}

// fields writes a table of the fields of an object.
func (p *book) fields(s *jsonschema.Schema, defs jsonschema.Definitions) {
	var rows [][]string
	for at := s.Properties.Oldest(); at != nil; at = at.Next() {
		typ := typeOf(at.Value, defs)
		if ref := refOf(at.Value); ref != "" && defs[ref] != nil && defs[ref].Type == "object" {
			typ = strings.ReplaceAll(typ, "objects", code(ref))
			typ = strings.ReplaceAll(typ, "object", code(ref))
		}
		rows = append(rows, []string{code(at.Key), typ, sentence(at.Value.Description)})
	}
	p.table([]string{"field", "type", "meaning"}, rows)
}

// refOf returns the definition that a field, its items or its values refer to.
func refOf(s *jsonschema.Schema) string {
	for _, form := range s.AnyOf {
		if ref := refOf(form); ref != "" {
			return ref
		}
	}
	switch {
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/$defs/")
	case s.Items != nil:
		return refOf(s.Items)
	case s.AdditionalProperties != nil:
		return refOf(s.AdditionalProperties)
	}
	return ""
}

func (p *book) jobs() error {
	p.text(
		"`curfew estimate` and `curfew gate` read jobs and sessions. Durations are `30m`, `12h` or `7d`; sizes are " +
			"`200GiB` or `1.5TB`; GPUs are `A100:8` or `A100-80GB`.")
	p.heading(2, "Jobs")
	p.fileKeys("job.v1.json", "", spec.Shape(spec.Job), "examples/jobs/train.yaml")
	p.heading(2, "Sessions")
	p.fileKeys("session.v1.json", "", spec.Shape(spec.Session), "examples/jobs/session.yaml")
	return nil
}

func (p *book) budgets() error {
	p.text("Budgets and quotas are sections of `curfew.yaml` and of shared settings. [budgets.md](../budgets.md) " +
		"explains them.")
	p.fileKeys("budgets.v1.json", "", budget.Shape(), "")
	return nil
}

func (p *book) events() error {
	p.heading(2, "Audit log")
	p.text("`curfew audit` prints the log, `curfew audit -o jsonl` an entry a line. Entries are never changed or " +
		"removed; `curfew audit --verify` checks it.")
	p.fields(p.code.reflect(action.Entry{}, ""), nil)
	p.text("Values of `what`:")
	var rows [][]string
	for _, e := range p.code.listed["Event"] {
		rows = append(rows, []string{code(e.value), e.doc})
	}
	p.table([]string{"what", "meaning"}, rows)
	p.heading(2, "Webhooks")
	p.text("`notify.webhook` posts this document. Its schema is " +
		"[`schemas/notification.v1.json`](../../schemas/notification.v1.json).")
	p.fields(p.code.reflect(webhook.Document{}, webhook.Schema), nil)
	return nil
}

func (p *book) metrics() error {
	p.text("`/metrics` of `curfew serve` has these, and those of the Go process (`go_…`, `process_…`). " +
		"[examples/monitoring](../../examples/monitoring) has alert rules with tests, and a dashboard.")
	all, err := scheduler.Descriptions()
	if err != nil {
		return err
	}
	var rows [][]string
	for _, m := range all {
		rows = append(rows, []string{code(m.Name), m.Type, codes(m.Labels), m.Help})
	}
	p.table([]string{"metric", "type", "labels", "meaning"}, rows)
	return nil
}

func (p *book) documents() error {
	p.text(
		"Fields are only added to a version. Amounts (`*_usd`) are exact decimals as text, with two digits or more " +
			"after the point, or null where they are unknown; only tables round. Times are RFC 3339 in UTC.")
	var rows [][]string
	for _, o := range outputs {
		s := o.reflected(p.code)
		rows = append(rows, []string{
			code(o.schema), sentence(s.Description), code(o.by), fmt.Sprintf("[`%s`](../../schemas/%[1]s)", o.file()),
		})
	}
	p.table([]string{"document", "holds", "printed by", "schema"}, rows)
	return nil
}
