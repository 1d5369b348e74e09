package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// generated is the first line of every page.
const generated = "<!-- Generated from the code by `make reference`; edit the code. -->\n\n"

// page is one page of the reference.
type page struct {
	file, title, about string
	write              func(*book) error
}

// pages are the pages in the order of the index.
var pages = []page{
	{"commands.md", "Commands", "every command with its flags, defaults and examples", (*book).commands},
	{"exit-codes.md", "Exit codes", "what a command's exit code means", (*book).exitCodes},
	{
		"configuration.md", "Configuration",
		"every key of `curfew.yaml` with its type, default, meaning and environment variable", (*book).configuration,
	},
	{"policies.md", "Policy language", "every key, fact and function of policies and their tests", (*book).policies},
	{
		"findings.md", "Findings", "every rule with its formula, threshold, savings, confidence and fix",
		(*book).findings,
	},
	{"meters.md", "Meters", "what is priced of each kind of resource on AWS, and what is not", (*book).meters},
	{"planners.md", "Planners", "the files that planners read and the documents that they print", (*book).planners},
	{"jobs.md", "Jobs and sessions", "every key of jobs and sessions", (*book).jobs},
	{"budgets.md", "Budgets and quotas", "every key of budgets and quotas", (*book).budgets},
	{
		"traces.md", "Traces", "every column of recorded usage with its type, unit, and what its absence means",
		(*book).traces,
	},
	{"events.md", "Events", "what the audit log and webhooks record", (*book).events},
	{"metrics.md", "Metrics", "every metric of `curfew serve` with its type, labels and meaning", (*book).metrics},
	{"documents.md", "Documents", "every document that commands print as JSON, with its schema", (*book).documents},
}

// book is a page under construction.
type book struct {
	code *source
	b    strings.Builder
}

func (p *book) text(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n\n", args...) }

func (p *book) heading(level int, title string) { p.text("%s %s", strings.Repeat("#", level), title) }

// table writes a table. Cells are Markdown.
func (p *book) table(head []string, rows [][]string) {
	p.b.WriteString("| " + strings.Join(head, " | ") + " |\n|" + strings.Repeat("---|", len(head)) + "\n")
	for _, row := range rows {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(cell, "|", "\\|")
		}
		p.b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	p.b.WriteString("\n")
}

// mark matches text between angle brackets, which Markdown takes for HTML.
var mark = regexp.MustCompile(`<([^>]*)>`)

// code formats a text as code; empty texts stay empty.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func codes(all []string) string {
	out := make([]string, 0, len(all))
	for _, s := range all {
		out = append(out, code(s))
	}
	return strings.Join(out, ", ")
}

// typeOf describes the values that a schema accepts.
func typeOf(s *jsonschema.Schema, defs jsonschema.Definitions) string {
	switch {
	case s.AnyOf != nil:
		var forms []string
		for _, f := range s.AnyOf {
			form := typeOf(f, defs)
			if f.Items != nil && slices.Contains(forms, typeOf(f.Items, defs)) {
				form = "a list of them"
			}
			if !slices.Contains(forms, form) {
				forms = append(forms, form)
			}
		}
		return strings.ReplaceAll(strings.Join(forms, ", or "), "number, or amount", "amount")
	case s.Ref != "":
		if def := defs[strings.TrimPrefix(s.Ref, "#/$defs/")]; def != nil && def.Type != "object" {
			return typeOf(def, defs)
		}
		return "object"
	case s.Enum != nil:
		var all []string
		for _, v := range s.Enum {
			if fmt.Sprint(v) == "" {
				all = append(all, "empty")
				continue
			}
			all = append(all, code(fmt.Sprint(v)))
		}
		return strings.Join(all, ", ")
	case s.Type == "array":
		return "list of " + plural(typeOf(s.Items, defs))
	case s.Type == "object" && s.Properties == nil && s.AdditionalProperties != nil &&
		s.AdditionalProperties != jsonschema.FalseSchema:
		return "mapping to " + typeOf(s.AdditionalProperties, defs)
	case s.Type == "object":
		return "mapping"
	case s.Type == "integer":
		return "whole number" + bounds(s)
	case s.Type == "number":
		return "number" + bounds(s)
	case s.Type == "boolean":
		return "true or false"
	case s.Type == "null":
		return "null"
	case s.Format == "date-time":
		return "time"
	case s.Type == "string":
		return form(s.Pattern)
	}
	return "any"
}

// form names the form of a text.
func form(pattern string) string {
	switch {
	case pattern == "":
		return "text"
	case pattern == dollars || pattern == document.DecimalPattern:
		return "amount"
	case strings.Contains(pattern, "(ms|w|d|h|m|s)") || strings.Contains(pattern, "w|d|h|m|s") ||
		strings.Contains(pattern, "(h|m|s|"):
		return "duration"
	case strings.Contains(pattern, "KMGTP"):
		return "size"
	case strings.Contains(pattern, "%$"):
		return "percentage"
	case strings.HasPrefix(pattern, "^[0-9]{4}"):
		return "date"
	}
	return "text"
}

func plural(s string) string {
	if s == "text" || s == "mapping" || s == "number" || s == "object" || s == "duration" || s == "amount" {
		return s + "s"
	}
	return s
}

func bounds(s *jsonschema.Schema) string {
	switch {
	case s.ExclusiveMinimum != "" && s.Maximum != "":
		return fmt.Sprintf(" over %s up to %s", s.ExclusiveMinimum, s.Maximum)
	case s.ExclusiveMinimum != "":
		return fmt.Sprintf(" over %s", s.ExclusiveMinimum)
	case s.Minimum != "" && s.Maximum != "":
		return fmt.Sprintf(" from %s to %s", s.Minimum, s.Maximum)
	case s.Minimum != "" && s.Minimum != "0":
		return fmt.Sprintf(" from %s", s.Minimum)
	}
	return ""
}

// keyRows returns the table rows for the keys of a schema.
func keyRows(s *jsonschema.Schema) (rows [][]string) {
	seen := map[string]bool{}
	keys(s, "", func(path string, key *jsonschema.Schema) {
		if seen[path] {
			return
		}
		seen[path] = true
		rows = append(rows, []string{
			code(path), typeOf(key, s.Definitions), defaultText(key), sentence(key.Description),
		})
	})
	return rows
}

func defaultText(key *jsonschema.Schema) string {
	if key.Default == nil {
		return ""
	}
	return code(fmt.Sprint(key.Default))
}

// sentence formats a description for a table.
func sentence(s string) string { return mark.ReplaceAllString(s, "`<$1>`") }

// fileKeys writes the keys of a file.
func (p *book) fileKeys(file, title string, shape *document.Shape, example string) {
	s := input(file, title, shape)
	p.text("Schema: [`schemas/%s`](../../schemas/%[1]s). Editors find it by a first line:", file)
	p.b.WriteString("```yaml\n" + document.SchemaLine(file) + "```\n\n")
	if example != "" {
		p.text("Example: [`%s`](../../%[1]s).", example)
	}
	required := map[string]bool{}
	requiredKeys(s, "", required)
	rows := keyRows(s)
	for _, row := range rows {
		if required[strings.Trim(row[0], "`")] {
			row[2] = "required"
		}
	}
	p.table([]string{"key", "type", "default", "meaning"}, rows)
}

// requiredKeys collects the paths of required keys.
func requiredKeys(s *jsonschema.Schema, path string, out map[string]bool) {
	for _, name := range s.Required {
		out[strings.TrimPrefix(path+"."+name, ".")] = true
	}
	for _, f := range s.AnyOf {
		requiredKeys(f, path, out)
	}
	if s.Items != nil {
		requiredKeys(s.Items, path+"[]", out)
	}
	if s.Properties != nil {
		for at := s.Properties.Oldest(); at != nil; at = at.Next() {
			requiredKeys(at.Value, strings.TrimPrefix(path+"."+at.Key, "."), out)
		}
	}
}

func (p *book) configuration() error {
	p.text(
		"curfew reads `curfew.yaml`: the nearest one upward from the working directory, else the one in the user's " +
			"configuration directory, else the file of `--config`. [configuration.md](../configuration.md) explains it. " +
			"Unknown and repeated keys are errors with file, line and column.")
	p.text("A key is overridden by its environment variable. Lists are separated by commas; mappings and lists of " +
		"mappings are YAML. Durations are `14d`, `12h` or `30m`. Amounts are dollars, `100` or `12.50`.")
	p.text("Schema: [`schemas/config.v1.json`](../../schemas/config.v1.json). Example: " +
		"[`examples/jobs/curfew.yaml`](../../examples/jobs/curfew.yaml).")
	s := input("config.v1.json", "", configShape(p.code.comment))
	lists := map[string]string{}
	for _, k := range configShape(p.code.comment).Keys {
		listDefaults(k.Name, k.Shape, lists)
	}
	rows := keyRows(s)
	for i, row := range rows {
		path := strings.Trim(row[0], "`")
		if row[2] == "" {
			row[2] = lists[path]
		}
		rows[i] = []string{row[0], row[1], row[2], row[3], code(config.Variable(path))}
	}
	p.table([]string{"key", "type", "default", "meaning", "environment"}, rows)
	return nil
}

// listDefaults collects the defaults of lists, which schemas do not contain.
func listDefaults(path string, s *document.Shape, out map[string]string) {
	if s.Type == document.Array && s.Default != "" {
		out[path] = codes(strings.Split(s.Default, ", "))
	}
	for _, k := range s.Keys {
		listDefaults(path+"."+k.Name, k.Shape, out)
	}
}

func (p *book) policies() error {
	p.text(
		"[policies.md](../policies.md) explains the language. `curfew policy check` validates files, `curfew policy " +
			"test` runs their tests.")
	p.heading(2, "Policies")
	p.fileKeys("policy.v1.json", "", policy.Shape(), "examples/policies/idle-ephemeral.yaml")
	p.heading(2, "Facts")
	p.text(
		"Conditions (`where`, `when`) are CEL over these facts. A condition on an unknown fact is unknown, and only " +
			"true proposes.")
	var rows [][]string
	for _, f := range policy.AllFacts() {
		typ := f.Type
		if f.Values != nil {
			typ = codes(f.Values)
		}
		if f.Unit != "" {
			typ += " (" + f.Unit + ")"
		}
		rows = append(rows, []string{code(f.Name), typ, f.Doc, f.Unknown, code(f.Example)})
	}
	p.table([]string{"fact", "type", "meaning", "unknown when", "example"}, rows)
	p.figures()
	p.heading(2, "Functions")
	p.text(
		"Operators and functions are those of [CEL](https://cel.dev); `has` and `duration` know facts, tags, days " +
			"and weeks.")
	functions, err := policy.Functions()
	if err != nil {
		return err
	}
	rows = nil
	for _, f := range functions {
		rows = append(rows, []string{code(f.Name), f.Doc, codes(f.Forms[:min(3, len(f.Forms))])})
	}
	p.table([]string{"function", "meaning", "forms"}, rows)
	p.heading(2, "Policy tests")
	p.fileKeys("policytest.v1.json", "", policy.TestsShape(), "examples/policies/tests/idle-ephemeral.yaml")
	return nil
}

// figures writes the figures about GPUs for conditions.
func (p *book) figures() {
	p.heading(2, "Figures about GPUs")
	p.text(
		"`gpu.util.mean(\"30m\")` is a number about the GPUs of a machine over a window of 1m to 1d: the mean over " +
			"its GPUs and over time. `max` and `min` are the highest and the lowest sample of any GPU. With `worst` they are " +
			"those of one GPU: the one with the highest figure, or where little is bad with the lowest. A GPU with MIG " +
			"instances counts once.")
	p.text(
		"The window of a GPU ends with its newest sample, because sources publish late. A figure is unknown, never " +
			"0, where on any GPU of the machine samples cover less than 90%% of the window (`duty.min_coverage`), " +
			"the newest " +
			"one is older than three steps, the signal is not measured, or signals contradict each other; where the number of " +
			"GPUs is unknown; and where one series stands for several GPUs. `gpu.lost` counts the GPUs that are " +
			"missing, as " +
			"long as others are measured. `has` of a figure is true or unknown.")
	var rows [][]string
	for _, f := range policy.Figures() {
		var statistics []string
		for _, call := range f.Calls {
			statistic, _, _ := strings.Cut(strings.TrimPrefix(call, f.Name+"."), "(")
			statistics = append(statistics, statistic)
		}
		rows = append(rows, []string{code(f.Name), f.Doc, f.Unit, codes(statistics), f.Worst, code(f.Calls[0])})
	}
	p.table([]string{"figure", "meaning", "unit", "statistics", "worst GPU", "example"}, rows)
}

// threshold matches a configuration key in a text about a rule.
var threshold = regexp.MustCompile(`\b((thresholds|duty|spot)\.[a-z_]+|required_tags)\b`)

func (p *book) findings() error {
	p.text("Rules in the order of the steps in which waste is best removed. [findings.md](../findings.md) explains " +
		"them. Thresholds are keys of [the configuration](configuration.md).")
	p.text(
		"A signal that covers under 90%% of its window, or whose newest sample is older than three steps, decides " +
			"nothing. Each dollar counts once, in the first finding that claims it. Savings are without what " +
			"commitments cover and without " +
			"what remains.")
	rules := finding.All(aws.Rules())
	for step := finding.StepMeasure; step <= finding.StepCommit; step++ {
		p.heading(2, fmt.Sprintf("%d %s", step, strings.ToUpper(step.String()[:1])+step.String()[1:]))
		var rows [][]string
		for _, r := range rules {
			if r.Step != step || r.About == (finding.About{}) {
				continue
			}
			var kinds []string
			for _, other := range rules {
				if kind := string(other.Kind); other.ID == r.ID && kind != "" && !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
			}
			about := r.About.Finds
			if kinds != nil {
				about += " (" + codes(kinds) + ")"
			}
			rows = append(rows, []string{
				code(r.ID), about, threshold.ReplaceAllString(r.About.When, "`$1`"),
				threshold.ReplaceAllString(r.About.Saves, "`$1`"), r.About.Confidence,
				threshold.ReplaceAllString(r.About.Fix, "`$1`"),
			})
		}
		p.table([]string{
			"rule", "finds", "formula and threshold", "savings a month", "confidence", "fix and undo",
		}, rows)
	}
	return nil
}

func (p *book) traces() error {
	p.text(
		"`--usage` and `--trace` read CSV, CSV.gz and Parquet with one row a sample, and the CSV that `nvidia-smi " +
			"--query-gpu` prints. `--map ours=theirs` names other columns; metric names of the field are known. A " +
			"column that " +
			"is not known is named in a warning. A missing sample is unknown time, never idle time.")
	var rows [][]string
	for _, c := range usage.Columns() {
		typ := c.Type
		if c.Unit != "" {
			typ += ", " + c.Unit
		}
		rows = append(rows, []string{code(c.Name), typ, c.Doc, c.IfAbsent, codes(c.Aliases)})
	}
	p.table([]string{"column", "type and unit", "meaning", "absent", "also read from"}, rows)
	return nil
}
