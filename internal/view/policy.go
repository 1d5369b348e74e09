package view

import (
	"cmp"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// Schemas of documents about policies.
const (
	PolicyCheckSchema   = "curfew.policycheck/v1"
	PolicyTestSchema    = "curfew.policytest/v1"
	PolicyExplainSchema = "curfew.policyexplain/v1"
)

// PolicyCheck lists effects of valid policies that may be unintended.
type PolicyCheck struct {
	Schema   string           `json:"schema"`
	Policies int              `json:"policies"`
	Warnings []policy.Caution `json:"warnings"`
	// Against lists the resources of the last scan that the policies could act on, on request.
	Against *PolicyReach `json:"against,omitempty"`
}

// PolicyReach lists the resources of a kept scan that policies could act on.
type PolicyReach struct {
	Cloud     string              `json:"cloud"`
	At        time.Time           `json:"at"`
	Resources int                 `json:"resources"`
	Policies  []round.PolicyReach `json:"policies"`
}

// NewPolicyCheck returns the document of a check.
func NewPolicyCheck(set *policy.Set, warnings []policy.Caution, against *PolicyReach) PolicyCheck {
	return PolicyCheck{
		Schema: PolicyCheckSchema, Policies: len(set.Policies), Warnings: append([]policy.Caution{}, warnings...),
		Against: against,
	}
}

// PolicyTest is the outcome of test cases.
type PolicyTest struct {
	Schema string       `json:"schema"`
	Cases  []PolicyCase `json:"cases"`
	// Failed is how many cases failed.
	Failed int `json:"failed"`
}

// PolicyCase is the outcome of one case. Failures state the wanted and the actual result.
type PolicyCase struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Name is the name of the case.
	Name string `json:"name"`
	// Passed reports whether it passed.
	Passed bool `json:"passed"`
	// Failures are the differences from the expectation.
	Failures []string `json:"failures"`
}

// NewPolicyTest returns a document without cases.
func NewPolicyTest() PolicyTest { return PolicyTest{Schema: PolicyTestSchema, Cases: []PolicyCase{}} }

// Add adds the outcomes of the cases of a file.
func (t *PolicyTest) Add(file string, results []policy.CaseResult) {
	for _, r := range results {
		t.Cases = append(t.Cases, PolicyCase{file, r.Line, r.Name, r.Passed(), append([]string{}, r.Failures...)})
		if !r.Passed() {
			t.Failed++
		}
	}
}

// PolicyExplain has the answer of every policy about one resource, and the reasons.
type PolicyExplain struct {
	Schema   string `json:"schema"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Type     string `json:"type,omitempty"`
	Name     string `json:"name"`
	Region   string `json:"region,omitempty"`
	// Duty is the duty of the resource by its newest samples, which policies act on; absent where
	// none is known.
	Duty *ExplainedDuty `json:"duty,omitempty"`
	// Audit is the verdict of an audit over AuditWindow, which may differ from Duty; absent of what
	// audits do not judge, and of a trace.
	Audit       *ExplainedDuty    `json:"audit,omitempty"`
	AuditWindow Duration          `json:"audit_window,omitempty"`
	Policies    []ExplainedPolicy `json:"policies"`
}

// ExplainedDuty is the duty of a resource, its duration and its evidence.
type ExplainedDuty struct {
	State string `json:"state"`
	// LastingSeconds is how long it has lasted in seconds.
	LastingSeconds float64 `json:"lasting_seconds"`
	Why            string  `json:"why"`
}

// Lasting is how long the state has lasted.
func (d *ExplainedDuty) Lasting() time.Duration {
	return time.Duration(d.LastingSeconds * float64(time.Second))
}

// ExplainedPolicy is the answer of one policy. Next is when it may change by itself; null is
// never.
type ExplainedPolicy struct {
	Policy string `json:"policy"`
	// Answer is true, false or unknown.
	Answer string `json:"answer"`
	// Parts are the parts of the condition.
	Parts []ExplainedPart `json:"parts"`
	// Next is when the answer can change.
	Next *time.Time `json:"next"`
}

// ExplainedPart is one part of a policy with its answer and the fact that decided it.
type ExplainedPart struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Answer is true, false or unknown.
	Answer string `json:"answer"`
	Why    string `json:"why"`
}

// SetAudit adds the verdict of an audit over a window.
func (doc *PolicyExplain) SetAudit(v duty.Verdict, window time.Duration) {
	doc.Audit = &ExplainedDuty{v.State.String(), v.Duration.Seconds(), cmp.Or(v.Why, unmeasuredWhy)}
	doc.AuditWindow = Duration(plain.Duration(window))
}

// NewPolicyExplain asks every policy about a resource.
func NewPolicyExplain(set *policy.Set, facts *policy.Facts) PolicyExplain {
	r := facts.Resource
	doc := PolicyExplain{
		Schema: PolicyExplainSchema, Resource: r.Ref().String(), Kind: string(r.Kind), Type: r.Type,
		Name: cmp.Or(r.Name, r.ID), Region: r.Region,
		Policies: []ExplainedPolicy{}}
	if d := facts.Duty; d != nil {
		doc.Duty = &ExplainedDuty{d.State.String(), d.Duration.Seconds(), d.Why}
	}
	for _, p := range set.Policies {
		o := p.Explain(facts)
		e := ExplainedPolicy{Policy: p.Name, Answer: o.Answer.String(), Parts: []ExplainedPart{}}
		if !o.Next.IsZero() {
			next := o.Next.UTC()
			e.Next = &next
		}
		for _, part := range o.Parts {
			e.Parts = append(e.Parts, ExplainedPart{part.Name, part.Text, part.Answer.String(), part.Why})
		}
		doc.Policies = append(doc.Policies, e)
	}
	return doc
}
