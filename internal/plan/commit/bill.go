package commit

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Prefixes of bill keys: use covered by general plans and by those of SageMaker.
const (
	billCompute   = "compute"
	billSageMaker = "sagemaker"
)

// coveredServices are words of the services that a provider's plans for compute cover: AWS
// Savings Plans User Guide, "Compute Savings Plans" (EC2, Fargate, Lambda; Fargate is billed
// under ECS); Azure, "What is Azure savings plans for compute?"; Google Cloud, "Compute flexible
// committed use discounts". The fee of a cluster of Amazon EKS is not covered, and rows of a
// bill do not tell it from Fargate there, so that all of Amazon EKS is left out.
var coveredServices = map[string][]string{
	"AWS": {"elastic compute", "amazonec2", "lambda", "fargate", "elastic container service", "amazonecs"},
	"Microsoft": {"virtual machine", "container instances", "container apps", "app service", "azure functions",
		"dedicated host"},
	"Google Cloud": {"compute engine", "kubernetes engine", "cloud run"},
}

// providerOf returns the provider of a row as in coveredServices, or its own name.
func providerOf(name string) string {
	lower := strings.ToLower(name)
	for provider, words := range map[string][]string{
		"AWS": {"aws", "amazon"}, "Microsoft": {"microsoft", "azure"}, "Google Cloud": {"google", "gcp"},
	} {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) }) {
			return provider
		}
	}
	return name
}

// billKind returns the prefix of a service's key; empty if no plan covers it. SageMaker plans cover
// SageMaker alone (AWS Savings Plans User Guide, "SageMaker AI Savings Plans").
func billKind(provider, service string) string {
	lower := strings.ToLower(service)
	covers := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
	}
	switch words, known := coveredServices[provider]; {
	case provider == "AWS" && strings.Contains(lower, "sagemaker"):
		return billSageMaker
	case known && covers(words):
		return billCompute
	case !known && slices.ContainsFunc(slices.Collect(maps.Values(coveredServices)), covers):
		return billCompute // of a provider that the bill does not name, or of another one
	}
	return ""
}

// BillUse is on-demand compute from imported bills.
type BillUse struct {
	Usage []Usage
	// LeftOut is uncovered spend by service.
	LeftOut map[string]money.Amount
	// providers holds the providers of each key.
	providers map[string][]string
}

// FromBill returns on-demand compute of imported bills by region, under the keys
// compute/REGION and sagemaker/REGION. An imported bill has one row a day, so each hour of a day
// gets a twenty-fourth of it, and one machine stands for one dollar an hour. The hours add up to
// the day, to the millionth of a dollar. Rows of resources that leave, nil is none, count as
// leaving. Rows other than on-demand compute usage are skipped, and services that no plan covers
// are left out by name.
func FromBill(rows iter.Seq2[bill.Row, error], leaves func(resource string) bool) (BillUse, error) {
	type billed struct{ all, leaving money.Amount }
	out := BillUse{LeftOut: map[string]money.Amount{}, providers: map[string][]string{}}
	days := map[time.Time]map[string]billed{}
	for r, err := range rows {
		if err != nil {
			return BillUse{}, fmt.Errorf("read the bill: %w", err)
		}
		onDemand := r.PricingCategory == bill.Standard || r.PricingCategory == ""
		if r.ChargeCategory != bill.Usage || r.Commitment != "" || !onDemand {
			continue
		}
		provider := providerOf(r.Provider)
		kind := billKind(provider, r.Service)
		if kind == "" {
			name := cmp.Or(r.Service, "a service without a name")
			if out.LeftOut[name], err = out.LeftOut[name].Add(r.Cost.Billed); err != nil {
				return BillUse{}, fmt.Errorf("add up %s: %w", name, err)
			}
			continue
		}
		key := PriceKey(kind, r.Region)
		if !slices.Contains(out.providers[key], provider) {
			out.providers[key] = append(out.providers[key], provider)
		}
		if days[r.Day] == nil {
			days[r.Day] = map[string]billed{}
		}
		sum := days[r.Day][key]
		if sum.all, err = sum.all.Add(r.Cost.Billed); err != nil {
			return BillUse{}, fmt.Errorf("add up the bill of %s: %w", r.Day.Format(time.DateOnly), err)
		}
		if leaves != nil && leaves(r.Resource) && r.Cost.Billed > 0 {
			sum.leaving += r.Cost.Billed // no more than the sum before a credit, which is in range
		}
		days[r.Day][key] = sum
	}
	for _, day := range slices.SortedFunc(maps.Keys(days), time.Time.Compare) {
		for _, key := range slices.Sorted(maps.Keys(days[day])) {
			sum := days[day][key]
			if sum.all < 0 {
				continue // credits
			}
			unit := money.USD / money.Amount(Machine)
			whole, leaving := Quantity(sum.all/unit), Quantity(min(sum.leaving, sum.all)/unit)
			for h := range Quantity(24) {
				u := Usage{Hour: day.Add(time.Duration(h) * time.Hour), Key: key, OnDemand: money.USD}
				u.Quantity = (whole + 23 - h) / 24
				u.Leaving = min(u.Quantity, (leaving+23-h)/24)
				out.Usage = append(out.Usage, u)
			}
		}
	}
	return out, nil
}

// Scope restricts patterns to the keys of a bill: a pattern that begins with * covers general
// compute only. SageMaker use without offer or existing commitment is left out. It returns an error
// for a savings plan that matches several providers.
func (u *BillUse) Scope(offers []Offer, existing []Existing) error {
	all := make([]*Offer, 0, len(offers)+len(existing))
	for i := range offers {
		all = append(all, &offers[i])
	}
	for i := range existing {
		all = append(all, &existing[i].Offer)
	}
	covered := map[string]bool{}
	for _, o := range all {
		if o.Kind == SavingsPlan && strings.HasPrefix(o.Key, "*") {
			o.Key = billCompute + o.Key
			if o.Key == billCompute+"*" {
				o.Key = billCompute + "/*"
			}
		}
		provider := ""
		for _, key := range slices.Sorted(maps.Keys(u.providers)) {
			if !matches(o.Key, key) {
				continue
			}
			covered[key] = true
			for _, p := range u.providers[key] {
				if provider == "" {
					provider = p
				}
				if p != provider {
					return fmt.Errorf(
						"plan commitments: %s matches compute of %s and of %s, which no plan covers together: "+
							"name regions, such as compute/us-east-1", o.Key, provider, p)
				}
			}
		}
	}
	var err error
	u.Usage = slices.DeleteFunc(u.Usage, func(h Usage) bool {
		if !strings.HasPrefix(h.Key, billSageMaker+"/") || covered[h.Key] {
			return false
		}
		const name = "Amazon SageMaker, which has plans of its own (key sagemaker/*)"
		v, errCost := cost(h.OnDemand, h.Quantity)
		sum, errSum := u.LeftOut[name].Add(v)
		u.LeftOut[name], err = sum, cmp.Or(err, errCost, errSum)
		return true
	})
	return err
}

// Notes describe what was left out.
func (u *BillUse) Notes() []string {
	var parts []string
	largest := func(a, b string) int { return cmp.Or(cmp.Compare(u.LeftOut[b], u.LeftOut[a]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(u.LeftOut), largest) {
		parts = append(parts, name+" ("+u.LeftOut[name].Dollars()+")")
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"left out, because the plans do not cover it: " + plain.Few(parts)}
}
