package aws

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	sold "github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/round"
)

// maxParts is the number of concurrent parts of an observation. Their calls are also rate-limited.
const maxParts = 24

// scan is one observation in progress.
type scan struct {
	cloud *Cloud
	query round.Query
	tally *tally
	// limits bound the calls.
	limits *limits
	// clients holds the clients of the places.
	clients clientCache[placeKey]
	// only selects the resources to read; nil selects all.
	only map[inventory.Ref]bool

	mu          sync.Mutex
	resources   []*inventory.Resource
	blindSpots  []inventory.BlindSpot
	partial     map[partialKey]*partialFailure
	unread      map[string]bool
	unmeasured  map[inventory.Ref]string // reasons for unreadable metrics of resources
	ended       []*inventory.Resource
	commitments bool // all commitments were read
	planSeen    bool // there is a savings plan for machines in some region
	billed      []accountBill
	places      []*place
	many        bool // there are several accounts, so blind spots name theirs
	progress    round.Progress
	handing     sync.Mutex // held while delivering points
}

// List reads the resources of every account and region, or of given resources their state, tags and
// termination protection. See [round.Lister] for its contract; it returns ctx's error if canceled,
// and a [RegionError] if there is no such region.
func (c *Cloud) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	s := c.scan(q, c.limits())
	accounts, err := s.accounts(ctx)
	if err != nil {
		return nil, err
	}
	s.many = len(accounts) > 1
	if q.Only != nil {
		if err := s.relist(ctx, accounts, slices.SortedFunc(maps.Keys(q.Only), inventory.CompareRefs)); err != nil {
			return nil, err
		}
		return s.observation(accounts)
	}
	if err := s.plan(ctx, accounts); err != nil {
		return nil, err
	}
	if err := s.run(ctx, s.inventoryParts(accounts)); err != nil {
		return nil, err
	}
	s.link()
	s.resources = slices.DeleteFunc(s.resources, func(r *inventory.Resource) bool { return !s.asked(r.Kind) })
	return s.observation(accounts)
}

// scan starts an observation.
func (c *Cloud) scan(q round.Query, l *limits) *scan {
	q.Now = q.Now.UTC()
	return &scan{cloud: c, query: q, tally: newTally(), limits: l, partial: map[partialKey]*partialFailure{},
		unread: map[string]bool{}, commitments: q.Kinds == nil || q.Kinds[inventory.KindCommitment]}
}

// plan chooses the regions to read in each account.
func (s *scan) plan(ctx context.Context, accounts []*account) error {
	regions := make([][]string, len(accounts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParts)
	for i, a := range accounts {
		g.Go(func() error {
			var err error
			regions[i], err = s.accountRegions(gctx, a)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	for i, a := range accounts {
		for _, r := range regions[i] {
			s.places = append(s.places, s.place(a, r))
		}
	}
	if len(s.places) == 0 {
		return &RegionError{Region: strings.Join(s.cloud.regions, ", "), Reason: "no account has enabled it"}
	}
	return nil
}

// part is a piece of work that can run in parallel with the others.
type part struct {
	what string
	run  func(context.Context)
}

// run works through the parts concurrently. Its only error is that of the context.
func (s *scan) run(ctx context.Context, parts []part) error {
	s.mu.Lock()
	s.progress.Total += len(parts)
	s.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(maxParts)
	for _, p := range parts {
		g.Go(func() error {
			if ctx.Err() == nil {
				p.run(ctx)
				s.done(p.what)
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return no error
	return ctx.Err()
}

func (s *scan) done(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.What = what
	s.progress.Done++
	s.progress.Resources = len(s.resources)
	if s.query.Progress != nil {
		s.query.Progress(s.progress) // under the lock, so that progress never goes back
	}
}

// list is one of a place's listings with the kinds that need it.
type list struct {
	what  string
	run   func(*place, context.Context)
	kinds []inventory.Kind
}

// lists are the listings of a place, except account-wide ones.
var lists = []list{
	{"machines", (*place).instances, onlyMachines},
	{"volumes", (*place).volumes, []inventory.Kind{inventory.KindVolume}},
	{"snapshots", (*place).snapshots, []inventory.Kind{inventory.KindSnapshot}},
	{"snapshot locks", (*place).snapshotLocks, []inventory.Kind{inventory.KindSnapshot, inventory.KindImage}},
	// to find the snapshots they need
	{"images", (*place).images, []inventory.Kind{inventory.KindImage, inventory.KindSnapshot}},
	{
		"launch templates and fleets", (*place).readLaunchers,
		[]inventory.Kind{inventory.KindImage, inventory.KindSnapshot},
	},
	{"addresses", (*place).addresses, []inventory.Kind{inventory.KindAddress}},
	{"NAT gateways", (*place).natGateways, []inventory.Kind{inventory.KindNATGateway}},
	{"interface endpoints", (*place).interfaceEndpoints, []inventory.Kind{inventory.KindVPCEndpoint}},
	{"load balancers", (*place).loadBalancers, []inventory.Kind{inventory.KindLoadBalancer}},
	{"classic load balancers", (*place).classicLoadBalancers, []inventory.Kind{inventory.KindLoadBalancer}},
	{"Auto Scaling groups", (*place).autoScalingGroups, []inventory.Kind{inventory.KindAutoScalingGroup}},
	{"repositories", (*place).repositories, []inventory.Kind{inventory.KindRepository}},
	{"log groups", (*place).logGroups, []inventory.Kind{inventory.KindLogGroup}},
	{"notebooks", (*place).notebooks, []inventory.Kind{inventory.KindNotebook}},
	{"studio applications", (*place).apps, []inventory.Kind{inventory.KindNotebook}},
	{"endpoints", (*place).endpoints, []inventory.Kind{inventory.KindEndpoint}},
	{"training jobs", (*place).trainingJobs, []inventory.Kind{inventory.KindTrainingJob}},
	{"HyperPod clusters", (*place).hyperPods, []inventory.Kind{inventory.KindHyperPod}},
	{"EFS file systems", (*place).elasticFileSystems, []inventory.Kind{inventory.KindFileSystem}},
	{"FSx file systems", (*place).fsxFileSystems, []inventory.Kind{inventory.KindFileSystem}},
	{"databases", (*place).databases, []inventory.Kind{inventory.KindDatabase}},
	{"search clusters", (*place).searchClusters, []inventory.Kind{inventory.KindDatabase}},
	{"caches", (*place).caches, []inventory.Kind{inventory.KindCache}},
	{"warehouses", (*place).warehouses, []inventory.Kind{inventory.KindWarehouse}},
	{"clusters", (*place).clusters, []inventory.Kind{inventory.KindCluster}},
	{"tables", (*place).tables, []inventory.Kind{inventory.KindTable}},
	{"secrets", (*place).secrets, []inventory.Kind{inventory.KindSecret}},
	{"capacity reservations", (*place).capacityReservations, []inventory.Kind{inventory.KindCapacityReservation}},
	{"reserved instances", (*place).reservedInstances, []inventory.Kind{inventory.KindCommitment}},
}

// inventoryParts returns the parts to list.
func (s *scan) inventoryParts(accounts []*account) []part {
	var parts []part
	for _, p := range s.places {
		for _, l := range lists {
			if s.asked(l.kinds...) {
				parts = append(parts, part{p.String() + " " + l.what, func(ctx context.Context) { l.run(p, ctx) }})
			}
		}
	}
	for _, a := range accounts {
		regions := map[string]*place{}
		for _, p := range s.places {
			if p.account == a {
				regions[p.region] = p
			}
		}
		home := s.place(a, s.cloud.home())
		in := ""
		if s.many {
			in = a.id + " "
		}
		if s.asked(inventory.KindBucket) {
			parts = append(parts, part{in + "buckets", func(ctx context.Context) { home.buckets(ctx, regions) }})
		}
		if s.asked(inventory.KindCommitment) {
			parts = append(parts, part{in + "savings plans", func(ctx context.Context) {
				home.savingsPlans(ctx, slices.Sorted(maps.Keys(regions)))
			}})
		}
		if s.query.Kinds == nil {
			parts = append(parts, part{in + "billed costs", home.billedCosts})
		}
	}
	return parts
}

// asked reports whether one of the kinds is to be read.
func (s *scan) asked(kinds ...inventory.Kind) bool {
	return s.query.Kinds == nil || slices.ContainsFunc(kinds, func(k inventory.Kind) bool { return s.query.Kinds[k] })
}

// link sets facts that need several lists: the users of snapshots and images, the sizes of
// machines' disks, and names in metrics.
func (s *scan) link() {
	for _, p := range s.places {
		p.name(s.resources)
	}
	type key struct{ account, region, id string }
	needs, sizes := map[key][]string{}, map[key]int64{}
	for _, r := range s.resources {
		switch d := r.Detail.(type) {
		case *inventory.Image:
			for _, id := range d.SnapshotIDs {
				k := key{r.Account, r.Region, id}
				needs[k] = append(needs[k], r.ID)
			}
		case *inventory.Volume:
			sizes[key{r.Account, r.Region, r.ID}] = d.SizeGiB
		}
	}
	linkReplicas(s.resources)
	for _, r := range s.resources {
		if in, ok := r.Detail.(*inventory.Instance); ok {
			for i := range in.Disks {
				if gib := sizes[key{r.Account, r.Region, in.Disks[i].VolumeID}]; gib > 0 {
					in.Disks[i].SizeGiB = inventory.Known(gib)
				}
			}
		}
		if image, ok := r.Detail.(*inventory.Image); ok {
			image.Launchers = s.launchersOf(r)
		}
		if snap, ok := r.Detail.(*inventory.Snapshot); ok {
			snap.Launchers, snap.Locked = s.launchersOf(r), s.lockOf(r)
			snap.Images = needs[key{r.Account, r.Region, r.ID}]
			slices.Sort(snap.Images)
			snap.ImagesKnown = !s.unread[unreadKey(r.Account, r.Region, inventory.KindImage)]
		}
	}
}

// name sets the names in metrics of a place's resources.
func (p *place) name(resources []*inventory.Resource) {
	hosts := make(map[string][]string, len(p.hosts))
	shared := map[string]bool{}
	for host, id := range p.hosts {
		hosts[id] = append(hosts[id], host)
		if short, _, _ := strings.Cut(host, "."); id == "" {
			shared[host], shared[short] = true, true
		}
	}
	for _, r := range resources {
		if r.Account != p.account.id || r.Region != p.region {
			continue
		}
		switch d := r.Detail.(type) {
		case *inventory.Instance:
			// A name of several machines identifies none.
			r.Aliases = slices.DeleteFunc(append(r.Aliases, hosts[r.ID]...), func(name string) bool {
				return shared[name]
			})
			slices.Sort(r.Aliases)
			r.Aliases = slices.Compact(r.Aliases)
		case *inventory.LoadBalancer:
			d.TargetGroups = p.targetGroups[r.ID]
		case *inventory.Endpoint:
			d.Components = p.components[r.ID]
		}
	}
}

// observation returns the result.
func (s *scan) observation(accounts []*account) (*round.Observation, error) {
	s.sharedCommitments()
	s.flushPartial()
	calls, err := s.tally.list()
	if err != nil {
		return nil, err
	}
	sold.Attach(s.resources)
	o := &round.Observation{
		Cloud: cloudName, Unread: s.unread, CommitmentsKnown: s.commitments, Calls: calls, ProviderTime: s.tally.clock,
	}
	o.Resources, o.Ended, o.BlindSpots = s.resources, s.ended, s.blindSpots
	for _, a := range accounts {
		o.Accounts = append(o.Accounts, a.id)
		if a.role != "" {
			if o.Roles == nil {
				o.Roles = map[string]string{}
			}
			o.Roles[a.id] = a.role
		}
	}
	regions := map[string]bool{}
	o.RegionsOf = map[string][]string{}
	for _, p := range s.places {
		regions[p.region] = true
		o.RegionsOf[p.account.id] = append(o.RegionsOf[p.account.id], p.region)
	}
	o.Regions = slices.Sorted(maps.Keys(regions))
	if o.Billed, err = s.total(len(accounts)); err != nil {
		return nil, fmt.Errorf("add up the bills: %w", err)
	}
	o.Sort()
	return o, nil
}

// add adds a resource and derives its owner from its tags.
func (s *scan) add(r *inventory.Resource) {
	r.Cloud = cloudName
	err := s.cloud.options.Tags.Apply(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = append(s.resources, r)
	if err != nil {
		s.blindSpots = append(s.blindSpots, inventory.BlindSpot{
			What: fmt.Sprintf("tag %s of %s", inventory.TagKeepUntil, r.ID),
			Why:  oneLine(innermost(err).Error()), Effect: "it is kept until the tag is corrected"})
	}
}

func (s *scan) blind(b inventory.BlindSpot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blindSpots = append(s.blindSpots, b)
}

// leaveUnmeasured records why metrics of resources could not be read.
func (s *scan) leaveUnmeasured(resources iter.Seq[*inventory.Resource], why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unmeasured == nil {
		s.unmeasured = map[inventory.Ref]string{}
	}
	for r := range resources {
		s.unmeasured[r.Ref()] = why
	}
}

// failed records that a whole call failed in a place: its kinds are unread there. A nil error and a
// canceled caller are no failure.
func (p *place) failed(ctx context.Context, api string, err error) {
	p.failedIn(ctx, api, err, p.region)
}

// leaveUnread marks regions of an account with an incomplete listing of a kind.
func (s *scan) leaveUnread(account string, k inventory.Kind, regions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, region := range regions {
		s.unread[unreadKey(account, region, k)] = true
	}
}

// failedIn records a failed call that concerns several regions.
func (p *place) failedIn(ctx context.Context, api string, err error, regions ...string) {
	op := index[api]
	if !p.explainIn(ctx, op, err, op.Effect, regions...) {
		return
	}
	p.scan.mu.Lock()
	defer p.scan.mu.Unlock()
	for _, k := range op.Kinds {
		for _, region := range regions {
			p.scan.unread[unreadKey(p.account.id, region, k)] = true
		}
		if k == inventory.KindCommitment {
			p.scan.commitments = false
		}
	}
}

// explain adds the blind spot of a failed call with the given effect.
func (p *place) explain(ctx context.Context, op *Operation, err error, effect string) {
	p.explainIn(ctx, op, err, effect, p.region)
}

// explainIn does the same for several regions, and reports whether there was a failure.
func (p *place) explainIn(ctx context.Context, op *Operation, err error, effect string, regions ...string) bool {
	if err == nil || canceled(ctx) {
		return false
	}
	code, detail := reason(err)
	p.scan.blind(inventory.BlindSpot{
		What: op.Service + " " + p.in(strings.Join(regions, ", ")), Why: joined(code+": "+op.API(), detail),
		Effect: effect,
	})
	return true
}

// partialKey groups failures of the same kind about single resources.
type partialKey struct{ what, why, effect string }

type partialFailure struct {
	item  string
	names []string
}

// missed records that a call about one resource failed; such failures are reported together.
func (p *place) missed(ctx context.Context, api, name string, err error) {
	if err == nil || canceled(ctx) {
		return
	}
	op := index[api]
	code, _ := reason(err)
	p.partly(partialKey{op.Service + " " + p.String(), code + ": " + strings.Join(op.IAM(), ", "), op.Effect}, op.Item,
		name)
}

// partly records an unknown fact of a resource; the same fact of several resources is one note.
func (p *place) partly(k partialKey, item, name string) {
	s := p.scan
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.partial[k]
	if f == nil {
		f = &partialFailure{item: item}
		s.partial[k] = f
	}
	f.names = append(f.names, name)
}

// maxNamed is the number of names in a blind spot.
const maxNamed = 3

// flushPartial merges failures about single resources into one blind spot per call, region and
// reason.
func (s *scan) flushPartial() {
	for k, f := range s.partial {
		slices.Sort(f.names)
		names := slices.Compact(f.names)
		shown := names
		if len(names) > maxNamed {
			shown = append(slices.Clone(names[:maxNamed]), "…")
		}
		s.blindSpots = append(s.blindSpots, inventory.BlindSpot{What: k.what,
			Why:    fmt.Sprintf("%s on %s (%s)", k.why, plain.Count(len(names), f.item), strings.Join(shown, ", ")),
			Effect: k.effect})
	}
	clear(s.partial)
}

func unreadKey(account, region string, k inventory.Kind) string {
	return account + "/" + region + "/" + string(k)
}

// pages calls next without a token and then with each token it returns, until it returns none. A
// repeated token is an error, because the list would never end.
func pages(ctx context.Context, next func(token *string) (*string, error)) error {
	seen := map[string]bool{}
	var token *string
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		following, err := next(token)
		if err != nil {
			return err
		}
		if awssdk.ToString(following) == "" {
			return nil
		}
		if seen[*following] {
			return errRepeated
		}
		seen[*following] = true
		token = following
	}
}

// each calls do for every item concurrently; it returns when all are done.
func each[T any](ctx context.Context, items []T, do func(T)) {
	var g errgroup.Group
	g.SetLimit(maxItems)
	for _, x := range items {
		g.Go(func() error {
			if ctx.Err() == nil {
				do(x)
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return no error
}

// maxItems is the number of resources of one part that are read concurrently.
const maxItems = 8
