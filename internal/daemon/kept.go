package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
)

// Kept is a finding of a kept scan.
type Kept struct {
	view.Finding
	Scanned time.Time
	// Regions are those of the scan.
	Regions []string
}

// Choose finds findings by the beginnings of their ids, each once.
func Choose(dataDir string, ids []string) ([]Kept, error) {
	all, err := KeptFindings(dataDir)
	if err != nil {
		return nil, err
	}
	var chosen []Kept
	for _, id := range ids {
		var match []Kept
		for _, s := range all {
			if id != "" && strings.HasPrefix(s.ID, strings.ToLower(id)) {
				match = append(match, s)
			}
		}
		switch {
		case len(match) == 0:
			return nil, &Error{Code: "not_found", Err: fmt.Errorf("no finding of the last scan has an id that begins with %q", id), Hint: "curfew scan --all shows them"}
		case len(match) > 1:
			return nil, invalid("%q is the beginning of %d findings: give more of the id", id, len(match))
		}
		if !slices.ContainsFunc(chosen, func(s Kept) bool { return s.ID == match[0].ID }) {
			chosen = append(chosen, match[0])
		}
	}
	return chosen, nil
}

// KeptScans reads the last scan of every cloud.
func KeptScans(dataDir string) ([]view.Scan, error) {
	files, err := filepath.Glob(filepath.Join(dataDir, "scans", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("look for kept scans: %w", err)
	}
	if dataDir == "" || len(files) == 0 {
		return nil, &Error{Code: "no_scan", Err: errors.New("there is no kept scan to look in"), Hint: "run `curfew scan` first"}
	}
	var out []view.Scan
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a kept scan: %w", err)
		}
		doc, err := view.LoadScan(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, &Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("%s: %w", name, err), Hint: "run `curfew scan` again"}
		}
		out = append(out, doc)
	}
	return out, nil
}

// KeptFindings lists the findings of the last scan of every cloud.
func KeptFindings(dataDir string) ([]Kept, error) {
	docs, err := KeptScans(dataDir)
	if err != nil {
		return nil, err
	}
	var out []Kept
	for _, doc := range docs {
		for _, found := range doc.Findings {
			out = append(out, Kept{Finding: found, Scanned: doc.FinishedAt, Regions: doc.Regions})
		}
	}
	return out, nil
}

// Resolve finds the resource that a person means: a whole identity, or an id or name
// that exactly one resource of the kept scans has. An identity needs no scan.
func (rt *Runtime) Resolve(cfg config.Config, name string) (inventory.Ref, error) {
	if parts := strings.SplitN(name, "/", 5); len(parts) == 5 && (parts[0] == "aws" || parts[0] == "sim") {
		if !inventory.Kind(parts[3]).Valid() || parts[1] == "" || parts[4] == "" {
			return inventory.Ref{}, invalid("%q is not the identity of a resource: %s/ACCOUNT/REGION/KIND/ID with a kind such as instance or volume", name, parts[0])
		}
		return inventory.Ref{Cloud: parts[0], Account: parts[1], Region: parts[2], Kind: inventory.Kind(parts[3]), ID: parts[4]}, nil
	}
	all, err := keptResources(cfg.DataDir)
	if err != nil {
		return inventory.Ref{}, err
	}
	var match []inventory.Ref
	var names []string
	for _, r := range all {
		names = append(names, r.ID, r.Name)
		if (r.ID == name || r.Name == name) && !slices.Contains(match, r.Ref) {
			match = append(match, r.Ref)
		}
	}
	switch len(match) {
	case 1:
		return match[0], nil
	case 0:
		return inventory.Ref{}, &Error{Code: "not_found", Err: fmt.Errorf("no resource that curfew has seen has the id or name %q%s", name, document.DidYouMean(name, names)),
			Hint: "give the whole identity: aws/123456789012/us-east-1/instance/i-0abc"}
	}
	return inventory.Ref{}, invalid("%q is the name of %d resources: give the id, or the whole identity such as %s", name, len(match), match[0])
}

// seen is a resource of a kept scan.
type seen struct {
	inventory.Ref
	Name string
}

// keptResources lists what the kept scans' findings and inventories name.
func keptResources(dataDir string) ([]seen, error) {
	var out []seen
	all, err := Inventories(dataDir)
	if err != nil {
		return nil, err
	}
	for _, kept := range all {
		for _, r := range kept.Resources {
			out = append(out, seen{r.Ref, r.Name})
		}
	}
	docs, err := KeptScans(dataDir)
	var f *Error
	if errors.As(err, &f) && f.Code == "no_scan" {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		for _, found := range d.Findings {
			out = append(out, seen{RefOf(found.Resource), found.Resource.Name})
		}
	}
	return out, nil
}

// RefOf is the identity of a resource in a document.
func RefOf(r view.Resource) inventory.Ref {
	return inventory.Ref{Cloud: r.Cloud, Account: r.Account, Region: r.Region, Kind: inventory.Kind(r.Kind), ID: r.ID}
}

// ReachAgain adds to the flags what kept scans know of how these resources are reached.
func ReachAgain(cfg config.Config, f *Source, docs []view.Scan, refs []inventory.Ref) {
	for _, d := range docs {
		for _, ref := range refs {
			if d.Cloud != ref.Cloud || !slices.Contains(d.Accounts, ref.Account) {
				continue
			}
			f.Profile = cmp.Or(f.Profile, d.Profile)
			if len(f.AssumeRoles) == 0 {
				f.AssumeRoles = slices.Clone(cfg.AWS.AssumeRoles)
			}
			if role := d.Roles[ref.Account]; role != "" && !slices.Contains(f.AssumeRoles, role) {
				f.AssumeRoles = append(f.AssumeRoles, role)
			}
		}
	}
}
