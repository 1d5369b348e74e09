package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// day is 24 hours; ages in the account are counted in days.
const day = 24 * time.Hour

// entry is one resource with its behavior.
type entry struct {
	resource  *inventory.Resource
	key       key
	hardware  hardware
	model     behavior
	telemetry telemetry
	signals   []usage.Signal
	// count, if set, returns a value of counted for an hour, or false if none was published.
	counted usage.Signal
	count   func(hour time.Time) (float64, bool)
	outages []outage
	care    care
	planted Planted
}

// account is an account under construction.
type account struct {
	seed    uint64
	now     time.Time
	entries []*entry
	// named finds resources that others refer to, by name.
	named map[string]*entry
}

// layout builds the account.
func layout(seed uint64, now time.Time) *account {
	a := &account{seed: seed, now: now.UTC(), named: map[string]*entry{}}
	a.images()
	a.reservations()
	a.fleet()
	a.hosts()
	a.groups()
	a.disks()
	a.backups()
	a.buckets()
	a.registries()
	a.managed()
	a.network()
	a.commitments()
	a.backbone()
	for _, e := range a.entries {
		e.planted.Ref = e.resource.Ref()
		if e.care != careful {
			e.planted.Rules = append(slices.Clone(e.planted.Rules), "tag-missing")
		}
	}
	return a
}

// owner is the owner of a resource, and the quality of its tags.
type owner struct {
	team, project, user, environment string
	purpose, lifetime                string
	care                             care
	extra                            map[string]string
}

// care is the quality of a resource's tags.
type care int

const (
	careful  care = iota // every required tag
	hasty                // the team and the person, nothing to charge it to
	careless             // no tags but a name
)

// costCenters are the teams' cost centers.
var costCenters = map[string]string{
	"vision": "ML-210", "language": "ML-220", "ranking": "ML-230", "platform": "ML-100",
}

// spellings are the keys each team uses: team, project, user, environment, cost
// centre, purpose.
var spellings = map[string][6]string{
	"vision":   {"Team", "Project", "Owner", "Environment", "CostCenter", "Purpose"},
	"language": {"team", "project", "user", "env", "cost-center", "workload"},
	"ranking":  {"squad", "application", "created-by", "stage", "Cost_Center", "curfew:purpose"},
	"platform": {"TEAM", "project-name", "owner-email", "environment", "billing-code", "Workload-Type"},
}

// tags returns the tags of a resource called name.
func (o owner) tags(name string) map[string]string {
	out := map[string]string{}
	set := func(k, v string) {
		if v != "" {
			out[k] = v
		}
	}
	set("Name", name)
	if o.care != careless {
		keys := spellings[o.team]
		user := o.user
		if o.team == "platform" && user != "" {
			user += "@example.com"
		}
		set(keys[0], o.team)
		set(keys[2], user)
		if o.care == careful {
			set(keys[1], o.project)
			set(keys[3], o.environment)
			set(keys[4], costCenters[o.team])
		}
		set(keys[5], o.purpose)
	}
	set(inventory.TagLifetime, o.lifetime)
	for k, v := range o.extra {
		set(k, v)
	}
	return out
}

// who parses "team/project/user" into an owner in development.
func who(path string) owner {
	parts := strings.Split(path, "/")
	return owner{team: parts[0], project: parts[1], user: parts[2], environment: "dev"}
}

// production returns the owner in production.
func (o owner) production() owner {
	o.environment = "production"
	return o
}

// as returns the owner with a purpose.
func (o owner) as(purpose string) owner {
	o.purpose = purpose
	return o
}

// add adds a resource to the account. Its identity is derived from its name; its ID is a prefix and
// a number of hexadecimal digits unless it has one already.
func (a *account) add(r inventory.Resource, prefix string, digits int, o owner, p Planted) *entry {
	k := newKey(a.seed, string(r.Kind)+"/"+r.Region+"/"+r.Name+"/"+r.ID)
	if r.ID == "" {
		r.ID = prefix + "0" + k.hex(digits-1)
	}
	r.Cloud, r.Account = CloudName, Account
	if r.Tags == nil {
		r.Tags = o.tags(r.Name)
	}
	e := &entry{resource: &r, key: k, care: o.care, planted: p}
	a.entries = append(a.entries, e)
	if r.Name != "" {
		a.named[r.Name] = e
	}
	return e
}

// ago returns the time that long before the account's now.
func (a *account) ago(d time.Duration) time.Time { return a.now.Add(-d) }

// id returns the identifier of the resource with that name.
func (a *account) id(name string) string { return a.named[name].resource.ID }

// zone returns one of a region's three zones for a resource.
func zone(region, name string) string {
	return region + string("abc"[newKey(0, name)%3])
}

// presence identifies an existing resource.
type presence struct {
	kind inventory.Kind
	id   string
}

// prune removes references to missing resources.
func (e *entry) prune(now time.Time, there map[presence]bool) {
	keep := func(kind inventory.Kind, ids []string) []string {
		return slices.DeleteFunc(ids, func(id string) bool { return !there[presence{kind, id}] })
	}
	if !there[presence{inventory.KindAutoScalingGroup, e.resource.Manager.Name}] {
		e.resource.Manager = inventory.Manager{}
	}
	switch d := e.resource.Detail.(type) {
	case *inventory.AutoScalingGroup:
		d.Instances = keep(inventory.KindInstance, d.Instances)
		if e.count != nil {
			if v, ok := e.count(now); ok {
				d.Desired = int64(v)
			}
		}
	case *inventory.Volume:
		d.AttachedTo = keep(inventory.KindInstance, d.AttachedTo)
		if e.resource.State == inventory.StateInUse && len(d.AttachedTo) == 0 {
			e.resource.State = inventory.StateAvailable
		}
	case *inventory.Image:
		d.SnapshotIDs = keep(inventory.KindSnapshot, d.SnapshotIDs)
		if at, ok := d.LastLaunched.Get(); ok && at.After(now) {
			d.LastLaunched = inventory.Fact[time.Time]{}
		}
	case *inventory.Snapshot:
		d.Images = keep(inventory.KindImage, d.Images)
	case *inventory.Address:
		if d.InstanceID != "" && !there[presence{inventory.KindInstance, d.InstanceID}] {
			d.InstanceID, d.AssociationID = "", ""
			e.resource.State = inventory.StateAvailable
		}
	case *inventory.Instance:
		d.Disks = slices.DeleteFunc(d.Disks, func(x inventory.Disk) bool {
			return !there[presence{inventory.KindVolume, x.VolumeID}]
		})
		if !there[presence{inventory.KindCapacityReservation, d.CapacityReservationID}] {
			d.CapacityReservationID = ""
		}
	case *inventory.Notebook:
		d.LastModified = earlier(d.LastModified, now)
		if at, ok := d.LastActivity.Get(); ok {
			d.LastActivity = inventory.Known(earlier(at, now))
		}
	case *inventory.Bucket:
		pruneBucket(d, now)
	case *inventory.Secret:
		if at, ok := d.LastAccessed.Get(); ok {
			d.LastAccessed = inventory.Known(earlier(at, now))
		}
	}
}

func pruneBucket(d *inventory.Bucket, now time.Time) {
	prefixes, _ := d.Prefixes.Get()
	for i := range prefixes {
		prefixes[i].Newest = earlier(prefixes[i].Newest, now)
		prefixes[i].Oldest = earlier(prefixes[i].Oldest, now)
	}
	if u, ok := d.Uploads.Get(); ok {
		u.Oldest = earlier(u.Oldest, now)
		d.Uploads = inventory.Known(u)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
