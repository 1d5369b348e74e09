package sessions

import (
	"cmp"
	"io"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/spec"
)

// SpecOptions choose the specification of a session or job and override its machine. Zero values leave
// the specification as it is.
type SpecOptions struct {
	// File is a file, or "-" for Stdin, which StdinName names in messages; empty means "-".
	File, StdinName string
	Stdin           io.Reader
	// GPU is an accelerator with its count ("L4:2"), Type a machine type, CPUs a number of CPUs.
	GPU, Type   string
	CPUs, Nodes int
	Spot        bool
	Regions     []string
	// Cloud is local or aws.
	Cloud string
}

// maxSpec is the largest specification in bytes.
const maxSpec = 1 << 20

// Read reads the specification of a kind from the file; instead says which command takes another
// kind.
func (o SpecOptions) Read(req *runtime.Request, kind spec.Kind, instead string) (*spec.Spec, error) {
	src, err := req.Read(o.File, o.Stdin, maxSpec)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(o.StdinName, o.File)
	sp, err := spec.Parse(name, src)
	if err != nil {
		return nil, err
	}
	if sp.Kind != kind {
		return nil, runtime.Invalid("%s is a %s; %s", name, sp.Kind, instead)
	}
	return sp, nil
}

// Apply overrides the machine of a specification.
func (o SpecOptions) Apply(sp *spec.Spec) error {
	if o.GPU != "" || o.Type != "" || o.CPUs > 0 {
		r := spec.Resources{InstanceType: o.Type, CPUs: o.CPUs, Nodes: sp.Resources.Nodes}
		name, count, counted := strings.Cut(o.GPU, ":")
		if r.GPU = name; name != "" {
			r.GPUs = 1
		}
		if counted {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				return runtime.Invalid(`--gpu %q: it is an accelerator and a number such as "L4:2"`, o.GPU)
			}
			r.GPUs = n
		}
		sp.Resources = r
	}
	sp.Resources.Nodes = cmp.Or(o.Nodes, sp.Resources.Nodes)
	if o.Spot {
		sp.Capacity = spec.Spot
	}
	if len(o.Regions) > 0 {
		sp.Regions = o.Regions
	}
	return nil
}

// CheckName returns an error if a session or job cannot have the name.
func CheckName(kind spec.Kind, name string) error {
	if spec.ValidName(name) && !strings.HasPrefix(name, "stray-") {
		return nil
	}
	return runtime.Invalid("%q is no name of a %s: it has letters, digits, dots, dashes and underscores, 100 at most, "+
		"and does not begin with stray-", name, kind)
}
