package aws

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	cetypes "github.com/aws/aws-sdk-go-v2/service/costexplorer/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	sagetypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"
	plantypes "github.com/aws/aws-sdk-go-v2/service/savingsplans/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Responses of real accounts that fakes of AWS seldom give.

// TestHostsWithSameName checks that metrics of a private name shared by two machines, as in two
// networks with the same addresses, are assigned to neither.
func TestHostsWithSameName(t *testing.T) {
	p := &place{hosts: map[string]string{}}
	for _, x := range [][2]string{
		{"ip-10-0-0-1.ec2.internal", "i-1"}, {"ip-10-0-0-2.ec2.internal", "i-2"}, {"ip-10-0-0-1.ec2.internal", "i-3"},
		{"", "i-4"},
		{"ip-10-0-0-1.ec2.internal", "i-5"}} {
		p.nameHost(x[0], x[1])
	}
	for host, want := range map[string]string{
		"ip-10-0-0-1.ec2.internal": "", "ip-10-0-0-2.ec2.internal": "i-2", "": "",
	} {
		if got, _ := p.identifyGPU(dims("Hostname", host, "gpu", "0")); got != want {
			t.Errorf("%q is %q, want %q", host, got, want)
		}
	}
}

func TestAddressesThatCostNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   ec2types.Address
		want bool
	}{
		{"Amazon's", ec2types.Address{PublicIpv4Pool: awssdk.String("amazon")}, false},
		{"of an answer without a pool", ec2types.Address{}, false},
		{
			"of a pool that was brought along", ec2types.Address{PublicIpv4Pool: awssdk.String("ipv4pool-ec2-012345")},
			true,
		},
		{"of IPAM, which may be Amazon's", ec2types.Address{PublicIpv4Pool: awssdk.String("ipam-pool-0a1")}, false},
		{
			"of an Outpost",
			ec2types.Address{
				PublicIpv4Pool: awssdk.String("amazon"), CustomerOwnedIpv4Pool: awssdk.String("ipv4pool-coip-0"),
			},
			true,
		},
	} {
		if got := ownPool(tc.in); got != tc.want {
			t.Errorf("%s: free is %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestTiersHavePriceOfClass checks that objects in a colder automatic tier have that tier's
// price.
func TestTiersHavePriceOfClass(t *testing.T) {
	readings := map[string]point{}
	for i, storage := range []string{
		"IntelligentTieringFAStorage", "IntelligentTieringIAStorage", "IntelligentTieringAIAStorage",
		"IntelligentTieringAAStorage",
		"IntelligentTieringDAAStorage", "IntAAObjectOverhead", "IntDAAObjectOverhead", "IntAAS3ObjectOverhead"} {
		readings[storage] = point{now, float64(int(1) << i)}
	}
	want := map[string]int64{
		"INTELLIGENT_TIERING": 1, "STANDARD_IA": 2, "GLACIER_IR": 4, "GLACIER": 8 + 32, "DEEP_ARCHIVE": 16 + 64,
		"STANDARD": 128,
	}
	if diff := cmp.Diff(want, sizeOf(readings).classes); diff != "" {
		t.Errorf("the classes differ (- want, + got):\n%s", diff)
	}
}

func TestReservedOnDedicatedHardware(t *testing.T) {
	p := &place{scan: &scan{}, region: "us-east-1", account: &account{id: "1"}}
	for tenancy, want := range map[ec2types.Tenancy]string{
		ec2types.TenancyDefault: inventory.LinuxPlatform, "": inventory.LinuxPlatform, ec2types.TenancyDedicated: "",
	} {
		r := p.reserved(ec2types.ReservedInstances{
			ProductDescription: "Linux/UNIX", InstanceTenancy: tenancy, InstanceCount: awssdk.Int32(1),
		})
		if got := r.Detail.(*inventory.Commitment).Platform; got != want {
			t.Errorf("tenancy %q: reserved for platform %q, want %q", tenancy, got, want)
		}
	}
}

// TestCommitmentsInOtherCurrency checks that yuan are not read as dollars.
func TestCommitmentsInOtherCurrency(t *testing.T) {
	p := &place{scan: &scan{}, region: "cn-north-1", account: &account{id: "1"}}
	for currency, want := range map[string]bool{"": true, "USD": true, "CNY": false} {
		plan := p.savingsPlan(plantypes.SavingsPlan{
			Commitment: awssdk.String("1.5"), Currency: plantypes.CurrencyCode(currency),
		}, inventory.ComputeSavingsPlan, p.region)
		reserved := p.reserved(ec2types.ReservedInstances{
			InstanceCount: awssdk.Int32(1), CurrencyCode: ec2types.CurrencyCodeValues(currency),
			RecurringCharges: []ec2types.RecurringCharge{
				{Amount: awssdk.Float64(1), Frequency: ec2types.RecurringChargeFrequencyHourly},
			}})
		for _, r := range []*inventory.Resource{plan, reserved} {
			if _, known := r.Detail.(*inventory.Commitment).Hourly.Get(); known != want {
				t.Errorf("%s in %q: known in dollars: %v, want %v",
					r.Detail.(*inventory.Commitment).CommitmentType, currency,
					known, want)
			}
		}
	}
}

func TestGroupsCountedInMachines(t *testing.T) {
	weighted := &scalingtypes.MixedInstancesPolicy{
		LaunchTemplate: &scalingtypes.LaunchTemplate{Overrides: []scalingtypes.LaunchTemplateOverrides{
			{InstanceType: awssdk.String("g5.xlarge"), WeightedCapacity: awssdk.String("1")},
			{InstanceType: awssdk.String("g5.2xlarge"), WeightedCapacity: awssdk.String("2")}}}}
	ones := &scalingtypes.MixedInstancesPolicy{
		LaunchTemplate: &scalingtypes.LaunchTemplate{Overrides: []scalingtypes.LaunchTemplateOverrides{
			{InstanceType: awssdk.String("g5.xlarge"), WeightedCapacity: awssdk.String("1")},
			{InstanceType: awssdk.String("g6.xlarge")}}}}
	for _, tc := range []struct {
		name string
		in   scalingtypes.AutoScalingGroup
		want bool
	}{
		{"plain", scalingtypes.AutoScalingGroup{}, true},
		{"in machines, said", scalingtypes.AutoScalingGroup{DesiredCapacityType: awssdk.String("units")}, true},
		{"in virtual CPUs", scalingtypes.AutoScalingGroup{DesiredCapacityType: awssdk.String("vcpu")}, false},
		{"in memory", scalingtypes.AutoScalingGroup{DesiredCapacityType: awssdk.String("memory-mib")}, false},
		{"several types of one weight", scalingtypes.AutoScalingGroup{MixedInstancesPolicy: ones}, true},
		{"several types of several weights", scalingtypes.AutoScalingGroup{MixedInstancesPolicy: weighted}, false},
		{
			"a machine of another weight",
			scalingtypes.AutoScalingGroup{
				Instances: []scalingtypes.Instance{{WeightedCapacity: awssdk.String("4")}},
			}, false,
		},
	} {
		if got := countsMachines(tc.in); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestRetention(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   logtypes.LogGroup
		want int
	}{
		{"without end", logtypes.LogGroup{LogGroupClass: logtypes.LogGroupClassStandard}, 0},
		{"a month", logtypes.LogGroup{RetentionInDays: awssdk.Int32(30)}, 30},
		{"passed on within a day", logtypes.LogGroup{LogGroupClass: logtypes.LogGroupClassDelivery}, 1},
	} {
		if got := retentionDays(tc.in); got != tc.want {
			t.Errorf("%s: got %d days, want %d", tc.name, got, tc.want)
		}
	}
}

// TestTrainingJobWithSeveralMachineTypes checks that such a job has no price and no verdict,
// because one machine does not represent the others.
func TestTrainingJobWithSeveralMachineTypes(t *testing.T) {
	group := func(machine sagetypes.TrainingInstanceType, n int32) sagetypes.InstanceGroup {
		return sagetypes.InstanceGroup{InstanceType: machine, InstanceCount: &n}
	}
	for _, tc := range []struct {
		name   string
		groups []sagetypes.InstanceGroup
		kind   string
		count  int64
		reads  bool
	}{
		{
			"one type", []sagetypes.InstanceGroup{group("ml.g5.xlarge", 2), group("ml.g5.xlarge", 1)}, "g5.xlarge", 3,
			true,
		},
		{"two types", []sagetypes.InstanceGroup{group("ml.g5.xlarge", 1), group("ml.p4d.24xlarge", 2)}, "", 3, false},
	} {
		m, r, _ := testMeters()
		m.subjects = nil
		r.Kind = inventory.KindTrainingJob
		fillJob(r, &sagemaker.DescribeTrainingJobOutput{
			TrainingStartTime: &r.CreatedAt, ResourceConfig: &sagetypes.ResourceConfig{InstanceGroups: tc.groups},
		})
		d := r.Detail.(*inventory.TrainingJob)
		if r.Type != tc.kind || d.Count != tc.count {
			t.Errorf("%s: %d of %q, want %d of %q", tc.name, d.Count, r.Type, tc.count, tc.kind)
		}
		m.trainingJob(r, d)
		if got := len(m.subjects) > 0; got != tc.reads {
			t.Errorf("%s: measured: %v, want %v", tc.name, got, tc.reads)
		}
	}
}

// TestRedirectsAreServed checks that requests answered by an application load balancer itself are
// counted.
func TestRedirectsAreServed(t *testing.T) {
	nan := hours() // no point
	for _, tc := range []struct {
		name                         string
		passed, redirected, answered []point
		count                        int
		sum                          float64
	}{
		{"passes on", hours(4, 5), nan, nan, 2, 9},
		{"passes on nothing", hours(0, 0), nan, nan, 2, 0},
		{"redirects", nan, hours(7, 1), nan, 2, 8},
		{"answers", nan, nan, hours(3), 1, 3},
		{"all of them", hours(1), hours(2), hours(4), 1, 7},
		{"nothing", nan, nan, nan, 0, 0},
	} {
		m, r, _ := testMeters()
		r.Kind, r.Type = inventory.KindLoadBalancer, "application"
		m.loadBalancer(r, &inventory.LoadBalancer{Dimension: "app/a/1"})
		s := m.subjects[len(m.subjects)-1]
		if len(s.series) != 1 || len(s.series[0].statistics) != 3 {
			t.Fatalf("%d series", len(s.series))
		}
		var names []string
		for _, x := range s.series[0].statistics {
			names = append(names, x.name)
		}
		if !slices.Equal(names, []string{"RequestCount", "HTTP_Redirect_Count", "HTTP_Fixed_Response_Count"}) {
			t.Fatalf("asked for %v", names)
		}
		st := windowOf(s, s.series[0], [][]point{tc.passed, tc.redirected, tc.answered}).Machine.Stats(usage.Requests)
		if st == nil {
			st = &usage.Stats{}
		}
		if st.Count != tc.count || st.Sum != tc.sum {
			t.Errorf("%s: %d points of %g, want %d of %g", tc.name, st.Count, st.Sum, tc.count, tc.sum)
		}
	}
}

// TestEndpointOfComponentsIsNotMeasured checks that an endpoint whose requests are counted by
// inference component is unmeasured.
func TestEndpointOfComponentsIsNotMeasured(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []sagetypes.ProductionVariant
		want bool
	}{
		{"a model", []sagetypes.ProductionVariant{{ModelName: awssdk.String("m")}}, false},
		{"components", []sagetypes.ProductionVariant{{InstanceType: "ml.g5.xlarge"}}, true},
		{"none", nil, false},
	} {
		if got := hostsComponents(tc.in); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestAgentWithCustomNamespace covers an agent configured with another namespace.
func TestAgentWithCustomNamespace(t *testing.T) {
	if got := busyFamilies[0].namespace; got != "" {
		t.Errorf("the agent's metrics are looked for in %q only", got)
	}
}

// TestIdentityWithDisabledRegion covers a region that is not enabled, which responds that
// valid credentials are invalid.
func TestIdentityWithDisabledRegion(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case asks(body, "GetCallerIdentity") && strings.Contains(r.Header.Get("Authorization"), "/us-east-1/sts/"):
			fmt.Fprint(w, identityXML)
		case asks(body, "GetCallerIdentity"):
			refuse(w, r, http.StatusForbidden, "InvalidClientTokenId",
				"The security token included in the request is invalid")
		case asks(body, "DescribeRegions"):
			fmt.Fprint(w,
				`<DescribeRegionsResponse><regionInfo><item><regionName>us-east-1</regionName><optInStatus>opt-in-not-required</optInStatus></item>`+
					`<item><regionName>ap-east-1</regionName><optInStatus>not-opted-in</optInStatus></item></regionInfo></DescribeRegionsResponse>`)
		default:
			refuse(w, r, http.StatusForbidden, "AccessDenied", "no")
		}
	})
	_, err := observe(t, t.Context(), Options{Regions: []string{"ap-east-1"}})
	var bad *RegionError
	if !errors.As(err, &bad) || !strings.Contains(bad.Error(), "no account has enabled it") {
		t.Errorf("got %v, want a RegionError", err)
	}
}

// TestRegionsWithForbiddenHome covers a policy of the organization that forbids the region of
// account-wide endpoints.
func TestRegionsWithForbiddenHome(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case asks(body, "GetCallerIdentity"):
			fmt.Fprint(w, identityXML)
		case asks(body, "DescribeRegions") && strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/ec2/"):
			fmt.Fprint(w,
				`<DescribeRegionsResponse><regionInfo><item><regionName>eu-west-1</regionName><optInStatus>opt-in-not-required</optInStatus></item></regionInfo></DescribeRegionsResponse>`)
		default:
			refuse(w, r, http.StatusForbidden, "UnauthorizedOperation",
				"You are not authorized to perform this operation with an explicit deny in a service control policy")
		}
	})
	t.Setenv("AWS_REGION", "eu-west-1")
	o, err := observe(t, t.Context(), Options{Regions: []string{"all"}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Regions, []string{"eu-west-1"}) {
		t.Errorf("read %v, want eu-west-1", o.Regions)
	}
}

// TestExpiredSignIn covers the errors of a sign-in that cannot be renewed.
func TestExpiredSignIn(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want error
	}{
		{
			"IAM Identity Center, session over", answered(400, &apiError{"InvalidGrantException", ""}),
			inventory.ErrUnauthenticated,
		},
		{
			"IAM Identity Center, token withdrawn",
			answered(401, &apiError{"UnauthorizedException", "Session token not found or invalid"}),
			inventory.ErrUnauthenticated,
		},
		{
			"a web identity that ran out", answered(400, &apiError{"ExpiredTokenException", "Token expired"}),
			inventory.ErrUnauthenticated,
		},
		{
			"an unknown web identity",
			answered(400, &apiError{"InvalidIdentityToken", "No OpenIDConnect provider found"}),
			inventory.ErrUnauthenticated,
		},
		{"a role that may not be assumed", answered(403, &apiError{"AccessDenied", "no"}), inventory.ErrDenied},
		{"a service that is down", answered(503, &apiError{"ServiceUnavailable", "later"}), inventory.ErrUnavailable},
		{"too often", answered(429, &apiError{"TooManyRequestsException", "slower"}), inventory.ErrThrottled},
	} {
		err := credentialError(t.Context(), &account{}, tc.err)
		if !errors.Is(err, tc.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), ": )") {
			t.Errorf("%s: got %v, want one that is %v", tc.name, err, tc.want)
		}
	}
}

// TestCommitmentsOfOtherAccount checks that an organization's plans, which other accounts cannot
// list, are detected through Cost Explorer.
func TestCommitmentsOfOtherAccount(t *testing.T) {
	line := func(service, record string) cetypes.Group {
		g := group(service, "1", "USD")
		g.Keys = append(g.Keys, record)
		return g
	}
	ri := &inventory.Resource{
		Kind: inventory.KindCommitment, Detail: &inventory.Commitment{CommitmentType: inventory.ReservedInstances},
	}
	for _, tc := range []struct {
		name  string
		lines []cetypes.Group
		all   bool // all regions are read
		plan  bool // the plan is listed
		found []*inventory.Resource
		known bool
	}{
		{"on demand only", []cetypes.Group{line(machinesService, "Usage")}, true, false, nil, true},
		{
			"an answer without record types", []cetypes.Group{group(machinesService, "1", "USD")}, true, false, nil,
			true,
		},
		{
			"an unlisted plan",
			[]cetypes.Group{
				line(machinesService, "Usage"), line(machinesService, "SavingsPlanCoveredUsage"),
			}, false, false,
			nil, false,
		},
		{
			"a plan of its own", []cetypes.Group{line(machinesService, "SavingsPlanCoveredUsage")}, false, true, nil,
			true,
		},
		{
			"unlisted reserved instances", []cetypes.Group{line(machinesService, "DiscountedUsage")}, true, false, nil,
			false,
		},
		{
			"reserved instances, perhaps elsewhere", []cetypes.Group{
				line(machinesService, "DiscountedUsage"),
			}, false, false,
			nil, true,
		},
		{
			"reserved instances of its own", []cetypes.Group{line(machinesService, "DiscountedUsage")}, true, false,
			[]*inventory.Resource{ri}, true,
		},
		{
			"reserved databases", []cetypes.Group{
				line("Amazon Relational Database Service", "DiscountedUsage"),
			}, true, false,
			nil, true,
		},
	} {
		s := &scan{cloud: &Cloud{all: tc.all}, planSeen: tc.plan, resources: tc.found, commitments: true}
		b := accountBill{account: "111122223333", byService: map[string]*big.Rat{}}
		if err := b.add([]cetypes.ResultByTime{{Groups: tc.lines}}); err != nil {
			t.Fatal(err)
		}
		s.billed = append(s.billed, b)
		s.sharedCommitments()
		if s.commitments != tc.known || (len(s.blindSpots) == 0) != tc.known {
			t.Errorf("%s: commitments known: %v, blind spots %+v; want known: %v", tc.name,
				s.commitments, s.blindSpots,
				tc.known)
		}
	}
}

// TestSetsMetricNames checks that names in metrics are set on listed resources, that a host
// name of two machines is set on neither, and that resources of another region are unchanged.
func TestSetsMetricNames(t *testing.T) {
	s := &scan{}
	p := &place{scan: s, region: "us-east-1", account: &account{id: "1"}, hosts: map[string]string{},
		targetGroups: map[string][]string{"lb-1": {"targetgroup/a/1"}}, components: map[string]bool{"e-1": true}}
	s.places = []*place{p}
	for _, x := range [][2]string{{"shared.internal", "i-1"}, {"own", "i-2"}, {"shared.internal", "i-3"}} {
		p.nameHost(x[0], x[1])
	}
	at := func(region, id string, d inventory.Detail) *inventory.Resource {
		return &inventory.Resource{ID: id, Account: "1", Region: region, Detail: d}
	}
	balancer, endpoint := &inventory.LoadBalancer{}, &inventory.Endpoint{}
	far := at("eu-west-1", "i-2", &inventory.Instance{})
	named := at("us-east-1", "i-3", &inventory.Instance{})
	named.Aliases = []string{"shared.internal", "shared", "another"} // as known from other lists
	s.resources = []*inventory.Resource{
		at("us-east-1", "i-1", &inventory.Instance{}), at("us-east-1", "i-2", &inventory.Instance{}), named, far,
		at("us-east-1", "lb-1", balancer), at("us-east-1", "e-1", endpoint),
		at("us-east-1", "e-2", &inventory.Endpoint{})}
	s.link()
	var got [][]string
	for _, r := range s.resources {
		got = append(got, r.Aliases)
	}
	want := [][]string{nil, {"own"}, {"another"}, nil, nil, nil, nil}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the aliases differ (- want, + got):\n%s", diff)
	}
	if !slices.Equal(balancer.TargetGroups, []string{"targetgroup/a/1"}) || !endpoint.Components ||
		s.resources[6].Detail.(*inventory.Endpoint).Components {
		t.Errorf("the target groups are %v; components: %v", balancer.TargetGroups, endpoint.Components)
	}
}

// TestCountsAssignedAddresses checks that a machine's addresses from Amazon are counted, one per network
// interface; an address owned by the account is a separate resource.
func TestCountsAssignedAddresses(t *testing.T) {
	association := func(owner string) *ec2types.InstanceNetworkInterfaceAssociation {
		return &ec2types.InstanceNetworkInterfaceAssociation{
			IpOwnerId: awssdk.String(owner), PublicIp: awssdk.String("198.51.100.7"),
		}
	}
	private := func(a *ec2types.InstanceNetworkInterfaceAssociation) ec2types.InstancePrivateIpAddress {
		return ec2types.InstancePrivateIpAddress{Association: a}
	}
	card := func(addresses ...ec2types.InstancePrivateIpAddress) ec2types.InstanceNetworkInterface {
		// EC2 also gives the association of the first private address for the interface.
		return ec2types.InstanceNetworkInterface{Association: addresses[0].Association, PrivateIpAddresses: addresses}
	}
	carrier := &ec2types.InstanceNetworkInterfaceAssociation{
		IpOwnerId: awssdk.String("amazon"), CarrierIp: awssdk.String("198.51.100.8"),
	}
	for _, tc := range []struct {
		name string
		in   []ec2types.InstanceNetworkInterface
		want int64
	}{
		{"none", nil, 0},
		{"without a public address", []ec2types.InstanceNetworkInterface{card(private(nil))}, 0},
		{"one of Amazon's", []ec2types.InstanceNetworkInterface{card(private(association("amazon")))}, 1},
		{"an Elastic IP", []ec2types.InstanceNetworkInterface{card(private(association("111122223333")))}, 0},
		{"two cards, one with an Elastic IP in addition", []ec2types.InstanceNetworkInterface{
			card(private(association("amazon")), private(association("111122223333"))),
			card(private(association("amazon")))},
			2},
		{
			"a card without its private addresses", []ec2types.InstanceNetworkInterface{
				{Association: association("amazon")},
			},
			1,
		},
		{"an address of a carrier", []ec2types.InstanceNetworkInterface{card(private(carrier))}, 0},
	} {
		if got := lentAddresses(ec2types.Instance{NetworkInterfaces: tc.in}); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestDatabaseOfRDS checks that IOPS, throughput, license and cluster are read with the storage.
func TestDatabaseOfRDS(t *testing.T) {
	p := (&scan{cloud: &Cloud{}}).place(&account{id: "111122223333"}, "us-east-1")
	r := p.database(rdstypes.DBInstance{
		DBInstanceIdentifier: awssdk.String("db"), Engine: awssdk.String("oracle-se2"),
		DBInstanceStatus: awssdk.String("backing-up"),
		LicenseModel:     awssdk.String("bring-your-own-license"), StorageType: awssdk.String("gp3"),
		AllocatedStorage: awssdk.Int32(200),
		Iops:             awssdk.Int32(13_000), StorageThroughput: awssdk.Int32(600),
		DBClusterIdentifier: awssdk.String("c")})
	want := &inventory.Database{
		Engine: "oracle-se2", Count: 1, StorageGiB: 200, StorageType: "gp3", IOPS: 13_000, ThroughputMiBps: 600,
		License: "bring-your-own-license", Cluster: "c"}
	if diff := cmp.Diff(want, r.Detail); diff != "" || r.State != inventory.StateRunning {
		t.Errorf("%s, (-want +got):\n%s", r.State, diff)
	}
	free := p.database(rdstypes.DBInstance{
		Engine: awssdk.String("postgres"), LicenseModel: awssdk.String("postgresql-license"),
	})
	if d := free.Detail.(*inventory.Database); d.License != "" {
		t.Errorf("PostgreSQL has license %q", d.License)
	}
}
