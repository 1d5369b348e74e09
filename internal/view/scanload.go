package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/finding"
)

// Bounds of a stored audit: bytes, and keys and values.
const (
	maxAudit       = 512 << 20
	maxAuditValues = 32_000_000
)

// LoadScan reads a stored audit strictly: unknown fields, another schema, anything
// after the document, amounts in another form, and findings that could not be
// acted on safely (no id or two with the same, no rule, no resource, an unknown
// risk, undo or confidence) are errors.
func LoadScan(r io.Reader) (Scan, error) {
	const name = "the audit"
	src, err := document.Read(name, r, maxAudit)
	if err == nil {
		err = document.CheckJSON(name, src, maxAuditValues)
	}
	if err != nil {
		return Scan{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.DisallowUnknownFields()
	var d Scan
	if err := dec.Decode(&d); err != nil {
		return Scan{}, fmt.Errorf("read the audit: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Scan{}, errors.New("read the audit: something follows the document")
	}
	if err := d.check(); err != nil {
		return Scan{}, fmt.Errorf("read the audit: %w", err)
	}
	return d, nil
}

func (d *Scan) check() error {
	if d.Schema != ScanSchema {
		return fmt.Errorf("its schema is %q and this version reads %q: scan again", d.Schema, ScanSchema)
	}
	if d.Cloud == "" {
		return errors.New("cloud is missing")
	}
	for name, t := range map[string]*time.Time{"started_at": &d.StartedAt, "finished_at": &d.FinishedAt} {
		if t.IsZero() {
			return fmt.Errorf("%s is missing", name)
		}
		*t = t.UTC()
	}
	if d.Billed != nil {
		d.Billed.Start, d.Billed.End = d.Billed.Start.UTC(), d.Billed.End.UTC()
	}
	seen := make(map[string]bool, len(d.Findings))
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.ID == "" || seen[f.ID] {
			return fmt.Errorf("finding %d: its id %q is missing or not its own", i+1, f.ID)
		}
		seen[f.ID] = true
		if err := f.Check(); err != nil {
			return fmt.Errorf("finding %s: %w", f.ID, err)
		}
	}
	for i, s := range d.Steps {
		if s.Step < int(finding.StepMeasure) || s.Step > int(finding.StepCommit) {
			return fmt.Errorf("step %d of the list: %d is not a step", i+1, s.Step)
		}
	}
	return nil
}

// Check returns an error if a stored finding lacks a field that a safe action needs.
func (f *Finding) Check() error {
	var missing []string
	for name, v := range map[string]string{
		"rule": f.Rule, "resource.id": f.Resource.ID, "resource.kind": f.Resource.Kind,
		"resource.cloud":    f.Resource.Cloud,
		"resource.lifetime": f.Resource.Lifetime, "resource.purpose": f.Resource.Purpose, "fix.action": f.Fix.Action,
	} {
		if v == "" {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) > 0:
		return errors.New(strings.Join(sorted(missing), ", ") + " missing")
	case f.Step < int(finding.StepMeasure) || f.Step > int(finding.StepCommit):
		return fmt.Errorf("%d is not a step", f.Step)
	case !level(f.Confidence) || f.Confidence == finding.None:
		return fmt.Errorf("its confidence is %q: low, medium or high is expected", f.Confidence)
	case !level(f.Fix.Risk):
		return fmt.Errorf("the risk of its fix is %q: none, low, medium or high is expected", f.Fix.Risk)
	case f.Fix.Undo != finding.UndoFull && f.Fix.Undo != finding.UndoPartial && f.Fix.Undo != finding.UndoNone:
		return fmt.Errorf("the undo of its fix is %q: full, partial or none is expected", f.Fix.Undo)
	case !f.MonthlySavingsUSD.Known() && f.SavingsUnknown == "":
		return errors.New("monthly_savings_usd is null without a reason in savings_unknown")
	}
	return nil
}

func level(l finding.Level) bool {
	return l == finding.None || l == finding.Low || l == finding.Medium || l == finding.High
}
