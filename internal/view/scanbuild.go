package view

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// ScanOptions describe the run that made a document.
type ScanOptions struct {
	// Version is the program's.
	Version string
	// Profile is the AWS profile that was asked for.
	Profile string
}

// NewScan makes the document of an audit, with what only kept scans have (see
// [Scan.Public]). Its findings keep the audit's order; all
// else is in an order of its own, so that equal audits make equal documents.
func NewScan(a *round.Result, o ScanOptions) Scan {
	m := survey(a)
	d := Scan{
		Schema: ScanSchema, Version: o.Version,
		StartedAt: a.StartedAt.UTC(), FinishedAt: a.FinishedAt.UTC(),
		Cloud: valid(a.Cloud), Accounts: sorted(a.Accounts), Regions: sorted(a.Regions),
		Roles: a.Roles, Profile: o.Profile,
		Resources:   Resources{Count: len(a.Resources), ByKind: map[string]int{}},
		Owners:      owners(a, m),
		Findings:    make([]Finding, 0, len(a.Findings)),
		CannotJudge: unjudged(m),
		Progress:    progress(a),
		Unpriced:    m.unpricedList(),
		BlindSpots:  make([]inventory.BlindSpot, 0, len(a.BlindSpots)),
		Billed:      billed(a.Billed),
		Prices:      m.priceList(),
		Assumptions: m.assumptions(),
	}
	for k, n := range a.Totals.ByKind {
		d.Resources.ByKind[valid(string(k))] = n
	}
	for _, b := range a.BlindSpots {
		d.BlindSpots = append(d.BlindSpots, inventory.BlindSpot{
			What: valid(b.What), Why: valid(b.Why), Effect: valid(b.Effect),
		})
	}
	for i := range a.Findings {
		d.Findings = append(d.Findings, newFinding(&a.Findings[i], a.Charges))
	}
	d.Steps, d.Totals = savings(d.Findings, a)
	d.cost(a)
	d.waste(a)
	d.now(a, m)
	d.categories(a, m)
	d.Totals.MonthlyCannotJudgeUSD = known(a.Totals.Now.Unmeasured, m.unpricedIn[round.CategoryUnknown] == 0)
	d.Totals.MonthlyCommittedUSD = known(a.Totals.Committed, m.unpricedIn[string(ledger.Committed)] == 0)
	d.Totals.UnpricedResources = a.Totals.Unpriced
	d.APICalls, d.Totals.APICallsCostUSD = calls(a.Calls)
	d.sample(a)
	d.Kept = newKept(a)
	return d
}

// Public returns the document as it is printed: without the profile, the samples and the charges,
// which only kept scans have.
func (d Scan) Public() Scan {
	d.Profile, d.Kept = "", nil
	d.Findings = slices.Clone(d.Findings)
	for i := range d.Findings {
		d.Findings[i].Samples = nil
	}
	return d
}

// known is an amount, and null for a zero that is not all there is.
func known(v money.Amount, complete bool) money.Dollars {
	if v == 0 && !complete {
		return money.Dollars{}
	}
	return money.Known(v)
}

// sum adds amounts; a sum out of range is unknown.
func sum(amounts ...money.Amount) money.Dollars {
	total, err := money.Sum(amounts...)
	if err != nil {
		return money.Dollars{}
	}
	return money.Known(total)
}

// valid returns s as valid UTF-8, because names come from outside.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func sorted(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, valid(s))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *Scan) cost(a *round.Result) {
	d.MonthlyCostUSD = known(a.Totals.Now.Running, a.Totals.Unpriced == 0)
	switch {
	case !d.MonthlyCostUSD.Known():
		d.MonthlyCostNote = "nothing that runs has a price"
	case a.Totals.Unpriced > 0:
		d.MonthlyCostNote = plain.Count(a.Totals.Unpriced, "resource") + " unpriced"
	}
}

// now divides what runs now. A part that is zero only because its meters are unpriced is null.
func (d *Scan) now(a *round.Result, m *meters) {
	t := a.Totals.Now
	unpriced := func(categories ...string) (n int) {
		for _, c := range categories {
			n += m.unpricedIn[c]
		}
		return n
	}
	d.Now = &ScanNow{
		RunningUSD:    d.MonthlyCostUSD,
		UsedUSD:       known(t.Used, unpriced(round.CategoryActive) == 0),
		WastedUSD:     d.Totals.FindingsWasteUSD,
		UnmeasuredUSD: known(t.Unmeasured, unpriced(round.CategoryUnknown) == 0),
		OtherUSD: known(t.Other,
			unpriced(round.CategoryStorage, round.CategoryNetwork, round.CategoryOverhead) == 0),
		Note: d.MonthlyCostNote,
	}
}

// waste shows what was wasted over the window, and what the findings waste now.
func (d *Scan) waste(a *round.Result) {
	unknown, unmeasured := 0, 0
	for _, f := range a.Findings {
		if f.WasteUnknown {
			unmeasured++
		}
	}
	for _, f := range d.Findings {
		if !f.MonthlyWasteUSD.Known() {
			unknown++
		}
	}
	d.Totals.FindingsWasteUSD = known(a.Totals.Now.Wasted, unknown == 0 && d.MonthlyCostUSD.Known())
	unknown -= unmeasured // they are among the hours that nothing measured
	w := newWindow(a.Window)
	if d.Window = w; w == nil {
		d.MonthlyWasteNote = "usage was read over no window"
		return
	}
	complete := w.UnknownAtMostUSD.Known() || w.TotalUSD.Or(0) != 0
	if d.MonthlyWasteUSD = known(a.Totals.Waste, complete && unknown == 0); !complete {
		d.MonthlyWasteNote = "nothing that ran in the last " + w.Span() + " has a price"
		return
	}
	d.MonthlyWasteNote = "over the last " + w.Span()
	if unknown > 0 {
		d.MonthlyWasteNote += ", without " + plain.Count(unknown, "finding") + " on resources that have no price"
	}
}

func newWindow(c *costs.Costs) *ScanWindow {
	if c == nil {
		return nil
	}
	t := c.Total
	w := &ScanWindow{
		From: c.Since.UTC(), To: c.Until.UTC(), UsedUSD: money.Known(t.Used), StarvedUSD: money.Known(t.Starved),
		WarmingUSD: money.Known(t.Warming),
		WastedUSD:  money.Known(t.Wasted), UnmeasuredUSD: money.Known(t.CannotJudge), OtherUSD: money.Known(t.Other),
		TotalUSD:       money.Known(t.Amount),
		UnknownSeconds: t.UnknownSeconds, UnknownReason: t.AtMostReason}
	if t.AtMost != nil {
		w.UnknownAtMostUSD = money.Known(*t.AtMost)
	}
	return w
}

func (d *Scan) categories(a *round.Result, m *meters) {
	if b := a.Billing; b != nil {
		total := money.Known(b.Total)
		d.MonthlyBilledUSD = &total
		for _, name := range billedNames {
			*d.Categories.Named(name) = money.Known(b.ByCategory[name])
		}
		of := fmt.Sprintf("of the bill %s, %s to %s, at effective cost, brought to a month", valid(b.Source),
			b.From.Format(time.DateOnly), b.To.Format(time.DateOnly))
		d.CategoriesNotes = map[string]string{
			"all": of, round.CategoryNetwork: "on a bill it is among overhead and egress",
			round.CategoryIdle: "the bill's compute is divided as that of the machines that were audited, at list price"}
		return
	}
	d.CategoriesNotes = map[string]string{
		round.CategoryEgress: "no bill was read, and only a bill has data transfer",
	}
	for _, name := range categoryNames {
		if name == round.CategoryEgress {
			continue
		}
		amount, missing := a.Totals.ByCategory[name], m.unpricedIn[name]
		*d.Categories.Named(name) = known(amount, missing == 0)
		if missing > 0 {
			d.CategoriesNotes[name] = "without " + plain.Count(missing, "unpriced meter")
		}
	}
}

func newFindingPolicy(p *finding.FleetPolicy) *FindingPolicy {
	if p == nil {
		return nil
	}
	out := &FindingPolicy{Policy: valid(p.Text), Reason: valid(p.Why), Window: plain.Duration(p.Window)}
	if p.Why != "" {
		return out
	}
	out.MeanReplicas, out.ShortShare = new(p.MeanReplicas), new(p.ShortShare)
	out.MonthlySavingsUSD = known(p.Savings, p.Priced)
	if !p.Priced {
		out.Reason = "its machines have no price"
	}
	return out
}

// newFinding renders one finding.
func newFinding(f *finding.Finding, charges map[inventory.Ref][]ledger.Charge) Finding {
	out := Finding{
		ID: valid(f.ID), Rule: valid(f.Rule), Step: int(f.Step), Because: valid(f.Because),
		MonthlyWasteUSD: money.Known(f.Waste), Confidence: f.Confidence, Overlaps: valid(f.Overlaps),
		Evidence: make([]Evidence, 0, len(f.Evidence)),
		Fix: FindingFix{
			Action: valid(f.Fix.Change.Action()), Change: f.Fix.Change,
			Command: valid(f.Fix.Command), Risk: f.Fix.Risk,
			Undo: f.Fix.Undo, Note: valid(f.Fix.Note), Policy: newFindingPolicy(f.Fix.Policy)},
	}
	if f.Resource != nil {
		out.Resource = newResource(f.Resource)
		out.MonthlyCostUSD, out.CostUnknown = costOf(f, charges[f.Resource.Ref()])
	}
	switch {
	case f.Savings.Known:
		out.MonthlySavingsUSD, out.SavingsUpperBoundUSD = money.Known(f.Savings.Amount), money.Known(f.Savings.Amount)
	case f.Savings.Bounded:
		out.SavingsUpperBoundUSD = money.Known(f.Savings.UpperBound)
		if f.Savings.LowerBound > 0 {
			least := money.Known(f.Savings.LowerBound)
			out.SavingsLowerBoundUSD = &least
		}
	case f.Waste == 0:
		// Nothing bounds what it saves because nothing says what it costs.
		out.MonthlyWasteUSD = known(0, !wasteful(f.Step) || out.MonthlyCostUSD.Known())
	}
	if f.WasteUnknown {
		out.MonthlyWasteUSD = money.Dollars{}
	}
	if !f.Savings.Known {
		out.SavingsUnknown = cmp.Or(valid(f.Savings.Why), "its saving is unknown")
	}
	for _, e := range f.Evidence {
		out.Evidence = append(out.Evidence, newEvidence(e))
	}
	return out
}

// wasteful reports whether findings of a step are about dollars spent on nothing.
func wasteful(s finding.Step) bool {
	return s == finding.StepIdle || s == finding.StepStorage || s == finding.StepCommit
}

// costOf returns what the resource of a finding costs, or why that is unknown.
func costOf(f *finding.Finding, charges []ledger.Charge) (money.Dollars, string) {
	if f.Cost != 0 {
		return money.Known(f.Cost), ""
	}
	var total money.Dollars
	why := "it has no meter of its own"
	for _, c := range charges {
		switch {
		case c.Unpriced == "" && total.Known():
			total = total.Plus(c.ListCost)
		case c.Unpriced == "":
			total = money.Known(c.ListCost)
		case why != "":
			why = valid(c.Unpriced)
		}
	}
	if total.Known() {
		return total, ""
	}
	return total, why
}

func newResource(r *inventory.Resource) Resource {
	d := Resource{ID: valid(r.ID), Description: describe(r)}
	d.Lifetime, d.Purpose = cmp.Or(d.Lifetime, unknown), cmp.Or(d.Purpose, unknown)
	return d
}

// describe returns what is known of a resource; lifetime and purpose are empty if tags do not say.
func describe(r *inventory.Resource) Description {
	return Description{
		Kind: valid(string(r.Kind)), Cloud: valid(r.Cloud), Account: valid(r.Account), Region: valid(r.Region),
		Zone: valid(r.Zone), Name: valid(r.Name), Type: valid(r.Type), State: valid(string(r.State)),
		Lifetime: valid(string(r.Lifetime)), Purpose: valid(string(r.Purpose)),
		Owner: inventory.Owner{
			Team: valid(r.Owner.Team), Project: valid(r.Owner.Project), User: valid(r.Owner.User),
			Environment: valid(r.Owner.Environment), CostCenter: valid(r.Owner.CostCenter),
		},
	}
}

// unknown is how a document spells what tags do not say.
const unknown = "unknown"

func newEvidence(e usage.Evidence) Evidence {
	out := Evidence{Signal: valid(e.Signal), Value: valid(e.Value), Source: valid(e.Source)}
	if e.Window > 0 {
		out.Window = strings.ReplaceAll(plain.Duration(e.Window), " ", "")
	}
	if e.Coverage >= 0 && e.Coverage <= 1 {
		// Rounded down, so that "1.00" is only ever all of it; the epsilon is for
		// shares such as 0.29 that binary fractions fall short of.
		out.Coverage = strconv.FormatFloat(math.Floor(e.Coverage*100+1e-9)/100, 'f', 2, 64)
	}
	return out
}

// savings sums up what the fixes save, by step and in all.
func savings(findings []Finding, a *round.Result) ([]ScanStep, ScanTotals) {
	steps := make([]ScanStep, 0, len(a.Totals.BySteps))
	t := ScanTotals{MonthlySavingsUSD: money.Known(0), SavingsUpperBoundUSD: money.Known(0)}
	for _, s := range a.Totals.BySteps {
		if s.Step < finding.StepMeasure || s.Step > finding.StepCommit {
			continue
		}
		step := ScanStep{
			Step: int(s.Step), Name: s.Step.String(), Findings: s.Findings, SavingsUnknown: s.Unknown, Risk: s.Risk,
			MonthlyWasteUSD: money.Known(0), MonthlySavingsUSD: known(s.Savings, s.Unknown < s.Findings),
			SavingsUpperBoundUSD: sum(s.Savings, s.UpTo),
		}
		unpriced := 0
		for _, f := range findings {
			if f.Step != step.Step {
				continue
			}
			step.MonthlyWasteUSD = step.MonthlyWasteUSD.Plus(f.MonthlyWasteUSD.Or(0))
			if !f.MonthlyWasteUSD.Known() {
				unpriced++
			}
			if !f.SavingsUpperBoundUSD.Known() {
				step.SavingsUpperBoundUSD = money.Dollars{}
			}
		}
		step.MonthlyWasteUSD = known(step.MonthlyWasteUSD.Or(0), unpriced == 0)
		steps = append(steps, step)
		t.SavingsUnknown += s.Unknown
		t.MonthlySavingsUSD = t.MonthlySavingsUSD.Plus(s.Savings)
		if !step.SavingsUpperBoundUSD.Known() {
			t.SavingsUpperBoundUSD = money.Dollars{}
		}
		t.SavingsUpperBoundUSD = t.SavingsUpperBoundUSD.Plus(step.SavingsUpperBoundUSD.Or(0))
	}
	if t.SavingsUnknown > 0 && t.SavingsUnknown == len(findings) {
		t.MonthlySavingsUSD = known(t.MonthlySavingsUSD.Or(0), false)
	}
	return steps, t
}

func owners(a *round.Result, m *meters) []OwnerCost {
	out := make([]OwnerCost, 0, len(a.Totals.ByOwner))
	for _, o := range a.Totals.ByOwner {
		complete := m.unpricedOf[o.Team] == 0
		out = append(out, OwnerCost{
			Team: valid(o.Team), Resources: o.Resources,
			MonthlyCostUSD:  known(o.Now.Running, complete),
			MonthlyWasteUSD: known(o.Waste, complete || o.Now.Running != 0),
			WastedNowUSD:    known(o.Now.Wasted, complete || o.Now.Running != 0),
		})
	}
	return out
}

func calls(list []round.Calls) ([]APICall, money.Dollars) {
	total := money.Known(0)
	out := make([]APICall, 0, len(list))
	for _, c := range list {
		out = append(out, APICall{API: valid(c.API), Count: c.Count, Units: c.Units, CostUSD: money.Known(c.Cost)})
		total = total.Plus(c.Cost)
	}
	slices.SortStableFunc(out, func(x, y APICall) int {
		return cmp.Or(cmp.Compare(y.CostUSD.Or(0), x.CostUSD.Or(0)), cmp.Compare(x.API, y.API),
			cmp.Compare(x.Count, y.Count))
	})
	return out, total
}

func billed(b *round.Billed) *ScanBilled {
	if b == nil {
		return nil
	}
	out := &ScanBilled{Start: b.Start.UTC(), End: b.End.UTC(), TotalUSD: money.Known(b.Total), Source: valid(b.Source),
		NotCoveredUSD: money.Known(0), ByService: make([]BilledService, 0, len(b.ByService))}
	for _, s := range b.ByService {
		out.ByService = append(out.ByService, BilledService{
			Service: valid(s.Service), CostUSD: money.Known(s.Cost), NotCovered: s.NotCovered != "",
			Why: valid(s.NotCovered),
		})
		if s.NotCovered != "" {
			out.NotCoveredUSD = out.NotCoveredUSD.Plus(s.Cost)
		}
	}
	slices.SortStableFunc(out.ByService, func(x, y BilledService) int {
		return cmp.Or(cmp.Compare(y.CostUSD.Or(0), x.CostUSD.Or(0)), cmp.Compare(x.Service, y.Service))
	})
	return out
}

// meters is the result of one pass over the charges of an audit.
type meters struct {
	// unpricedIn counts meters without a price by category, unpricedOf by team.
	unpricedIn, unpricedOf map[string]int
	unpriced               map[unpricedKey][]string
	unjudged               []Unjudged
	sources                map[string]*PriceSource
	estimates              map[string]int
}

type unpricedKey struct{ kind, typ, region, meter, why string }

// survey goes over every meter once.
func survey(a *round.Result) *meters {
	m := &meters{
		unpricedIn: map[string]int{}, unpricedOf: map[string]int{}, unpriced: map[unpricedKey][]string{},
		sources: map[string]*PriceSource{}, estimates: map[string]int{},
	}
	wasted := map[inventory.Ref]money.Amount{}
	for _, f := range a.Findings {
		for _, c := range f.Claims {
			if c.Category == ledger.Compute {
				wasted[c.Resource] = sum(wasted[c.Resource], c.Waste).Or(math.MaxInt64)
			}
		}
	}
	for _, r := range a.Resources {
		ref := r.Ref()
		computes, rest := false, money.Dollars{}
		for _, c := range a.Charges[ref] {
			if c.Estimate != "" && c.Unpriced == "" {
				m.estimates[valid(c.Estimate)]++
			}
			if c.Unpriced != "" {
				key := unpricedKey{
					valid(string(r.Kind)), valid(r.Type), valid(r.Region), valid(c.Meter), valid(c.Unpriced),
				}
				m.unpriced[key] = append(m.unpriced[key], valid(r.ID))
				m.unpricedIn[categoryOf(a, r, c.Category)]++
				m.unpricedOf[r.Owner.Team]++
				computes = computes || c.Category == ledger.Compute
				continue
			}
			m.source(valid(c.Source), day(c.AsOf))
			if c.Category == ledger.Compute {
				idle := min(wasted[ref], c.ListCost)
				wasted[ref] -= idle
				if c.ListCost > idle {
					computes = true
					rest = sum(rest.Or(0), c.ListCost-idle)
				}
			}
		}
		if v, judged := a.Duty(r); computes && !judged {
			m.unjudged = append(m.unjudged, Unjudged{Resource: newResource(r), MonthlyCostUSD: rest,
				Why: cmp.Or(valid(v.Why), "no telemetry")})
		}
	}
	return m
}

// categoryOf returns the category in which a meter would count if it had a price.
func categoryOf(a *round.Result, r *inventory.Resource, c ledger.Category) string {
	switch c {
	case ledger.Compute:
		v, judged := a.Duty(r)
		switch {
		case !judged:
			return round.CategoryUnknown
		case v.State.Productive():
			return round.CategoryActive
		}
		return round.CategoryIdle
	case ledger.Network, ledger.Overhead, ledger.Committed:
		return string(c)
	}
	return round.CategoryStorage
}

// day is the date of a time; empty for none.
func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}

// source counts a price by its source and date.
func (m *meters) source(name, day string) {
	name = cmp.Or(name, "not stated")
	s := m.sources[name]
	if s == nil {
		s = &PriceSource{Source: name}
		m.sources[name] = s
	}
	s.Charges++
	if day == "" {
		return
	}
	if s.From == "" || day < s.From {
		s.From = day
	}
	s.To = max(s.To, day)
}

func (m *meters) priceList() []PriceSource {
	out := make([]PriceSource, 0, len(m.sources))
	for _, s := range m.sources {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(x, y PriceSource) int {
		return cmp.Or(cmp.Compare(y.Charges, x.Charges), cmp.Compare(x.Source, y.Source))
	})
	return out
}

func (m *meters) unpricedList() []Unpriced {
	out := make([]Unpriced, 0, len(m.unpriced))
	for k, ids := range m.unpriced {
		slices.Sort(ids)
		out = append(out, Unpriced{
			Kind: k.kind, Type: k.typ, Region: k.region, Meter: k.meter, Why: k.why, Resources: ids,
		})
	}
	slices.SortFunc(out, func(x, y Unpriced) int {
		return cmp.Or(cmp.Compare(len(y.Resources), len(x.Resources)), cmp.Compare(x.Kind, y.Kind),
			cmp.Compare(x.Type, y.Type),
			cmp.Compare(x.Region, y.Region), cmp.Compare(x.Meter, y.Meter), cmp.Compare(x.Why, y.Why))
	})
	return out
}

// progress lists the busy machines whose work can make progress. Serving makes none.
func progress(a *round.Result) []ScanProgress {
	out := []ScanProgress{}
	for _, f := range a.Facts {
		if f.Duty == nil {
			continue
		}
		if p, ok := newProgress(f, f.Duty.State.String()); ok {
			out = append(out, ScanProgress{newResource(f.Resource), p, valid(f.DescribeProgress())})
		}
	}
	slices.SortStableFunc(out, func(x, y ScanProgress) int {
		return cmp.Or(cmp.Compare(y.SpentUSD.Or(0), x.SpentUSD.Or(0)), x.Since.Compare(y.Since),
			cmp.Compare(x.Resource.ID, y.Resource.ID))
	})
	return out
}

func unjudged(m *meters) []Unjudged {
	slices.SortStableFunc(m.unjudged, func(x, y Unjudged) int {
		return cmp.Or(cmp.Compare(y.MonthlyCostUSD.Or(0), x.MonthlyCostUSD.Or(0)),
			cmp.Compare(x.Resource.ID, y.Resource.ID))
	})
	return append(make([]Unjudged, 0, len(m.unjudged)), m.unjudged...)
}

// assumptions lists the assumptions behind the figures.
func (m *meters) assumptions() []string {
	out := []string{
		"A month is 730 hours; each resource is taken to run on as it does now.",
		"Costs are list prices. Reserved instances and savings plans already cover part of this and are subtracted " +
			"from savings, and so is what is still charged after a fix.",
		"Wasted is the cost of idle, held, stalled or unused resources, used is other compute that was measured, and " +
			"other is storage, network and services.",
		"Savings are what all fixes together save: those of storage classes, spot and right-sizing come from what is " +
			"used.",
		"Data transfer is not counted: only a bill has it.",
	}
	for _, e := range slices.Sorted(maps.Keys(m.estimates)) {
		out = append(out, fmt.Sprintf("Estimated for %s: %s.", plain.Count(m.estimates[e], "meter"),
			strings.TrimSuffix(e, ".")))
	}
	return out
}
