package bill

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

func TestCategoriesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := NewAggregate(options())
		for _, l := range rapid.SliceOfN(drawn(), 0, 30).Draw(t, "lines") {
			if err := a.Add(l); err != nil {
				t.Fatal(err)
			}
		}
		b, err := a.Settle()
		if err != nil {
			t.Fatal(err)
		}
		parts, err := Categories(b.Rows())
		if err != nil || len(parts) != 5 {
			t.Fatalf("the parts are %+v, %v", parts, err)
		}
		var got, want money.Amount
		for _, p := range parts {
			got += p.Billed
		}
		for _, p := range b.Periods {
			want += p.Total.Billed
		}
		if got != want {
			t.Fatalf("the parts add up to %s, want %s", got, want)
		}
	})
}

func TestEgressFlows(t *testing.T) {
	transfer := func(resource, cost, gigabytes, description string) *Line {
		l := line(resource, cost, 0)
		l.ChargeDescription, l.ConsumedUnit, l.RegionID = description, "GB", "us-west-2"
		l.ConsumedQuantity, _ = ParseDecimal(gigabytes)
		return l
	}
	region := "$0.02 per GB - US West (Oregon) data transfer to EU (Ireland)"
	b := settled(t, transfer("datasets", "2", "100", region), transfer("datasets", "1", "50.0000000005", region),
		transfer("i-1", "0.5", "10", "$0.045 per GB Data Processed by NAT Gateways"),
		transfer("i-1", "4", "10", "$0.09 per GB data transfer out"),
		transfer("i-1", "0", "10", "data transfer in per month"), line("i-1", "30", 0))
	got, err := EgressFlows(b.Rows())
	if err != nil {
		t.Fatal(err)
	}
	service := "Amazon Elastic Compute Cloud"
	want := []Flow{
		{
			Transfer: Internet, Account: "acc", Service: service, Resource: "i-1",
			Region: "us-west-2", Billed: 4 * money.USD,
			Bytes: 10e9,
		},
		{
			Transfer: CrossRegion, Account: "acc", Service: service, Resource: "datasets", Region: "us-west-2",
			ToRegion: "eu-west-1", Billed: 3 * money.USD, Bytes: 150e9,
		},
		{
			Transfer: NATData, Account: "acc", Service: service, Resource: "i-1",
			Region: "us-west-2", Billed: money.USD / 2,
			Bytes: 10e9,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the flows differ: %s", diff)
	}
}

func TestCommitmentUse(t *testing.T) {
	committed := func(id, status, cost string, day int) *Line {
		l := line("", cost, day)
		l.PricingCategory, l.CommitmentID, l.CommitmentStatus, l.BilledCost = Committed, id, status, Decimal{}
		return l
	}
	unknown := committed("sp-1", Used, "9", 0)
	unknown.Unknown, unknown.EffectiveCost = EffectiveCost, Decimal{}
	spot := line("i-3", "7", 0)
	spot.PricingCategory = Dynamic
	b := settled(t, committed("sp-1", Used, "3", 0), committed("sp-1", Unused, "2", 0),
		committed("sp-1", Unused, "5", 1),
		committed("sp-2", Unused, "1", 2), unknown,
		line("i-1", "1.5", 0), line("i-2", "6", 1), spot)
	got, err := CommitmentUse(b.Rows())
	if err != nil {
		t.Fatal(err)
	}
	want := Commitments{
		Commitments: []Commitment{
			{ID: "sp-1", Used: 3 * money.USD, Unused: 7 * money.USD, Unknown: 1}, {ID: "sp-2", Unused: money.USD},
		},
		OnDemand: []OnDemand{{Service: "Amazon Elastic Compute Cloud", Billed: 7*money.USD + money.USD/2}},
		Missed:   6*money.USD + money.USD/2, // the lesser of each day: 1.5 and 5
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the use of commitments differs: %s", diff)
	}
}

// owned returns a line of a team.
func ownedBy(team, cost string) *Line {
	l := line("r-"+team, cost, 0)
	if team != "" {
		l.Tags = `{"team":"` + team + `"}`
	}
	return l
}

// byTeam yields rows with their teams.
func byTeam(rows iter.Seq[Row]) iter.Seq2[string, Row] {
	return func(yield func(string, Row) bool) {
		for r := range rows {
			if !yield(r.Owner.Team, r) {
				return
			}
		}
	}
}

// paid returns the charge of a party.
func paid(name string, direct, shared money.Amount) Party {
	return Party{Name: name, Direct: direct, Shared: shared, Total: direct + shared}
}

func TestAllocate(t *testing.T) {
	support := line("", "10", 0)
	support.ServiceName, support.ServiceCategory = "AWS Premium Support", ""
	lines := []*Line{ownedBy("vision", "30"), ownedBy("speech", "10"), ownedBy("", "5"), support}
	usd := func(n money.Amount) money.Amount { return n * money.USD }
	for _, tc := range []struct {
		name         string
		rules        []SharedRule
		parties      []Party
		unattributed money.Amount
		err          string
	}{
		{"by tags alone", nil, []Party{paid("speech", usd(10), 0), paid("vision", usd(30), 0)}, usd(15), ""},
		{"evenly", []SharedRule{{Name: "support", Services: []string{"AWS Premium Support"}, Method: Even}},
			[]Party{paid("speech", usd(10), usd(5)), paid("vision", usd(30), usd(5))}, usd(5), ""},
		{"in proportion", []SharedRule{{Name: "support", Categories: []Category{Overhead}, Method: Proportional}},
			[]Party{paid("speech", usd(10), money.USD*5/2), paid("vision", usd(30), money.USD*15/2)}, usd(5), ""},
		{
			"the untagged, among others", []SharedRule{
				{Name: "rest", Untagged: true, Method: Even, Among: []string{"platform", "vision", "platform"}},
			},
			[]Party{
				paid("platform", 0, money.USD*15/2), paid("speech", usd(10), 0),
				paid("vision", usd(30), money.USD*15/2),
			},
			0, ""},
		{
			"the first rule counts", []SharedRule{
				{Name: "a", Untagged: true, Method: Even, Among: []string{"a"}},
				{Name: "b", Categories: []Category{Overhead}, Method: Even, Among: []string{"b"}},
			},
			[]Party{
				paid("a", 0, usd(15)), paid("b", 0, 0), paid("speech", usd(10), 0), paid("vision", usd(30), 0),
			}, 0, ""},
		{
			"in proportion to nothing",
			[]SharedRule{
				{Name: "all", Categories: []Category{Overhead, Compute}, Method: Proportional},
			}, []Party{}, usd(55),
			"",
		},
		{"no method", []SharedRule{{Name: "x", Untagged: true}}, nil, 0, `method "" is not known`},
		{"nothing shared", []SharedRule{{Name: "x", Method: Even}}, nil, 0, "nothing says which costs"},
		{
			"no such category", []SharedRule{{Name: "x", Method: Even, Categories: []Category{"network"}}}, nil, 0,
			`category "network" is not known`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := Allocate(byTeam(settled(t, lines...).Rows()), ByTeam, OnBilled, tc.rules)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("the error is %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.parties, a.Parties); diff != "" ||
				a.Unattributed != tc.unattributed || a.Total != usd(55) {
				t.Errorf("of %s %s is unattributed, want %s; parties: %s", a.Total,
					a.Unattributed, tc.unattributed, diff)
			}
		})
	}
}

// TestAllocationAddsUp checks that whatever the rules, parties and the unattributed rest add up to
// the bill.
func TestAllocationAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := NewAggregate(Options{Source: "test", Mapping: inventory.DefaultTagMapping()})
		for _, l := range rapid.SliceOfN(drawn(), 0, 30).Draw(t, "lines") {
			if err := a.Add(l); err != nil {
				t.Fatal(err)
			}
		}
		b, err := a.Settle()
		if err != nil {
			t.Fatal(err)
		}
		var rules []SharedRule
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			rules = append(rules, SharedRule{
				Name: "r", Method: rapid.SampledFrom([]Method{Even, Proportional}).Draw(t, "method"),
				Untagged: rapid.Bool().Draw(t, "untagged"), Categories: []Category{
					rapid.SampledFrom([]Category{Compute, Egress}).Draw(t, "category"),
				},
				Among: rapid.SliceOfN(rapid.SampledFrom([]string{"vision", "speech", "platform"}),
					0, 3).Draw(t, "among")})
		}
		basis := rapid.SampledFrom([]Basis{OnBilled, OnEffective}).Draw(t, "basis")
		got, err := Allocate(byTeam(b.Rows()), ByTeam, basis, rules)
		if err != nil {
			t.Fatal(err)
		}
		sum := got.Unattributed
		for _, p := range got.Parties {
			if sum += p.Direct + p.Shared; p.Total != p.Direct+p.Shared {
				t.Fatalf("the total of %+v is not its parts", p)
			}
		}
		var want money.Amount
		for _, p := range b.Periods {
			if want += p.Total.Billed; basis == OnEffective {
				want += p.Total.Effective - p.Total.Billed
			}
		}
		if sum != want || got.Total != want {
			t.Fatalf("the parts add up to %s of %s, want %s", sum, got.Total, want)
		}
	})
}

func TestDollarsOfDecimals(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "0": "0.00", "-7": "-7.00", "2.5": "2.50", "11.15367699036": "11.15367699036", "0.0002": "0.0002",
	} {
		if got := Dollars(in); got != want {
			t.Errorf("Dollars(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSummarize(t *testing.T) {
	other := line("i-2", "2.5", 0)
	other.BillingAccountID, other.Unknown, other.ContractedCost = "other", ContractedCost, Decimal{}
	first := line("i-1", "1.0000000000000000001", 0)
	first.Unknown, first.ContractedCost = ContractedCost, Decimal{}
	b := settled(t, first, other)
	_, planned, _ := Plan(b, nil, september)
	d := Summarize(b, planned)
	p := d.Periods[0]
	if d.Rows != 2 || d.BilledCost != "3.5000000000000000001" || *d.EffectiveCost != d.BilledCost ||
		d.ContractedCost != nil ||
		len(d.Periods) != 1 || p.Rows != 2 || p.BilledCost != d.BilledCost || len(p.Accounts) != 2 ||
		p.Accounts[1].BilledCost != "2.50" || p.Accounts[0].Change != Added {
		t.Errorf("the document is %+v", d)
	}
	if !slices.Contains(d.Notes, "ContractedCost is empty in 2 rows, which are in no total of it") ||
		d.MissingColumns == nil {
		t.Errorf("the notes are %q, the missing columns %v", d.Notes, d.MissingColumns)
	}
}

// TestTheFiveCategoriesByDuty: compute is divided by the duty of its machine on that day, all of it
// is in some category, and unmeasured compute is not zero.
func TestTheFiveCategoriesByDuty(t *testing.T) {
	type placed struct {
		in  Category
		row Row
	}
	usd := func(c Category, billed, effective money.Amount) Row {
		return Row{Category: c, Cost: Cost{Billed: billed * money.USD, Effective: effective * money.USD}}
	}
	rest := []placed{
		{Storage, usd(Storage, 30, 30)}, {"quantum", usd("quantum", 2, 2)}, {Egress, usd(Egress, 5, 5)},
		{Unmeasured, usd(Compute, 32, 40)},
	}
	reserved := usd(Compute, 7, 7)
	reserved.CapacityStatus = Unused
	unknown := Row{Category: Overhead, Cost: Cost{Billed: money.USD}, Unknown: EffectiveCost}
	const none = "unknown: no machine on the bill was measured"
	for _, tc := range []struct {
		name string
		more []placed
		want map[Category]string
	}{
		{
			"measured", []placed{
				{Idle, usd(Compute, 24, 20)}, {Active, usd(Compute, 50, 60)},
				{Active, usd(Compute, -2, 0)}, {Overhead, unknown},
			},
			map[Category]string{
				Storage: "30.00 30.00", Idle: "24.00 20.00", Active: "48.00 60.00",
				Egress: "5.00 5.00", Overhead: "1.00 0.00",
				Unmeasured: "32.00 40.00", Other: "2.00 2.00",
			}},
		{
			"not measured", nil,
			map[Category]string{
				Storage: "30.00 30.00", Idle: none, Active: none, Egress: "5.00 5.00", Overhead: "0.00 0.00",
				Unmeasured: "32.00 40.00", Other: "2.00 2.00",
			},
		},
		{"idle by the bill itself", []placed{{Idle, reserved}},
			map[Category]string{
				Storage: "30.00 30.00", Idle: "7.00 7.00", Active: none, Egress: "5.00 5.00", Overhead: "0.00 0.00",
				Unmeasured: "32.00 40.00", Other: "2.00 2.00",
			}},
	} {
		slices, err := ByDuty(func(yield func(Category, Row) bool) {
			for _, p := range append(slices.Clone(rest), tc.more...) {
				if !yield(p.in, p.row) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[Category]string{}
		for _, s := range slices {
			if s.ByBill != nil && (tc.name != "idle by the bill itself" || s.Category != Idle ||
				*s.ByBill != 7*money.USD ||
				*s.ByBillEffective != 7*money.USD) {
				t.Errorf("%s: by the bill itself %s of %s is unused", tc.name, *s.ByBill, s.Category)
			}
			if got[s.Category] = "unknown: " + s.Reason; s.Billed != nil {
				got[s.Category] = s.Billed.Cents() + " " + s.Effective.Cents()
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
