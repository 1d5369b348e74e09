// Package snapshot is what observations of accounts leave behind for those who ask later:
// the resources with their last observation, how their states and verdicts changed, and the
// findings. An account is kept apart from all others, and what could not be read stays as it
// was seen last.
package snapshot

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Look is what one round saw of one account.
type Look struct {
	Cloud, Account string
	// At is the time of the round. A look that is older than what is kept of a part changes
	// nothing there; what it found counts unless a later look judged the part.
	At    time.Time
	Reach Reach
	// Parts were listed whole: a resource of one of them that is not among Resources is gone.
	Parts     []Part
	Resources []Resource
	// Judged says that Findings are all that the round found about Parts: an earlier finding
	// there that is not among them has ended. Without it findings stay as they are.
	Judged   bool
	Findings []Finding
	// Told says that the audit log gets an entry for each finding that is new, whose gist is
	// another one, or that has ended.
	Told bool
}

// Part is the resources of one kind in one region.
type Part struct {
	Region string
	Kind   inventory.Kind
}

// PartOf is the part that a resource is in.
func PartOf(r inventory.Ref) Part { return Part{r.Region, r.Kind} }

// Reach says how an account was read, so that later commands reach it again.
type Reach struct {
	Profile, Role string
	Regions       []string
}

// Resource is a resource as it was seen last.
type Resource struct {
	Ref  inventory.Ref
	Name string
	// State is what its provider says it is ("running"), Duty what it does, since when;
	// empty where that was not judged.
	State     string
	Duty      string
	DutySince time.Time
	// Team is the owner's team by the tags, and TeamBy names the mapping of tags that says so.
	// They are only selected by: the store does not hand them back.
	Team, TeamBy string
	// Body is what else was seen, in a form of the caller's.
	Body []byte
	// FirstAt and SeenAt are when it was observed first and last, GoneAt when it was found
	// to be gone; zero is that it was not. The store sets them.
	FirstAt, SeenAt, GoneAt time.Time
}

// Finding is a finding with the times at which it was seen.
type Finding struct {
	ID, Rule string
	Ref      inventory.Ref
	// Gist says in a few words what is worth telling when it changes; empty is nothing.
	Gist string
	// Team is whose resource it is about. It is only selected by.
	Team string
	// Body is the finding in a form of the caller's.
	Body []byte
	// FirstAt and LastAt are when it was found first and last, EndedAt when it did not hold
	// any more; zero is that it holds. The store sets them.
	FirstAt, LastAt, EndedAt time.Time
}

// What a [Change] is about.
const (
	State = "state" // what the provider says: running, stopped; [Gone]
	Duty  = "duty"  // what it does: busy, idle, unknown
)

// Gone is the state of a resource that is not there any more.
const Gone = "gone"

// Change begins an interval of a resource: it holds until the next one of the same What.
type Change struct {
	// At is when it was seen; Since from when on it held, zero where that is not known.
	At, Since time.Time
	What      string
	Value     string
}

// Account is an account that was observed.
type Account struct {
	Cloud, ID string
	// At is the time of the newest look.
	At    time.Time
	Reach Reach
}

// Audit is an audit as it was shown, for all accounts that it covered at once.
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
	// Teams, where it is not nil, selects what belongs to one of these teams, whatever the
	// case of their letters. What the store cannot tell is selected as well: resources whose
	// team was found by another mapping of tags than TeamBy, and findings that were kept
	// before their team was. Callers look at the team of what they get.
	Teams  []string
	TeamBy string
	// Past adds resources that are gone and findings that have ended.
	Past bool
	// ID is the id that the provider gives a resource, or that of a finding. Ref is one
	// resource, and Named the id or the name of resources; they select no findings.
	ID, Named string
	Ref       inventory.Ref
	// After is the resource, and AfterID the id of the finding, after which in their order
	// those that are returned begin. Limit is the most that is returned; 0 is all.
	After   inventory.Ref
	AfterID string
	Limit   int
}

// Fold returns a text as texts are alike that differ only in the case of letters: two texts
// are folded to the same one if strings.EqualFold says so of them.
func Fold(s string) string {
	return strings.Map(func(c rune) rune {
		least := c
		for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}

// Store keeps snapshots. The implementation is internal/store, its conformance suite
// internal/store/storetest.
type Store interface {
	// Keep writes looks, and the audit that they come from where there is one, in one
	// transaction. It writes what has changed, not what there is. The audit takes the place
	// of the one about the same accounts of the same cloud.
	Keep(ctx context.Context, audit *Audit, looks ...Look) error
	// Audits returns the newest audit of every set of accounts, the newest last.
	Audits(ctx context.Context) ([]Audit, error)
	// Accounts returns the accounts that were observed, in order.
	Accounts(ctx context.Context) ([]Account, error)
	// Resources and Findings return what a query selects, in the order of identities and of
	// ids.
	Resources(ctx context.Context, q Query) ([]Resource, error)
	Findings(ctx context.Context, q Query) ([]Finding, error)
	// Changes returns the intervals of a resource, oldest first.
	Changes(ctx context.Context, ref inventory.Ref) ([]Change, error)
}
