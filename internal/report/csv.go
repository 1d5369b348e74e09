package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// column is one column of the CSV output.
type column struct {
	name string
	// number says that the column holds only numbers, which are written as they
	// are; text is guarded against being read as a formula.
	number bool
	value  func(f *view.Finding) string
}

// columns are stable: new ones are added at the end.
var columns = []column{
	{"id", false, func(f *view.Finding) string { return f.ID }},
	{"rule", false, func(f *view.Finding) string { return f.Rule }},
	{"step", true, func(f *view.Finding) string { return strconv.Itoa(f.Step) }},
	{"kind", false, func(f *view.Finding) string { return f.Resource.Kind }},
	{"resource", false, func(f *view.Finding) string { return f.Resource.ID }},
	{"name", false, func(f *view.Finding) string { return f.Resource.Name }},
	{"type", false, func(f *view.Finding) string { return f.Resource.Type }},
	{"cloud", false, func(f *view.Finding) string { return f.Resource.Cloud }},
	{"account", false, func(f *view.Finding) string { return f.Resource.Account }},
	{"region", false, func(f *view.Finding) string { return f.Resource.Region }},
	{"team", false, func(f *view.Finding) string { return f.Resource.Owner.Team }},
	{"project", false, func(f *view.Finding) string { return f.Resource.Owner.Project }},
	{"user", false, func(f *view.Finding) string { return f.Resource.Owner.User }},
	{"environment", false, func(f *view.Finding) string { return f.Resource.Owner.Environment }},
	{"cost_center", false, func(f *view.Finding) string { return f.Resource.Owner.CostCenter }},
	{"lifetime", false, func(f *view.Finding) string { return f.Resource.Lifetime }},
	{"purpose", false, func(f *view.Finding) string { return f.Resource.Purpose }},
	{"monthly_cost_usd", true, func(f *view.Finding) string { return f.MonthlyCostUSD.Cents() }},
	{"monthly_waste_usd", true, func(f *view.Finding) string { return f.MonthlyWasteUSD.Cents() }},
	{"monthly_savings_usd", true, func(f *view.Finding) string { return f.MonthlySavingsUSD.Cents() }},
	{"savings_upper_bound_usd", true, func(f *view.Finding) string { return f.SavingsUpperBoundUSD.Cents() }},
	{"savings_unknown", false, func(f *view.Finding) string { return f.SavingsUnknown }},
	{"confidence", false, func(f *view.Finding) string { return string(f.Confidence) }},
	{"because", false, func(f *view.Finding) string { return f.Because }},
	{"evidence", false, func(f *view.Finding) string { return evidenceLine(f.Evidence) }},
	{"action", false, func(f *view.Finding) string { return f.Fix.Action }},
	{"command", false, func(f *view.Finding) string { return f.Fix.Command }},
	{"risk", false, func(f *view.Finding) string { return string(f.Fix.Risk) }},
	{"undo", false, func(f *view.Finding) string { return string(f.Fix.Undo) }},
	{"note", false, func(f *view.Finding) string { return f.Fix.Note }},
	{"overlaps", false, func(f *view.Finding) string { return f.Overlaps }},
}

// CSV writes one row for each finding under a header. An amount that is not known
// is an empty cell.
func CSV(w io.Writer, scan view.Scan, o Options) error {
	d := newAudit(scan, o)
	out := csv.NewWriter(w)
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = c.name
	}
	err := out.Write(row)
	for i := range d.Findings {
		if err != nil {
			break
		}
		for j, c := range columns {
			if row[j] = c.value(&d.Findings[i]); !c.number {
				row[j] = inert(row[j])
			}
		}
		err = out.Write(row)
	}
	if err == nil {
		out.Flush()
		err = out.Error()
	}
	if err != nil {
		return fmt.Errorf("write the findings as CSV: %w", err)
	}
	return nil
}

// inert returns a cell of text that no spreadsheet takes for a formula: one that
// begins like one gets an apostrophe before it, unless it is a plain number
// (OWASP, CSV injection).
func inert(s string) string {
	if s == "" || !strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(s)[0]) {
		return s
	}
	if strings.Trim(s, "+-.0123456789") == "" {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return s
		}
	}
	return "'" + s
}

// evidenceLine is the evidence in one line: "gpu_util_max_pct 0.4 (14d, coverage
// 0.99, cloudwatch); age 20d (ec2)".
func evidenceLine(list []view.Evidence) string {
	var b strings.Builder
	for i, e := range list {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.Signal + " " + e.Value)
		var about []string
		if e.Window != "" {
			about = append(about, e.Window)
		}
		if e.Coverage != "" {
			about = append(about, "coverage "+e.Coverage)
		}
		if e.Source != "" {
			about = append(about, e.Source)
		}
		if len(about) > 0 {
			b.WriteString(" (" + strings.Join(about, ", ") + ")")
		}
	}
	return plain.Line(b.String())
}
