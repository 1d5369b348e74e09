package finding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestBilled compares the findings of a bill with rows of known dollars: 30 days are 720 hours, so
// a month of 730 hours costs 1.0139 times as much.
func TestBilled(t *testing.T) {
	from := now.AddDate(0, 0, -30).Truncate(day)
	flow := func(kind bill.Transfer, resource string, usd money.Amount, gb int64) bill.Flow {
		return bill.Flow{
			Transfer: kind, Account: "1", Region: "us-east-1", Resource: resource,
			Service: "Amazon Elastic Compute Cloud",
			Billed:  usd, Bytes: gb * 1e9,
		}
	}
	bucket := &inventory.Resource{
		Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindBucket, ID: "datasets",
		State: inventory.StateRunning, CreatedAt: now.AddDate(-1, 0, 0),
		Detail: &inventory.Bucket{Sizes: inventory.Known(map[string]int64{"STANDARD": 1000e9})}}
	type found struct{ Rule, Kind, ID, UpTo string }
	for _, tc := range []struct {
		name string
		bill Bill
		want []found
	}{
		{"nothing on the bill", Bill{}, nil},
		{"each way of a transfer", Bill{Flows: []bill.Flow{
			flow(bill.CrossRegion, "i-1", 72*money.USD, 3600), flow(bill.CrossZone, "i-1", 36*money.USD, 1800),
			flow(bill.Internet, "", 144*money.USD, 1600),
			flow(bill.NATData, "arn:aws:ec2:us-east-1:1:natgateway/nat-1",
				720*money.USD, 16000),
		}}, []found{
			{"egress-cross-region", "service", "i-1", "73.00"}, {"egress-cross-zone", "service", "i-1", "36.50"},
			{"egress-internet", "service", "Amazon Elastic Compute Cloud", "146.00"},
			{"nat-data", "service", "nat-1", "730.00"},
		}},
		{
			"two ends of one way add up", Bill{
				Flows: []bill.Flow{
					flow(bill.CrossRegion, "i-1", 36*money.USD, 1), flow(bill.CrossRegion, "i-1", 36*money.USD, 1),
				},
			},
			[]found{{"egress-cross-region", "service", "i-1", "73.00"}}},
		{"little", Bill{Flows: []bill.Flow{flow(bill.Internet, "i-1", 9*money.USD, 100)}}, nil},
		{
			"inbound traffic, or traffic of an unknown direction",
			Bill{
				Flows: []bill.Flow{
					flow(bill.Inbound, "i-1", 720*money.USD, 1), flow(bill.OtherTransfer, "i-1", 720*money.USD, 1),
				},
			},
			nil,
		},
		{
			"a bucket read now and then", Bill{
				Flows: []bill.Flow{flow(bill.CrossRegion, "datasets", 58*money.USD, 2900)},
			},
			[]found{{"egress-cross-region", "bucket", "datasets", "58.81"}},
		},
		{
			"the same data again and again",
			Bill{Flows: []bill.Flow{flow(bill.CrossRegion, "arn:aws:s3:::datasets", 72*money.USD, 3600)}},
			[]found{{"download-repeated", "bucket", "datasets", "73.00"}},
		},
		{"commitments", Bill{Commitments: bill.Commitments{
			Commitments: []bill.Commitment{
				{ID: "sp-1", Purchased: 900 * money.USD, Used: 540 * money.USD, Unused: 360 * money.USD},
				{ID: "sp-2", Used: 720 * money.USD},
			},
			OnDemand: []bill.OnDemand{
				{Service: "EC2", Region: "us-east-1", Billed: 1440 * money.USD},
				{Service: "EC2", Region: "eu-west-1", Billed: 720 * money.USD},
			},
		}}, []found{{"commitment-gap", "service", "EC2", "0.00"}, {"commitment-unused", "service", "sp-1", "365.00"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.bill.Cloud, tc.bill.From, tc.bill.To, tc.bill.Source = "aws", from, from.Add(720*time.Hour), "a bill"
			all, err := Evaluate(&Account{
				Now: now, Resources: []*inventory.Resource{bucket}, Bill: &tc.bill, CommitmentsKnown: true,
			}, Thresholds{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []found
			for _, f := range all {
				if slices.ContainsFunc(billRules, func(r Rule) bool { return r.ID == f.Rule }) {
					got = append(got, found{
						f.Rule, string(f.Resource.Kind), f.Resource.ID, f.Savings.UpperBound.Cents(),
					})
					if f.Savings.Known || f.Waste != 0 || len(f.Claims) != 0 {
						t.Errorf("%s claims dollars that the bill does not show to be avoidable: %+v", f.Rule, f)
					}
				}
			}
			slices.SortFunc(got, func(a, b found) int { return strings.Compare(a.Rule, b.Rule) })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
