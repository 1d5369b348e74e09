package report

import (
	"context"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/plan/tco"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report/chart/charttest"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/usage"
)

// hostileName is an external name that would break an unescaped page.
const hostileName = `<b>"z"&`

// drawing checks a picture and returns it.
func drawing(t charttest.TB, svg string) string {
	t.Helper()
	charttest.Check(t, svg)
	for _, never := range []string{"NaN", "+Inf", "-Inf", "<b>", "<script>"} {
		if strings.Contains(svg, never) {
			t.Errorf("the picture holds %s: %s", never, svg)
		}
	}
	return svg
}

func embeddedBook(t testing.TB) *price.Book {
	t.Helper()
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return book
}

// spotZone returns a zone that is available where its pattern has #, in steps of ten minutes.
func spotZone(name, pattern string) spot.Zone {
	z := spot.Zone{Name: name}
	for _, c := range pattern {
		z.Up = append(z.Up, c == '#')
	}
	return z
}

func spotTrace() spot.Trace {
	return spot.Trace{
		Gap: 10 * time.Minute,
		Zones: []spot.Zone{
			spotZone(hostileName, strings.Repeat("###..", 40)), spotZone("y", strings.Repeat("##...", 40)),
		},
	}
}

func TestPictureOfSpot(t *testing.T) {
	r, err := spot.Replay(spotTrace(), spot.Params{
		Work: 3 * time.Hour, Deadline: 6 * time.Hour, Restart: 5 * time.Minute, Every: 4 * time.Hour,
		SpotPrice: money.USD, OnDemandPrice: 3 * money.USD})
	if err != nil {
		t.Fatal(err)
	}
	svg := drawing(t, spotPicture(r))
	for _, name := range []string{spot.Greedy, spot.UniformProgress, spot.Curfew, spot.Bound} {
		if !strings.Contains(svg, strategyName(name)) {
			t.Errorf("the picture does not show %s", name)
		}
	}
	if svg := drawing(t, casePicture(r.Case)); !strings.Contains(svg, "spot available") {
		t.Errorf("the case does not show when spot is available: %s", svg)
	}
}

func TestPictureOfCheckpoints(t *testing.T) {
	r, err := spot.Checkpoint(spotTrace(), spot.CheckpointParams{Write: 2 * time.Minute, Restart: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	svg := drawing(t, checkpointPicture(r))
	for _, name := range []string{spot.Young, spot.Daly, spot.BestFixed, spot.Curfew} {
		if !strings.Contains(svg, html.EscapeString(strategyName(name))) {
			t.Errorf("the picture does not show %s", name)
		}
	}
}

func TestPictureOfCommitments(t *testing.T) {
	r, err := commit.Plan(steadyUse(), commitOffers, nil, commit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if svg := drawing(t, commitPicture(r)); !strings.Contains(svg, "b*") || !strings.Contains(svg, "on demand") ||
		!strings.Contains(svg, "10 a/us-east-1 reserved") {
		t.Errorf("the picture lacks a layer: %s", svg)
	}
}

func TestPictureOfCapacity(t *testing.T) {
	published := capacity.Profile{PerItem: time.Millisecond, Base: 10 * time.Millisecond}
	for name, p := range map[string]capacity.Params{
		"formula":      {QPS: 500, QPSPerGPU: 200},
		"objective":    {QPS: 500, Profile: published, P99: 50 * time.Millisecond},
		"no objective": {QPS: 500, Profile: published, Replicas: 3},
		"overload": {
			Profile: capacity.Profile{Base: time.Second}, MaxBatch: 1, Replicas: 1,
			Arrivals: &capacity.Arrivals{Times: []float64{0, 0.1, 0.2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := capacity.Plan(p)
			if err != nil {
				t.Fatal(err)
			}
			svg := drawing(t, capacityPicture(r))
			if limit := strings.Contains(svg, "objective") ||
				strings.Contains(svg, "target"); limit != (name == "formula" ||
				name == "objective") {
				t.Errorf("objective drawn: %v", limit)
			}
		})
	}
}

func TestPictureOfMIG(t *testing.T) {
	fleet, err := mig.ParseFleet("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	r, err := mig.Pack(context.Background(), fleet, []mig.Workload{
		{Name: "a<b>&\"", MemoryGiB: 30, ComputeSlices: 3, Count: 4},
		{Name: "c", MemoryGiB: 5, ComputeSlices: 1, Count: 3},
	}, mig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	svg := drawing(t, migPicture(r))
	for _, want := range []string{"3g.40gb a&lt;b&gt;", "free", "GPU 0"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%s lacks %q", svg, want)
		}
	}
	// GPUs with equal placements share a row, and at most 40 rows are drawn.
	var many mig.Report
	for i := range 200 {
		many.GPUs = append(many.GPUs, mig.GPU{
			GPU: fmt.Sprint(i), Model: "A30-24GB",
			Placements: []mig.Placement{{Profile: "4g.24gb", Size: 4, Workload: fmt.Sprint(i / 2)}},
		})
	}
	if got := drawing(t, migPicture(many)); !strings.Contains(got, "and 60 more rows") {
		t.Errorf("the picture does not say how many rows it leaves out: %s", got)
	}
	drawing(t, migPicture(mig.Report{}))
}

func TestPictureOfMarket(t *testing.T) {
	for _, f := range []market.For{market.Compute, market.Memory, market.Bandwidth, market.Tokens} {
		r, err := market.Rank(embeddedBook(t), f, market.Params{})
		if err != nil {
			t.Fatal(err)
		}
		r.Accelerators[0].Machine, r.Accelerators[0].Accelerator = hostileName, "<script>"
		drawing(t, marketPicture(r))
	}
	drawing(t, marketPicture(market.Report{}))
}

func TestPictureOfRightsizing(t *testing.T) {
	var b strings.Builder
	b.WriteString("resource,time,gpu,gpu_util\n")
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 51 {
		for m := range 3 {
			util := fmt.Sprint(min(2*i, 100))
			if i == 50 {
				util = ""
			}
			fmt.Fprintf(&b, "<j&%02d of a name that is long>,%s,0,%s\n", i,
				start.Add(time.Duration(m)*time.Minute).Format(time.RFC3339), util)
		}
	}
	r, err := rightsize.FromUsage(t.Context(), strings.NewReader(b.String()),
		usage.Format{Name: "u.csv"}, "p3.2xlarge",
		embeddedBook(t), rightsize.Params{})
	if err != nil {
		t.Fatal(err)
	}
	svg := drawing(t, rightsizePicture(r))
	if strings.Contains(svg, "<j") {
		t.Errorf("picture: %s", svg)
	}
	if !strings.Contains(svg, fmt.Sprintf("and %d more machines", len(r.Resources)-maxMachines)) {
		t.Error("the picture does not say how many machines it leaves out")
	}
	tables := Rightsize(r).Tables
	at := slices.IndexFunc(tables, func(g layout.Grid) bool { return strings.HasPrefix(g.Title, "Machines") })
	if machines := len(tables[at].Rows); machines != shownOffers {
		t.Errorf("the table has %d machines, want %d", machines, shownOffers)
	}
}

func TestPictureOfTCO(t *testing.T) {
	for _, p := range []tco.Params{
		{Saving: 1200 * money.USD, Effort: 120 * time.Hour, Rate: 120 * money.USD, Upkeep: 2 * time.Hour},
		{Saving: 3000 * money.USD, Effort: 120 * time.Hour, Rate: 120 * money.USD},
		{},
	} {
		r, err := tco.Weigh(p)
		if err != nil {
			t.Fatal(err)
		}
		drawing(t, tcoPicture(r))
	}
}

// TestPlannersFitTerminals checks that no planner line exceeds the terminal, except commands, which
// are never truncated.
func TestPlannersFitTerminals(t *testing.T) {
	for name, s := range plannerSheets(t) {
		for _, width := range []int{60, 80, 120} {
			t.Run(fmt.Sprintf("%s/%d", name, width), func(t *testing.T) {
				var b strings.Builder
				if err := s.Text(&b, width); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(b.String()) {
					line = strings.TrimRight(line, "\n")
					if layout.Width(line) > width &&
						!slices.Contains(slices.Concat(s.Commands, s.Next), strings.TrimSpace(line)) {
						t.Errorf("%d columns: %q", layout.Width(line), line)
					}
				}
			})
		}
	}
}

// TestPlannersLeadWithDecision checks that the title is a decision, and that every output has the
// whole sheet, including notes of rows.
func TestPlannersLeadWithDecision(t *testing.T) {
	verbs := []string{"Use", "Buy", "Keep", "Move", "Run", "Save", "Do", "Resize", "Remove", "No"}
	for name, s := range plannerSheets(t) {
		first, _, _ := strings.Cut(s.Title, " ")
		if !slices.Contains(verbs, first) {
			t.Errorf("%s leads with %q", name, s.Title)
		}
		var page, md strings.Builder
		if err := errors.Join(s.HTML(&page), s.Markdown(&md)); err != nil {
			t.Fatal(err)
		}
		if s.Picture != "" {
			charttest.Check(t, s.Picture)
		}
		shown := html.UnescapeString(strings.ReplaceAll(page.String(), "\u00a0", " "))
		for _, g := range s.Tables {
			for _, note := range g.Notes {
				if !strings.Contains(shown, note) {
					t.Errorf("%s: the page lacks the note %q", name, note)
				}
				if note != "" && !strings.Contains(md.String(), layout.MarkdownText(note)) {
					t.Errorf("%s: the Markdown lacks the note %q", name, note)
				}
			}
		}
	}
}

// plannerSheets returns the sheets of all planners for small inputs.
func plannerSheets(t *testing.T) map[string]layout.Sheet {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]layout.Sheet{}
	r, err := spot.Replay(spotTrace(), spot.Params{
		Work: 3 * time.Hour, Deadline: 6 * time.Hour, Restart: 5 * time.Minute,
		Every: 4 * time.Hour, SpotPrice: money.USD,
		OnDemandPrice: 3 * money.USD,
	})
	must(err)
	out["spot"] = Spot(r)
	c, err := spot.Checkpoint(spotTrace(), spot.CheckpointParams{Write: 2 * time.Minute, Restart: 3 * time.Minute})
	must(err)
	out["checkpoint"] = Checkpoint(c)
	p, err := commit.Plan(steadyUse(), commitOffers, nil, commit.Options{Leave: func(string) commit.Leaving {
		return commit.Leaving{PerYear: 0.3, Why: "assumed"}
	}})
	must(err)
	out["commit"] = Commit(p)
	p, err = commit.Plan(steadyUse()[:48], commitOffers, nil, commit.Options{})
	must(err)
	out["commit on two days"] = Commit(p)
	k, err := capacity.Plan(capacity.Params{
		QPS: 500, Profile: capacity.Profile{PerItem: time.Millisecond, Base: 10 * time.Millisecond},
		P99: 50 * time.Millisecond, HourlyPrice: money.USD, ColdStart: time.Minute,
	})
	must(err)
	out["capacity"] = Capacity(k)
	fleet, err := mig.ParseFleet("A100-80GB:2")
	must(err)
	m, err := mig.Pack(context.Background(), fleet, []mig.Workload{
		{Name: "a service with a long name", MemoryGiB: 30, ComputeSlices: 3, Count: 8},
	}, mig.Options{})
	must(err)
	sheet := MIG(m)
	out["mig that does not fit"] = sheet
	if !strings.Contains(sheet.Title, "4 of 8 workloads") {
		t.Errorf("8 workloads of which 4 fit: %q", sheet.Title)
	}
	k2, err := market.Rank(embeddedBook(t), market.Tokens, market.Params{})
	must(err)
	out["market"] = Market(k2)
	out["market without prices"] = Market(market.Report{})
	for name, saving := range map[string]money.Amount{"tco": 1200 * money.USD, "tco that pays": 9000 * money.USD} {
		w, err := tco.Weigh(tco.Params{
			Saving: saving, Effort: 120 * time.Hour, Rate: 120 * money.USD, Upkeep: 2 * time.Hour,
		})
		must(err)
		out[name] = TCO(w)
	}
	var b strings.Builder
	b.WriteString("resource,time,gpu,gpu_util,mem_used_bytes\n")
	for i := range 200 {
		fmt.Fprintf(&b, "a machine with a long name,%d,0,%d,1000000000\n", 60*i, i%30)
	}
	z, err := rightsize.FromUsage(t.Context(), strings.NewReader(b.String()),
		usage.Format{Name: "u.csv"}, "p3.2xlarge",
		embeddedBook(t), rightsize.Params{})
	must(err)
	out["rightsize"] = Rightsize(z)
	if want := "Move a machine with a long name from p3.2xlarge to " + z.Fits[0].Type; !strings.HasPrefix(
		out["rightsize"].Title, want) {
		t.Errorf("one machine that is too large: %q, want %q", out["rightsize"].Title, want)
	}
	out["groups"] = Groups("rightsize", accountplan.Groups{
		Groups: []accountplan.Group{
			{
				Team: "search", Purpose: "inference", Type: "g5.xlarge", Region: "us-east-1",
				Machines: 3, Working: 1, Needed: 1,
				SavingUSD: 1460 * money.USD,
			},
		},
	})
	if want := "Remove 2 machines of 1 group: saves $1,460 a month"; out["groups"].Title != want {
		t.Errorf("two machines too many: %q, want %q", out["groups"].Title, want)
	}
	saving := money.Known(-730 * money.USD)
	out["fleets"] = Fleets(accountplan.Fleets{
		Target: 0.7,
		Fleets: []accountplan.Fleet{
			{
				Team: "search", Type: "g5.xlarge", Region: "us-east-1", Machines: 1, Replicas: 2, Utilization: 0.9,
				UtilizationAfter: 0.45, SavingUSD: saving,
			},
		},
	})
	if want := "Resize 1 of 1 serving fleet to 70% utilization: costs $730 a month more"; out["fleets"].Title != want {
		t.Errorf("a fleet that grows: %q, want %q", out["fleets"].Title, want)
	}
	return out
}

// commitOffers are a reserved machine and a savings plan.
var commitOffers = []commit.Offer{
	{Key: "a/us-east-1", Kind: commit.Reserved, TermMonths: 12, Payment: commit.NoUpfront, Hourly: money.USD},
	{Key: "b*", Kind: commit.SavingsPlan, TermMonths: 36, Payment: commit.NoUpfront, Discount: 400_000_000},
}

// steadyUse returns 1,500 hours of ten steady machines and of others that come and go.
func steadyUse() []commit.Usage {
	var use []commit.Usage
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range 1500 {
		at := start.Add(time.Duration(h) * time.Hour)
		use = append(use, commit.Usage{
			Hour: at, Key: "a/us-east-1", Quantity: 10 * commit.Machine, OnDemand: 3 * money.USD,
		},
			commit.Usage{
				Hour: at, Key: "b1", Quantity: commit.Quantity(1+h%24/6) * commit.Machine, OnDemand: 2 * money.USD,
			})
	}
	return use
}

// TestCommitNamesPurchases checks the yearly saving in the title by hand: ten machines save $2 an
// hour each for 8,760 hours.
func TestCommitNamesPurchases(t *testing.T) {
	r, err := commit.Plan(steadyUse(), commitOffers[:1], nil, commit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := Commit(r)
	if want := "Buy 10 reserved a in us-east-1 for 12 months: saves $175,200 a year at the same use, a loss if demand " +
		"drops by 66.7%"; s.Title != want {
		t.Errorf("got %q, want %q", s.Title, want)
	}
	if len(s.Next) != 1 || !strings.Contains(s.Next[0], "--min-duration 31536000") {
		t.Errorf("the next command is %q", s.Next)
	}
	r, err = commit.Plan(steadyUse()[:48], commitOffers[:1], nil, commit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s := Commit(r); !strings.HasPrefix(s.Title, "Buy nothing yet: 1 commitment would save $175,200 a year") {
		t.Errorf("on a day of history: %q", s.Title)
	}
}
