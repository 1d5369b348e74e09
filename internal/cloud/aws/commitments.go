package aws

import (
	"context"
	"slices"
	"strconv"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	plantypes "github.com/aws/aws-sdk-go-v2/service/savingsplans/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

const (
	reservationsPage = 1000
	plansPage        = 1000
)

func (p *place) capacityReservations(ctx context.Context) {
	active := []ec2types.Filter{
		{Name: awssdk.String("state"), Values: []string{string(ec2types.CapacityReservationStateActive)}},
	}
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{
			Filters:    active,
			MaxResults: awssdk.Int32(reservationsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, c := range out.CapacityReservations {
			// Owners of shared reservations pay for them.
			if owner := awssdk.ToString(c.OwnerId); c.State == ec2types.CapacityReservationStateActive &&
				(owner == "" || owner == p.account.id) {
				p.scan.add(p.capacityReservation(c))
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeCapacityReservations", err)
}

func (p *place) capacityReservation(c ec2types.CapacityReservation) *inventory.Resource {
	r := p.resource(inventory.KindCapacityReservation, awssdk.ToString(c.CapacityReservationId))
	r.Type, r.Zone, r.State = awssdk.ToString(c.InstanceType), awssdk.ToString(
		c.AvailabilityZone), inventory.StateAvailable
	r.CreatedAt = utc(c.CreateDate)
	if t := utc(c.StartDate); t.After(r.CreatedAt) {
		r.CreatedAt = t // it is charged from its start
	}
	r.Tags = ec2Tags(c.Tags)
	r.Name = r.Tags["Name"]
	d := &inventory.CapacityReservation{
		Total: int64(awssdk.ToInt32(c.TotalInstanceCount)), Available: int64(awssdk.ToInt32(c.AvailableInstanceCount)),
		Block:    c.ReservationType == ec2types.CapacityReservationTypeCapacityBlock,
		Platform: platform(string(c.InstancePlatform)),
		Tenancy:  tenancy(string(c.Tenancy)),
	}
	if c.EndDateType == ec2types.EndDateTypeLimited {
		d.EndsAt = utc(c.EndDate)
	}
	r.Detail = d
	return r
}

// reservedInstances lists the active reserved instances; the call is not paged.
func (p *place) reservedInstances(ctx context.Context) {
	active := []ec2types.Filter{
		{Name: awssdk.String("state"), Values: []string{string(ec2types.ReservedInstanceStateActive)}},
	}
	out, err := ec2Client(p.reading).DescribeReservedInstances(ctx, &ec2.DescribeReservedInstancesInput{
		Filters: active,
	})
	if err != nil {
		p.failed(ctx, "ec2:DescribeReservedInstances", err)
		return
	}
	for _, ri := range out.ReservedInstances {
		if ri.State == ec2types.ReservedInstanceStateActive {
			p.scan.add(p.reserved(ri))
		}
	}
}

func (p *place) reserved(ri ec2types.ReservedInstances) *inventory.Resource {
	r := p.resource(inventory.KindCommitment, awssdk.ToString(ri.ReservedInstancesId))
	r.Type, r.Zone, r.State = string(ri.InstanceType), awssdk.ToString(ri.AvailabilityZone), inventory.StateRunning
	r.CreatedAt, r.Tags = utc(ri.Start), ec2Tags(ri.Tags)
	r.Name = r.Tags["Name"]
	d := &inventory.Commitment{
		CommitmentType: inventory.ReservedInstances, Count: int64(awssdk.ToInt32(ri.InstanceCount)),
		Platform: platform(string(ri.ProductDescription)), Zonal: ri.Scope == ec2types.ScopeAvailabilityZone,
		StartsAt: utc(ri.Start), EndsAt: utc(ri.End),
	}
	if ri.InstanceTenancy == ec2types.TenancyDedicated {
		d.Platform = "" // it covers no machine on shared hardware; what it covers is unknown
	}
	if hourly, err := reservedHourly(ri); err == nil && inDollars(ri.CurrencyCode) {
		d.Hourly = inventory.Known(hourly)
	}
	r.Detail = d
	return r
}

// reservedHourly returns the hourly cost of all machines of a reservation: the recurring and usage
// charges, and the fixed price spread over the term.
func reservedHourly(ri ec2types.ReservedInstances) (money.Amount, error) {
	var each money.Amount
	var charges []string
	if ri.UsagePrice != nil {
		charges = append(charges, strconv.FormatFloat(float64(*ri.UsagePrice), 'f', -1, 32))
	}
	for _, c := range ri.RecurringCharges {
		if c.Frequency == ec2types.RecurringChargeFrequencyHourly && c.Amount != nil {
			charges = append(charges, strconv.FormatFloat(*c.Amount, 'f', -1, 64))
		}
	}
	for _, text := range charges {
		a, err := parseDollars(text)
		if err != nil {
			return 0, err
		}
		if each, err = each.Add(a); err != nil {
			return 0, err
		}
	}
	if fixed := awssdk.ToFloat32(ri.FixedPrice); fixed != 0 {
		a, err := parseDollars(strconv.FormatFloat(float64(fixed), 'f', -1, 32))
		if err != nil {
			return 0, err
		}
		if a, err = a.Mul(secondsPerHour, awssdk.ToInt64(ri.Duration)); err != nil {
			return 0, err
		}
		if each, err = each.Add(a); err != nil {
			return 0, err
		}
	}
	return each.Mul(int64(awssdk.ToInt32(ri.InstanceCount)), 1)
}

const secondsPerHour = 3600

// inDollars reports whether a currency is dollars: regions in China charge in yuan.
func inDollars[T ~string](currency T) bool { return currency == "" || currency == "USD" }

// savingsPlans lists the account's active plans. Plans bound to a region outside of the scan are
// excluded; unbound plans are assigned to the home region, or to the first scanned one.
func (p *place) savingsPlans(ctx context.Context, regions []string) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := savingsplansClient(p.reading).DescribeSavingsPlans(ctx, &savingsplans.DescribeSavingsPlansInput{
			States:     []plantypes.SavingsPlanState{plantypes.SavingsPlanStateActive},
			MaxResults: awssdk.Int32(plansPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, s := range out.SavingsPlans {
			kind, covers := planTypes[s.SavingsPlanType]
			if !covers || s.State != plantypes.SavingsPlanStateActive {
				continue
			}
			if kind != inventory.MachineLearningPlan {
				p.scan.mu.Lock()
				p.scan.planSeen = true
				p.scan.mu.Unlock()
			}
			region := regions[0]
			if slices.Contains(regions, p.region) {
				region = p.region
			}
			if kind == inventory.InstanceSavingsPlan {
				region = awssdk.ToString(s.Region)
			}
			if slices.Contains(regions, region) {
				p.scan.add(p.savingsPlan(s, kind, region))
			}
		}
		return out.NextToken, nil
	})
	p.failedIn(ctx, "savingsplans:DescribeSavingsPlans", err, regions...)
}

// planTypes are the plans that cover machines; database plans do not.
var planTypes = map[plantypes.SavingsPlanType]inventory.CommitmentType{
	plantypes.SavingsPlanTypeCompute:     inventory.ComputeSavingsPlan,
	plantypes.SavingsPlanTypeEc2Instance: inventory.InstanceSavingsPlan,
	plantypes.SavingsPlanTypeSagemaker:   inventory.MachineLearningPlan,
}

// savingsPlan converts a plan. Its commitment is its hourly cost, however it is paid.
func (p *place) savingsPlan(s plantypes.SavingsPlan, kind inventory.CommitmentType,
	region string) *inventory.Resource {
	r := p.resource(inventory.KindCommitment, awssdk.ToString(s.SavingsPlanId))
	r.Region, r.State, r.Tags = region, inventory.StateRunning, orEmpty(s.Tags)
	r.Name = r.Tags["Name"]
	d := &inventory.Commitment{
		CommitmentType: kind, Count: 1, Family: strings.ToLower(awssdk.ToString(s.Ec2InstanceFamily)),
		StartsAt: stamp(awssdk.ToString(s.Start)), EndsAt: stamp(awssdk.ToString(s.End))}
	r.CreatedAt = d.StartsAt
	if hourly, err := parseDollars(awssdk.ToString(s.Commitment)); err == nil && inDollars(s.Currency) {
		d.Hourly = inventory.Known(hourly)
	}
	r.Detail = d
	return r
}
