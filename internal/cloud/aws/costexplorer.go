package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/costexplorer"
	"github.com/aws/aws-sdk-go-v2/service/costexplorer/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
)

// billedDays is the number of full days before today that are queried.
const billedDays = 30

// costMetric is the cost as billed, before reservations are spread.
const costMetric = "UnblendedCost"

// accountBill is the exact bill of one account by service.
type accountBill struct {
	account    string
	start, end time.Time
	byService  map[string]*big.Rat
	// planned and reserved report that savings plans and reserved instances covered machines.
	planned, reserved bool
}

// Cost Explorer's name for the cost of machines, and its record types for usage that commitments
// cover.
const (
	machinesService = "Amazon Elastic Compute Cloud - Compute"
	plannedRecord   = "SavingsPlanCoveredUsage"
	reservedRecord  = "DiscountedUsage"
)

// BillKeeper caches Cost Explorer responses of an account. Each request costs a cent, and the bill
// until yesterday changes little within a day.
type BillKeeper interface {
	// Bill returns the last cached response of an account, or nil.
	Bill(account string) []byte
	KeepBill(account string, doc []byte) error
}

// keptBill is the cached form of an accountBill.
type keptBill struct {
	Start    time.Time           `json:"start"`
	End      time.Time           `json:"end"`
	Services map[string]*big.Rat `json:"services"`
	Planned  bool                `json:"planned"`
	Reserved bool                `json:"reserved"`
}

// keptBill returns the cached bill of the account for the same days.
func (p *place) keptBill(start, end time.Time) (accountBill, bool) {
	keeper := p.scan.cloud.options.Bills
	if keeper == nil {
		return accountBill{}, false
	}
	var k keptBill
	if err := json.Unmarshal(keeper.Bill(p.account.id), &k); err != nil ||
		!k.Start.Equal(start) || !k.End.Equal(end) ||
		k.Services == nil {
		return accountBill{}, false
	}
	for _, v := range k.Services {
		if v == nil {
			return accountBill{}, false
		}
	}
	return accountBill{
		account: p.account.id, start: start, end: end, byService: k.Services, planned: k.Planned, reserved: k.Reserved,
	}, true
}

// keep caches a response for the rest of the day.
func (p *place) keep(b accountBill) {
	keeper := p.scan.cloud.options.Bills
	if keeper == nil {
		return
	}
	doc, err := json.Marshal(keptBill{b.start, b.end, b.byService, b.planned, b.reserved})
	if err == nil {
		err = keeper.KeepBill(p.account.id, doc)
	}
	if err != nil {
		p.scan.blind(inventory.BlindSpot{
			What: "Cost Explorer", Why: oneLine(err.Error()),
			Effect: "its answer is not kept: the next scan asks again, which costs $0.01",
		})
	}
}

// billedCosts queries the bill of the account itself, without linked accounts, so that several
// accounts can be summed. It queries once a day if responses are cached.
func (p *place) billedCosts(ctx context.Context) {
	end := p.now().Truncate(24 * time.Hour)
	bill := accountBill{
		account: p.account.id, start: end.AddDate(0, 0, -billedDays), end: end, byService: map[string]*big.Rat{},
	}
	if kept, ok := p.keptBill(bill.start, end); ok {
		p.billed(kept)
		return
	}
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := costsClient(p.reading).GetCostAndUsage(ctx, &costexplorer.GetCostAndUsageInput{
			TimePeriod: &types.DateInterval{
				Start: awssdk.String(bill.start.Format(time.DateOnly)), End: awssdk.String(end.Format(time.DateOnly)),
			},
			Granularity: types.GranularityMonthly,
			Metrics:     []string{costMetric},
			GroupBy: []types.GroupDefinition{{Type: types.GroupDefinitionTypeDimension, Key: awssdk.String("SERVICE")},
				{Type: types.GroupDefinitionTypeDimension, Key: awssdk.String("RECORD_TYPE")}},
			Filter: &types.Expression{
				Dimensions: &types.DimensionValues{Key: types.DimensionLinkedAccount, Values: []string{p.account.id}},
			},
			NextPageToken: token,
		})
		if err != nil {
			return nil, err
		}
		return out.NextPageToken, bill.add(out.ResultsByTime)
	})
	p.failed(ctx, "ce:GetCostAndUsage", err)
	if err != nil {
		return
	}
	p.keep(bill)
	p.billed(bill)
}

func (p *place) billed(b accountBill) {
	p.scan.mu.Lock()
	defer p.scan.mu.Unlock()
	p.scan.billed = append(p.scan.billed, b)
}

func (b *accountBill) add(results []types.ResultByTime) error {
	for _, r := range results {
		for _, g := range r.Groups {
			if len(g.Keys) == 0 {
				continue
			}
			if len(g.Keys) > 1 && g.Keys[0] == machinesService {
				b.planned = b.planned || g.Keys[1] == plannedRecord
				b.reserved = b.reserved || g.Keys[1] == reservedRecord
			}
			m, ok := g.Metrics[costMetric]
			if !ok || m.Amount == nil {
				return fmt.Errorf("read the cost of %s: it has no amount", g.Keys[0])
			}
			if unit := awssdk.ToString(m.Unit); unit != "" && unit != "USD" {
				return fmt.Errorf("read the cost of %s: it is in %s, not in USD", g.Keys[0], unit)
			}
			v, err := parseDecimal(*m.Amount)
			if err != nil {
				return fmt.Errorf("read the cost of %s: %w", g.Keys[0], err)
			}
			sum := b.byService[g.Keys[0]]
			if sum == nil {
				sum = new(big.Rat)
				b.byService[g.Keys[0]] = sum
			}
			sum.Add(sum, v)
		}
	}
	return nil
}

// sharedCommitments notes commitments on the bill that no list contains: an organization shares
// plans and reservations with all accounts, but lists them only in the purchasing account. Reserved
// instances may be in an unscanned region, so they are compared only if all regions were read.
func (s *scan) sharedCommitments() {
	planSeen, reservedSeen := s.planSeen, !s.cloud.all
	for _, r := range s.resources {
		c, ok := r.Detail.(*inventory.Commitment)
		reservedSeen = reservedSeen || (ok && c.CommitmentType == inventory.ReservedInstances)
	}
	for _, b := range s.billed {
		what := ""
		switch {
		case !s.commitments:
			return // already noted
		case b.planned && !planSeen:
			what = "savings plans"
		case b.reserved && !reservedSeen:
			what = "reserved instances"
		default:
			continue
		}
		s.commitments = false
		s.blind(inventory.BlindSpot{What: what + " that cover machines of " + b.account,
			Why:    "the bill shows them, the account's list does not: another account of the organization holds them",
			Effect: "savings on machines are upper bounds"})
	}
}

// total sums the bills of accounts; nil if none is known. Each service is rounded once, so that the
// total equals the sum of its parts.
func (s *scan) total(accounts int) (*round.Billed, error) {
	if len(s.billed) == 0 {
		return nil, nil
	}
	out := &round.Billed{Start: s.billed[0].start, End: s.billed[0].end, Source: "AWS Cost Explorer, unblended cost"}
	if accounts > 1 {
		out.Source += fmt.Sprintf(", %d of %d accounts", len(s.billed), accounts)
	}
	sums := map[string]*big.Rat{} // by service
	for _, b := range s.billed {
		for service, v := range b.byService {
			if sums[service] == nil {
				sums[service] = new(big.Rat)
			}
			sums[service].Add(sums[service], v)
		}
	}
	if len(sums) == 0 {
		return nil, nil // no data, which is not a bill of zero
	}
	for service, v := range sums {
		cost, err := roundToNano(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", service, err)
		}
		out.ByService = append(out.ByService, round.ServiceCost{
			Service: service, Cost: cost, NotCovered: s.notCovered(service),
		})
		if out.Total, err = out.Total.Add(cost); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out.ByService, func(a, b round.ServiceCost) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Service, b.Service))
	})
	return out, nil
}

// decimal is a number as AWS prints amounts: plain, or with a short exponent.
var decimal = lazyregexp.New(`^-?\d{1,400}(\.\d{1,400})?([eE][-+]?\d{1,2})?$`)

var errNotDecimal = errors.New("not a decimal number")

// parseDecimal parses a decimal of any length exactly.
func parseDecimal(s string) (*big.Rat, error) {
	if !decimal.MatchString(s) {
		return nil, fmt.Errorf("%q: %w", oneLine(s), errNotDecimal)
	}
	v, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, fmt.Errorf("%q: %w", s, errNotDecimal)
	}
	return v, nil
}

// parseDollars reads a decimal number of dollars, rounded half to even to the
// nano-dollar.
func parseDollars(s string) (money.Amount, error) {
	v, err := parseDecimal(s)
	if err != nil {
		return 0, err
	}
	return roundToNano(v)
}

// roundToNano rounds dollars half to even to the nano-dollar.
func roundToNano(v *big.Rat) (money.Amount, error) {
	scaled := new(big.Rat).Mul(v, new(big.Rat).SetInt64(int64(money.USD)))
	q, r := new(big.Int).QuoRem(new(big.Int).Abs(scaled.Num()), scaled.Denom(), new(big.Int))
	if c := r.Lsh(r, 1).Cmp(scaled.Denom()); c > 0 || (c == 0 && q.Bit(0) == 1) {
		q.Add(q, big.NewInt(1))
	}
	if scaled.Sign() < 0 {
		q.Neg(q)
	}
	if !q.IsInt64() {
		return 0, fmt.Errorf("%s dollars: %w", v.FloatString(2), money.ErrOverflow)
	}
	return money.Amount(q.Int64()), nil
}
