package prom

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Rule derives the name of a machine from a label: where the whole value of Label matches Pattern,
// the machine's name is Name with the groups of the pattern in it ("$1").
type Rule struct {
	Label, Pattern, Name string
}

type rule struct {
	Rule
	re *regexp.Regexp
}

func newRules(rules []Rule) ([]rule, error) {
	out := make([]rule, 0, len(rules))
	for _, r := range rules {
		if r.Label == "" {
			return nil, fmt.Errorf("metrics.sources machines: a rule needs a label")
		}
		if r.Name == "" {
			r.Name = "$1"
		}
		re, err := regexp.Compile("^(?:" + cmp.Or(r.Pattern, "(.*)") + ")$")
		if err != nil {
			return nil, fmt.Errorf("metrics.sources machines: %w", err)
		}
		out = append(out, rule{r, re})
	}
	return out, nil
}

// machineLabels may name a machine. Hostname is sometimes the exporter's pod and instance its
// address; a value that matches no machine is ignored.
var machineLabels = []string{
	"instance_id", "instanceid", "provider_id", "providerid", "node", "nodename", "node_name", "kubernetes_node",
	"k8s_node_name", "kubernetes_io_hostname", "host", "hostname", "instance"}

// Labels that name a GPU, by its UUID or else by its index in the machine.
var (
	uuidLabels  = []string{"uuid", "gpu_uuid", "deviceuuid", "device_uuid"}
	indexLabels = []string{
		"gpu", "index", "gpu_index", "minor_number", "gpudevice", "neuroncore", "gpu_id",
		"pci_bdf", "dev_file", "card",
		"gpu_use_percent", "gpu_power", "device",
	}
)

// directory finds machines by the labels of their series.
type directory struct {
	rules []rule
	// named maps every name of every machine; nil marks a name that two machines share.
	named map[string]*inventory.Resource
	// unmatched holds names in labels that no machine has, ambiguous those that match two machines.
	unmatched, ambiguous map[string]bool
}

func newDirectory(rules []rule) *directory {
	return &directory{
		rules: rules, named: map[string]*inventory.Resource{}, unmatched: map[string]bool{},
		ambiguous: map[string]bool{},
	}
}

// add adds machines. Ambiguous names stay ambiguous when only some machines are read again.
func (d *directory) add(resources []*inventory.Resource) {
	for _, r := range resources {
		for _, name := range slices.Concat([]string{r.ID, r.Name}, r.Aliases) {
			d.call(name, r)
			if short, _, dotted := strings.Cut(name, "."); dotted && net.ParseIP(name) == nil {
				d.call(short, r)
			}
		}
	}
}

func (d *directory) call(name string, r *inventory.Resource) {
	if name = strings.ToLower(name); name == "" {
		return
	}
	known, there := d.named[name]
	switch {
	case !there:
		d.named[name] = r
	case known != nil && known.Ref() == r.Ref():
		d.named[name] = r // keep the most recent observation
	default:
		d.named[name] = nil
	}
}

// lowerKeys returns labels with their names in lower case.
func lowerKeys(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		out[strings.ToLower(k)] = v
	}
	return out
}

// names returns the values of lower-case labels that may name the machine.
func (d *directory) names(labels map[string]string) []string {
	for _, r := range d.rules {
		if v, ok := labels[strings.ToLower(r.Label)]; ok {
			if m := r.re.FindStringSubmatchIndex(v); m != nil {
				return []string{strings.ToLower(string(r.re.ExpandString(nil, r.Name, v, m)))}
			}
		}
	}
	var out []string
	for _, label := range machineLabels {
		for _, prefix := range []string{"exported_", ""} {
			v := labels[prefix+label]
			if v == "" {
				continue
			}
			if host, _, err := net.SplitHostPort(v); err == nil {
				v = host
			}
			if strings.HasSuffix(label, "providerid") || label == "provider_id" {
				v = v[strings.LastIndex(v, "/")+1:]
			}
			out = append(out, strings.ToLower(v))
		}
	}
	return out
}

// find returns the machine that labels name, or nil if they name none or several.
func (d *directory) find(labels map[string]string) *inventory.Resource {
	names := d.names(labels)
	var found *inventory.Resource
	twice := false
	for _, name := range names {
		r, known := d.named[name]
		twice = twice || known && (r == nil || found != nil && found.Ref() != r.Ref())
		if r != nil {
			found = r
		}
	}
	switch {
	case twice:
		d.note(d.ambiguous, names)
		return nil
	case found == nil:
		d.note(d.unmatched, names)
	}
	return found
}

// maxNoted bounds the unmatched names that are remembered.
const maxNoted = 1000

func (d *directory) note(set map[string]bool, names []string) {
	if len(set) < maxNoted && len(names) > 0 {
		set[strings.Join(slices.Compact(names), " / ")] = true
	}
}

// unmatchedNames returns the names in labels that match no machine, and those that match two.
func (d *directory) unmatchedNames() (unmatched, ambiguous []string) {
	return slices.Sorted(maps.Keys(d.unmatched)), slices.Sorted(maps.Keys(d.ambiguous))
}

func first(labels map[string]string, names ...string) string {
	for _, name := range names {
		for _, prefix := range []string{"exported_", ""} {
			if v := labels[prefix+name]; v != "" {
				return v
			}
		}
	}
	return ""
}

// deviceOf returns the GPU that lower-case labels describe.
func deviceOf(labels map[string]string) usage.Device {
	d := usage.Device{
		UUID: first(labels, uuidLabels...), Index: strings.TrimPrefix(first(labels, indexLabels...), "nvidia"),
		Instance: first(labels, "gpu_i_id", "gpu_instance_id"), Profile: first(labels, "gpu_i_profile"),
		Mode: first(labels, "gpu_compute_partition_type"), Partition: first(labels, "gpu_partition_id"),
		Serial: first(labels, "serial_number"),
		Model:  first(labels, "card_series", "card_model", "modelname"),
	}
	if !usage.IsGPUName(d.UUID) {
		d.UUID = ""
	}
	return d
}
