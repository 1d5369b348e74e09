package estimate

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

const bare = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {%s containers: [{resources: {limits: " +
	"{nvidia.com/gpu: 1}}}]}\n"

const clusterNodes = `{"kind":"List","items":[
{"metadata":{"labels":{"node.kubernetes.io/instance-type":"g5.xlarge","topology.kubernetes.io/region":"us-east-1","pool":"small"}},"status":{"capacity":{"nvidia.com/gpu":"1"}}},
{"metadata":{"labels":{"node.kubernetes.io/instance-type":"g5.xlarge","topology.kubernetes.io/region":"us-east-1","pool":"small"}},"status":{"capacity":{"nvidia.com/gpu":"1"}}},
{"metadata":{"labels":{"node.kubernetes.io/instance-type":"p4d.24xlarge","topology.kubernetes.io/region":"us-east-1","pool":"large"}},"status":{"capacity":{"nvidia.com/gpu":"8"}}},
{"metadata":{"labels":{"node.kubernetes.io/instance-type":"m5.large"}},"status":{"capacity":{"cpu":"2"}}}]}`

// TestPricesGPUPodByNodes checks that a pod that asks for a GPU and names no machine costs as much
// as the nodes that it may run on, for the configured time.
func TestPricesGPUPodByNodes(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadNodes("nodes.json", strings.NewReader(clusterNodes))
	if err != nil || len(read) != 3 {
		t.Fatalf("%+v, %v", read, err)
	}
	configured := []Node{
		{Labels: map[string]string{"pool": "large"}, Type: "p4d.24xlarge", Region: "us-east-1"},
		{Type: "g5.xlarge", Region: "us-west-2", Spot: true},
	}
	for _, tc := range []struct {
		name, selector string
		nodes          []Node
		runtime        time.Duration
		machine        string // type, region and capacity
		says, fails    string
		open           string
	}{
		{name: "no map", runtime: time.Hour, fails: "estimate.nodes, --nodes"},
		{
			name: "no time", nodes: read, machine: "p4d.24xlarge us-east-1 on-demand",
			open: "nothing ends it, and it is estimated for a month",
		},
		{
			name: "the most expensive of those it may run on", nodes: read, runtime: time.Hour,
			machine: "p4d.24xlarge us-east-1 on-demand", says: "may run on g5.xlarge, p4d.24xlarge nodes",
		},
		{
			name: "by the selector", selector: "nodeSelector: {pool: small},", nodes: read, runtime: time.Hour,
			machine: "g5.xlarge us-east-1 on-demand", says: "1h by estimate.runtime",
		},
		{
			name: "a selector that no node has", selector: "nodeSelector: {pool: none},",
			nodes: read, runtime: time.Hour,
			fails: "estimate.nodes",
		},
		{
			name: "a label that no node has", selector: "nodeSelector: {zone: a},", nodes: read, runtime: time.Hour,
			fails: "estimate.nodes",
		},
		{
			name: "the first of the configuration", selector: "nodeSelector: {pool: large},", nodes: configured,
			runtime: time.Hour, machine: "p4d.24xlarge us-east-1 on-demand",
		},
		{
			name: "the next of the configuration", selector: "nodeSelector: {pool: other},", nodes: configured,
			runtime: time.Hour, machine: "g5.xlarge us-west-2 spot",
		},
		{
			name:     "a bound of its own",
			selector: "nodeSelector: {pool: small}, activeDeadlineSeconds: 7200,", nodes: read,
			runtime: time.Hour, machine: "g5.xlarge us-east-1 on-demand", says: "it runs until max_runtime ends it",
		},
	} {
		specs, err := spec.Read("m.yaml", []byte(strings.Replace(bare, "%s", tc.selector, 1)), nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(specs[0], book, Params{
			Now:      time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC),
			Defaults: Defaults{Nodes: tc.nodes, Runtime: tc.runtime, Regions: []string{"us-east-1"}},
		})
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got := e.Machine.Type + " " + e.Region + " " + string(e.Machine.Capacity); got != tc.machine ||
			!strings.Contains(strings.Join(e.Assumptions, "\n"), tc.says) {
			t.Errorf("%s: %s, %q; want %s, %q", tc.name, got, e.Assumptions, tc.machine, tc.says)
		}
		if open := strings.Join(e.Open, "\n"); tc.open != "" && !strings.Contains(open, tc.open) {
			t.Errorf("%s: open %q, want %q", tc.name, open, tc.open)
		}
		if e.SpecHash != specs[0].Hash() {
			t.Errorf("%s: the hash is not that of the file", tc.name)
		}
	}
	for _, text := range []string{"", "{}", `{"kind":"Pod"}`, "[]"} {
		if got, err := ReadNodes("x", strings.NewReader(text)); err == nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}
