package report

import (
	"io"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// column is one column of the CSV output.
type column struct {
	name  string
	value func(f *view.Finding) string
}

// columns are stable: new ones are appended.
var columns = []column{
	{"id", func(f *view.Finding) string { return f.ID }},
	{"rule", func(f *view.Finding) string { return f.Rule }},
	{"step", func(f *view.Finding) string { return strconv.Itoa(f.Step) }},
	{"kind", func(f *view.Finding) string { return f.Resource.Kind }},
	{"resource", func(f *view.Finding) string { return f.Resource.ID }},
	{"name", func(f *view.Finding) string { return f.Resource.Name }},
	{"type", func(f *view.Finding) string { return f.Resource.Type }},
	{"cloud", func(f *view.Finding) string { return f.Resource.Cloud }},
	{"account", func(f *view.Finding) string { return f.Resource.Account }},
	{"region", func(f *view.Finding) string { return f.Resource.Region }},
	{"team", func(f *view.Finding) string { return f.Resource.Owner.Team }},
	{"project", func(f *view.Finding) string { return f.Resource.Owner.Project }},
	{"user", func(f *view.Finding) string { return f.Resource.Owner.User }},
	{"environment", func(f *view.Finding) string { return f.Resource.Owner.Environment }},
	{"cost_center", func(f *view.Finding) string { return f.Resource.Owner.CostCenter }},
	{"lifetime", func(f *view.Finding) string { return f.Resource.Lifetime }},
	{"purpose", func(f *view.Finding) string { return f.Resource.Purpose }},
	{"monthly_cost_usd", func(f *view.Finding) string { return f.MonthlyCostUSD.Cents() }},
	{"monthly_waste_usd", func(f *view.Finding) string { return f.MonthlyWasteUSD.Cents() }},
	{"monthly_savings_usd", func(f *view.Finding) string { return f.MonthlySavingsUSD.Cents() }},
	{"savings_upper_bound_usd", func(f *view.Finding) string { return f.SavingsUpperBoundUSD.Cents() }},
	{"savings_unknown", func(f *view.Finding) string { return f.SavingsUnknown }},
	{"confidence", func(f *view.Finding) string { return string(f.Confidence) }},
	{"because", func(f *view.Finding) string { return f.Because }},
	{"evidence", func(f *view.Finding) string { return evidenceLine(f.Evidence) }},
	{"action", func(f *view.Finding) string { return f.Fix.Action }},
	{"command", func(f *view.Finding) string { return f.Fix.Command }},
	{"risk", func(f *view.Finding) string { return string(f.Fix.Risk) }},
	{"undo", func(f *view.Finding) string { return string(f.Fix.Undo) }},
	{"note", func(f *view.Finding) string { return f.Fix.Note }},
	{"overlaps", func(f *view.Finding) string { return f.Overlaps }},
}

// CSV writes a header and one row per finding. An unknown amount is an empty cell.
func CSV(w io.Writer, scan view.Scan, _ Options) error {
	return layout.WriteCSV(w, "the findings", func(yield func([]string) bool) {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = c.name
		}
		for i := 0; yield(row) && i < len(scan.Findings); i++ {
			for j, c := range columns {
				row[j] = c.value(&scan.Findings[i])
			}
		}
	})
}

// evidenceLine formats the evidence on one line: "gpu_util_max_pct 0.4 (14d, coverage 0.99,
// cloudwatch); age 20d (ec2)".
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
