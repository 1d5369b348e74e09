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

// Machine is a machine, or several that are alike, as curfew.yaml lists it.
type Machine struct {
	// Name is its host name, by which recorded usage finds it. Several that are alike
	// are NAME-1, NAME-2 and so on.
	Name string `yaml:"name" form:"required"`
	// GPU is the name of its GPUs, such as H100-80GB.
	GPU string `yaml:"gpu"`
	// GPUs is the number of its GPUs, 0 to 1,024.
	GPUs int64 `yaml:"gpus"`
	// VCPUs is the number of its CPUs; may be left out where no rate prices them.
	VCPUs int64 `yaml:"vcpus"`
	// MemoryGiB is its memory in GiB; may be left out where no rate prices it.
	MemoryGiB int64 `yaml:"memory_gib"`
	// Count is the number of machines that are alike, 1 to 10,000; 0 is 1.
	Count int `yaml:"count"`
	// Site is where it stands; empty is "onprem".
	Site string `yaml:"site"`
	// Since is the date, or RFC 3339 time, from which it is paid for; empty is unknown.
	Since string `yaml:"since"`
	// Tags are its tags, such as team and purpose.
	Tags map[string]string `yaml:"tags"`
}

// Machines are all that are listed.
type Machines []Machine

// FieldError is a mistake in what is listed.
type FieldError struct {
	// Field is where: "[2].gpus" of machines, ".as_of" of rates; empty is the whole.
	Field, Message string
}

// Error returns "[2].gpus: message".
func (e *FieldError) Error() string { return strings.TrimPrefix(e.Field+": "+e.Message, ": ") }

// Bounds of what is listed: far above any machine, and far below any overflow.
const (
	maxGPUs      = 1 << 10
	maxVCPUs     = 1 << 16
	maxMemoryGiB = 1 << 20
	maxCount     = 10_000
)

// word is the form of names and sites, which are parts of a resource's identity.
var word = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// Validate says what is wrong with the list, as a *FieldError. What rates price has to be
// stated of every machine: what is left out is not known, and costs more than nothing.
func (l Machines) Validate(r Rates) error {
	seen := map[string]int{}
	for i, m := range l {
		if field, err := m.check(r); err != nil {
			return &FieldError{Field: fmt.Sprintf("[%d].%s", i, field), Message: err.Error()}
		}
		for _, name := range m.names() {
			if j, twice := seen[name]; twice {
				return &FieldError{
					Field:   fmt.Sprintf("[%d].name", i),
					Message: fmt.Sprintf("%q is machine %d of the list already; recorded usage would be of either", name, j+1),
				}
			}
			seen[name] = i
		}
	}
	return nil
}

// check says what is wrong with a machine, and in which field.
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
	case !word.MatchString(m.Name):
		return "name", fmt.Errorf("%q is not a host name: letters, digits, '.', '_' and '-'", m.Name)
	case m.Site != "" && !word.MatchString(m.Site):
		return "site", fmt.Errorf("%q is not a name: letters, digits, '.', '_' and '-'", m.Site)
	case m.GPU != strings.TrimSpace(m.GPU) || (m.GPU == "") != (m.GPUs == 0):
		return "gpu", fmt.Errorf("%d GPUs called %q: gpu names them and gpus counts them, or both are left out", m.GPUs,
			m.GPU)
	case m.GPUs == 0 && m.VCPUs == 0:
		return "name", fmt.Errorf("%s has neither gpus nor vcpus: nothing of it could be judged or priced", m.Name)
	case m.VCPUs == 0 && r.VCPUHour != "":
		return "vcpus", fmt.Errorf("%s does not say how many CPUs it has, which rates.vcpu_hour prices", m.Name)
	case m.MemoryGiB == 0 && r.MemoryGiBHour != "":
		return "memory_gib", fmt.Errorf("%s does not say how much memory it has, which rates.memory_gib_hour prices", m.Name)
	}
	if _, err := m.since(); err != nil {
		return "since", err
	}
	return "", nil
}

// names are those of the machines that it stands for.
func (m Machine) names() []string {
	if m.Count <= 1 {
		return []string{m.Name}
	}
	out := make([]string, m.Count)
	for i := range out {
		out[i] = m.Name + "-" + strconv.Itoa(i+1)
	}
	return out
}

// since reads Since; empty is the zero time.
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

// Rates are the prices of what machines have, in dollars, as curfew.yaml states them.
type Rates struct {
	// GPUHour is the price of an hour of one GPU, by its name.
	GPUHour map[string]string `yaml:"gpu_hour" form:"dollars"`
	// VCPUHour is the price of an hour of one CPU; empty where the price of the GPUs
	// includes it.
	VCPUHour string `yaml:"vcpu_hour" form:"dollars"`
	// MemoryGiBHour is the price of an hour of one GiB of memory; empty where the price of
	// the GPUs includes it.
	MemoryGiBHour string `yaml:"memory_gib_hour" form:"dollars"`
	// Source is whose prices they are; required of every price.
	Source string `yaml:"source"`
	// AsOf is the date from which they hold; required of every price.
	AsOf string `yaml:"as_of"`
}

// Validate says what is wrong with the rates, as a *FieldError.
func (r Rates) Validate() error {
	_, err := r.parse()
	return err
}

// parse reads the rates. A price that is not above zero is an error: what costs nothing
// is not a price.
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
