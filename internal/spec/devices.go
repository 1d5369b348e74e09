package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Devices maps the extended resources ("nvidia.com/gtx-1080-ti") and device classes that pods
// request to accelerators of the price book. [NoDevice] marks one that is not an accelerator. An
// extended resource that is neither mapped nor known makes the gate ask.
type Devices map[string]string

// NoDevice is the value of [Devices] for a resource that needs no machine of its own.
const NoDevice = "none"

// gpuResource is the extended resource of the NVIDIA device plugin for Kubernetes.
const gpuResource = "nvidia.com/gpu"

// gpuClass is the device class of the NVIDIA driver for dynamic resource allocation that
// gives whole GPUs (https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu).
const gpuClass = "gpu.nvidia.com"

// ignoredResources matches extended resources that every machine of a kind has, or that accompany a device
// counted separately: network interfaces, kernel devices, addresses.
var ignoredResources = lazyregexp.New(
	`^(vpc\.amazonaws\.com/(efa|pod-eni|PrivateIPv4Address|CIDRBlock)|rdma/.+|(smarter-devices|squat\.ai|github\.com)/(fuse|tun|kvm)|` +
		`devices\.kubevirt\.io/(kvm|tun|vhost-net|vhost-vsock)|networking\.gke\.io\.networks/.+)$`)

// gpuShareResources are extended resources that limit the used share of an nvidia.com/gpu
// (https://github.com/Project-HAMi/HAMi); the whole GPU is counted.
var gpuShareResources = []string{
	"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority",
}

// gpuShareAnnotations are pod annotations that request a part of a GPU without an extended resource
// (KAI Scheduler and Run:ai).
var gpuShareAnnotations = []string{"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"}

// quantities maps extended resources and device classes to the requested number.
type quantities map[string]int

func (q quantities) add(more quantities) quantities {
	out := quantities{}
	maps.Copy(out, q)
	for name, n := range more {
		out[name] += n
	}
	return out
}

// largest returns the maximum of each quantity.
func (q quantities) largest(other quantities) quantities {
	out := quantities{}
	maps.Copy(out, q)
	for name, n := range other {
		out[name] = max(out[name], n)
	}
	return out
}

// demand is the number of accelerators that one pod needs.
type demand struct {
	// accelerator is the model; empty if the node's labels determine it.
	accelerator string
	gpus        int
	// unknown lists requests that could not be mapped to accelerators.
	unknown []string
}

func (d demand) empty() bool { return d.gpus == 0 && len(d.unknown) == 0 }

// demand maps quantities to accelerators. No known machine has two kinds of accelerators, so if
// both are requested, both are unknown.
func (w *workload) demand(q quantities, at ast.Node) (demand, error) {
	var d demand
	found := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		n := q[name]
		to, mapped := w.devices[name]
		switch {
		case n == 0 || to == NoDevice:
		case mapped:
			found[to] = true
			d.gpus += n
		case name == gpuResource || name == gpuClass:
			found[""] = true
			d.gpus += n
		case slices.Contains(gpuShareResources, name) && q[gpuResource] > 0 || ignoredResources.MatchString(name):
		default:
			d.unknown = append(d.unknown, fmt.Sprintf(
				"what %d × %s costs: map it to an accelerator, or to %s, under estimate.devices", n, name, NoDevice))
		}
	}
	if d.gpus > maxGPUs {
		return demand{}, w.At(at, "a pod asks for more than %d GPUs", maxGPUs)
	}
	if len(found) > 1 {
		delete(found, "")
		d.unknown = append(d.unknown, "which machine has "+plain.Count(d.gpus, "accelerator")+" of several kinds: "+
			strings.Join(slices.Sorted(maps.Keys(found)), ", "))
		return demand{unknown: d.unknown}, nil
	}
	for to := range found {
		d.accelerator = to
	}
	return d, nil
}

// pod returns the request of a pod. template is a Pod or the pod template of another document.
//
// The sum follows Kubernetes (PodRequests of k8s.io/component-helpers/resource, and
// https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers): sidecars, which are init
// containers that always restart, run alongside the containers; any other init container runs alone
// with the sidecars started before it. The largest concurrent sum is the request. The pod holds its
// resource claims throughout.
func (w *workload) pod(template ast.Node) (demand, error) {
	body := w.get(template, "spec")
	q, err := w.containers(body, nil)
	if err != nil {
		return demand{}, err
	}
	d, err := w.demand(q, body)
	if err != nil {
		return d, err
	}
	w.each(func(key string, _ ast.Node) {
		if slices.Contains(gpuShareAnnotations, key) {
			d.unknown = append(d.unknown,
				"which part of a GPU it takes: the annotation "+key+" asks for it outside of its resources")
		}
	}, template, "metadata", "annotations")
	return d, nil
}

// containers returns the concurrent request of a pod's containers and claims, and of further
// containers that are not in its spec.
func (w *workload) containers(body ast.Node, further quantities) (quantities, error) {
	containers, err := w.listContainers(w.items(body, "containers"))
	if err != nil {
		return nil, err
	}
	initial, err := w.listContainers(w.items(body, "initContainers"))
	if err != nil {
		return nil, err
	}
	return w.together(body, further, containers, initial)
}

// podContainer is a container of a pod with its request.
type podContainer struct {
	name    string
	asks    quantities
	sidecar bool
}

func (w *workload) listContainers(nodes []ast.Node) ([]podContainer, error) {
	var out []podContainer
	for _, n := range nodes {
		q, err := w.container(n)
		if err != nil {
			return nil, err
		}
		out = append(out, podContainer{
			name: w.word(n, "name"), asks: q, sidecar: w.word(n, "restartPolicy") == "Always",
		})
	}
	return out, nil
}

// together returns the concurrent request of containers in a pod with this spec.
func (w *workload) together(body ast.Node, further quantities, containers, initial []podContainer) (quantities,
	error) {
	total, sidecars, peak := quantities{}.add(further), quantities{}, quantities{}
	for _, c := range containers {
		total = total.add(c.asks)
	}
	for _, c := range initial {
		if c.sidecar {
			sidecars = sidecars.add(c.asks)
			peak = peak.largest(sidecars)
		} else {
			peak = peak.largest(sidecars.add(c.asks))
		}
	}
	whole, err := w.resources(w.get(body, "resources")) // at the level of the pod
	if err != nil {
		return nil, err
	}
	claims, err := w.claims(body)
	if err != nil {
		return nil, err
	}
	return total.add(sidecars).largest(peak).largest(whole).add(claims), nil
}

// container returns the request of a container, with the defaults of a LimitRange of the file
// (https://kubernetes.io/docs/concepts/policy/limit-range).
func (w *workload) container(c ast.Node) (quantities, error) {
	q, err := w.resources(w.get(c, "resources"))
	if err != nil {
		return nil, err
	}
	for _, d := range w.limitRanges {
		if !w.sharesNamespace(d) {
			continue
		}
		for _, limit := range w.items(d.root, "spec", "limits") {
			if w.word(limit, "type") != "Container" {
				continue
			}
			for _, part := range []string{"default", "defaultRequest"} {
				usual, err := d.listed(w.get(limit, part))
				if err != nil {
					return nil, err
				}
				for name, n := range usual {
					if _, given := q[name]; !given {
						q[name] = n
					}
				}
			}
		}
	}
	return q, nil
}

// resources returns the extended resources in limits and requests: the larger, because Kubernetes
// requires them to be equal. Names of native resources have no domain.
func (w *workload) resources(n ast.Node) (quantities, error) {
	limits, err := w.listed(w.get(n, "limits"))
	if err != nil {
		return nil, err
	}
	requests, err := w.listed(w.get(n, "requests"))
	return limits.largest(requests), err
}

func (w *workload) listed(n ast.Node) (quantities, error) {
	q := quantities{}
	var failed error
	w.each(func(key string, v ast.Node) {
		if !strings.Contains(key, "/") || q[key] > 0 {
			return // native, or already set before the merged mapping
		}
		count, ok := w.count(v)
		switch {
		case v != nil && v.Type() == ast.NullType:
		case !ok && isTemplate(v):
			failed = cmp.Or(failed, unreadf("%s is known only later: %s", key, plain.Cut(v.String(), 60)))
		case !ok && !ignoredResources.MatchString(key):
			failed = cmp.Or[error](failed, w.At(v, "%s is a whole number from 0 to %d", key, maxGPUs))
		case count > maxGPUs && key == gpuResource:
			failed = cmp.Or[error](failed, w.At(v, "%s is a whole number from 0 to %d", key, maxGPUs))
		default:
			q[key] = count
		}
	}, n)
	return q, failed
}

// claimVersions are the supported versions of resource.k8s.io.
var claimVersions = []string{"resource.k8s.io/v1", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"}

// claims returns the devices that a pod claims
// (https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation). A claim
// shared by several pods is counted for each of them.
func (w *workload) claims(body ast.Node) (quantities, error) {
	out := quantities{}
	for _, c := range w.items(body, "resourceClaims") {
		of, name := kind{"resource.k8s.io", "ResourceClaimTemplate"}, w.word(c, "resourceClaimTemplateName")
		path := []string{"spec", "spec", "devices", "requests"}
		if name == "" {
			of, name, path = kind{"resource.k8s.io", "ResourceClaim"}, w.word(c, "resourceClaimName"), path[1:]
		}
		d, err := w.find(name, of)
		if err != nil {
			return nil, err
		}
		if d == nil {
			return nil, unreadf("the %s %q of its resourceClaims is not in the file", of.name, name)
		}
		if version := w.word(d.root, "apiVersion"); !slices.Contains(claimVersions, version) {
			return nil, unreadf("the %s %q is of %s, which is not read", of.name, name, version)
		}
		for _, r := range w.items(d.root, path...) {
			q, err := w.request(d, r)
			if err != nil {
				return nil, err
			}
			out = out.add(q)
		}
	}
	return out, nil
}

// request returns the number of devices of each class that a claim requests: `exactly` in v1 and
// v1beta2, the request itself in v1beta1, and the maximum of each class in `firstAvailable`.
func (w *workload) request(claim *workload, r ast.Node) (quantities, error) {
	choices := w.items(r, "firstAvailable")
	if one := w.get(r, "exactly"); one != nil {
		choices = append(choices, one)
	}
	if len(choices) == 0 {
		choices = []ast.Node{r}
	}
	out := quantities{}
	for _, c := range choices {
		class := w.word(c, "deviceClassName")
		if class == "" {
			return nil, unreadf("a device request of %s %q names no device class", claim.kind.name, claim.name)
		}
		if mode := w.word(c, "allocationMode"); mode != "" && mode != "ExactCount" {
			return nil, unreadf("%s %q asks for %s devices of %s that a node has", claim.kind.name, claim.name,
				strings.ToLower(mode), class)
		}
		n, err := w.number(c, 1, "count")
		if err != nil {
			return nil, err
		}
		out = out.largest(quantities{class: n})
	}
	return out, nil
}
