package billfile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Exports that write each run into a new folder below the folder of their month,
// YYYYMMDD-YYYYMMDD, and expect readers to take the newest run:
//
//   - Azure Cost Management: EXPORT/20261001-20261031/RUN/ID/ with manifest.json, where
//     dataOverwriteBehavior is CreateNewReport (learn.microsoft.com, "Tutorial: Create and
//     manage Cost Management exports", "Manifest file").
//   - The legacy AWS Cost and Usage Report: REPORT/20261001-20261101/ASSEMBLY/, with a
//     manifest in the folder of the month that names the current assembly (AWS Data Exports
//     User Guide, "Viewing your Cost and Usage Reports in Amazon S3").

// run is one delivery of a month: the files of one folder.
type run struct {
	folder   string
	parts    []part
	manifest *part
	listed   manifest
}

// month is a folder YYYYMMDD-YYYYMMDD with its runs, by their folders below it. The empty folder
// holds the files of the month's folder itself.
type month struct {
	name string
	runs map[string]*run
}

// monthFolder returns the path of the month's folder that a folder is or is in, and the rest
// of the path.
func monthFolder(dir string) (month, rest string, ok bool) {
	segments := strings.Split(strings.Trim(dir, "/"), "/")
	for i, s := range slices.Backward(segments) {
		from, to, ok := strings.Cut(s, "-")
		if !ok || !isDate(from) || !isDate(to) || to < from {
			continue
		}
		return strings.Join(segments[:i+1], "/"), strings.Join(segments[i+1:], "/"), true
	}
	return "", "", false
}

func isDate(s string) bool {
	_, err := time.Parse("20060102", s)
	return err == nil
}

// sortDeliveries takes the files in folders of months out of the loose ones, and returns the
// months with more than loose files.
func sortDeliveries(found []part) (loose []part, months map[string]*month) {
	months = map[string]*month{}
	for i := range found {
		p := found[i]
		dir, file := path.Split(strings.ReplaceAll(p.name, `\`, "/"))
		isManifest := strings.HasSuffix(strings.ToLower(file), "manifest.json")
		key, folder, ok := monthFolder(dir)
		if !ok || (!isManifest && !isBill(file)) || (folder == "" && !isManifest) {
			if isBill(file) {
				loose = append(loose, p)
			}
			continue
		}
		m := months[key]
		if m == nil {
			m = &month{name: path.Base(key), runs: map[string]*run{}}
			months[key] = m
		}
		r := m.runs[folder]
		if r == nil {
			r = &run{folder: folder}
			m.runs[folder] = r
		}
		if isManifest {
			r.manifest = &p
		} else {
			r.parts = append(r.parts, p)
		}
	}
	return loose, months
}

// takeMonth adds the files of a month's newest run. A run without a manifest is not complete,
// where other runs have one.
func (e *Export) takeMonth(ctx context.Context, key string, m *month, loose *[]part) error {
	var complete, others []*run
	for _, folder := range slices.Sorted(maps.Keys(m.runs)) {
		r := m.runs[folder]
		if r.manifest == nil {
			others = append(others, r)
			continue
		}
		var err error
		if r.listed, err = e.manifest(ctx, r.manifest.name); err != nil {
			return err
		}
		complete = append(complete, r)
	}
	newest := func(runs []*run) *run {
		return slices.MaxFunc(runs, func(x, y *run) int {
			return cmp.Or(x.began().Compare(y.began()), cmp.Compare(x.folder, y.folder))
		})
	}
	if top := m.runs[""]; top != nil && top.manifest != nil && len(top.listed.ReportKeys) > 0 {
		return e.takeAssembly(m, top, key, loose)
	}
	if len(complete) == 0 {
		if slices.ContainsFunc(others, func(r *run) bool { return runTime(r.folder).IsZero() }) {
			for _, r := range others { // which one is the newest is unknown: an overlap is refused
				e.parts = append(e.parts, r.parts...)
			}
			return nil
		}
		last := newest(others)
		e.leaveAside(m, others, last)
		e.deliver(key, last.parts)
		return nil
	}
	for _, r := range others {
		if len(r.parts) > 0 {
			e.Notes = append(e.Notes,
				fmt.Sprintf("run %s of %s left aside: its manifest, which arrives last, is not there",
					r.folder, m.name))
		}
	}
	byExport := map[string][]*run{}
	for _, r := range complete {
		name := r.listed.ExportConfig.ExportName
		byExport[name] = append(byExport[name], r)
	}
	for _, name := range slices.Sorted(maps.Keys(byExport)) {
		runs := byExport[name]
		last := newest(runs)
		e.leaveAside(m, runs, last)
		if err := last.check(); err != nil {
			return err
		}
		e.deliver(key+"\x00"+name, last.parts)
	}
	return nil
}

// takeAssembly adds the files that the manifest of a legacy Cost and Usage Report names. Those
// of its Parquet form lie elsewhere, in folders year=2026/month=10, and are taken out of loose.
func (e *Export) takeAssembly(m *month, top *run, key string, loose *[]part) error {
	wanted, folders := map[string]bool{}, map[string]bool{}
	for _, k := range top.listed.ReportKeys {
		wanted[tail(k)] = false
		folders[path.Dir(tail(k))] = true
	}
	var parts []part
	surplus := 0
	take := func(p part, listed bool) (taken bool) {
		name := tail(p.name)
		if _, ok := wanted[name]; ok {
			wanted[name] = true
			parts = append(parts, p)
			return true
		}
		if listed || folders[path.Dir(name)] {
			surplus++
			return true
		}
		return false
	}
	for _, folder := range slices.Sorted(maps.Keys(m.runs)) {
		for _, p := range m.runs[folder].parts {
			take(p, true)
		}
	}
	*loose = slices.DeleteFunc(*loose, func(p part) bool { return take(p, false) })
	for _, k := range top.listed.ReportKeys {
		if !wanted[tail(k)] {
			return missingFile(top.manifest.name, k)
		}
	}
	if surplus > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s of earlier assemblies of %s left aside: its manifest names %s",
			files(surplus), m.name, top.listed.AssemblyID))
	}
	e.deliver(key, parts)
	return nil
}

// tail returns the last three parts of a path, which stay the same wherever an export is copied
// to: the month, the assembly and the file.
func tail(name string) string {
	parts := strings.Split(strings.ReplaceAll(name, `\`, "/"), "/")
	return strings.Join(parts[max(0, len(parts)-3):], "/")
}

// check reports whether the files that a run's manifest lists are all there, in the listed size.
func (r *run) check() error {
	sizes := map[string]int64{}
	for _, p := range r.parts {
		sizes[path.Base(strings.ReplaceAll(p.name, `\`, "/"))] = p.size
	}
	for _, b := range r.listed.Blobs {
		size, ok := sizes[path.Base(b.BlobName)]
		switch {
		case !ok && isBill(path.Base(b.BlobName)):
			return missingFile(r.manifest.name, b.BlobName)
		case ok && b.ByteCount > 0 && size != b.ByteCount:
			return &Error{File: r.manifest.name, Reason: fmt.Sprintf(
				"%s has %d bytes and not the %d that the manifest lists: copy it again",
				b.BlobName, size, b.ByteCount)}
		}
	}
	return nil
}

// leaveAside names the runs that a newer one replaces.
func (e *Export) leaveAside(m *month, runs []*run, last *run) {
	var names []string
	for _, r := range runs {
		if r != last {
			names = append(names, r.folder)
		}
	}
	if len(names) > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s of %s left aside, which run %s replaces: %s",
			plain.Count(len(names), "earlier run"), m.name, last.folder, strings.Join(names, ", ")))
	}
}

// deliver adds the files of one delivery, which belong together.
func (e *Export) deliver(delivery string, parts []part) {
	for _, p := range parts {
		p.delivery = delivery
		e.parts = append(e.parts, p)
	}
}

// began returns when a run began by its manifest, else by the name of its folder.
func (r *run) began() time.Time {
	if t, err := time.Parse(time.RFC3339, r.listed.RunInfo.SubmittedTime); err == nil {
		return t.UTC()
	}
	return runTime(r.folder)
}

// runTime returns when a run began by the name of its folder (202610050610), or the zero
// time.
func runTime(folder string) time.Time {
	name, _, _ := strings.Cut(folder, "/")
	for _, layout := range []string{"200601021504", "20060102150405", "20060102T150405Z"} {
		if t, err := time.Parse(layout, name); err == nil {
			return t
		}
	}
	return time.Time{}
}

func missingFile(manifest, name string) error {
	return &Error{File: manifest, Reason: fmt.Sprintf(
		"it lists %s, which is not there: wait until the export is delivered, or copy all of it", name)}
}
