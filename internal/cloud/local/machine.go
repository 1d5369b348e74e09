package local

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
)

// Machine is an entry of curfew.yaml for one or several identical machines.
type Machine struct {
	// Name is the host name, which recorded usage refers to. Several machines are NAME-1, NAME-2
	// and so on.
	Name string `yaml:"name" form:"required"`
	// GPU is the name of its GPUs, such as H100-80GB.
	GPU string `yaml:"gpu"`
	// GPUs is the number of its GPUs, 0 to 1,024.
	GPUs int64 `yaml:"gpus"`
	// VCPUs is the number of its CPUs; required if a rate prices CPUs.
	VCPUs int64 `yaml:"vcpus"`
	// MemoryGiB is its memory in GiB; required if a rate prices memory.
	MemoryGiB int64 `yaml:"memory_gib"`
	// Count is the number of identical machines, 1 to 10,000; 0 means 1.
	Count int `yaml:"count"`
	// Site is the location; empty means "onprem".
	Site string `yaml:"site"`
	// Since is the date or RFC 3339 time of the first charge; empty if unknown.
	Since string `yaml:"since"`
	// Tags are tags such as team and purpose.
	Tags map[string]string `yaml:"tags"`
}

// Machines are all listed machines.
type Machines []Machine

// FieldError is a mistake in the configuration of machines or rates.
type FieldError struct {
	// Field is the position: "[2].gpus" of machines, ".as_of" of rates; empty for the whole.
	Field, Message string
}

// Error returns "[2].gpus: message".
func (e *FieldError) Error() string { return strings.TrimPrefix(e.Field+": "+e.Message, ": ") }

// Limits of listed values, far above any machine and far below an overflow.
const (
	maxGPUs      = 1 << 10
	maxVCPUs     = 1 << 16
	maxMemoryGiB = 1 << 20
	maxCount     = 10_000
)

// namePattern matches names and sites, which are parts of a resource's identity.
var namePattern = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// Validate checks the list. Its errors are *FieldError. Values that rates price must be stated,
// because unknown values would cost nothing.
func (l Machines) Validate(r Rates) error {
	seen := map[string]int{}
	for i, m := range l {
		if field, err := m.check(r); err != nil {
			return &FieldError{Field: fmt.Sprintf("[%d].%s", i, field), Message: err.Error()}
		}
		for _, name := range m.hostNames() {
			if j, twice := seen[name]; twice {
				return &FieldError{
					Field: fmt.Sprintf("[%d].name", i),
					Message: fmt.Sprintf("%q is machine %d of the list already; recorded usage would be of either",
						name, j+1),
				}
			}
			seen[name] = i
		}
	}
	return nil
}

// check returns a mistake in a machine and its field.
func (m Machine) check(r Rates) (field string, err error) {
	for _, n := range []struct {
		field      string
		value, max int64
	}{
		{"gpus", m.GPUs, maxGPUs}, {"vcpus", m.VCPUs, maxVCPUs}, {"memory_gib", m.MemoryGiB, maxMemoryGiB},
		{"count", int64(m.Count), maxCount},
	} {
		if n.value < 0 || n.value > n.max {
			return n.field, fmt.Errorf("%d is not from 0 to %d", n.value, n.max)
		}
	}
	switch {
	case !namePattern.MatchString(m.Name):
		return "name", fmt.Errorf("%q is not a host name: letters, digits, '.', '_' and '-'", m.Name)
	case m.Site != "" && !namePattern.MatchString(m.Site):
		return "site", fmt.Errorf("%q is not a name: letters, digits, '.', '_' and '-'", m.Site)
	case m.GPU != strings.TrimSpace(m.GPU) || (m.GPU == "") != (m.GPUs == 0):
		return "gpu", fmt.Errorf("%d GPUs called %q: gpu names them and gpus counts them, or both are left out",
			m.GPUs,
			m.GPU)
	case m.GPUs == 0 && m.VCPUs == 0:
		return "name", fmt.Errorf("%s has neither gpus nor vcpus: nothing of it could be judged or priced", m.Name)
	case m.VCPUs == 0 && r.VCPUHour != "":
		return "vcpus", fmt.Errorf("%s does not say how many CPUs it has, which rates.vcpu_hour prices", m.Name)
	case m.MemoryGiB == 0 && r.MemoryGiBHour != "":
		return "memory_gib", fmt.Errorf("%s does not say how much memory it has, which rates.memory_gib_hour prices",
			m.Name)
	}
	if _, err := m.since(); err != nil {
		return "since", err
	}
	return "", nil
}

// hostNames returns the names of the machines of an entry.
func (m Machine) hostNames() []string {
	if m.Count <= 1 {
		return []string{m.Name}
	}
	out := make([]string, m.Count)
	for i := range out {
		out[i] = m.Name + "-" + strconv.Itoa(i+1)
	}
	return out
}

// since parses Since; empty is the zero time.
func (m Machine) since() (time.Time, error) {
	if m.Since == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, m.Since); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a date such as 2026-01-31 nor an RFC 3339 time", m.Since)
}

// Rates are the prices in dollars from curfew.yaml.
type Rates struct {
	// GPUHour is the hourly price of a GPU, by name.
	GPUHour map[string]string `yaml:"gpu_hour" form:"dollars"`
	// VCPUHour is the hourly price of a CPU; empty if the GPU price includes it.
	VCPUHour string `yaml:"vcpu_hour" form:"dollars"`
	// MemoryGiBHour is the hourly price of a GiB of memory; empty if the GPU price includes it.
	MemoryGiBHour string `yaml:"memory_gib_hour" form:"dollars"`
	// Source names the origin of the prices; required with any price.
	Source string `yaml:"source"`
	// AsOf is the date of the prices; required with any price.
	AsOf string `yaml:"as_of"`
}

// Validate checks the rates. Its errors are *FieldError.
func (r Rates) Validate() error {
	_, err := r.parse()
	return err
}

// parse parses the rates. A price must be positive.
func (r Rates) parse() (tariff, error) {
	out := tariff{gpu: map[string]money.Amount{}, source: r.Source}
	amount := func(field, text string) (money.Amount, error) {
		v, err := money.ParseAmount(strings.TrimPrefix(text, "$"))
		if err != nil || v <= 0 {
			return 0, &FieldError{
				Field: field, Message: fmt.Sprintf("%q is not an amount of dollars above zero such as 2.10", text),
			}
		}
		return v, nil
	}
	for name, text := range r.GPUHour {
		v, err := amount(".gpu_hour", text)
		if err != nil {
			return tariff{}, err
		}
		out.gpu[name] = v
	}
	for _, part := range []struct {
		field, text string
		to          *inventory.Fact[money.Amount]
	}{{".vcpu_hour", r.VCPUHour, &out.vcpu}, {".memory_gib_hour", r.MemoryGiBHour, &out.memory}} {
		if part.text == "" {
			continue
		}
		v, err := amount(part.field, part.text)
		if err != nil {
			return tariff{}, err
		}
		*part.to = inventory.Known(v)
	}
	if len(out.gpu) == 0 && !out.vcpu.Known() && !out.memory.Known() {
		return out, nil
	}
	if strings.TrimSpace(r.Source) == "" {
		return tariff{}, &FieldError{Field: ".source", Message: "it says whose prices these are, and is missing"}
	}
	var err error
	if out.asOf, err = time.Parse(time.DateOnly, r.AsOf); err != nil {
		return tariff{}, &FieldError{
			Field:   ".as_of",
			Message: fmt.Sprintf("%q is not the date from which these prices hold, such as 2026-01-31", r.AsOf),
		}
	}
	return out, nil
}
