package bill

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

var september = time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)

// line returns a line of September with its four costs.
func line(resource string, cost string, day int) *Line {
	d, err := ParseDecimal(cost)
	if err != nil {
		panic(err)
	}
	return &Line{
		BillingAccountID: "acc", BillingCurrency: "USD", BillingPeriodStart: september,
		BillingPeriodEnd:  september.AddDate(0, 1, 0),
		ChargePeriodStart: september.AddDate(0, 0, day).Add(5 * time.Hour), ChargeCategory: Usage,
		ServiceName: "Amazon Elastic Compute Cloud", ServiceCategory: "Compute",
		ResourceID: resource, PricingCategory: Standard, BilledCost: d, EffectiveCost: d,
		ListCost: d, ContractedCost: d}
}

func options() Options { return Options{Source: "test", Mapping: inventory.DefaultTagMapping()} }

// settled adds lines up.
func settled(t testing.TB, lines ...*Line) *Bill {
	t.Helper()
	a := NewAggregate(options())
	for _, l := range lines {
		if err := a.Add(l); err != nil {
			t.Fatal(err)
		}
	}
	b, err := a.Settle()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// drawn draws a line.
func drawn() *rapid.Generator[*Line] {
	return rapid.Custom(func(t *rapid.T) *Line {
		l := line(rapid.SampledFrom([]string{"", "i-1", "i-2", "vol-1"}).Draw(t, "resource"),
			rapid.StringMatching(`-?[0-9]{1,2}\.[0-9]{1,30}`).Draw(t, "cost"), rapid.IntRange(0, 3).Draw(t, "day"))
		l.BillingAccountID = rapid.SampledFrom([]string{"acc", "other", ""}).Draw(t, "account")
		l.ChargeDescription = rapid.SampledFrom([]string{
			"", "$0.02 per GB - US West (Oregon) data transfer to EU (Ireland)",
		}).Draw(t, "description")
		l.ConsumedUnit, l.ConsumedQuantity = "GB", l.BilledCost
		l.Tags = rapid.SampledFrom([]string{
			"", "no json", `{"team":"vision"}`, `{"Team":"speech","project":"asr"}`,
		}).Draw(t,
			"tags")
		if rapid.Bool().Draw(t, "no effective cost") {
			l.Unknown, l.EffectiveCost = EffectiveCost, Decimal{}
		}
		return l
	})
}

// TestOrderAndForksMakeNoDifference checks that lines in another order, divided over forks, give
// the same bill to the last digit, and that rows add up to the totals.
func TestOrderAndForksMakeNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(drawn(), 1, 60).Draw(t, "lines")
		one, all := NewAggregate(options()), NewAggregate(options())
		forks := []*Aggregate{all.Fork(), all.Fork(), all.Fork()}
		for _, l := range lines {
			if err := one.Add(l); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range rapid.Permutation(indexes(len(lines))).Draw(t, "order") {
			if err := forks[rapid.IntRange(0, 2).Draw(t, "fork")].Add(lines[i]); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range forks {
			if err := all.Merge(f); err != nil {
				t.Fatal(err)
			}
		}
		a, err := one.Settle()
		if err != nil {
			t.Fatal(err)
		}
		b, err := all.Settle()
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Periods) != len(b.Periods) || a.Lines != b.Lines {
			t.Fatalf("%d periods of %d lines and %d of %d", len(a.Periods), a.Lines, len(b.Periods), b.Lines)
		}
		if diff := cmp.Diff(a.Notes, b.Notes); diff != "" {
			t.Fatalf("the notes differ: %s", diff)
		}
		var sum Decimal
		for i, p := range a.Periods {
			if diff := cmp.Diff(p.Period, b.Periods[i].Period); diff != "" {
				t.Fatalf("the periods differ: %s", diff)
			}
			if diff := cmp.Diff(slices.Collect(p.Rows()), slices.Collect(b.Periods[i].Rows())); diff != "" {
				t.Fatalf("the rows differ: %s", diff)
			}
			var total Cost
			var counted int64
			for r := range p.Rows() {
				total.Billed += r.Cost.Billed
				total.Effective += r.Cost.Effective
				total.List += r.Cost.List
				total.Contracted += r.Cost.Contracted
				counted += r.Lines
				if r.Unknown.Has(EffectiveCost) && r.Cost.Effective != 0 {
					t.Fatalf("an unknown cost is %s", r.Cost.Effective)
				}
			}
			if total != p.Total || counted != p.Lines {
				t.Fatalf("the rows add up to %+v of %d lines, the period to %+v of %d", total,
					counted, p.Total, p.Lines)
			}
			sum = sum.Add(p.Sums.Billed)
		}
		var want Decimal
		for _, l := range lines {
			want = want.Add(l.BilledCost)
		}
		if sum.Cmp(want) != 0 || a.Lines != int64(len(lines)) {
			t.Fatalf("billed %s in %d lines, want %s in %d", sum, a.Lines, want, len(lines))
		}
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestWhatIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Line)
		want   string
	}{
		{"euros", func(l *Line) { l.BillingCurrency = "EUR" }, `"EUR"`},
		{"no period", func(l *Line) { l.BillingPeriodStart = time.Time{} }, "BillingPeriodStart is empty"},
		{"no day", func(l *Line) { l.ChargePeriodStart = time.Time{} }, "ChargePeriodStart is empty"},
		{"a correction of before", func(l *Line) {
			l.ChargePeriodStart, l.ChargeClass = september.AddDate(0, -2, 0), Correction
		}, ""},
		{"a credit for before", func(l *Line) {
			l.ChargePeriodStart, l.ChargeCategory = september.AddDate(0, -2, 0), Credit
		}, ""},
		{"no end", func(l *Line) { l.BillingPeriodEnd = time.Time{} }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := NewAggregate(options())
			l := line("i-1", "1", 0)
			tc.change(l)
			err := a.Add(l)
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("the line gives %v, want %q", err, tc.want)
			}
		})
	}
}

// TestUsageThatIsBilledLate checks that usage outside of its billing period counts in the period
// that bills it, on its own day, in whatever order and number of parts it is read.
func TestUsageThatIsBilledLate(t *testing.T) {
	late, early, uneven := line("i-late", "2", 0), line("i-early", "3", 0), line("i-uneven", "5", 0)
	late.ChargePeriodStart = september.AddDate(0, -2, 3).Add(5 * time.Hour)
	early.ChargePeriodStart = early.BillingPeriodEnd.AddDate(0, 0, 2)
	uneven.BillingPeriodEnd = uneven.BillingPeriodEnd.Add(-time.Second)
	lines := []*Line{late, line("i-1", "1", 0), early, uneven}
	for name, order := range map[string][]int{"one after the other": {0, 1, 2, 3}, "backwards": {3, 2, 1, 0}} {
		a := NewAggregate(options())
		for _, i := range order {
			part := a.Fork()
			if err := part.Add(lines[i]); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := a.Merge(part); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		b, err := a.Settle()
		if err != nil || len(b.Periods) != 1 {
			t.Fatalf("%s: %d periods, %v", name, len(b.Periods), err)
		}
		p := b.Periods[0]
		if !p.Start.Equal(september) || !p.End.Equal(late.BillingPeriodEnd) || p.Exact.Billed != "11" {
			t.Errorf("%s: the period from %s to %s has %s, want September with 11", name,
				p.Start, p.End, p.Exact.Billed)
		}
		days := map[string]string{}
		for r := range p.Rows() {
			days[r.Resource] = r.Day.Format(time.DateOnly)
		}
		if want := map[string]string{
			"i-late": "2024-07-04", "i-1": september.Format(time.DateOnly), "i-early": "2024-10-03",
			"i-uneven": september.Format(time.DateOnly),
		}; !maps.Equal(days, want) {
			t.Errorf("%s: the days are %v, want %v", name, days, want)
		}
		notes := strings.Join(b.Notes, "\n")
		for _, want := range []string{
			"1 row of usage from before the billing period",
			"1 row of usage from after the billing period", "several ends",
		} {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: the notes are %q, want %q", name, notes, want)
			}
		}
	}
}

func TestOwnersFromTags(t *testing.T) {
	for _, tc := range []struct {
		tags string
		want inventory.Owner
	}{
		{
			`{"Team":"vision","cost-center":"4711","env":"PROD"}`,
			inventory.Owner{Team: "vision", CostCenter: "4711", Environment: "prod"},
		},
		{`{"user:team":"vision"}`, inventory.Owner{Team: "vision"}},
		{`{"user_team":"vision","team":"speech"}`, inventory.Owner{Team: "speech"}},
		{`{"team":null}`, inventory.Owner{}},
		{`{"team":7}`, inventory.Owner{Team: "7"}},
		{
			`[{"key":"team","value":"vision","inherited":false},{"key":"env","value":"dev"}]`,
			inventory.Owner{Team: "vision", Environment: "dev"},
		},
		{`"team": "vision","project": "asr"`, inventory.Owner{Team: "vision", Project: "asr"}},
		{`[]`, inventory.Owner{}},
		{``, inventory.Owner{}},
		{`no json`, inventory.Owner{}},
	} {
		l := line("i-1", "1", 0)
		l.Tags = tc.tags
		b := settled(t, l)
		for r := range b.Rows() {
			if r.Owner != tc.want {
				t.Errorf("tags %s give %+v, want %+v", tc.tags, r.Owner, tc.want)
			}
		}
		if noted := strings.Contains(strings.Join(b.Notes, ""), "no JSON object"); noted != (tc.tags == "no json") {
			t.Errorf("tags %q give the notes %q", tc.tags, b.Notes)
		}
	}
}

// TestTextsAreFitToKeep: texts that no database keeps are replaced, and rows which then agree are
// one.
func TestTextsAreFitToKeep(t *testing.T) {
	a, b := line("i-\x00", "1", 0), line("i-\xff", "2", 0)
	a.BillingAccountID, b.BillingAccountID = "\x00", "\xff"
	a.Tags = `{"team":"x\u0000"}`
	b.Tags = a.Tags
	got := settled(t, a, b)
	rows := slices.Collect(got.Rows())
	if len(rows) != 1 || rows[0].Resource != "i-\uFFFD" || rows[0].Account != "\uFFFD" ||
		rows[0].Owner.Team != "x\uFFFD" || rows[0].Cost.Billed != 3*money.USD {
		t.Errorf("the rows are %+v", rows)
	}
}

func TestPlan(t *testing.T) {
	at := september.AddDate(0, 1, 3)
	other := line("i-1", "2", 0)
	other.BillingAccountID = "other"
	b := settled(t, line("i-1", "1", 0), other)
	fresh, planned, _ := Plan(b, nil, at)
	if len(fresh) != 2 || planned[0].Change != Added || fresh[0].Replaces != "" || !fresh[0].ImportedAt.Equal(at) {
		t.Fatalf("a new bill: %+v, %+v", fresh, planned)
	}
	stored := []Period{fresh[0].Period, fresh[1].Period}
	for _, tc := range []struct {
		name  string
		bill  *Bill
		want  []Change
		calls int
	}{
		{"the same again", b, []Change{Unchanged, Unchanged}, 0},
		{"a line more", settled(t, line("i-1", "1", 0), line("i-2", "1", 0), other), []Change{Restated, Unchanged}, 1},
		{
			"a digit more", settled(t, line("i-1", "1.000000000000000000000000000001", 0), other),
			[]Change{Restated, Unchanged}, 1,
		},
		{"an account less", settled(t, line("i-1", "1", 0)), []Change{Unchanged, Removed}, 1},
	} {
		replace, planned, _ := Plan(tc.bill, stored, at)
		var got []Change
		for _, p := range planned {
			got = append(got, p.Change)
		}
		if !slices.Equal(got, tc.want) || len(replace) != tc.calls {
			t.Errorf("%s: %v with %d replaced, want %v with %d", tc.name, got, len(replace), tc.want, tc.calls)
		}
		for _, r := range replace {
			if r.Replaces == "" {
				t.Errorf("%s: %v is replaced without a condition", tc.name, r.PeriodKey)
			}
		}
	}
	elsewhere := slices.Clone(stored)
	elsewhere[1].Source = "elsewhere"
	if replace, _, _ := Plan(settled(t, line("i-1", "1", 0)), elsewhere, at); len(replace) != 0 {
		t.Errorf("another source's account is replaced: %+v", replace)
	}
}

func TestClassification(t *testing.T) {
	for _, tc := range []struct {
		service, serviceCategory, usageType, description string
		category                                         Category
		transfer                                         Transfer
		to                                               string
	}{
		{
			"Amazon Elastic Compute Cloud", "Compute", "",
			"$1.624 per On Demand Linux g5.4xlarge Instance Hour", Compute,
			NoTransfer, "",
		},
		{
			"Amazon Elastic Compute Cloud", "Storage", "",
			"$0.08 per GB-month of General Purpose (gp3) provisioned storage - US East (N. Virginia)", Storage,
			NoTransfer,
			"",
		},
		{
			"Amazon Elastic Compute Cloud", "Storage", "",
			"$0.05 per GB-Month of snapshot data stored - US West (Oregon)",
			Storage, NoTransfer, "",
		},
		{
			"Amazon Elastic Compute Cloud", "Compute", "",
			"$0.090 per GB - first 10 TB / month data transfer out beyond the global free tier", Egress, Internet, "",
		},
		{
			"Amazon Elastic Compute Cloud", "Compute", "", "$0.000 per GB - data transfer in per month", Egress,
			Inbound, "",
		},
		{
			"Amazon Elastic Compute Cloud", "Compute", "",
			"$0.00 per GB - US West (Oregon) data transfer from US East (Northern Virginia)", Egress, Inbound, "",
		},
		{
			"Amazon Elastic Compute Cloud", "Compute", "",
			"$0.010 per GB - regional data transfer - in/out/between EC2 AZs or using elastic IPs or ELB", Egress,
			CrossZone,
			"",
		},
		{
			"Amazon Elastic Compute Cloud", "Compute", "", "$0.045 per GB Data Processed by NAT Gateways", Egress,
			NATData, "",
		},
		{"Amazon Elastic Compute Cloud", "Compute", "", "$0.045 per NAT Gateway Hour", Egress, NATHours, ""},
		{
			"Amazon Simple Storage Service", "Storage", "",
			"$0.02 per GB - US West (Oregon) data transfer to EU (Ireland)",
			Egress, CrossRegion, "eu-west-1",
		},
		{
			"Amazon Simple Storage Service", "Storage", "USW2-EUC1-AWS-Out-Bytes", "", Egress, CrossRegion,
			"eu-central-1",
		},
		{"Amazon Simple Storage Service", "Storage", "USW2-AWS-Out-Bytes", "", Egress, CrossRegion, "us-west-2"},
		{"Amazon Simple Storage Service", "Storage", "USW2-DataTransfer-Out-Bytes", "", Egress, Internet, ""},
		{
			"Amazon Simple Storage Service", "Storage", "",
			"$0.00 per GB data transfer out of US East (Northern Virginia) to CloudFront", Egress, OtherTransfer, "",
		},
		{
			"Amazon Simple Storage Service", "Storage", "",
			"$0.005 per 1,000 PUT, COPY, POST, or LIST requests", Storage,
			NoTransfer, "",
		},
		{
			"AmazonCloudWatch", "Management and Governance", "",
			"$0.03 per GB-mo of log storage - US West (Oregon)", Storage,
			NoTransfer, "",
		},
		{
			"AmazonCloudWatch", "Management and Governance", "",
			"$0.50 per GB custom log data ingested in Standard log class - US West (Oregon)", Overhead, NoTransfer, "",
		},
		{
			"Amazon EC2 Container Registry (ECR)", "Other", "", "$0.10 per GB-month of data storage", Storage,
			NoTransfer, "",
		},
		{
			"Amazon Elastic Container Service", "Other", "",
			"AWS Fargate - vCPU  - US West 2 (Oregon)", Compute, NoTransfer,
			"",
		},
		{
			"Amazon Relational Database Service", "Databases", "", "USD 0.023 per db.t3.micro Single-AZ instance hour",
			Storage, NoTransfer, "",
		},
		{
			"Elastic Load Balancing", "Networking", "", "$0.0225 per Application LoadBalancer-hour (or partial hour)",
			Overhead, NoTransfer, "",
		},
		{
			"AWS Key Management Service", "Identity", "", "$1 per customer managed KMS key version in EU (Frankfurt)",
			Overhead, NoTransfer, "",
		},
		{"AWS Premium Support", "", "", "Business support", Overhead, NoTransfer, ""},
		{
			"Azure Machine Learning", "AI and Machine Learning", "",
			"Virtual Machines Dv2/DSv2 Series - D11 v2/DS11 v2 - US East 2", Compute, NoTransfer, "",
		},
		{
			"Azure Machine Learning", "AI and Machine Learning", "", "Premium SSD Managed Disks - P6 LRS - US East 2",
			Storage, NoTransfer, "",
		},
		{
			"Azure Machine Learning", "AI and Machine Learning", "",
			"Bandwidth Inter-Region - Intra Continent Data Transfer Out - North America", Egress, CrossRegion, "",
		},
		{
			"Azure Machine Learning", "AI and Machine Learning", "",
			"Rtn Preference: MGN - Standard Data Transfer Out",
			Egress, Internet, "",
		},
		{
			"Storage Accounts", "Storage", "",
			"Microsoft Defender for Storage - Standard Transactions", Overhead, NoTransfer,
			"",
		},
		{"Compute Engine", "Compute", "", "Network Inter Zone Egress", Egress, CrossZone, ""},
		{"Compute Engine", "Compute", "", "Network Internet Egress from Americas to EMEA", Egress, Internet, ""},
		{"COMPUTE", "Compute", "", "Standard - A1 - Memory", Compute, NoTransfer, ""},
		{"AmazonSageMaker", "", "USW2-Train:VolumeUsage.gp3", "", Storage, NoTransfer, ""},
		{"AmazonSageMaker", "", "Notebk:ml.g5.xlarge", "", Compute, NoTransfer, ""},
		{"AmazonSageMaker", "", "FeatureStore:StorageBytes", "", Storage, NoTransfer, ""},
		{
			"Amazon SageMaker", "AI and Machine Learning", "", "$0.23 per ModelMonitor ml.m5.xlarge hour", Overhead,
			NoTransfer, "",
		},
		{"Virtual Machines", "COMPUTE", "", "NC24ads A100 v4", Compute, NoTransfer, ""},
		{"Cloud Storage", "storage", "", "Standard Storage", Storage, NoTransfer, ""},
		{
			"Amazon Simple Queue Service", "Integration", "", "$0.40 per million Amazon SQS standard requests", Other,
			NoTransfer, "",
		},
	} {
		got := classify(&Line{
			ServiceName: tc.service, ServiceCategory: tc.serviceCategory, UsageType: tc.usageType,
			ChargeDescription: tc.description, ChargeCategory: Usage,
		})
		got.machine = "" // which TestMeters holds
		if want := (class{category: tc.category, transfer: tc.transfer, to: tc.to}); got != want {
			t.Errorf("%s, %q %q is %+v, want %+v", tc.service, tc.usageType, tc.description, got, want)
		}
	}
	if got := classify(&Line{
		ChargeCategory: Tax, ServiceName: "Amazon Simple Storage Service", ServiceCategory: "Storage",
	}); got.category != Overhead {
		t.Errorf("tax is %s", got.category)
	}
}

// TestMeters derives machines and reserved capacity from names of meters.
func TestMeters(t *testing.T) {
	for _, tc := range []struct {
		line              Line
		machine, capacity string
	}{
		{Line{UsageType: "USE2-BoxUsage:p5.48xlarge"}, "p5.48xlarge", ""},
		{Line{UsageType: "UnusedBox:g6e.12xlarge"}, "g6e.12xlarge", Unused},
		{Line{UsageType: "EUW1-UnusedDed:m7i.metal-24xl"}, "m7i.metal-24xl", Unused},
		{Line{ChargeDescription: "$32.77 per Unused Reservation Linux p4d.24xlarge Instance Hour"}, "", Unused},
		{Line{UsageType: "Studio:KernelGateway-ml.g4dn.xlarge"}, "ml.g4dn.xlarge", ""},
		{Line{UsageType: "Host:ml.inf2.xlarge"}, "ml.inf2.xlarge", ""},
		{Line{UsageType: "InstanceUsage:db.r6g.large"}, "db.r6g.large", ""},
		{Line{UsageType: "EBS:VolumeUsage.gp3"}, "", ""},
		{Line{UsageType: "ComputeSP:1yrNoUpfront"}, "", ""},
		{Line{UsageType: "BoxUsage"}, "", ""},
		{Line{UsageType: "BoxUsage:c5.large", MachineType: "c5a.large", CapacityStatus: Used}, "c5a.large", Used},
	} {
		if c := classify(&tc.line); c.machine != tc.machine || c.capacity != tc.capacity {
			t.Errorf("%q %q is of %q, %q; want %q, %q", tc.line.UsageType,
				tc.line.ChargeDescription, c.machine, c.capacity,
				tc.machine, tc.capacity)
		}
	}
}

// TestPurchasesTakeEffectOnce checks that the effective cost of a commitment's purchase is named,
// and set to 0 if that is asked for.
func TestPurchasesTakeEffectOnce(t *testing.T) {
	bought, used, other := line("", "360", 0), line("i-1", "0", 1), line("", "5", 2)
	bought.ChargeCategory, bought.CommitmentID, bought.PricingCategory = Purchase, "/plans/7", Committed
	used.CommitmentID, used.CommitmentStatus = "/plans/7", Used
	used.EffectiveCost, _ = ParseDecimal("12")
	other.ChargeCategory, other.PricingCategory = Purchase, "" // a license, which covers nothing
	for _, tc := range []struct {
		zero            bool
		effective, note string
	}{
		{false, "377", "purchases of commitments have an effective cost in 1 row, 360 USD, which FOCUS defines as 0"},
		{true, "17", "the effective cost of purchases of commitments in 1 row, 360 USD, was set to 0"},
	} {
		o := options()
		o.ZeroPurchases = tc.zero
		a := NewAggregate(o)
		for _, l := range []*Line{bought, used, other} {
			part := a.Fork()
			if err := errors.Join(part.Add(l), a.Merge(part)); err != nil {
				t.Fatal(err)
			}
		}
		b, err := a.Settle()
		if err != nil {
			t.Fatal(err)
		}
		p := b.Periods[0]
		if p.Exact.Effective != tc.effective || p.Exact.Billed != "365" ||
			!strings.Contains(strings.Join(b.Notes, "\n"), tc.note) {
			t.Errorf("billed %s, effective %s with notes %q; want 365, %s and %q", p.Exact.Billed,
				p.Exact.Effective, b.Notes,
				tc.effective, tc.note)
		}
	}
}

// TestNoOverflowIsSwallowed checks that sums past the range of an amount are an error.
func TestNoOverflowIsSwallowed(t *testing.T) {
	a := NewAggregate(options())
	for i := range 3 {
		if err := a.Add(line(fmt.Sprint(i), "9000000000", 0)); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := a.Settle(); err == nil || !strings.Contains(err.Error(), money.ErrOverflow.Error()) {
		t.Errorf("27 billion dollars add up to %+v, %v", b, err)
	}
}

func BenchmarkAggregate(b *testing.B) {
	lines := make([]*Line, 10_000)
	for i := range lines {
		lines[i] = line(fmt.Sprintf("i-%08d", i/3), "0.00015833330", i%30)
	}
	a := NewAggregate(options())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := a.Add(lines[i%len(lines)]); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNotesSayWhatIsLacking: notes name missing columns, and no others.
func TestNotesSayWhatIsLacking(t *testing.T) {
	whole := line("i-1", "1", 0)
	whole.BillingCurrency = "USD"
	if b := settled(t, whole); len(b.Notes) != 0 {
		t.Errorf("of a whole line: %q", b.Notes)
	}
	lacking := line("i-1", "1", 0)
	lacking.BillingCurrency, lacking.Tags, lacking.Unknown = "", "no JSON", ListCost
	lacking.Withheld = line("", "0.5", 0).BilledCost
	want := []string{
		"1 row without BillingCurrency: their costs are taken to be US dollars",
		"1 row with Tags that are no JSON object: no owner is read from them",
		"ListCost is empty in 1 row, which are in no total of it",
		"usage under savings plans and its negation differ by " +
			"0.5 USD in the period of 2024-09-01, which is in no total"}
	if b := settled(t, whole, lacking); !slices.Equal(slices.Sorted(slices.Values(want)), b.Notes) {
		t.Errorf("got %q", b.Notes)
	}
}
