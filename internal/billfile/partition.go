package billfile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// location is the place of a folder within an export of AWS Data Exports (User Guide,
// "Understanding export delivery"): prefix/export/data/BILLING_PERIOD=YYYY-MM/ and
// prefix/export/metadata/BILLING_PERIOD=YYYY-MM/, with a folder for each execution below
// where exports are not overwritten.
type location int

const (
	elsewhere location = iota
	inData
	inMetadata
)

// periodFolder begins the name of a partition's folder, in lower case.
const periodFolder = "billing_period="

// place returns the location of a folder and its partition: the part of the path before data or
// metadata, and the period.
func place(dir string) (location, string, time.Time) {
	segments := strings.Split(strings.Trim(dir, "/"), "/")
	for i := len(segments) - 1; i > 0; i-- {
		month, ok := strings.CutPrefix(strings.ToLower(segments[i]), periodFolder)
		if !ok {
			continue
		}
		start, err := time.Parse("2006-01", month)
		if err != nil {
			return elsewhere, "", time.Time{}
		}
		key := strings.Join(segments[:i-1], "/") + "\x00" + month
		switch segments[i-1] {
		case "data":
			return inData, key, start
		case "metadata":
			return inMetadata, key, start
		}
	}
	return elsewhere, "", time.Time{}
}

// partition is one billing period of one export.
type partition struct {
	start     time.Time
	parts     []part
	manifests []part
}

func at(partitions map[string]*partition, key string, start time.Time) *partition {
	p := partitions[key]
	if p == nil {
		p = &partition{start: start}
		partitions[key] = p
	}
	return p
}

func sorted(partitions map[string]*partition) []string {
	return slices.Sorted(maps.Keys(partitions))
}

// maxManifest bounds a manifest; one lists at most some thousands of files.
const maxManifest = 64 << 20

// take adds the files of a partition that its manifest lists. Where executions have
// folders of their own, the last execution counts.
func (e *Export) take(ctx context.Context, p *partition) error {
	month := p.start.Format("2006-01")
	if len(p.manifests) == 0 {
		e.Notes = append(e.Notes,
			fmt.Sprintf("the period %s is left aside: its manifest, which arrives last, is not there",
				month))
		return nil
	}
	manifest := slices.MaxFunc(p.manifests, func(x, y part) int { return strings.Compare(x.name, y.name) })
	content, err := e.manifest(ctx, manifest.name)
	if err != nil {
		return err
	}
	listed := content.DataFiles
	e.starts = append(e.starts, p.start)
	wanted := make(map[string]bool, len(listed))
	for _, l := range listed {
		wanted[within(l)] = false
	}
	surplus := 0
	for _, f := range p.parts {
		name := within(f.name)
		if _, ok := wanted[name]; !ok && (len(listed) > 0 || path.Dir(name) != path.Dir(within(manifest.name))) {
			surplus++
			continue
		}
		wanted[name] = true
		if f.size > 0 { // chunks that an overwritten export needs no more are blanked
			f.delivery = manifest.name
			e.parts = append(e.parts, f)
		}
	}
	for _, l := range listed {
		if !wanted[within(l)] {
			return missingFile(manifest.name, l)
		}
	}
	if surplus > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s of the period %s that the manifest does not list left aside",
			files(surplus), month))
	}
	return nil
}

// within returns a file's path from its partition's folder on, which stays the same
// wherever an export is copied to.
func within(name string) string {
	name = strings.ReplaceAll(name, `\`, "/")
	if i := strings.LastIndex(strings.ToLower(name), periodFolder); i >= 0 {
		return name[i:]
	}
	return path.Base(name)
}

// manifest has the fields of export manifests that are read.
type manifest struct {
	// DataFiles are those of AWS Data Exports, empty if it lists none by name.
	DataFiles []string `json:"dataFiles"`
	// AssemblyID and ReportKeys are those of the legacy AWS Cost and Usage Report.
	AssemblyID string   `json:"assemblyId"`
	ReportKeys []string `json:"reportKeys"`
	// The rest is that of Azure Cost Management.
	ExportConfig struct {
		ExportName string `json:"exportName"`
	} `json:"exportConfig"`
	RunInfo struct {
		SubmittedTime string `json:"submittedTime"`
	} `json:"runInfo"`
	Blobs []struct {
		BlobName  string `json:"blobName"`
		ByteCount int64  `json:"byteCount"`
	} `json:"blobs"`
}

// manifest reads a manifest.
func (e *Export) manifest(ctx context.Context, name string) (manifest, error) {
	var m manifest
	r, err := e.store.open(ctx, name)
	if err != nil {
		return m, fmt.Errorf("open %s: %w", name, err)
	}
	defer closed(r)
	text, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return m, &Error{File: name, Reason: "the manifest cannot be read", Err: err}
	}
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &m); err != nil {
		return m, &Error{File: name, Reason: "the manifest is not valid JSON", Err: err}
	}
	return m, nil
}
