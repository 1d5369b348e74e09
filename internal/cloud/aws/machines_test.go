package aws

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// TestSizeOfMachineTypes covers sizes in EC2's format.
func TestSizeOfMachineTypes(t *testing.T) {
	n := awssdk.Int32
	size := func(gpus int, gpu string, mib int64) inventory.Size {
		s := inventory.Size{GPUs: inventory.Known(gpus), GPU: gpu}
		if mib > 0 {
			s.GPUMemory = inventory.Known(mib << 20)
		}
		return s
	}
	for _, tc := range []struct {
		name string
		of   types.InstanceTypeInfo
		want inventory.Size
	}{
		{"nothing listed is none", types.InstanceTypeInfo{InstanceType: "m5.large"}, size(0, "", 0)},
		{"p4d.24xlarge", types.InstanceTypeInfo{
			GpuInfo: &types.GpuInfo{
				Gpus: []types.GpuDeviceInfo{
					{
						Count: n(8), Name: awssdk.String("A100"),
						MemoryInfo: &types.GpuDeviceMemoryInfo{SizeInMiB: n(40960)},
					},
				},
			},
			VCpuInfo: &types.VCpuInfo{
				DefaultVCpus: n(96),
			}, MemoryInfo: &types.MemoryInfo{SizeInMiB: awssdk.Int64(1179648)},
			InstanceStorageSupported: awssdk.Bool(true), InstanceStorageInfo: &types.InstanceStorageInfo{
				TotalSizeInGB: awssdk.Int64(8000),
			},
		}, inventory.Size{
			GPUs: inventory.Known(8), GPU: "A100", GPUMemory: inventory.Known(int64(40 << 30)),
			MilliCPUs: inventory.Known(int64(96_000)),
			MemoryMiB: inventory.Known(int64(1179648)), InstanceStorageGB: inventory.Known(int64(8000))}},
		{"no local disks", types.InstanceTypeInfo{InstanceStorageSupported: awssdk.Bool(false)},
			inventory.Size{GPUs: inventory.Known(0), InstanceStorageGB: inventory.Known(int64(0))}},
		{"an eighth of a GPU, g6f.large", types.InstanceTypeInfo{GpuInfo: &types.GpuInfo{Gpus: []types.GpuDeviceInfo{
			{Count: n(0), Name: awssdk.String("L4"), MemoryInfo: &types.GpuDeviceMemoryInfo{SizeInMiB: n(2861)}}}}},
			size(1, "L4", 2861)},
		{"chips that are listed twice, inf2.xlarge", types.InstanceTypeInfo{
			InferenceAcceleratorInfo: &types.InferenceAcceleratorInfo{
				Accelerators: []types.InferenceDeviceInfo{{Count: n(1), Name: awssdk.String("Inferentia2")}},
			},
			NeuronInfo: &types.NeuronInfo{NeuronDevices: []types.NeuronDeviceInfo{
				{
					Count: n(1), Name: awssdk.String("Inferentia2"), MemoryInfo: &types.NeuronDeviceMemoryInfo{
						SizeInMiB: n(32768),
					},
				}}},
		}, size(1, "Inferentia2", 32768)},
		{
			"chips that are listed once", types.InstanceTypeInfo{
				InferenceAcceleratorInfo: &types.InferenceAcceleratorInfo{
					Accelerators: []types.InferenceDeviceInfo{{Count: n(4), Name: awssdk.String("Inferentia")}}}},
			size(4, "Inferentia", 0)},
		{
			"FPGAs",
			types.InstanceTypeInfo{
				FpgaInfo: &types.FpgaInfo{Fpgas: []types.FpgaDeviceInfo{{Count: n(8), Name: awssdk.String("Virtex")}}},
			},
			size(8, "Virtex", 0),
		},
		{"video", types.InstanceTypeInfo{MediaAcceleratorInfo: &types.MediaAcceleratorInfo{
			Accelerators: []types.MediaDeviceInfo{{Count: n(2), Name: awssdk.String("U30")}}}}, size(2, "U30", 0)},
	} {
		if diff := cmp.Diff(tc.want, describedSize(tc.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestDescribesTypesInBatches checks that types omitted or refused by EC2 come from the
// options.
func TestDescribesTypesInBatches(t *testing.T) {
	var calls []int
	denied := false
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		if denied {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Response><Errors><Error><Code>UnauthorizedOperation</Code></Error></Errors></Response>`)
			return
		}
		calls = append(calls, 0)
		fmt.Fprint(w, `<DescribeInstanceTypesResponse><instanceTypeSet>`)
		for key, v := range r.Form {
			if n, _ := strconv.Atoi(lastPart(key)); n > 0 && v[0] != "gone.large" && key != "Filter.1.Name" {
				calls[len(calls)-1]++
				fmt.Fprintf(w,
					`<item><instanceType>%s</instanceType><gpuInfo><gpus><item><count>2</count></item></gpus></gpuInfo></item>`,
					url.PathEscape(v[0]))
			}
		}
		fmt.Fprint(w, `</instanceTypeSet></DescribeInstanceTypesResponse>`)
	})
	c, err := New(t.Context(), Options{RequestsPerSecond: 10_000, Size: func(string) inventory.Size {
		return inventory.Size{GPUs: inventory.Known(7)}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var machines []*inventory.Resource
	for i := range 250 {
		machines = append(machines, &inventory.Resource{Type: fmt.Sprintf("x%d.large", i%210)})
	}
	machines = append(machines, &inventory.Resource{Type: "gone.large"})
	count := func() map[int]int {
		s := c.scan(round.Query{}, newLimits(10_000))
		p := s.place(&account{id: "1", cfg: c.config}, "us-east-1")
		p.describeTypes(t.Context(), machines)
		if len(s.blindSpots) > 0 != denied || len(s.unread) > 0 {
			t.Errorf("blind spots %+v, unread %v", s.blindSpots, s.unread)
		}
		by := map[int]int{}
		for _, r := range machines {
			by[r.Size.GPUs.Or(-1)]++
		}
		return by
	}
	if diff := cmp.Diff(map[int]int{2: 250, 7: 1}, count()); diff != "" {
		t.Errorf("machines by GPUs (-want +got):\n%s", diff)
	}
	if slices.Sort(calls); !slices.Equal(calls, []int{11, 99, 100}) && !slices.Equal(calls, []int{10, 100, 100}) {
		t.Errorf("calls described %v types, want 100 at most in each", calls)
	}
	denied = true
	if diff := cmp.Diff(map[int]int{7: 251}, count()); diff != "" {
		t.Errorf("machines by GPUs where the call is denied (-want +got):\n%s", diff)
	}
}

// lastPart returns the text after the last dot.
func lastPart(key string) string {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '.' {
			return key[i+1:]
		}
	}
	return key
}

func TestManagers(t *testing.T) {
	tag := func(k, v string) types.Tag { return types.Tag{Key: &k, Value: &v} }
	for _, tc := range []struct {
		name     string
		operator *types.OperatorResponse
		tags     []types.Tag
		want     inventory.Manager
	}{
		{name: "unmanaged", tags: []types.Tag{tag("Name", "a"), tag("eks", "b"), tag("my-aws:eks:x", "c")}},
		{
			name: "a service", operator: &types.OperatorResponse{
				Managed: awssdk.Bool(true), Principal: awssdk.String("eks.amazonaws.com"),
			},
			tags: []types.Tag{
				tag(groupTag, "g"),
			}, want: inventory.Manager{Kind: inventory.ManagerService, Name: "eks.amazonaws.com"}},
		{name: "an operator that does not manage it", operator: &types.OperatorResponse{Managed: awssdk.Bool(false)}},
		{
			name: "a group before the cluster that it serves", tags: []types.Tag{
				tag("eks:nodegroup-name", "n"), tag(groupTag, "g"),
			},
			want: inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "g"}},
		{
			name: "a fleet", tags: []types.Tag{tag("aws:ec2:fleet-id", "fleet-1")},
			want: inventory.Manager{Kind: inventory.ManagerFleet, Name: "fleet-1"},
		},
		{
			name: "a node group", tags: []types.Tag{tag("eks:nodegroup-name", "n")},
			want: inventory.Manager{Kind: inventory.ManagerEKS, Name: "n"},
		},
		{
			name: "a cluster named by the key", tags: []types.Tag{tag("kubernetes.io/cluster/prod", "owned")},
			want: inventory.Manager{Kind: inventory.ManagerKubernetes, Name: "prod"},
		},
		{name: "a cluster named by the value", tags: []types.Tag{tag("KubernetesCluster", "old")},
			want: inventory.Manager{Kind: inventory.ManagerKubernetes, Name: "old"}},
		{
			name: "a claim of the driver's, which names no cluster", tags: []types.Tag{
				tag("ebs.csi.aws.com/cluster", "true"),
			},
			want: inventory.Manager{Kind: inventory.ManagerKubernetes}},
		{
			name: "a volume that the driver made", tags: []types.Tag{tag("CSIVolumeName", "pvc-1")},
			want: inventory.Manager{Kind: inventory.ManagerKubernetes},
		},
		{
			name: "a claim", tags: []types.Tag{tag("kubernetes.io/created-for/pvc/name", "data-db-0")},
			want: inventory.Manager{Kind: inventory.ManagerKubernetes},
		},
		{name: "a tag that only begins like one", tags: []types.Tag{tag("aws:ec2:fleet-id-of-mine", "x")}},
	} {
		if got := managerOf(tc.operator, tc.tags); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
