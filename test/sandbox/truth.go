package sandbox

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Truth lists the seeded resources: the waste that an audit must find, and look-alikes that are
// none.
type Truth struct {
	// Now is the time of the seeding; ages are relative to it.
	Now time.Time
	// Account contains all resources except those of OtherAccount.
	Account string
	// OtherAccount is a second account with a little in it, reached by assuming
	// OtherRole.
	OtherAccount, OtherRole string
	Regions                 []string
	// BilledUSD is the provider's own total for Account in the last 30 days.
	BilledUSD string
	Planted   []Planted
	// Other lists the waste planted in OtherAccount.
	Other      []Planted
	LookAlikes []LookAlike
	// Resources are all seeded resources of Account, by kind and id.
	Resources []Resource
}

// Resource is a seeded resource.
type Resource struct {
	Kind       inventory.Kind
	ID, Region string
	Owner      inventory.Owner
	Lifetime   inventory.Lifetime
	Purpose    inventory.Purpose
}

// Planted is a piece of waste: an audit must report Rule for the resource.
type Planted struct {
	Rule string
	Resource
	// SavingsUSD is the monthly saving of the fix, to the cent, computed from this package's own
	// prices; empty is not checked.
	SavingsUSD string
	// WasteUSD is the monthly cost of the waste if it differs from the saving of a fix; empty is
	// not checked.
	WasteUSD string
	// Unknown is true if the saving must be reported as unknown, at most UpperBoundUSD (unless that
	// is empty).
	Unknown       bool
	UpperBoundUSD string
	Note          string
}

// LookAlike is a legitimate resource that looks like waste.
type LookAlike struct {
	Resource
	// Not are the rules that must not be reported for it.
	Not  []string
	Note string
}

// Find returns the planted waste of a rule.
func (t *Truth) Find(rule string) []Planted {
	var out []Planted
	for _, p := range t.Planted {
		if p.Rule == rule {
			out = append(out, p)
		}
	}
	return out
}

// Rules that call something idle, unused or forgotten.
var (
	idleRules    = []string{"gpu-instance-idle", "gpu-held", "instance-idle", "always-on"}
	storageRules = []string{
		"volume-unattached", "snapshot-old", "image-unused", "bucket-no-lifecycle", "bucket-multipart",
		"bucket-noncurrent", "checkpoint-stale", "log-group-no-retention",
		"repository-no-lifecycle", "repository-untagged"}
)
