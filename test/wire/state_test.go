package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
)

func TestFleetPages(t *testing.T) {
	f := Fleet{Machines: 2300, Now: noon, GPUs: 8, Type: "p4d.24xlarge"}
	s := NewFleet(f)
	api := ec2.NewFromConfig(serve(t, s))
	seen := map[string]bool{}
	pages := ec2.NewDescribeInstancesPaginator(api, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		p, err := pages.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Reservations {
			for _, i := range r.Instances {
				seen[*i.InstanceId] = true
				if i.InstanceType != "p4d.24xlarge" ||
					i.State.Name != ec2types.InstanceStateNameRunning || len(i.Tags) == 0 ||
					!i.LaunchTime.Equal(noon.Add(-fleetAge)) || len(i.BlockDeviceMappings) != 1 {
					t.Fatalf("machine %+v", i)
				}
			}
		}
	}
	if got := s.Recorder.Count("ec2:DescribeInstances"); len(seen) != 2300 || got != 3 {
		t.Errorf("%d machines in %d calls, want 2300 in 3", len(seen), got)
	}
	volumes, n := ec2.NewDescribeVolumesPaginator(api, &ec2.DescribeVolumesInput{MaxResults: aws.Int32(500)}), 0
	for volumes.HasMorePages() {
		p, err := volumes.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		n += len(p.Volumes)
	}
	if got := s.Recorder.Count("ec2:DescribeVolumes"); n != 2300 || got != 5 {
		t.Errorf("%d volumes in %d calls, want 2300 in 5", n, got)
	}
	if _, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1001)}); err ==
		nil {
		t.Error("1,001 results a page were allowed")
	}
	elsewhere, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}, func(o *ec2.Options) {
		o.Region = "eu-west-1"
	})
	if err != nil || len(elsewhere.Reservations) != 0 {
		t.Errorf("eu-west-1: %v, %v; want nothing", elsewhere, err)
	}
}

func TestStateAnswers(t *testing.T) {
	s := New(Options{Now: fixed})
	c := serve(t, s)
	s.State.At(DefaultAccount, "us-east-1", func(p *Place) {
		for i := range 3 {
			p.CapacityReservations = append(p.CapacityReservations, CapacityReservation{
				ID: fmt.Sprintf("cr-%d", i), InstanceType: "p5.48xlarge",
				Zone: "us-east-1a", Platform: "Linux/UNIX", Total: 4, Available: 1, Created: noon,
				Ends:  noon.Add(time.Hour),
				Block: i == 2, Tags: map[string]string{"team": "vision"}})
		}
		p.ReservedInstances = append(p.ReservedInstances, ReservedInstances{
			ID: "ri", InstanceType: "m5.xlarge", OfferingType: "All Upfront",
			Zone: "us-east-1b", Count: 2, Start: noon, Duration: 365 * 24 * time.Hour,
			FixedPrice: "876.0", UsagePrice: "0.0",
			RecurringUSD: "0.5"})
		p.SavingsPlans = append(p.SavingsPlans, SavingsPlan{
			ID: "sp", Type: "EC2Instance", Family: "p4d", Region: "us-east-1", Commitment: "1.5",
			PaymentOption: "No Upfront", Start: noon, End: noon.Add(24 * time.Hour)})
		p.Apps = append(p.Apps, App{
			Domain: "d", User: "ana", Type: "JupyterLab", Name: "default", InstanceType: "ml.t3.medium", Created: noon,
		})
	})
	s.State.AddSpotPrices(SpotPrice{"us-east-1", "g5.xlarge", "us-east-1a", "Linux/UNIX", "0.436", noon},
		SpotPrice{"us-west-2", "g5.xlarge", "us-west-2a", "Linux/UNIX", "0.4857", noon})
	s.State.AddProducts(Machine("g5.xlarge", "us-east-1", "1.006"), Machine("g6.xlarge", "us-east-1", "0.8048"))

	api := ec2.NewFromConfig(c)
	var reservations []ec2types.CapacityReservation
	pages := ec2.NewDescribeCapacityReservationsPaginator(api, &ec2.DescribeCapacityReservationsInput{
		MaxResults: aws.Int32(2),
	})
	for pages.HasMorePages() {
		p, err := pages.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		reservations = append(reservations, p.CapacityReservations...)
	}
	if len(reservations) != 3 || *reservations[0].TotalInstanceCount != 4 ||
		*reservations[0].AvailableInstanceCount != 1 ||
		reservations[2].ReservationType != ec2types.CapacityReservationTypeCapacityBlock ||
		!reservations[0].EndDate.Equal(noon.Add(time.Hour)) {
		t.Errorf("capacity reservations %+v", reservations)
	}
	reserved, err := api.DescribeReservedInstances(t.Context(), &ec2.DescribeReservedInstancesInput{})
	if err != nil {
		t.Fatal(err)
	}
	if r := reserved.ReservedInstances; len(r) != 1 || *r[0].InstanceCount != 2 || *r[0].FixedPrice != 876 ||
		*r[0].RecurringCharges[0].Amount != 0.5 ||
		*r[0].AvailabilityZone != "us-east-1b" || *r[0].Duration != 365*24*3600 {
		t.Errorf("reserved instances %+v", r)
	}
	gone, err := api.DescribeReservedInstances(t.Context(), &ec2.DescribeReservedInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("state"), Values: []string{"retired"}}},
	})
	if err != nil || len(gone.ReservedInstances) != 0 {
		t.Errorf("retired instances %v, %v; want none", gone, err)
	}
	plans, err := savingsplans.NewFromConfig(c).DescribeSavingsPlans(t.Context(),
		&savingsplans.DescribeSavingsPlansInput{})
	if err != nil {
		t.Fatal(err)
	}
	if p := plans.SavingsPlans; len(p) != 1 || *p[0].Commitment != "1.5" || *p[0].Ec2InstanceFamily != "p4d" ||
		p[0].State != "active" {
		t.Errorf("savings plans %+v", p)
	}
	apps, err := sagemaker.NewFromConfig(c).ListApps(t.Context(), &sagemaker.ListAppsInput{})
	if err != nil {
		t.Fatal(err)
	}
	if a := apps.Apps; len(a) != 1 || *a[0].UserProfileName != "ana" || !a[0].CreationTime.Equal(noon) ||
		a[0].ResourceSpec.InstanceType != "ml.t3.medium" {
		t.Errorf("apps %+v", a)
	}
	spot, err := api.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []ec2types.InstanceType{"g5.xlarge"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := spot.SpotPriceHistory; len(p) != 1 || *p[0].SpotPrice != "0.436" ||
		*p[0].AvailabilityZone != "us-east-1a" {
		t.Errorf("spot prices %+v", p)
	}
	products, err := pricing.NewFromConfig(c).GetProducts(t.Context(), &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"), Filters: []pricingtypes.Filter{
			{
				Type: pricingtypes.FilterTypeTermMatch, Field: aws.String("instanceType"),
				Value: aws.String("g5.xlarge"),
			}}})
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Product struct{ Attributes map[string]string }
	}
	if len(products.PriceList) != 1 || json.Unmarshal([]byte(products.PriceList[0]), &document) != nil ||
		document.Product.Attributes["regionCode"] != "us-east-1" {
		t.Errorf("products %v", products.PriceList)
	}
	other, err := api.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{},
		func(o *ec2.Options) { o.Region = "eu-west-1" })
	if err != nil || len(other.CapacityReservations) != 0 {
		t.Errorf("eu-west-1: %v, %v; want none", other, err)
	}
}

func TestPatches(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name       string
		call       Call
		patch      Patch
		body, want string
	}{
		{"a time in XML", Call{Service: "ec2", Operation: "DescribeVolumes", Protocol: EC2},
			Patch{Service: "ec2", IDField: "volumeId", ID: "vol-1", Set: map[string]any{"createTime": made}},
			"<R><item><volumeId>vol-1</volumeId><createTime>now</createTime></item><item><volumeId>vol-2</volumeId><createTime>now</createTime></item></R>",
			"<R><item><volumeId>vol-1</volumeId><createTime>2026-01-02T03:04:05.000Z</createTime></item><item><volumeId>vol-2</volumeId><createTime>now</createTime></item></R>"},
		{"what is not there is not set", Call{Service: "ec2", Operation: "DescribeSnapshots", Protocol: EC2},
			Patch{Service: "ec2", IDField: "volumeId", ID: "vol-1", Set: map[string]any{"createTime": made}},
			"<R><item><volumeId>vol-1</volumeId></item></R>", "<R><item><volumeId>vol-1</volumeId></item></R>"},
		{"added next to a member", Call{Service: "ec2", Operation: "DescribeVolumes", Protocol: EC2},
			Patch{Service: "ec2", IDField: "volumeId", ID: "vol-1", Beside: "size", Add: map[string]any{"iops": 3000}},
			"<R><volumeId>vol-1</volumeId><size>1</size><at><volumeId>vol-1</volumeId></at></R>",
			"<R><volumeId>vol-1</volumeId><size>1</size><at><volumeId>vol-1</volumeId></at><iops>3000</iops></R>"},
		{"another operation", Call{Service: "ec2", Operation: "DescribeImages", Protocol: EC2},
			Patch{Service: "ec2", Operation: "DescribeVolumes", IDField: "a", ID: "1", Add: map[string]any{"b": 2}},
			"<R><a>1</a></R>", "<R><a>1</a></R>"},
		{"an S3 body that is no XML", Call{Service: "s3", Operation: "GetObject", Protocol: RestXML},
			Patch{Service: "s3", IDField: "Key", ID: "k", Set: map[string]any{"Size": 1}}, "Key k", "Key k"},
		{"a time in JSON", Call{Service: "sagemaker", Operation: "ListEndpoints", Protocol: JSON},
			Patch{
				Service: "sagemaker", IDField: "EndpointName", ID: "e", Set: map[string]any{"CreationTime": made},
				Remove: []string{"X"},
			},
			`{"Endpoints":[{"CreationTime":1,"EndpointName":"e","X":1},{"CreationTime":1,"EndpointName":"f","X":1}]}`,
			`{"Endpoints":[{"CreationTime":1767323045,"EndpointName":"e"},{"CreationTime":1,"EndpointName":"f","X":1}]}`},
		{"a time in JSON that is a string", Call{Service: "es", Operation: "X", Protocol: RestJSON},
			Patch{Service: "es", IDField: "n", ID: "e", Set: map[string]any{"t": made}}, `{"n":"e","t":"now"}`,
			`{"n":"e","t":"2026-01-02T03:04:05Z"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Options{})
			s.Patch(c.patch)
			got := string(s.patches.apply(&c.call, []byte(c.body)))
			if _, rest, ok := strings.Cut(got, "?>\n"); ok {
				got = rest
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDisabledImagesAreHidden(t *testing.T) {
	body := []byte(
		"<R><imagesSet><item><imageId>a</imageId><imageState>disabled</imageState></item><item><imageId>b</imageId><imageState>available</imageState></item></imagesSet></R>")
	for include, want := range map[string][]string{"": {"b"}, "true": {"a", "b"}} {
		doc, err := parseXML(hideDisabled(&Call{
			Service: "ec2", Operation: "DescribeImages", Form: map[string][]string{"IncludeDisabled": {include}},
		}, body))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range doc.All("imageId") {
			got = append(got, n.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("IncludeDisabled=%q shows %q, want %q", include, got, want)
		}
	}
}

// FuzzXML checks that a parsed and printed document parses to the same tree.
func FuzzXML(f *testing.F) {
	f.Add(`<a xmlns="u" x:y="z"><b>t &amp; u</b><c/></a>`)
	f.Fuzz(func(t *testing.T, in string) {
		first, err := parseXML([]byte(in))
		if err != nil {
			return
		}
		printed := first.Bytes()
		second, err := parseXML(printed)
		if err != nil {
			t.Fatalf("printed %q: %v", printed, err)
		}
		if again := second.Bytes(); string(again) != string(printed) {
			t.Errorf("printed %q, then %q", printed, again)
		}
	})
}
