package estimate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Labels of nodes about their machine
// (https://kubernetes.io/docs/reference/labels-annotations-taints).
const (
	labelType   = "node.kubernetes.io/instance-type"
	labelRegion = "topology.kubernetes.io/region"
)

// ReadNodes reads the nodes of a cluster as `kubectl get nodes -o json` prints them. Nodes
// without GPUs, and those that do not say their type, are left out.
func ReadNodes(name string, r io.Reader) ([]Node, error) {
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Status struct {
				Capacity map[string]string `json:"capacity"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.NewDecoder(io.LimitReader(r, MaxPlan)).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the nodes in %s: %w", name, err)
	}
	if list.Kind != "List" && list.Kind != "NodeList" {
		return nil, fmt.Errorf("read the nodes in %s: it is a %q and not what `kubectl get nodes -o json` prints",
			name,
			list.Kind)
	}
	var out []Node
	for _, n := range list.Items {
		labels := n.Metadata.Labels
		if gpus := n.Status.Capacity["nvidia.com/gpu"]; gpus == "" || gpus == "0" || labels[labelType] == "" {
			continue
		}
		spot := labels["karpenter.sh/capacity-type"] == "spot" ||
			strings.EqualFold(labels["eks.amazonaws.com/capacityType"], "SPOT")
		out = append(out, Node{
			Labels: labels, Type: labels[labelType], Region: labels[labelRegion], Spot: spot, Whole: true,
		})
	}
	return out, nil
}

// fits reports whether a workload may run on a node.
func (n Node) fits(s *spec.Spec) bool {
	for key, values := range s.Selector {
		have, there := n.Labels[key]
		if there && !slices.Contains(values, have) || !there && n.Whole {
			return false
		}
	}
	return n.Region == "" || len(s.Regions) == 0 || slices.Contains(s.Regions, n.Region)
}

// placed is the specification on the nodes of the cluster, where it names no machine: it
// returns the types that it may run on. A configured node wins over those after it; of
// those that were read any may be the one.
func placed(s *spec.Spec, book *price.Book, d Defaults) (*spec.Spec, []string) {
	if s.Digest == "" || s.Resources.InstanceType != "" || s.Resources.GPU != "" || s.Resources.GPUs == 0 {
		return s, nil
	}
	var types, regions []string
	spot, onDemand := false, false
	for _, n := range d.Nodes {
		m, known := book.Machine(n.Type)
		if !n.fits(s) || known && m.GPUs() < s.Resources.GPUs {
			continue
		}
		if !slices.Contains(types, n.Type) {
			types = append(types, n.Type)
		}
		if n.Region != "" && !slices.Contains(regions, n.Region) {
			regions = append(regions, n.Region)
		}
		spot, onDemand = spot || n.Spot, onDemand || !n.Spot
		if !n.Whole {
			break
		}
	}
	if len(types) == 0 {
		return s, nil
	}
	p := *s
	if p.Resources.InstanceType = types[0]; len(p.Regions) == 0 {
		p.Regions = regions
	}
	if spot && !onDemand && p.Capacity == spec.OnDemand {
		p.Capacity = spec.Spot
	}
	return &p, types
}

// costliestFirst puts the option first that costs most: the node is unknown before the run.
func costliestFirst(options []*outcome) {
	slices.SortStableFunc(options, func(a, b *outcome) int { return cmp.Compare(b.p95, a.p95) })
}
