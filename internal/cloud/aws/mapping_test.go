package aws

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ecrtypes "github.com/aws/aws-sdk-go-v2/service/ecr/types"
	efstypes "github.com/aws/aws-sdk-go-v2/service/efs/types"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

var now = time.Date(2026, 11, 21, 9, 37, 0, 0, time.UTC)

func TestMarket(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   types.Instance
		want inventory.Market
	}{
		{"on demand", types.Instance{}, inventory.OnDemand},
		{"spot", types.Instance{InstanceLifecycle: types.InstanceLifecycleTypeSpot}, inventory.Spot},
		{
			"capacity block", types.Instance{InstanceLifecycle: types.InstanceLifecycleTypeCapacityBlock},
			inventory.CapacityBlock,
		},
		{
			"a way to buy that is not known here", types.Instance{
				InstanceLifecycle: "interruptible-capacity-reservation",
			},
			inventory.MarketUnknown,
		},
		{
			"on a dedicated host", types.Instance{Placement: &types.Placement{Tenancy: types.TenancyHost}},
			inventory.DedicatedHost,
		},
	} {
		if got := market(tc.in); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestPlatform(t *testing.T) {
	for in, want := range map[string]string{
		"Linux/UNIX": "linux", "Linux/UNIX (Amazon VPC)": "linux",
		"Red Hat Enterprise Linux": "rhel", "Windows": "windows",
		"":                                 "",
		"Red Hat Enterprise Linux with HA": "red-hat-enterprise-linux-with-ha", " SUSE Linux ": "suse",
		// A platform's reservation covers its machines, also if it says that it is for a VPC.
		"Red Hat Enterprise Linux (Amazon VPC)": "rhel", "SUSE Linux (Amazon VPC)": "suse",
		"Windows (Amazon VPC)":                     "windows",
		"Windows with SQL Server Web (Amazon VPC)": "windows-with-sql-server-web",
		"Windows with SQL Server Web":              "windows-with-sql-server-web",
	} {
		if got := platform(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestTransitionTime(t *testing.T) {
	for in, want := range map[string]time.Time{
		"User initiated (2024-01-02 03:04:05 GMT)": time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
		"User initiated (2024-01-02 03:04:05 UTC)": time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
		"User initiated": {}, "": {}, "User initiated (2024-13-02 03:04:05 GMT)": {},
	} {
		if got := transitionTime(in); !got.Equal(want) {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func FuzzTransitionTime(f *testing.F) {
	f.Add("User initiated (2024-01-02 03:04:05 GMT)")
	f.Add("(2024-02-30 03:04:05 UTC)")
	f.Fuzz(func(t *testing.T, s string) {
		at := transitionTime(s)
		if at.IsZero() {
			return
		}
		if again := transitionTime("x (" + at.Format(time.DateTime) + " GMT)"); !again.Equal(at) {
			t.Fatalf("%q is %s, printed and read again %s", s, at, again)
		}
	})
}

func FuzzStamp(f *testing.F) {
	f.Add("2026-11-21T09:37:00.000Z")
	f.Add("2026-11-21T09:37:00Z")
	f.Fuzz(func(t *testing.T, s string) {
		at := stamp(s)
		if at.Location() != time.UTC && !at.IsZero() {
			t.Fatalf("%q is %s, not UTC", s, at)
		}
		if !at.IsZero() && !stamp(at.Format(time.RFC3339Nano)).Equal(at) {
			t.Fatalf("%q is %s, printed and read again %s", s, at, stamp(at.Format(time.RFC3339Nano)))
		}
	})
}

func TestInstance(t *testing.T) {
	p := &place{scan: &scan{}, region: "us-east-1", account: &account{id: "1"}}
	got := p.instance(types.Instance{
		PrivateDnsName: awssdk.String("ip-10-0-0-7.ec2.internal"), PrivateIpAddress: awssdk.String("10.0.0.7"),
		InstanceId: awssdk.String("i-1"), InstanceType: "g6.2xlarge", LaunchTime: awssdk.Time(now.Add(-time.Hour)),
		State:           &types.InstanceState{Name: types.InstanceStateNameStopped},
		PlatformDetails: awssdk.String("Linux/UNIX"), Placement: &types.Placement{
			AvailabilityZone: awssdk.String("us-east-1b"), Tenancy: types.TenancyDefault,
		},
		StateTransitionReason: awssdk.String("User initiated (2026-11-21 09:00:00 GMT)"),
		Tags: []types.Tag{
			{Key: awssdk.String("Name"), Value: awssdk.String("a")},
			{Key: awssdk.String(groupTag), Value: awssdk.String("workers")},
		},
		BlockDeviceMappings: []types.InstanceBlockDeviceMapping{
			{Ebs: &types.EbsInstanceBlockDevice{VolumeId: awssdk.String("vol-1"),
				DeleteOnTermination: awssdk.Bool(true)}}},
	})
	want := &inventory.Resource{
		ID: "i-1", Name: "a", Kind: inventory.KindInstance, Account: "1", Region: "us-east-1", Zone: "us-east-1b",
		Type:  "g6.2xlarge",
		State: inventory.StateStopped, CreatedAt: now.Add(-time.Hour),
		StateSince: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
		Tags:       map[string]string{"Name": "a", groupTag: "workers"},
		Manager:    inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "workers"},
		Aliases:    []string{"ip-10-0-0-7.ec2.internal", "ip-10-0-0-7", "10.0.0.7", "aws:///us-east-1b/i-1"},
		Detail: &inventory.Instance{Market: inventory.OnDemand, Platform: "linux", Tenancy: "shared",
			Disks: []inventory.Disk{{VolumeID: "vol-1", DeleteOnTermination: true}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the machine differs (- want, + got):\n%s", diff)
	}
}

func TestImagesOfARepository(t *testing.T) {
	old, recent := now.Add(-100*24*time.Hour), now.Add(-time.Hour)
	image := func(size int64, pushed time.Time, tags ...string) ecrtypes.ImageDetail {
		return ecrtypes.ImageDetail{ImageSizeInBytes: &size, ImagePushedAt: &pushed, ImageTags: tags}
	}
	pulled := image(1, old, "v1")
	pulled.LastRecordedPullTime = &recent
	list := image(1, recent, "multi")
	list.ImageManifestMediaType = awssdk.String("application/vnd.oci.image.index.v1+json")
	signature := image(1, old)
	signature.SubjectManifestDigest = awssdk.String("sha256:1")
	unsized := image(0, old, "v2")
	unsized.ImageSizeInBytes = nil
	for _, tc := range []struct {
		name                        string
		images                      []ecrtypes.ImageDetail
		untagged, unpulled          int
		bytes, untaggedB, unpulledB inventory.Fact[int64]
	}{
		{"empty", nil, 0, 0, inventory.Known[int64](0), inventory.Known[int64](0), inventory.Known[int64](0)},
		{
			"old and never pulled", []ecrtypes.ImageDetail{image(7, old, "v1")}, 0, 1, inventory.Known[int64](7),
			inventory.Known[int64](0), inventory.Known[int64](7),
		},
		{
			"old and pulled an hour ago", []ecrtypes.ImageDetail{pulled}, 0, 0, inventory.Known[int64](1),
			inventory.Known[int64](0), inventory.Known[int64](0),
		},
		{
			"untagged", []ecrtypes.ImageDetail{image(5, recent), image(2, recent, "v1")}, 1, 0,
			inventory.Known[int64](7),
			inventory.Known[int64](5), inventory.Known[int64](0),
		},
		{
			"untagged parts of a list", []ecrtypes.ImageDetail{image(5, recent), list}, 0, 0,
			inventory.Known[int64](5),
			inventory.Fact[int64]{}, inventory.Known[int64](0),
		},
		{
			"a signature", []ecrtypes.ImageDetail{signature}, 0, 0, inventory.Known[int64](1),
			inventory.Known[int64](0),
			inventory.Known[int64](0),
		},
		{
			"a size that is not known", []ecrtypes.ImageDetail{unsized}, 0, 1, inventory.Fact[int64]{},
			inventory.Known[int64](0), inventory.Fact[int64]{},
		},
	} {
		var s imageSum
		for _, i := range tc.images {
			s.add(i, now)
		}
		var d inventory.Repository
		s.fill(&d)
		if d.Images != len(tc.images) || d.UntaggedImages != tc.untagged || d.UnpulledImages != tc.unpulled ||
			d.Bytes != tc.bytes ||
			d.UntaggedBytes != tc.untaggedB || d.UnpulledBytes != tc.unpulledB {
			t.Errorf("%s: got %+v", tc.name, d)
		}
	}
}

func TestEFSSizes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		in      efstypes.FileSystemSize
		oneZone bool
		want    map[string]int64
	}{
		{"only a total", efstypes.FileSystemSize{Value: 7}, false, map[string]int64{"STANDARD": 7}},
		{
			"by class", efstypes.FileSystemSize{
				Value: 10, ValueInStandard: awssdk.Int64(4), ValueInIA: awssdk.Int64(6),
				ValueInArchive: awssdk.Int64(0),
			}, false,
			map[string]int64{"STANDARD": 4, "IA": 6}},
		{
			"a total and a part", efstypes.FileSystemSize{Value: 10, ValueInIA: awssdk.Int64(6)}, false,
			map[string]int64{"STANDARD": 4, "IA": 6},
		},
		{"one zone", efstypes.FileSystemSize{Value: 7}, true, map[string]int64{"ONEZONE": 7}},
	} {
		if diff := cmp.Diff(tc.want, efsSizes(tc.in, tc.oneZone)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tc.name, diff)
		}
	}
}

func TestLifecycleRules(t *testing.T) {
	got := lifecycleRules([]s3types.LifecycleRule{
		{
			ID: awssdk.String("all"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{
				Prefix: awssdk.String(""),
			},
			Transitions: []s3types.Transition{
				{Days: awssdk.Int32(30), StorageClass: s3types.TransitionStorageClassStandardIa},
			},
			AbortIncompleteMultipartUpload: &s3types.AbortIncompleteMultipartUpload{
				DaysAfterInitiation: awssdk.Int32(7),
			},
			NoncurrentVersionExpiration: &s3types.NoncurrentVersionExpiration{NoncurrentDays: awssdk.Int32(20)}},
		{
			ID: awssdk.String("tagged"), Status: s3types.ExpirationStatusDisabled,
			Expiration: &s3types.LifecycleExpiration{Days: awssdk.Int32(9)},
			Filter: &s3types.LifecycleRuleFilter{
				And: &s3types.LifecycleRuleAndOperator{Prefix: awssdk.String("a/"), Tags: []s3types.Tag{{}}},
			}},
	})
	want := []inventory.LifecycleRule{
		{
			ID: "all", Enabled: true, TransitionDays: map[string]int{"STANDARD_IA": 30}, AbortMultipartDays: 7,
			NoncurrentExpirationDays: 20,
		},
		{ID: "tagged", Prefix: "a/", Filtered: true, TransitionDays: map[string]int{}, ExpirationDays: 9},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rules differ (- want, + got):\n%s", diff)
	}
}

func TestDatabaseStates(t *testing.T) {
	for in, want := range map[string]inventory.State{
		"available": inventory.StateRunning, "backing-up": inventory.StateRunning, "stopped": inventory.StateStopped,
		"deleting": inventory.StateDeleting, "creating": inventory.StatePending, "failed": inventory.StateFailed,
		"": inventory.StateUnknown} {
		if got := databaseState(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for _, tc := range []struct {
		n          int
		noun, want string
	}{{1, "bucket", "1 bucket"}, {3, "bucket", "3 buckets"}, {2, "repository", "2 repositories"}} {
		if got := plain.Count(tc.n, tc.noun); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestPlatforms(t *testing.T) {
	for _, tc := range []struct {
		details, windows string
		want             string
		assumed          bool
	}{
		{"Linux/UNIX", "", "linux", false},
		{"Red Hat Enterprise Linux", "", "rhel", false},
		{"Windows with SQL Server Standard", "windows", "windows-with-sql-server-standard", false},
		{"", "windows", "windows", false},
		{"", "", "linux", true}, // as other implementations of the API respond
	} {
		i := types.Instance{Platform: types.PlatformValues(tc.windows)}
		if tc.details != "" {
			i.PlatformDetails = &tc.details
		}
		if got, assumed := platformOf(i); got != tc.want || assumed != tc.assumed {
			t.Errorf("%q and %q are %q, assumed %v", tc.details, tc.windows, got, assumed)
		}
	}
}
