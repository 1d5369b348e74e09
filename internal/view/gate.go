package view

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
)

// EstimateSchema names the shape of [Estimate], GateSchema that of [Gate] and
// GateReportSchema that of [GateReport].
const (
	EstimateSchema   = "curfew.estimate/v1"
	GateSchema       = "curfew.gate/v1"
	GateReportSchema = "curfew.gate.report/v1"
)

// Estimate is the output of `estimate`.
type Estimate struct {
	Schema string `json:"schema"`
	*estimate.Estimate
}

// NewEstimate makes the document of an estimate.
func NewEstimate(e *estimate.Estimate) Estimate { return Estimate{EstimateSchema, listed(e)} }

// listed is an estimate whose lists are never null.
func listed(e *estimate.Estimate) *estimate.Estimate {
	if e == nil || e.Unknown != nil {
		return e
	}
	out := *e
	out.Unknown = []string{}
	return &out
}

// Gate is the output of `gate`: the estimate and the decision.
type Gate struct {
	*estimate.Estimate
	Schema   string   `json:"schema"`
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
	// ApprovalID is the waiting or used request, HoldID the budget reservation; null if there is
	// none.
	ApprovalID *string `json:"approval_id"`
	HoldID     *string `json:"hold_id"`
	// DryRun reports whether nothing was changed.
	DryRun bool `json:"dry_run"`
	// WouldPass are alternatives to a denied plan that pass.
	WouldPass []gate.Way `json:"would_pass"`
	// UnusedHolds are reservations for the same work without a charge.
	UnusedHolds []string `json:"unused_holds"`
	// Approvers may approve the request.
	Approvers []string `json:"approvers"`
	// Settings is the configuration that decided.
	Settings Decider `json:"settings"`

	Budget []gate.Line `json:"budget"`
}

// Decider is the configuration that a decision is based on.
type Decider struct {
	// Source is "shared" or "local"; a local configuration is advisory, because the person
	// who asks can change it.
	Source  string `json:"source"`
	Version int64  `json:"version,omitempty"`
	Hash    string `json:"hash"`
	// Prices is the version of the shared prices.
	Prices int64 `json:"prices_version,omitempty"`
	// Advisory reports whether a local configuration decided, which the person who asks can change.
	Advisory bool `json:"advisory"`
}

// String names the configuration, for records and people.
func (d Decider) String() string {
	if d.Advisory {
		return "local " + d.Hash
	}
	return fmt.Sprintf("shared %d, prices %d, %s", d.Version, d.Prices, d.Hash)
}

// NewGate makes the document of a decision.
func NewGate(e *estimate.Estimate, d gate.Decision, approvers []string, by Decider, dryRun bool) Gate {
	return Gate{
		Estimate: listed(e), Schema: GateSchema, Decision: string(d.Decision), Reasons: d.Reasons,
		Budget:     append([]gate.Line{}, d.Budget...),
		ApprovalID: optionalText(d.ApprovalID), HoldID: optionalText(d.HoldID), DryRun: dryRun,
		WouldPass:   append([]gate.Way{}, d.WouldPass...),
		UnusedHolds: append([]string{}, d.Unused...), Approvers: append([]string{}, approvers...), Settings: by}
}

// optionalText returns a text for a document, or nil if it is empty.
func optionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// GateReport is the output of `gate report`. Shares and waits are null if nothing was asked or
// answered.
type GateReport struct {
	Schema string `json:"schema"`
	gate.Report
	// AskedShare is the share of runs that needed an approval.
	AskedShare *float64 `json:"asked_share"`
	// WaitP50 is the median of the waits in seconds.
	WaitP50 *float64 `json:"wait_p50_seconds"`
	// WaitP95 is the 95th percentile of the waits in seconds.
	WaitP95 *float64 `json:"wait_p95_seconds"`
}

// NewGateReport makes the document of a report.
func NewGateReport(r gate.Report) GateReport {
	r.Assumptions, r.CoverageNotes, r.Changes = Lines(r.Assumptions), Lines(r.CoverageNotes), Lines(r.Changes)
	d := GateReport{Schema: GateReportSchema, Report: r}
	if share, ok := r.AskedShare(); ok {
		d.AskedShare = &share
	}
	if r.Answered > 0 {
		d.WaitP50, d.WaitP95 = seconds(r.WaitP50), seconds(r.WaitP95)
	}
	return d
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
