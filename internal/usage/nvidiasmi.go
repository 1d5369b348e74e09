package usage

import (
	"bytes"
	"errors"
	"strings"
	"time"
)

// smiFields are the known fields of nvidia-smi --query-gpu, by their own names, with the unit it
// prints.
var smiFields = map[string]struct {
	column
	unit string
}{
	"timestamp":           {column: column{role: timeColumn, name: "time"}},
	"utilization.gpu":     {column{role: signalColumn, signal: GPUUtil, scope: wholeGPUs}, "%"},
	"mig.mode.current":    {column: column{role: migColumn, name: "mig.mode.current"}},
	"memory.used":         {column{role: signalColumn, signal: MemUsed}, "MiB"},
	"memory.total":        {column{role: signalColumn, signal: MemTotal}, "MiB"},
	"power.draw":          {column{role: signalColumn, signal: Power}, "W"},
	"power.draw.average":  {column{role: signalColumn, signal: Power}, "W"},
	"power.draw.instant":  {column{role: signalColumn, signal: Power}, "W"},
	"temperature.gpu":     {column: column{role: signalColumn, signal: Temperature}},
	"uuid":                {column: column{role: gpuColumn, name: "gpu"}},
	"gpu_uuid":            {column: column{role: gpuColumn, name: "gpu"}},
	"index":               {column: column{role: gpuColumn, name: "gpu"}},
	"pci.bus_id":          {column: column{role: gpuColumn, name: "gpu"}},
	"gpu_bus_id":          {column: column{role: gpuColumn, name: "gpu"}},
	"utilization.gpu.avg": {column{role: signalColumn, signal: GPUUtil, scope: wholeGPUs}, "%"},

	"clocks_throttle_reasons.active":        {column: column{role: signalColumn, signal: Throttle}},
	"clocks_event_reasons.active":           {column: column{role: signalColumn, signal: Throttle}},
	"ecc.errors.uncorrected.volatile.total": {column: column{role: signalColumn, signal: ECCErrors}},
	"count":                                 {column: column{role: signalColumn, signal: GPUCount}},
}

// smiPreference lists equivalent fields in order of preference; the first one present is read. A
// UUID survives a change of the order of GPUs, an index does not.
var smiPreference = [][]string{
	{"uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id"},
	{"power.draw", "power.draw.average", "power.draw.instant"},
	{"clocks_event_reasons.active", "clocks_throttle_reasons.active"},
}

// isSMI reports whether the header is that of nvidia-smi --format=csv, whose names have the unit in
// brackets.
func isSMI(header []string) bool {
	for _, h := range header {
		name, _ := smiName(h)
		if strings.HasPrefix(name, "utilization.gpu") || name == "memory.used" || name == "memory.total" {
			return true
		}
	}
	return false
}

// smiName splits "memory.used [MiB]" into name and unit.
func smiName(header string) (name, unit string) {
	name, unit, ok := strings.Cut(strings.TrimSpace(header), " [")
	if ok {
		unit = strings.TrimSuffix(unit, "]")
	}
	return strings.ToLower(name), unit
}

func newSMILayout(header []string, f Format) (*layout, *FileError) {
	if len(f.Map) > 0 {
		return nil, f.fail(1, 0, "this is the output of nvidia-smi, whose columns are known: it takes no map")
	}
	if f.Resource == "" {
		return nil, f.fail(1, 0,
			"this is the output of nvidia-smi, which does not name its machine: name the resource")
	}
	at := map[string]int{}
	for i, h := range header {
		name, _ := smiName(h)
		if _, ok := smiFields[name]; !ok {
			continue
		}
		if first, twice := at[name]; twice {
			return nil, f.fail(1, i+1, "%s is there again, after column %d", name, first+1)
		}
		at[name] = i
	}
	for _, alike := range smiPreference {
		found := false
		for _, name := range alike {
			if _, ok := at[name]; ok && found {
				delete(at, name)
			} else if ok {
				found = true
			}
		}
	}
	l := &layout{columns: make([]column, len(header)), nvidiaSMI: true}
	for name, i := range at {
		c := smiFields[name].column
		if c.role == signalColumn {
			c.name = name
			_, unit := smiName(header[i])
			if unit == "" {
				unit = smiFields[name].unit
			}
			scale, ok := unitScale(c.signal, unit)
			if !ok {
				return nil, f.fail(1, i+1, "%s is in %q: %s is expected", name, unit, smiFields[name].unit)
			}
			c.scale = scale
		}
		l.gpu = l.gpu || c.role == gpuColumn
		l.columns[i] = c
	}
	l.complete()
	l.noteUnknown(header)
	if _, ok := at["timestamp"]; ok {
		return l, nil
	}
	switch {
	case f.Step <= 0:
		return nil, f.fail(1, 0, "the output of nvidia-smi has no timestamp: query it with the other fields, "+
			"or give the time between samples, such as --step 5s for -l 5")
	case !l.gpu:
		return nil, f.fail(1, 0, "the output of nvidia-smi has neither timestamp nor index: query one of them")
	}
	l.untimed = true
	return l, nil
}

// untimed dates the rows of a file without times: a repeated GPU starts the next sample of all
// GPUs, one step later.
type untimed struct {
	samples int
	seen    map[string]bool
}

// next returns the time of a row of a GPU.
func (u *untimed) next(gpu string, f *Format) time.Time {
	if u.seen == nil || u.seen[gpu] {
		u.seen = map[string]bool{}
		u.samples++
	}
	u.seen[gpu] = true
	first := f.First
	if first.IsZero() {
		first = time.Unix(0, 0)
	}
	return first.UTC().Add(time.Duration(u.samples-1) * f.Step)
}

// unitScale returns the factor from a unit to the signal's.
func unitScale(s Signal, unit string) (float64, bool) {
	scales := map[string]float64{}
	switch s {
	case Temperature:
		scales = map[string]float64{"": 1, "C": 1}
	case Throttle, ECCErrors, GPUCount:
		scales = map[string]float64{"": 1}
	case GPUUtil:
		scales = map[string]float64{"%": 1}
	case Power:
		scales = map[string]float64{"W": 1, "mW": 0.001}
	case MemUsed, MemTotal:
		scales = map[string]float64{
			"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 1e3, "MB": 1e6, "GB": 1e9,
		}
	}
	scale, ok := scales[unit]
	return scale, ok
}

var errUnit = errors.New("has a unit that does not fit")

// quantity parses "1024 MiB", "37 %" or, with the unit in the header, "1024", into the unit of the
// column.
func (l *layout) quantity(c *column, field []byte) (v float64, err error) {
	digits, unit, hasUnit := bytes.Cut(field, []byte{' '})
	l.hasUnits = l.hasUnits || hasUnit
	if v, err = c.number(digits); err == nil && !hasUnit {
		return v, nil
	}
	if err == nil {
		if scale, ok := smiScale(c, unit); ok {
			return v * scale, nil
		}
	}
	if isUnmeasured(field) {
		return 0, errNotNumber
	}
	if v, unit, ok := parseLocalized(field, l.decimalComma); ok {
		if len(unit) == 0 {
			return v, nil
		}
		if scale, ok := smiScale(c, unit); ok {
			return v * scale, nil
		}
	}
	if err == nil {
		err = errUnit
	}
	return 0, err
}

// smiScale returns the factor from a value's unit to the unit in its column's header; nearly always
// they are the same.
func smiScale(c *column, unit []byte) (float64, bool) {
	unit = trim(unit)
	switch {
	case c.signal == GPUUtil && string(unit) == "%", c.signal == Power && string(unit) == "W" && c.scale == 1,
		(c.signal == MemUsed || c.signal == MemTotal) && string(unit) == "MiB" && c.scale == mib:
		return 1, true
	}
	scale, ok := unitScale(c.signal, string(unit))
	return scale / c.scale, ok
}
