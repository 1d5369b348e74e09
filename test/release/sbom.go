package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
)

// allowed are the SPDX identifiers of acceptable licenses for linked modules: those that only
// require a notice, and MPL-2.0, whose conditions concern changes of its files.
var allowed = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unicode-DFS-2016",
	"Unlicense", "Zlib",
}

// reviewed maps the SHA-256 of texts that are no SPDX license to their summary.
var reviewed = map[string]string{
	"8438c9c89b849131ead81d5435cb97fcf052df5b0b286dda8a2d4c29e6cb3fd0": "Public domain (SQLite)",
	"5ae5bee3072a841376451b48d8cfcec7188e10543926d5870828d36c8a750dc5": "", // source of the logo in the README
}

// bom is a software bill of materials in the form of CycloneDX 1.5.
type bom struct {
	BOMFormat   string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Licenses   []license  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type license struct {
	License struct {
		// ID is an SPDX identifier; Name is used for other licenses.
		ID   string `json:"id,omitempty"`
		Name string `json:"name,omitempty"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// writeSBOMs writes a bill of materials next to each binary of a folder.
func writeSBOMs(dir, version string, date time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), "curfew_") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		b, err := billOf(info, version, date)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		data, err := json.MarshalIndent(b, "", "  ")
		if err == nil {
			err = os.WriteFile(path+".cdx.json", append(data, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// billOf lists the modules of a binary. A module whose license is unknown or not allowed is an
// error.
func billOf(info *debug.BuildInfo, version string, date time.Time) (bom, error) {
	b := bom{BOMFormat: "CycloneDX", SpecVersion: "1.5", Version: 1}
	b.Metadata.Timestamp = date.Format(time.RFC3339)
	b.Metadata.Component = component{
		Type: "application", Name: info.Main.Path, Version: version,
		PURL: "pkg:golang/" + info.Main.Path + "@" + version,
	}
	modules := make([]*debug.Module, len(info.Deps))
	for i, m := range info.Deps {
		if modules[i] = m; m.Replace != nil {
			modules[i] = m.Replace
		}
	}
	dirs, err := moduleDirs(modules)
	if err != nil {
		return b, err
	}
	std := strings.TrimPrefix(info.GoVersion, "go")
	b.Components = append(b.Components, component{
		Type: "library", Name: "std", Version: std, PURL: "pkg:golang/std@" + std,
		Licenses: licenses([]string{"BSD-3-Clause"}),
	})
	var refused []error
	for _, m := range modules {
		ids, err := licensesIn(dirs[m.Path+"@"+m.Version])
		if err != nil {
			refused = append(refused, fmt.Errorf("%s@%s: %w", m.Path, m.Version, err))
		}
		b.Components = append(b.Components, component{
			Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version,
			Licenses: licenses(ids), Properties: []property{{"go:sum", m.Sum}}})
	}
	slices.SortFunc(b.Components, func(x, y component) int { return cmp.Compare(x.Name, y.Name) })
	return b, errors.Join(refused...)
}

// moduleDirs returns the source folders of modules.
func moduleDirs(modules []*debug.Module) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.Path+"@"+m.Version)
	}
	cmd := exec.Command("go", args...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the sources of modules: %w: %s", err, &failed)
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("find the sources of modules: %w", err)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}

// licenseFile matches the names of license files.
var licenseFile = regexp.MustCompile(`^(?i)(licen[cs]e|copying|unlicense)(-[^.]*)?([.](txt|md|rst|html))?$`)

// licensesIn returns the licenses of a module, sorted by name.
func licensesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if !licenseFile.MatchString(e.Name()) || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if name, ok := reviewed[fmt.Sprintf("%x", sha256.Sum256(text))]; ok {
			if name != "" {
				ids = append(ids, name)
			}
			continue
		}
		found := licensecheck.Scan(text)
		if len(found.Match) == 0 {
			return nil, fmt.Errorf("the license in %s is unknown", e.Name())
		}
		for _, m := range found.Match {
			if !slices.Contains(allowed, m.ID) {
				return nil, fmt.Errorf("license %s in %s is none of %s", m.ID, e.Name(), strings.Join(allowed, ", "))
			}
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("it has no license")
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func licenses(ids []string) []license {
	list := make([]license, len(ids))
	for i, id := range ids {
		if slices.Contains(allowed, id) {
			list[i].License.ID = id
		} else {
			list[i].License.Name = id
		}
	}
	return list
}
