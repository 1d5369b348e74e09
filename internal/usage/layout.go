package usage

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// role is the meaning of a column of a file.
type role uint8

const (
	ignored role = iota
	resourceColumn
	timeColumn
	gpuColumn
	// Columns of a divided GPU: the MIG instance and its profile, the partition mode, the partition
	// and the serial number of an AMD GPU, the model, and whether the GPU is in MIG mode.
	partColumn
	profileColumn
	modeColumn
	partitionColumn
	serialColumn
	modelColumn
	migColumn
	signalColumn
	receivedColumn
	kindColumn
	lifetimeColumn
	purposeColumn
	typeColumn
	teamColumn
	projectColumn
	userColumn
	tagsColumn
	gpusColumn
	environmentColumn
	launchedColumn
)

// describes reports whether the column describes the resource.
func (r role) describes() bool { return r >= kindColumn }

// roles are the columns that are not signals, in the order of the documentation.
var roles = []struct {
	name               string
	role               role
	typ, doc, ifAbsent string
}{
	{
		"resource", resourceColumn, "text", "id of the resource, or a further name of it",
		"required, unless --resource names the only one",
	},
	{
		"time", timeColumn, "RFC 3339, or seconds since 1970", "time of the sample; it covers one step from then on",
		"required",
	},
	{"gpu", gpuColumn, "text", "index or UUID of the GPU", "the resource has one GPU"},
	{"received", receivedColumn, "time", "time at which the sample was known", "known at its time"},
	{"launched", launchedColumn, "time", "last launch of the resource", "launch unknown"},
	{"kind", kindColumn, "text", "kind of the resource", "instance"},
	{"type", typeColumn, "text", "machine type", "size and price unknown"},
	{
		"gpus", gpusColumn, "whole number", "GPUs of the resource",
		"number of the machine type, else the GPUs seen so far",
	},
	{"lifetime", lifetimeColumn, "ephemeral or persistent", "lifetime", "ephemeral in a replay"},
	{
		"purpose", purposeColumn, "text", "purpose: training, evaluation, experimentation, inference or data",
		"experimentation in a replay",
	},
	{"team", teamColumn, "text", "owner's team", "unknown"},
	{"project", projectColumn, "text", "owner's project", "unknown"},
	{"user", userColumn, "text", "owner", "unknown"},
	{"environment", environmentColumn, "text", "environment, such as dev or production", "unknown"},
	{"tags", tagsColumn, "JSON object, or key=value;key=value", "tags", "tags unknown"},
}

// Column documents one column of recorded usage.
type Column struct {
	// Name is the column's name, Type the form of its values, and Unit their unit, empty without
	// one.
	Name, Type, Unit string
	// Doc is the meaning of a value, and IfAbsent the meaning of a missing column.
	Doc, IfAbsent string
	// Aliases are metric names that are read as this column.
	Aliases []string
}

// Columns returns every column of recorded usage.
func Columns() []Column {
	var out []Column
	for _, r := range roles {
		out = append(out, Column{Name: r.name, Type: r.typ, Doc: r.doc, IfAbsent: r.ifAbsent})
	}
	for s := range numSignals {
		c := Column{
			Name: s.String(), Type: "number", Unit: s.Unit(), Doc: signals[s].doc, IfAbsent: "unmeasured, never 0",
		}
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			if metrics[name].Signal == s {
				c.Aliases = append(c.Aliases, name)
			}
		}
		out = append(out, c)
	}
	return out
}

// column describes how to decode one field of every row.
type column struct {
	role   role
	name   string // our name, for errors
	signal Signal
	scale  float64
	scope  scope // devices on which the column is a measurement
	// max is the largest value in the signal's range.
	max float64
}

// appliesTo reports whether a value, in the signal's unit, is a measurement of the device.
func (c *column) appliesTo(v float64, d Device) bool { return Metric{scope: c.scope}.appliesTo(v, d) }

// layout is the columns of a file in order.
type layout struct {
	columns   []column
	describes bool
	gpu       bool
	nvidiaSMI bool
	// hasDeviceColumns is set if columns describe how GPUs are divided, partsOnly if a signal is
	// measured only on parts.
	hasDeviceColumns, partsOnly bool
	// untimed is set for output of nvidia-smi without timestamps.
	untimed bool
	// hasUnits is set if the values of nvidia-smi have units.
	hasUnits bool
	// decimalComma is set if a comma is the decimal sign, not the separator of fields.
	decimalComma bool
	// unknown holds the names of ignored columns.
	unknown []string
}

// columnNamed returns the column of recorded usage with that name.
func columnNamed(name string) (column, bool) {
	for _, r := range roles {
		if r.name == name {
			return column{role: r.role, name: name}, true
		}
	}
	if s, ok := SignalNamed(name); ok {
		return column{role: signalColumn, name: name, signal: s, scale: 1}, true
	}
	return column{}, false
}

// ParseMap parses a list of columns such as "resource=pod,time=t_s": our name, then the file's.
// Unknown, repeated and empty names are errors.
func ParseMap(text string) (map[string]string, error) {
	m := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return m, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		ours, theirs, ok := strings.Cut(pair, "=")
		ours, theirs = strings.TrimSpace(ours), strings.TrimSpace(theirs)
		switch _, known := columnNamed(ours); {
		case !ok || ours == "" || theirs == "":
			return nil, fmt.Errorf("read column map %.80q: %.80q is not of the form column=column in the file", text,
				pair)
		case !known:
			return nil, fmt.Errorf("read column map %.80q: there is no column %.80q; there are %s",
				text, ours, columnNames())
		case m[ours] != "":
			return nil, fmt.Errorf("read column map %.80q: %s is given twice", text, ours)
		}
		m[ours] = theirs
	}
	return m, nil
}

// columnNames lists the columns of recorded usage.
func columnNames() string {
	var names []string
	for _, c := range Columns() {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// newLayout assigns meanings to the columns of a header. Columns that the map does not name are
// recognized by our own names or by metric names of exporters, and the latter with their labels.
// The names of the other columns are kept in unknown.
func newLayout(header []string, f Format) (*layout, *FileError) {
	if isSMI(header) {
		return newSMILayout(header, f)
	}
	l := &layout{columns: make([]column, len(header))}
	wanted := make(map[string]column, len(f.Map)) // by the file's name
	aliases := map[string][]column{}
	for ours, theirs := range f.Map {
		c, ok := columnNamed(ours)
		if !ok {
			return nil, f.fail(1, 0, "the map names %q, which is no column; there are %s", ours, columnNames())
		}
		aliases[theirs] = append(aliases[theirs], c)
	}
	for theirs, columns := range aliases {
		if len(columns) > 1 {
			slices.SortFunc(columns, func(a, b column) int { return strings.Compare(a.name, b.name) })
			return nil, f.fail(1, 0, "column %q is mapped to both %s and %s", theirs, columns[0].name, columns[1].name)
		}
		wanted[theirs] = columns[0]
	}
	mapped := map[string]bool{}
	for _, c := range wanted {
		mapped[c.name] = true
	}
	seen, foreign := map[string]int{}, false
	for i, name := range header {
		name = strings.TrimSpace(name)
		c, ok := wanted[name]
		if !ok {
			if c, ok = nativeColumn(name); !ok || mapped[c.name] {
				continue
			}
			foreign = foreign || c.role == signalColumn && !strings.EqualFold(name, c.name)
		}
		if first, twice := seen[c.name]; twice {
			if c.scope == partitions {
				continue // the other column covers whole GPUs as well
			}
			return nil, f.fail(1, i+1, "column %q gives %s again, after column %d", name, c.name, first)
		}
		seen[c.name] = i + 1
		l.columns[i] = c
		l.describes = l.describes || c.role.describes()
	}
	if foreign {
		l.findLabels(header, seen)
	}
	l.complete()
	l.gpu = seen["gpu"] > 0
	l.noteUnknown(header)
	for theirs, c := range wanted {
		if seen[c.name] == 0 {
			return nil, f.fail(1, 0, "there is no column %q, which the map names for %s; there are %s", theirs, c.name,
				quoteAll(header))
		}
	}
	switch {
	case seen["time"] == 0:
		return nil, f.fail(1, 0,
			"there is no column time; there are %s: name it with a map, time=COLUMN", quoteAll(header))
	case seen["resource"] == 0 && f.Resource == "":
		return nil, f.fail(1, 0,
			"there is no column resource; there are %s: name it with a map, resource=COLUMN, or name the resource",
			quoteAll(header))
	}
	return l, nil
}

// complete sets the fields that follow from the columns.
func (l *layout) complete() {
	for i := range l.columns {
		c := &l.columns[i]
		l.hasDeviceColumns = l.hasDeviceColumns || c.role >= partColumn && c.role <= migColumn
		l.partsOnly = l.partsOnly || c.scope == partitions
		if c.max = c.signal.limit(); c.max == 0 {
			c.max = math.Inf(1)
		}
	}
}

// noteUnknown records the ignored columns.
func (l *layout) noteUnknown(header []string) {
	for i, name := range header {
		if l.columns[i].role == ignored {
			l.unknown = append(l.unknown, strings.TrimSpace(name))
		}
	}
}

// findLabels finds the columns of time, machine and GPU in tables of exported metrics with labels.
// Columns index and device are not used for the GPU: tables have them for other reasons.
func (l *layout) findLabels(header []string, seen map[string]int) {
	at := map[string]int{}
	for i, name := range header {
		if l.columns[i].role == ignored {
			at[stem(name)] = i + 1
		}
	}
	for _, wanted := range []struct {
		column
		labels []string
	}{
		{column{role: timeColumn, name: "time"}, []string{"timestamp"}},
		{column{role: resourceColumn, name: "resource"}, machineLabels},
		{column{role: gpuColumn, name: "gpu"}, gpuLabels},
		{column{role: partColumn, name: partLabel}, []string{partLabel}},
		{column{role: profileColumn, name: "gpu_i_profile"}, []string{"gpu_i_profile"}},
		{column{role: modeColumn, name: "gpu_compute_partition_type"}, []string{"gpu_compute_partition_type"}},
		{column{role: partitionColumn, name: "gpu_partition_id"}, []string{"gpu_partition_id"}},
		{column{role: serialColumn, name: "serial_number"}, []string{"serial_number"}},
		{column{role: modelColumn, name: "card_series"}, []string{"card_series", "card_model"}},
		{
			column{role: migColumn, name: "dcgm_fi_dev_mig_mode"},
			[]string{"dcgm_fi_dev_mig_mode", "nvidia_smi_mig_mode_current"},
		},
	} {
		for _, label := range wanted.labels {
			if i := at[label]; i > 0 && seen[wanted.name] == 0 && label != "index" && label != "device" {
				l.columns[i-1] = wanted.column
				seen[wanted.name] = i
			}
		}
	}
}

// nativeColumn recognizes a column by our name or by a metric's.
func nativeColumn(name string) (column, bool) {
	if c, ok := columnNamed(strings.ToLower(name)); ok {
		return c, true
	}
	if m, ok := LookupMetric(name); ok {
		return column{
			role: signalColumn, name: m.Signal.String(), signal: m.Signal, scale: m.Scale, scope: m.scope,
		}, true
	}
	return column{}, false
}

// quoteAll quotes the first names of a header.
func quoteAll(names []string) string {
	const most = 12
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.60q", n)
	}
	return b.String()
}

// fail returns an error at a line and column of the file.
func (f Format) fail(line, column int, format string, args ...any) *FileError {
	return &FileError{File: f.Name, Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
}
