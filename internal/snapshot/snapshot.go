// Package snapshot defines what observations of accounts store for later commands: the resources as
// last observed, the history of their states and verdicts, and the findings. Accounts are separate,
// and a part that could not be read stays as last observed.
package snapshot

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Observation is the result of one round for one account.
type Observation struct {
	Cloud, Account string
	// At is the time of the round. An observation older than the stored one of a part does not
	// change that part; its findings count unless a later observation judged the part.
	At    time.Time
	Reach Reach
	// Parts were listed completely: a resource of one of them that is missing from Resources is
	// gone.
	Parts     []Part
	Resources []Resource
	// FindingsComplete is set if Findings are all findings about Parts: an earlier one that is
	// missing has ended. Otherwise earlier findings stay.
	FindingsComplete bool
	Findings         []Finding
	// AuditFindings adds an entry to the audit log for each finding that is new, has another
	// Summary, or has ended.
	AuditFindings bool
}

// Part is the resources of one kind in one region.
type Part struct {
	Region string
	Kind   inventory.Kind
}

// PartOf returns the part of a resource.
func PartOf(r inventory.Ref) Part { return Part{r.Region, r.Kind} }

// Reach is the access to an account, so that later commands use the same.
type Reach struct {
	Profile, Role string
	Regions       []string
}

// Resource is a resource as last observed.
type Resource struct {
	Ref  inventory.Ref
	Name string
	// State is the provider's state ("running"), Duty the duty since DutySince; empty if it was not
	// judged.
	State     string
	Duty      string
	DutySince time.Time
	// Team is the owner's team by tags, and TeamMapping identifies the mapping of tags that gave
	// it. They only serve queries: the store does not return them.
	Team, TeamMapping string
	// Body holds other properties in a form of the caller's.
	Body []byte
	// FirstAt and SeenAt are the times of the first and the last observation, GoneAt the time at
	// which it was found gone; zero if it is not. The store sets them.
	FirstAt, SeenAt, GoneAt time.Time
}

// Finding is a finding with the times of its observations.
type Finding struct {
	ID, Rule string
	Ref      inventory.Ref
	// Summary is the part whose change is worth an audit entry; may be empty.
	Summary string
	// Team is the team of the resource. It only serves queries.
	Team string
	// Body is the finding in a form of the caller's.
	Body []byte
	// FirstAt and LastAt are the times at which it was found first and last, EndedAt the time at
	// which it had ended; zero if it still holds. The store sets them.
	FirstAt, LastAt, EndedAt time.Time
}

// Aspects of a [Change].
const (
	State = "state" // the provider's state: running, stopped, or [Gone]
	Duty  = "duty"  // the duty: busy, idle, unknown
)

// Gone is the state of a resource that does not exist any more.
const Gone = "gone"

// Change starts an interval of a resource, which lasts until the next change of the same Aspect.
type Change struct {
	// At is the time of the observation; Since the start of the interval, zero if unknown.
	At, Since time.Time
	Aspect    string
	Value     string
}

// Account is an observed account.
type Account struct {
	Cloud, ID string
	// At is the time of the newest observation.
	At    time.Time
	Reach Reach
}

// Audit is the document of an audit of one or several accounts.
type Audit struct {
	Cloud    string
	Accounts []string
	At       time.Time
	// Body is the document.
	Body []byte
}

// Query selects resources and findings. Empty fields match all.
type Query struct {
	Cloud, Account, Region string
	Kind                   inventory.Kind
	// Teams, if not nil, selects resources of these teams, ignoring case. Undecidable ones are
	// selected as well: resources whose team comes from another mapping than TeamMapping, and
	// findings stored without a team. Callers check the team of the results.
	Teams       []string
	TeamMapping string
	// IncludeGone adds resources that are gone and findings that have ended.
	IncludeGone bool
	// ID is the provider's id of a resource, or that of a finding. Ref is one resource, and
	// IDOrName the id or the name of resources; the latter two select no findings.
	ID, IDOrName string
	Ref          inventory.Ref
	// After is the resource, and AfterFinding the id of the finding, after which the results start.
	// Limit is the maximum number of results; 0 is unlimited.
	After        inventory.Ref
	AfterFinding string
	Limit        int
}

// FoldCase returns a case-folded text: two texts fold to the same one exactly if strings.EqualFold
// reports them equal.
func FoldCase(s string) string {
	return strings.Map(func(c rune) rune {
		least := c
		for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}

// Store stores snapshots. It is implemented by internal/store; its conformance suite is
// internal/store/storetest.
type Store interface {
	// Save writes observations, and the audit they come from if any, in one transaction. It writes
	// only changes. The audit replaces the one of the same accounts of the same cloud.
	Save(ctx context.Context, audit *Audit, looks ...Observation) error
	// Audits returns the newest audit of every set of accounts, the newest last.
	Audits(ctx context.Context) ([]Audit, error)
	// Accounts returns the observed accounts, in order.
	Accounts(ctx context.Context) ([]Account, error)
	// Resources and Findings return the results of a query, ordered by identity and by id.
	Resources(ctx context.Context, q Query) ([]Resource, error)
	Findings(ctx context.Context, q Query) ([]Finding, error)
	// Changes returns the intervals of a resource, oldest first.
	Changes(ctx context.Context, ref inventory.Ref) ([]Change, error)
}
