package rightsize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/price"
)

// Feature is something that an accelerator has and another has not, whatever its speed.
type Feature string

// The features that work may need.
const (
	BF16   Feature = "bf16"
	FP8    Feature = "fp8"
	NVLink Feature = "nvlink"
)

// features are all of them, with their names for people.
var features = []struct {
	Feature
	name string
}{{BF16, "bfloat16"}, {FP8, "FP8"}, {NVLink, "NVLink"}}

// ParseFeatures parses "bf16,nvlink". "none" means that the work needs none of them.
func ParseFeatures(text string) ([]Feature, error) {
	if text == "none" {
		return nil, nil
	}
	var out []Feature
	for name := range strings.SplitSeq(text, ",") {
		f := Feature(strings.ToLower(strings.TrimSpace(name)))
		if !f.known() {
			return nil, fmt.Errorf("%q is none of bf16, fp8, nvlink, and not none", name)
		}
		out = append(out, f)
	}
	return out, nil
}

func (f Feature) known() bool { return f.String() != string(f) }

// String returns the feature's name for people.
func (f Feature) String() string {
	for _, x := range features {
		if x.Feature == f {
			return x.name
		}
	}
	return string(f)
}

// has reports whether accelerators, so many in one machine, have a feature.
func (f Feature) has(a price.Accelerator, count int) bool {
	switch f {
	case BF16:
		return a.Precision == "bf16"
	case FP8:
		return a.FP8TFLOPS > 0
	case NVLink:
		return count == 1 || a.NVLink()
	}
	return false
}

// lacks returns what a candidate lacks of the features that the work needs, and of those that it may
// need because its machine has them. FP8 counts only where it is asked for: few programs use it
// without a decision for it.
func (m *measured) lacks(c *Candidate, from price.Accelerator, o Options) (needed, possible []Feature) {
	count := min(c.GPUs, m.used)
	for _, x := range features {
		switch f := x.Feature; {
		case f.has(c.Accelerator, count):
		case slices.Contains(o.Needs, f):
			needed = append(needed, f)
		case !o.NeedsKnown && f != FP8 && f.has(from, m.used) && (f != NVLink || m.used > 1):
			possible = append(possible, f)
		}
	}
	return needed, possible
}
