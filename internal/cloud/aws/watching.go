package aws

import (
	"fmt"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// listPage is CloudWatch's maximum page size for metrics (API reference).
const listPage = 500

// Pass counts the requests of one pass over machines, and their charge.
type Pass struct {
	// Metrics is the number of metrics requested from GetMetricData, Lists the number of
	// ListMetrics requests.
	Metrics, Lists int
	Cost           money.Amount
}

// Watching returns the CloudWatch requests of one pass over a number of machines and GPUs per
// machine whose agent publishes each GPU separately. It makes no call, but uses the series of such
// a pass. All other calls of a pass are free, except Cost Explorer and a scan's reads of buckets.
func Watching(machines, gpus int) (Pass, error) {
	if machines < 0 || machines > 1_000_000 || gpus < 0 || gpus > 64 {
		return Pass{}, fmt.Errorf("%d machines with %d GPUs: up to 1,000,000 with up to 64 are expected", machines,
			gpus)
	}
	size := inventory.Size{GPUs: inventory.Known(gpus), GPUMemory: inventory.Known[int64](80 << 30)}
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	m := (&place{}).meters(usage.Interval{From: now.Add(-time.Hour), To: now})
	s := m.instance(&inventory.Resource{
		ID: "i-1", Kind: inventory.KindInstance, Size: size, State: inventory.StateRunning,
	})
	sources := gpuSources{}
	for i := range gpus {
		name := strconv.Itoa(i)
		sources[name] = []metric{{agentNamespace, "", dims("InstanceId", "i-1", "index", name)}}
	}
	m.gpuFamily(s, busyFamilies[0], sources)
	p := Pass{}
	for _, x := range s.series {
		p.Metrics += machines * len(x.statistics)
	}
	if gpus > 0 && machines > 0 {
		// The agent's metric family has a metric for each GPU, the others have none.
		p.Lists = len(busyFamilies) + len(deepFamilies) - 1 + (machines*gpus+listPage-1)/listPage
	}
	var err error
	p.Cost, err = chargeMetric.Times(int64(p.Metrics + p.Lists))
	return p, err
}

// ExplorerRequest returns the price of a request to Cost Explorer.
func ExplorerRequest() (money.Amount, error) { return chargeExplorer.Times(1) }
