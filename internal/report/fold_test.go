package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

// TestSmallFindingsAndMissingTagsAreFolded checks that reports count them in a line, and keep rows
// for unknown amounts and for warnings about something expensive.
func TestSmallFindingsAndMissingTagsAreFolded(t *testing.T) {
	usd := func(text string) money.Dollars { return money.Known(viewtest.USD(text)) }
	none := money.Dollars{}
	scan := view.NewScan(viewtest.Realistic(), view.ScanOptions{})
	scan.Findings = nil
	add := func(id, rule, missing string, saves, wastes, costs money.Dollars) {
		f := view.Finding{
			ID: id, Rule: rule, MonthlySavingsUSD: saves, MonthlyWasteUSD: wastes, MonthlyCostUSD: costs,
			Resource: view.Resource{ID: "res-" + id}, Because: "because of " + id,
		}
		if missing != "" {
			f.Evidence = []view.Evidence{{Signal: "tags_missing", Value: missing}}
		}
		scan.Findings = append(scan.Findings, f)
	}
	add("aaaa1", "tag-missing", "team, project", usd("0"), usd("0"), usd("900"))
	add("aaaa2", "tag-missing", "project", usd("0"), usd("0"), usd("0.20"))
	add("bbbb1", "snapshot-old", "", usd("0.40"), usd("0.40"), usd("0.40"))
	add("bbbb2", "snapshot-old", "", usd("0.999999999"), usd("0"), usd("30"))
	add("bbbb3", "volume-gp2", "", usd("0"), usd("0.10"), usd("50"))
	add("shown1", "volume-gp2", "", usd("1"), usd("0"), usd("50"))
	add("shown2", "snapshot-old", "", none, usd("0"), usd("0.10"))
	add("shown3", "instance-stopped", "", usd("0"), usd("7"), usd("7"))
	add("shown4", "instance-overdue", "", usd("0"), usd("0"), usd("800"))
	add("shown5", "telemetry-missing", "", usd("0"), usd("0"), none)

	render := func(o Options) map[string]string {
		o.All, o.Width = true, 160
		out := map[string]string{}
		for name, write := range map[string]func(*strings.Builder) error{
			"table":   func(b *strings.Builder) error { return Table(b, scan, o) },
			"html":    func(b *strings.Builder) error { return HTML(b, scan, o) },
			"md":      func(b *strings.Builder) error { return Markdown(b, scan, o) },
			"summary": func(b *strings.Builder) error { return Summary(b, scan, o) },
			"csv":     func(b *strings.Builder) error { return CSV(b, scan, o) },
			"json":    func(b *strings.Builder) error { return json.NewEncoder(b).Encode(scan) },
		} {
			var b strings.Builder
			if err := write(&b); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			out[name] = b.String()
		}
		return out
	}
	lines := []string{
		"2 resources without a required tag: 2 × project, 1 × team; `curfew tag --config x` lists them",
		"3 findings under $1.00 a month, $1.40 in all: 2 × snapshot-old, 1 × volume-gp2; --min 0 shows them",
	}
	for name, text := range render(Options{Min: money.USD, Globals: " --config x"}) {
		whole := name == "csv" || name == "json"
		for _, f := range scan.Findings {
			shown := strings.HasPrefix(f.ID, "shown")
			if name == "summary" && f.ID != "shown1" && shown {
				continue // it names only the largest
			}
			if got := strings.Contains(text, "res-"+f.ID); got != (shown || whole) {
				t.Errorf("%s shows %s: %v", name, f.ID, got)
			}
		}
		for _, line := range lines {
			if name == "md" || name == "summary" {
				line = layout.MarkdownText(line)
			}
			plain := strings.NewReplacer("\u00a0", " ", "&#39;", "'").Replace(text)
			if got := strings.Contains(plain, line); got == whole {
				t.Errorf("%s has the line %q: %v\n%s", name, line, got, text)
			}
		}
	}
	for name, text := range render(Options{}) {
		if name != "summary" && (!strings.Contains(text, "res-aaaa2") || !strings.Contains(text, "res-bbbb1")) ||
			strings.Contains(text, "2 resources without") {
			t.Errorf("with --min 0 %s folds: %s", name, text)
		}
	}
}
