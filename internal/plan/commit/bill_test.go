package commit

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/money"
)

// billed is a row of on-demand compute.
func billed(provider, service, region, resource, cost string) bill.Row {
	a, err := money.ParseAmount(cost)
	if err != nil {
		panic(err)
	}
	return bill.Row{
		Day: start, Provider: provider, Service: service, Region: region, Resource: resource, Category: bill.Compute,
		ChargeCategory: bill.Usage, PricingCategory: bill.Standard, Cost: bill.Cost{Billed: a},
	}
}

func rowsOf(rows ...bill.Row) iter.Seq2[bill.Row, error] {
	return func(yield func(bill.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// perKey adds up the hours of a bill by key, in dollars.
func perKey(use []Usage) map[string]string {
	sums := map[string]Quantity{}
	for _, u := range use {
		sums[u.Key] += u.Quantity
	}
	out := map[string]string{}
	for key, q := range sums {
		out[key] = (money.Amount(q) * (money.USD / money.Amount(Machine))).String()
	}
	return out
}

// TestBillOmitsUncoveredServices: Bedrock, the fee of EKS and charges without a service are
// named with their dollars; SageMaker counts only where an offer names it.
func TestBillOmitsUncoveredServices(t *testing.T) {
	rows := []bill.Row{
		billed("AWS", "Amazon Elastic Compute Cloud", "us-east-1", "", "48.00"),
		billed("AWS", "AWS Lambda", "us-east-1", "", "2.40"),
		billed("AWS", "AmazonEC2", "eu-west-1", "", "24.00"),
		billed("Amazon Web Services", "Amazon Elastic Container Service", "eu-west-1", "", "0.24"),
		billed("AWS", "Amazon SageMaker", "us-east-1", "", "7.20"),
		billed("AWS", "Amazon Bedrock", "us-east-1", "", "99.00"),
		billed("AWS", "Amazon Elastic Kubernetes Service", "us-east-1", "", "4.80"),
		billed("AWS", "", "us-east-1", "", "1.00"),
	}
	compute := map[string]string{"compute/us-east-1": "50.40", "compute/eu-west-1": "24.24"}
	for _, tc := range []struct {
		name    string
		pattern string
		covered string // the key of the offer after
		keys    map[string]string
		leftOut string
	}{
		{"everything is compute", "*", "compute/*", compute,
			"Amazon Bedrock ($99.00), Amazon SageMaker, which has plans of its own (key sagemaker/*) ($7.20), " +
				"Amazon Elastic Kubernetes Service ($4.80), a service without a name ($1.00)"},
		{"a region", "*/eu-west-1", "compute*/eu-west-1", compute, "SageMaker"},
		{"a plan of SageMaker", "sagemaker/*", "sagemaker/*",
			map[string]string{
				"compute/us-east-1": "50.40", "compute/eu-west-1": "24.24", "sagemaker/us-east-1": "7.20",
			},
			"Amazon Bedrock ($99.00), Amazon Elastic"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			use, err := FromBill(rowsOf(rows...), nil)
			if err != nil {
				t.Fatal(err)
			}
			offers := []Offer{{Key: tc.pattern, Kind: SavingsPlan, TermMonths: 12, Discount: 300_000_000}}
			if err := use.Scope(offers, nil); err != nil {
				t.Fatal(err)
			}
			if got := perKey(use.Usage); !maps.Equal(got, tc.keys) || offers[0].Key != tc.covered {
				t.Errorf("%s covers %v, want %s and %v", offers[0].Key, got, tc.covered, tc.keys)
			}
			if notes := strings.Join(use.Notes(), "\n"); !strings.Contains(notes, tc.leftOut) {
				t.Errorf("got %q, want %q", notes, tc.leftOut)
			}
		})
	}
}

// TestRefusesPlanAcrossProviders checks that no plan covers compute of two providers.
func TestRefusesPlanAcrossProviders(t *testing.T) {
	use, err := FromBill(rowsOf(
		billed("AWS", "AmazonEC2", "us-east-1", "", "24.00"),
		billed("Microsoft", "Virtual Machines", "eastus", "", "24.00"),
		billed("Google Cloud", "Compute Engine", "us-central1", "", "24.00"),
		billed("Oracle", "Compute Engine", "iad", "", "1.00")), nil)
	if err != nil || len(perKey(use.Usage)) != 4 {
		t.Fatalf("%v, %v", perKey(use.Usage), err)
	}
	for pattern, refused := range map[string]bool{
		"*": true, "compute/us-*": true, "compute/us-east-*": false, "compute/eastus": false,
		"compute/europe-*": false,
	} {
		err := use.Scope([]Offer{{Key: pattern, Kind: SavingsPlan, Discount: 1}}, nil)
		if (err != nil) != refused {
			t.Errorf("%s: got %v", pattern, err)
		}
	}
	err = use.Scope(nil, []Existing{{Offer: Offer{Key: "*", Kind: SavingsPlan}}})
	if err == nil || !strings.Contains(err.Error(), "name regions") {
		t.Errorf("an existing plan: %v", err)
	}
}

// TestBillOfRandomServices compares the hours of a bill with the plain sums of the rows whose
// services a plan covers: nothing else is committed to, and nothing is lost.
func TestBillOfRandomServices(t *testing.T) {
	covered := map[string]string{
		"AmazonEC2": "compute/", "AWSLambda": "compute/", "AmazonECS": "compute/", "AmazonSageMaker": "sagemaker/",
	}
	services := []string{
		"AmazonEC2", "AWSLambda", "AmazonECS", "AmazonSageMaker", "AmazonBedrock", "AmazonEKS", "AmazonRDS",
	}
	resources := []string{"", "arn:aws:ec2:us-east-1:1:instance/i-gone", "i-gone", "i-stays"}
	rapid.Check(t, func(rt *rapid.T) {
		var rows []bill.Row
		want, leaving, out := map[string]int64{}, int64(0), map[string]int64{}
		for range rapid.IntRange(1, 12).Draw(rt, "rows") {
			service := rapid.SampledFrom(services).Draw(rt, "service")
			region := rapid.SampledFrom([]string{"us-east-1", "eu-west-1"}).Draw(rt, "region")
			cents := rapid.Int64Range(0, 5000).Draw(rt, "cents")
			resource := rapid.SampledFrom(resources).Draw(rt, "resource")
			r := billed("AWS", service, region, resource, "0")
			r.Cost.Billed = money.Amount(cents) * money.Cent
			kind := covered[service]
			switch rapid.IntRange(0, 5).Draw(rt, "charge") {
			case 0:
				r.Commitment, kind = "sp-1", "-"
			case 1:
				r.PricingCategory, kind = bill.Dynamic, "-"
			case 2:
				r.ChargeCategory, kind = bill.Purchase, "-"
			}
			rows = append(rows, r)
			switch kind {
			case "-":
			case "":
				out[service] += cents
			default:
				want[kind+region] += cents
				if strings.HasSuffix(resource, "i-gone") {
					leaving += cents
				}
			}
		}
		use, err := FromBill(rowsOf(rows...), func(r string) bool { return strings.HasSuffix(r, "i-gone") })
		if err != nil {
			rt.Fatal(err)
		}
		got, gotLeaving := map[string]Quantity{}, Quantity(0)
		for _, u := range use.Usage {
			got[u.Key] += u.Quantity
			gotLeaving += u.Leaving
		}
		for key, cents := range want {
			if got[key] != Quantity(cents)*Machine/100 {
				rt.Fatalf("%s has %d millionths of a dollar, want %d cents", key, got[key], cents)
			}
			delete(got, key)
		}
		if len(got) > 0 || gotLeaving != Quantity(leaving)*Machine/100 {
			rt.Fatalf("others: %v; %d leave, want %d cents", got, gotLeaving, leaving)
		}
		for service, cents := range out {
			if use.LeftOut[service] != money.Amount(cents)*money.Cent {
				rt.Fatalf("%s of %s left out, want %d cents", use.LeftOut[service], service, cents)
			}
		}
		if len(use.LeftOut) != len(out) {
			rt.Fatalf("left out %v, want %v", slices.Sorted(maps.Keys(use.LeftOut)), slices.Sorted(maps.Keys(out)))
		}
	})
}

// TestBillPlanMatchesBruteForce compares the plan from bills with services that no plan covers, an
// existing plan and its expiry with every level of a savings plan that a day of the rows themselves
// just uses up.
func TestBillPlanMatchesBruteForce(t *testing.T) {
	services := []string{"AmazonEC2", "AWSLambda", "AmazonSageMaker", "AmazonBedrock", "AmazonEKS"}
	rapid.Check(t, func(rt *rapid.T) {
		days := rapid.IntRange(1, 4).Draw(rt, "days")
		var rows []bill.Row
		perDay := make([]float64, days) // dollars a day that a compute plan covers
		for day := range days {
			rows = append(rows, billed("AWS", "AmazonEC2", "us-east-1", "", "0"))
			rows[len(rows)-1].Day = start.AddDate(0, 0, day)
			for range rapid.IntRange(0, 4).Draw(rt, "rows") {
				service := rapid.SampledFrom(services).Draw(rt, "service")
				r := billed("AWS", service,
					rapid.SampledFrom([]string{"us-east-1", "eu-west-1"}).Draw(rt, "region"), "", "0")
				dollars := rapid.Int64Range(0, 100).Draw(rt, "dollars") * 24
				r.Day, r.Cost.Billed = start.AddDate(0, 0, day), money.Amount(dollars)*money.USD
				rows = append(rows, r)
				if service == "AmazonEC2" || service == "AWSLambda" {
					perDay[day] += float64(dollars)
				}
			}
		}
		discount := float64(rapid.IntRange(5, 90).Draw(rt, "discount")) / 100
		offers := []Offer{
			{
				Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront,
				Discount: Discount(math.Round(discount * 1e9)),
			},
		}
		var existing []Existing
		held := 0.0 // dollars an hour at on-demand prices of the existing plan, half off
		if rapid.Bool().Draw(rt, "held") {
			e := Existing{
				Offer: Offer{Key: "*", Kind: SavingsPlan, Discount: fullDiscount / 2}, DollarsPerHour: 10 * money.USD,
			}
			e.Expires = start.AddDate(0, 0, rapid.IntRange(1, 200).Draw(rt, "expires"))
			if existing = append(existing, e); e.Expires.After(start.AddDate(0, 0, days+90)) {
				held = 20
			}
		}
		use, err := FromBill(rowsOf(rows...), nil)
		if err != nil {
			rt.Fatal(err)
		}
		if err := use.Scope(offers, existing); err != nil {
			rt.Fatal(err)
		}
		r, err := Plan(use.Usage, offers, existing, Options{})
		if err != nil {
			rt.Fatal(err)
		}
		cheapest := math.Inf(1)
		for _, level := range append([]float64{0}, perDay...) { // what the new plan covers in an hour
			for _, covers := range []float64{level / 24, max(0, level/24-held)} {
				total := 0.0
				for _, dollars := range perDay {
					total += 24 * (held/2 + covers*(1-discount) + max(0, dollars/24-held-covers))
				}
				cheapest = min(cheapest, total)
			}
		}
		if got := usd(r.PlannedUSD); math.Abs(got-cheapest) > 1e-5*max(1, cheapest) || !r.Optimal {
			rt.Fatalf("planned %v (optimal: %v), brute force %v: days %v at %v off, existing %v",
				got, r.Optimal, cheapest,
				perDay, discount, existing)
		}
	})
}
