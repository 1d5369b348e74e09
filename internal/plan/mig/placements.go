package mig

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	files "github.com/curfew-dev/curfew/internal/plan"
)

// PlacementsFile is a file of today's instances.
var PlacementsFile = files.Layout{
	Required: []files.Column{
		{Name: "gpu", Doc: "id of the GPU for nvidia-smi -i"},
		{Name: "profile", Doc: "MIG profile, such as 1g.10gb"},
		{Name: "start", Doc: "first memory slice"},
	},
	Optional: []files.Column{
		{Name: "workload", Doc: "workload that uses it"},
		{Name: "model", Doc: "model of the GPU"},
		{Name: "instance", Doc: "id of the GPU instance"},
	},
}

// ReadPlacements reads today's instances, in one of three forms:
//
//   - CSV with the columns gpu, profile and start, and any of workload, model and
//     instance;
//   - the table that nvidia-smi mig -lgi prints;
//   - a [Report] as JSON.
//
// GPUs without a model are the fleet's first. Placements that the GPU does not allow
// are errors: unknown profiles, starts the profile does not have, overlaps. Errors
// are a *FileError; in JSON they name the placement instead of a line.
func ReadPlacements(name string, r io.Reader, fleet Fleet) ([]Placed, error) {
	f, err := readFile(name, r)
	if err != nil {
		return nil, err
	}
	l, err := newLayouts(fleet)
	if err != nil {
		return nil, f.fail(0, "%s", err)
	}
	switch bytes.TrimSpace(f.data)[0] {
	case '{':
		return f.report(l)
	case '+', '|':
		return f.listing(l)
	}
	err = files.ReadCSV(name, bytes.NewReader(f.data), PlacementsFile, func(row files.Row) error {
		text := func(column string) string { return strings.Clone(row.Text(column)) }
		start, err := row.Int("start", 0, maxMemorySlices-1)
		if err != nil {
			return err
		}
		p := Placed{
			GPU: text("gpu"), Model: text("model"), Profile: text("profile"), Start: int(start),
			Workload: text("workload"),
			Instance: text("instance"),
		}
		if column, err := l.add(p); err != nil {
			return row.Error(column, "%s %s", column, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l.placed, nil
}

// report reads the placements of a plan.
func (f file) report(l *layouts) ([]Placed, error) {
	var r Report
	d := json.NewDecoder(bytes.NewReader(f.data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		line, column := f.place(d.InputOffset())
		return nil, &FileError{File: f.name, Line: line, Column: column, Reason: "not a plan of " + Schema, Err: err}
	}
	if r.Schema != Schema {
		return nil, f.fail(0, "schema %.60q: expected %s", r.Schema, Schema)
	}
	for i, g := range r.GPUs {
		for j, p := range g.Placements {
			placed := Placed{
				GPU: g.GPU, Model: g.Model, Profile: p.Profile, Start: p.Start,
				Workload: p.Workload, Instance: p.Instance,
			}
			if column, err := l.add(placed); err != nil {
				return nil, f.fail(0, "gpus[%d].placements[%d]: %s %s", i, j, column, err)
			}
		}
	}
	return l.placed, nil
}

// place returns line and column of an offset.
func (f file) place(offset int64) (line, column int) {
	before := f.data[:min(int(offset), len(f.data))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// listing reads "|   0  MIG 3g.40gb   9   2   4:4   |" rows between rules and titles.
func (f file) listing(l *layouts) ([]Placed, error) {
	for i, line := range strings.Split(string(f.data), "\n") {
		fields := strings.Fields(strings.Trim(strings.TrimSpace(line), "|"))
		if len(fields) == 0 || strings.Trim(fields[0], "0123456789") != "" {
			continue // a rule or a title
		}
		if len(fields) != 6 || fields[1] != "MIG" {
			return nil, f.fail(i+1, "expected GPU, MIG, profile, profile id, instance id and start:size")
		}
		start, size, _ := strings.Cut(fields[5], ":")
		from, err := strconv.Atoi(start)
		slices, err2 := strconv.Atoi(size)
		if err != nil || err2 != nil {
			return nil, f.fail(i+1, "placement %.40q is not start:size", fields[5])
		}
		p := Placed{GPU: fields[0], Profile: fields[2], Start: from, Instance: fields[4]}
		if _, err := l.add(p); err != nil {
			return nil, f.fail(i+1, "%s", err)
		}
		if s := l.last(); s != slices {
			return nil, f.fail(i+1, "%s has size %d, the geometry of %s has %d: name another GPU", p.Profile, slices,
				l.modelOf(p.GPU).Name, s)
		}
	}
	return l.placed, nil
}
