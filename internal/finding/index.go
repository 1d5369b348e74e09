package finding

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Subject is a resource with everything known about it.
type Subject struct {
	*inventory.Resource
	// Charges are those of its meters; Window holds its measurements, nil if there are none.
	Charges []ledger.Charge
	Window  *usage.Window
	// Duty is its verdict over the window, valid only if Judged.
	Duty   duty.Verdict
	Judged bool

	ref    inventory.Ref
	at     int32 // the position in Index.subjects
	meters int32 // the position of its first charge among all meters
}

// scoped is an identifier that is unique within an account and region.
type scoped struct{ cloud, account, region, id string }

func scope(r *inventory.Resource, id string) scoped {
	return scoped{r.Cloud, r.Account, r.Region, id}
}

// everywhere is an identifier that is unique within a region over all accounts.
func everywhere(r *inventory.Resource, id string) scoped {
	return scoped{cloud: r.Cloud, region: r.Region, id: id}
}

// Index is an account indexed for the rules, so that relations between resources are looked up, not
// searched.
type Index struct {
	// Now is the time of judgment.
	Now        time.Time
	Thresholds Thresholds

	account  *Account
	required []string
	byKind   map[inventory.Kind][]*Rule

	subjects []Subject
	byRef    map[inventory.Ref]int32
	meters   int32
	// chains are the snapshots of each volume, which share blocks.
	chains map[scoped][]int32
	// oldChains caches whether all snapshots of a chain are old.
	oldChains map[scoped]bool
	// launched are the images of running instances in any account: images are shared, and their IDs
	// unique in a region.
	launched map[scoped]bool
	// buckets indexes buckets by cloud and name, which is unique in a cloud.
	buckets map[[2]string]int32
	// readers are the known readers of buckets, by cloud and name.
	readers map[[2]string][]Reader
	// byID indexes resources by cloud and identifier, built when a bill needs it.
	byID  map[scoped][]int32
	cover coverage
	types map[string]machine
	// accelerated are the machine types with accelerators, and successors the
	// cheaper newer ones, by type and region.
	accelerated []device
	successors  map[[2]string]successor
	// lastSizing caches the advice on the last machine.
	lastSizing sizing
	// saleOffers caches the accelerated machines for sale; see offers.
	saleOffers *rightsize.Offers
	// families caches the running and reserved machines of each family; see familyUses.
	families map[[3]string]map[string]*familyUse
	// fleets holds the serving fleets; see fleetOf.
	fleets map[fleetKey]*servers
	drafts []*Draft
	err    error
}

// machine is the entry of the book for a type.
type machine struct {
	price.Machine
	known bool
}

// newIndex indexes an account. Duplicate resources count once.
func newIndex(a *Account, t Thresholds, required []string) *Index {
	x := &Index{
		account: a, Now: a.Now, Thresholds: t, required: required, byKind: byKind(a.Rules),
		subjects: make([]Subject, 0, len(a.Resources)), byRef: make(map[inventory.Ref]int32, len(a.Resources)),
		chains: map[scoped][]int32{}, oldChains: map[scoped]bool{}, launched: map[scoped]bool{},
		buckets: map[[2]string]int32{}, readers: map[[2]string][]Reader{}, types: map[string]machine{},
	}
	for _, r := range inOrder(a.Resources) {
		if ref := r.Ref(); len(x.subjects) == 0 || x.subjects[len(x.subjects)-1].ref != ref {
			x.subjects = append(x.subjects, Subject{Resource: r, ref: ref})
		}
	}
	for i := range x.subjects {
		s := &x.subjects[i]
		s.at, s.meters = int32(i), x.meters
		s.Charges, s.Window = a.Charges[s.ref], a.Windows[s.ref]
		s.Duty, s.Judged = a.Verdicts[s.ref]
		x.meters += int32(len(s.Charges))
		x.byRef[s.ref] = s.at
		x.relate(s)
	}
	x.declareReads(a.ReadData)
	x.cover = newCoverage(x)
	return x
}

// inOrder returns the non-nil resources by reference; equal ones keep their order. It sorts
// positions, because a subject is large.
func inOrder(all []*inventory.Resource) []*inventory.Resource {
	places := make([]int32, 0, len(all))
	for i, r := range all {
		if r != nil {
			places = append(places, int32(i))
		}
	}
	byRef := func(i, j int32) int {
		p, q := all[i], all[j]
		if p.Kind == q.Kind && p.Region == q.Region && p.Account == q.Account && p.Cloud == q.Cloud {
			return cmp.Or(cmp.Compare(p.ID, q.ID), cmp.Compare(i, j)) // by far the most comparisons
		}
		return inventory.CompareRefs(p.Ref(), q.Ref())
	}
	if !slices.IsSortedFunc(places, byRef) {
		slices.SortFunc(places, byRef)
	}
	sorted := make([]*inventory.Resource, len(places))
	for i, place := range places {
		sorted[i] = all[place]
	}
	return sorted
}

// relate records the relations of s.
func (x *Index) relate(s *Subject) {
	switch d := s.Detail.(type) {
	case *inventory.Instance:
		if d.ImageID != "" {
			x.launched[everywhere(s.Resource, d.ImageID)] = true
		}
		x.reads(s, dataURIs(s.Tags[inventory.TagDataURI]))
	case *inventory.TrainingJob:
		x.reads(s, d.InputURIs)
	case *inventory.Snapshot:
		if d.InChain() {
			k := scope(s.Resource, d.VolumeID)
			x.chains[k] = append(x.chains[k], s.at)
		}
	case *inventory.Bucket:
		x.buckets[[2]string{s.Cloud, s.ID}] = s.at
	}
}

// near returns the resource of a kind and ID in the account and region of r.
func (x *Index) near(r *inventory.Resource, k inventory.Kind, id string) (*Subject, bool) {
	i, ok := x.byRef[inventory.Ref{Cloud: r.Cloud, Account: r.Account, Region: r.Region, Kind: k, ID: id}]
	if !ok {
		return nil, false
	}
	return &x.subjects[i], true
}

// read reports whether a kind could be listed in the account and region of r.
func (x *Index) read(r *inventory.Resource, k inventory.Kind) bool {
	return len(x.account.Unread) == 0 || !x.account.Unread[r.Account+"/"+r.Region+"/"+string(k)]
}

// readEverywhere reports whether a kind could be listed in a region in every account, for resources
// that accounts share.
func (x *Index) readEverywhere(region string, k inventory.Kind) bool {
	for unread := range x.account.Unread {
		if x.account.Unread[unread] && strings.HasSuffix(unread, "/"+region+"/"+string(k)) {
			return false
		}
	}
	return true
}

// machine returns the entry of the book for a type.
func (x *Index) machine(t string) (price.Machine, bool) {
	m, ok := x.types[t]
	if !ok {
		if x.account.Prices != nil {
			m.Machine, m.known = x.account.Prices.Machine(t)
		}
		x.types[t] = m
	}
	return m.Machine, m.known
}

// machineOf returns a machine for the planners: the book's entry for its type, or its known size.
func (x *Index) machineOf(s *Subject) (price.Machine, bool) {
	if m, ok := x.machine(s.Type); ok {
		return m, true
	}
	n, known := s.Size.GPUs.Get()
	return price.Machine{
		Type: s.Type, Cloud: s.Cloud, VCPUs: int(s.Size.MilliCPUs.Or(0) / 1000), MemoryMiB: s.Size.MemoryMiB.Or(0),
		Accelerator: s.Size.GPU, AcceleratorMilli: int64(n) * 1000, AcceleratorMemoryMiB: s.Size.GPUMemory.Or(0) >> 20,
		InstanceStorageGB: s.Size.InstanceStorageGB.Or(0)}, known
}

// fail keeps the first error; rules continue, and the evaluation returns it.
func (x *Index) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// amount unwraps an amount and records its error.
func (x *Index) amount(a money.Amount, err error) money.Amount {
	if err != nil {
		x.fail(err)
		return 0
	}
	return a
}

// Rate returns a price in a region.
func (x *Index) Rate(item price.Item, region string) (price.Price, error) {
	if x.account.Prices == nil {
		return price.Price{}, price.ErrUnpriced
	}
	return x.account.Prices.Rate(item, region)
}

// Managed returns the hourly price of a managed service's machine.
func (x *Index) Managed(service, machineType, region string) (price.Price, error) {
	if x.account.Prices == nil {
		return price.Price{}, price.ErrUnpriced
	}
	return x.account.Prices.Managed(service, machineType, region)
}

// Cost returns the monthly cost of the priced meters of a category, and the reason if some meter
// has no price. An empty category means all.
func (x *Index) Cost(s *Subject, c ledger.Category) (total money.Amount, unpriced string) {
	for i := range s.Charges {
		switch ch := &s.Charges[i]; {
		case c != "" && ch.Category != c:
		case ch.Unpriced != "":
			unpriced = ch.Unpriced
		default:
			total = x.amount(total.Add(ch.ListCost))
		}
	}
	return total, unpriced
}

// Age returns the time since s was created, if known.
func (x *Index) Age(s *Subject) (time.Duration, bool) { return s.Age(x.Now) }

// since returns how long s has been in its state, if known.
func (x *Index) since(s *Subject) (time.Duration, bool) {
	if s.StateSince.IsZero() || s.StateSince.After(x.Now) {
		return 0, false
	}
	return x.Now.Sub(s.StateSince), true
}

// Covered reports whether a signal's coverage suffices for a verdict.
func (x *Index) Covered(w *usage.Window, st *usage.Stats) bool {
	return w != nil && st != nil && w.Coverage(st) >= x.Thresholds.Coverage
}

// Spans reports whether a window is as long as d, within the step by which metrics services align
// windows.
func Spans(w *usage.Window, d time.Duration) bool {
	return w != nil && w.To.Sub(w.From)+2*w.Step >= d
}
