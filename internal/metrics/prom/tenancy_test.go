package prom

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// cluster is one hour of six machines at $36 an hour each, in metrics of dcgm-exporter and
// kube-state-metrics.
type cluster struct {
	from   time.Time
	series []prometheus.Series
}

// add adds a series with a sample a minute in [begin, end).
func (c *cluster) add(name, labels string, begin, end int, v float64) {
	c.series = append(c.series, history(name, labels, c.from, 60, func(i int) float64 {
		if i < begin || i >= end {
			return -1
		}
		return v
	}))
}

// gpu adds a GPU's utilization in percent while a pod held it; "" for no pod.
func (c *cluster) gpu(machine, gpu int, pod string, begin, end int, v float64) {
	more := ""
	if pod != "" {
		more = fmt.Sprintf(
			`,exported_namespace="ml",exported_pod="%s",exported_container="main",namespace="monitoring",pod="nvidia-dcgm-exporter-abc"`, pod)
	}
	c.add("DCGM_FI_DEV_GPU_UTIL", dcgm(machine, gpu, more), begin, end, v)
}

const ksm = `,job="kube-state-metrics",instance="10.0.0.5:8080"`

// node adds a node's capacity of a resource.
func (c *cluster) node(machine int, resource string, n float64) {
	c.add("kube_node_status_allocatable", fmt.Sprintf(`node="ip-10-0-0-%d.ec2.internal",resource="%s",unit="integer"`,
		machine, resource)+ksm, 0, 60, n)
}

// pod adds a pod's request and its phase: running in [begin, end), then succeeded.
func (c *cluster) pod(machine int, name, resource string, n float64, begin, end int) {
	id := fmt.Sprintf(`namespace="ml",pod="%s"`, name)
	c.add("kube_pod_container_resource_requests",
		id+fmt.Sprintf(`,container="main",node="ip-10-0-0-%d.ec2.internal",resource="%s",unit="integer"`, machine,
			resource)+
			ksm, begin, 60, n)
	for phase, when := range map[string][2]int{"Running": {begin, end}, "Succeeded": {end, 60}} {
		c.series = append(c.series, history("kube_pod_status_phase", id+`,phase="`+phase+`"`+ksm, c.from, 60,
			func(i int) float64 {
				switch {
				case i < begin:
					return -1
				case i >= when[0] && i < when[1]:
					return 1
				}
				return 0
			}))
	}
	c.add("kube_pod_owner", id+`,owner_kind="Job",owner_name="`+strings.Split(name, "-")[0]+
		`",owner_is_controller="true"`+ksm, begin, 60, 1)
	c.add("kube_pod_labels", id+`,label_team="vision",label_app="ranking"`+ksm, begin, 60, 1)
}

func newCluster() *cluster {
	c := &cluster{from: at.Add(-time.Hour)}
	// i-0: two whole GPUs: one runs a job and then another, one is free.
	c.gpu(0, 0, "train-0", 0, 30, 80)
	c.gpu(0, 0, "eval-0", 30, 60, 20)
	c.gpu(0, 1, "", 0, 60, 0)
	c.node(0, "nvidia_com_gpu", 2)
	c.pod(0, "train-0", "nvidia_com_gpu", 1, 0, 30)
	c.pod(0, "eval-0", "nvidia_com_gpu", 1, 30, 60)
	// i-1: one GPU in four time slices, three of them held by two pods; the exporter repeats the
	// GPU's utilization for each.
	c.gpu(1, 0, "a-0", 0, 60, 60)
	c.gpu(1, 0, "b-0", 0, 60, 60)
	c.node(1, "nvidia_com_gpu", 4)
	c.pod(1, "a-0", "nvidia_com_gpu", 1, 0, 60)
	c.pod(1, "b-0", "nvidia_com_gpu", 2, 0, 60)
	// i-2: one GPU in MIG instances, whose pods are in other labels; the third instance is free.
	for i, x := range []struct {
		profile, pod string
		v            float64
	}{{"3g.20gb", "m-0", 0.5}, {"2g.10gb", "m-1", 0}, {"2g.10gb", "", 0}} {
		more := fmt.Sprintf(`,GPU_I_ID="%d",GPU_I_PROFILE="%s"`, i+1, x.profile)
		if x.pod != "" {
			more += fmt.Sprintf(`,pod_namespace="ml",pod_name="%s",container_name="main"`, x.pod)
		}
		c.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", dcgm(2, 0, more), 0, 60, x.v)
	}
	c.add("DCGM_FI_DEV_GPU_UTIL", dcgm(2, 0, ""), 0, 60, 9223372036854775794)
	// i-3: two GPUs shared by MPS. The exporter names no pods, so that only requests are known.
	c.gpu(3, 0, "", 0, 60, 40)
	c.gpu(3, 1, "", 0, 60, 0)
	c.node(3, "nvidia_com_gpu_shared", 8)
	c.pod(3, "s-0", "nvidia_com_gpu_shared", 2, 0, 45)
	// i-4: shares of HAMi, whose monitor measures each pod. The node is known only by its provider
	// ID.
	c.series = append(c.series, history("kube_node_info", `node="gpu-pool-4",provider_id="aws:///us-east-1a/i-4"`+ksm,
		c.from, 60, func(int) float64 { return 1 }))
	for i, own := range []float64{30, 0} {
		name := fmt.Sprint("h-", i)
		c.add("DCGM_FI_DEV_GPU_UTIL", `gpu="0",UUID="GPU-4-0",node="gpu-pool-4"`, 0, 60, 30)
		c.add("Device_utilization_desc_of_container",
			fmt.Sprintf(`podnamespace="ml",podname="%s",ctrname="main",vdeviceid="0",deviceuuid="GPU-4-0"`, name), 0,
			60, own)
		c.add("kube_node_status_allocatable",
			`node="gpu-pool-4",resource="nvidia_com_gpu",unit="integer"`+ksm, 0, 60, 10)
		for resource, n := range map[string]float64{"nvidia_com_gpu": 1, "nvidia_com_gpucores": 50} {
			c.add("kube_pod_container_resource_requests",
				fmt.Sprintf(`namespace="ml",pod="%s",container="main",node="gpu-pool-4",resource="%s"`,
					name, resource)+ksm, 0, 60,
				n)
		}
	}
	// i-5: an exporter outside of Kubernetes.
	c.add("DCGM_FI_DEV_GPU_UTIL", dcgm(5, 0, ""), 0, 60, 10)
	return c
}

// TestTenancy computes the cost of each workload from the allocations that real servers report.
func TestTenancy(t *testing.T) {
	c := newCluster()
	machines := fleetOf(6)
	tenancyOf := func() *costs.Tenancy { return &costs.Tenancy{GPUs: map[string]int{}} }
	var hours []costs.MachineHour
	gpus := []int{2, 1, 1, 2, 1, 1}
	for i, m := range machines {
		m.Size.GPUs = inventory.Known(gpus[i])
		hours = append(hours, costs.MachineHour{Resource: m.ID, Hour: c.from, Amount: 36 * money.USD, Seconds: 3600})
	}
	want := []string{
		"i-0: ml/eval-0 9.00 used 1.80 by use 1.80, ml/train-0 9.00 used 7.20 by use 7.20; free 18.00 unknown 0.00",
		"i-1: ml/b-0 18.00 used 14.40 by use 14.40, ml/a-0 9.00 used 7.20 by use 7.20; free 9.00 unknown 0.00",
		"i-2: ml/m-0 15.43 used 7.71 by use 7.71, ml/m-1 10.29 used 0.00 by use 0.00; free 10.29 unknown 0.00",
		"i-3: ml/s-0 6.75 used 0.00 by use 0.00; free 29.25 unknown 4.50",
		"i-4: ml/h-0 18.00 used 10.80 by use 10.80, ml/h-1 18.00 used 0.00 by use 0.00; free 0.00 unknown 0.00",
		"i-5: ; free 36.00 unknown 36.00",
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Access: Access{URL: start(t, c.series)}})
			if err != nil {
				t.Fatal(err)
			}
			tenancy := tenancyOf()
			for i, m := range machines {
				tenancy.GPUs[m.ID] = gpus[i]
			}
			blind, err := s.Tenancy(t.Context(), machines, c.from, at, inventory.DefaultTagMapping(), tenancy.Add)
			if err != nil || len(blind) > 0 {
				t.Fatal(blind, err)
			}
			d, err := tenancy.Divide(c.from, at, hours)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range d.Machines {
				var parts []string
				for _, w := range m.Workloads {
					parts = append(parts, fmt.Sprintf("%s %s used %s by use %s", w.Workload,
						w.Amount.Cents(), w.Used.Cents(),
						w.ByUse.Cents()))
				}
				got = append(got, fmt.Sprintf("%s: %s; free %s unknown %s", m.Resource, strings.Join(parts, ", "),
					m.Unallocated.Cents(), m.Unknown.Cents()))
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("shares differ:\n%s", diff)
			}
			train := d.Machines[slices.IndexFunc(d.Machines, func(m costs.DividedMachine) bool {
				return m.Resource == "i-0"
			})].Workloads[1].Tenant
			if diff := cmp.Diff(costs.Tenant{
				Namespace: "ml", Pod: "train-0", Controller: "Job/train",
				Owner: inventory.Owner{Team: "vision", Project: "ranking"},
			}, train); diff != "" {
				t.Errorf("the tenant differs:\n%s", diff)
			}
		})
	}
}

// TestSliceOf checks MIG profiles in labels and in resource names.
func TestSliceOf(t *testing.T) {
	for profile, want := range map[string]float64{
		"1g.5gb": 1. / 7, "3g.40gb": 3. / 7, "1g.10gb+me": 1. / 7, "7g.80gb": 1, "2G.10GB": 2. / 7, "1g.6gb": 1. / 4,
		"4g.24gb": 1, "2g.48gb": 2. / 7, "": 1, "whole": 1,
	} {
		if got := float64(sliceOf(profile)) / costs.WholeGPU; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v of a GPU, want %v", profile, got, want)
		}
	}
}
