package aws

import (
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// place is one region of one account with its clients.
type place struct {
	scan    *scan
	account *account
	region  string

	// reading holds the clients of the scan, limited to the calls in operations.
	reading *clients

	// hosts maps private DNS names of machines to their IDs, for metrics that only name the host; a
	// name of several machines maps to none. It is complete once the machines are listed.
	hosts map[string]string
	// targetGroups maps the ARNs of load balancers to the names that their target groups
	// have in metrics. It is complete once the load balancers are listed.
	targetGroups map[string][]string
	// components holds the endpoints whose requests are counted by inference component. It is
	// complete once the endpoints are listed.
	components map[string]bool
	// groups are the Auto Scaling groups, read once for all uses; groupsRead reports that all were
	// read.
	groups     []scalingtypes.AutoScalingGroup
	groupsRead bool
	groupsOnce sync.Once
	// launchers maps images and snapshots to the resources that start machines from them. It is nil
	// unless all were read.
	launchers map[string][]string
	// locked holds the locked snapshots. It is nil unless all were read.
	locked map[string]bool
}

// placeKey identifies a region of an account within a scan.
type placeKey struct {
	account *account
	region  string
}

// place returns a region of an account, ready to be read.
func (s *scan) place(a *account, region string) *place {
	p := &place{
		scan:         s,
		account:      a,
		region:       region,
		hosts:        map[string]string{},
		targetGroups: map[string][]string{},
		components:   map[string]bool{},
	}
	p.reading = s.clients.get(placeKey{a, region}, func(service string) awssdk.Config {
		return p.configured(guard(service, s.tally, s.limits.of(a.id, region, service)))
	})
	return p
}

// configured returns the configuration of a client whose calls pass through a guard.
func (p *place) configured(guard func(*middleware.Stack) error) awssdk.Config {
	c := p.account.cfg.Copy()
	c.Region = p.region
	c.APIOptions = append(c.APIOptions[:len(c.APIOptions):len(c.APIOptions)], guard)
	return c
}

// pathStyle uses path-style bucket addresses for endpoints other than Amazon's, which rarely have a
// host per bucket.
func pathStyle(o *s3.Options) { o.UsePathStyle = o.BaseEndpoint != nil }

// wants reports whether a resource is to be read.
func (p *place) wants(kind inventory.Kind, id string) bool {
	only := p.scan.only
	return only == nil ||
		only[inventory.Ref{Cloud: cloudName, Account: p.account.id, Region: p.region, Kind: kind, ID: id}]
}

// String returns the region, with the account when there are several.
func (p *place) String() string { return p.in(p.region) }

// in adds the account to the name of a region if there are several accounts.
func (p *place) in(regions string) string {
	if p.scan.many {
		return regions + " in " + p.account.id
	}
	return regions
}

// resource creates a resource of this place.
func (p *place) resource(kind inventory.Kind, id string) *inventory.Resource {
	return &inventory.Resource{ID: id, Kind: kind, Account: p.account.id, Region: p.region}
}

// utc converts a time of a response; zero if it is absent.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// now returns the time of the observation.
func (p *place) now() time.Time { return p.scan.query.Now }

// known converts an optional value of a response to a fact.
func known[T any](v *T) inventory.Fact[T] {
	if v == nil {
		return inventory.Fact[T]{}
	}
	return inventory.Known(*v)
}

// tagged returns tags as a non-nil map, which means that they were read.
func tagged[T any](tags []T, pair func(T) (key, value *string)) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		k, v := pair(t)
		m[awssdk.ToString(k)] = awssdk.ToString(v)
	}
	return m
}
