package cloudtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// identities checks that every resource has a cloud, account, region, kind and ID, is in the
// observed scope, and is unique.
func identities(tb testing.TB, s *subject) {
	o := s.first
	if o.Cloud == "" {
		tb.Error("the observation names no cloud")
	}
	unique(tb, "account", o.Accounts)
	unique(tb, "region", o.Regions)
	seen := map[inventory.Ref]bool{}
	for _, r := range o.Resources {
		ref := r.Ref()
		for part, v := range map[string]string{
			"cloud": ref.Cloud, "account": ref.Account, "region": ref.Region, "kind": string(ref.Kind), "id": ref.ID,
		} {
			if v == "" || v != strings.TrimSpace(v) {
				tb.Errorf("%s: %s is %q", ref, part, v)
			}
		}
		if seen[ref] {
			tb.Errorf("%s is observed twice", ref)
		}
		seen[ref] = true
		if r.Cloud != o.Cloud {
			tb.Errorf("%s is of another cloud than the observation's %q", ref, o.Cloud)
		}
		if !slices.Contains(o.Accounts, r.Account) {
			tb.Errorf("%s is of an account that is not among the observed %v", ref, o.Accounts)
		}
		if !slices.Contains(o.Regions, r.Region) {
			tb.Errorf("%s is of a region that is not among the observed %v", ref, o.Regions)
		}
		if r.Zone != "" && r.Region != "" && !strings.HasPrefix(r.Zone, r.Region) {
			tb.Errorf("%s is in zone %q, which is not in its region", ref, r.Zone)
		}
	}
}

// unique fails the test for an empty list or a repeated name.
func unique(tb testing.TB, what string, names []string) {
	if len(names) == 0 {
		tb.Errorf("the observation names no %s", what)
	}
	for i, n := range names {
		if n == "" {
			tb.Errorf("%s %d is empty", what, i)
		}
		if slices.Contains(names[:i], n) {
			tb.Errorf("%s %q is named twice", what, n)
		}
	}
}

// contents checks that the known resources of the account are observed.
func contents(tb testing.TB, s *subject) {
	for _, ref := range s.Holds {
		if s.byRef[ref] == nil {
			tb.Errorf("%s is not observed", ref)
		}
	}
	for _, ref := range s.Lacks {
		if s.byRef[ref] != nil {
			tb.Errorf("%s is observed and should not be", ref)
		}
	}
	for _, kind := range s.Kinds {
		if !slices.ContainsFunc(s.first.Resources, func(r *inventory.Resource) bool { return r.Kind == kind }) {
			tb.Errorf("no %s is observed", kind)
		}
	}
}

// kinds checks that each kind is known and its detail is of that kind or nil.
func kinds(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		want, ok := kindDetails[r.Kind]
		if !ok {
			tb.Errorf("%s: there is no kind %q", r.Ref(), r.Kind)
			continue
		}
		if r.Detail == nil {
			continue
		}
		got := reflect.TypeOf(r.Detail)
		if want == nil || got != want {
			tb.Errorf("%s: its detail is a %v, want %v", r.Ref(), got, want)
		} else if reflect.ValueOf(r.Detail).IsNil() {
			tb.Errorf("%s: its detail is a nil %v; where nothing is known it is nil itself", r.Ref(), got)
		}
	}
}

// states checks that states are in the vocabulary.
func states(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		if !slices.Contains(vocabulary, r.State) {
			tb.Errorf("%s: there is no state %q", r.Ref(), r.State)
		}
		if v, ok := volume(r); ok {
			attached := len(v.AttachedTo) > 0
			if r.State == inventory.StateAvailable && attached {
				tb.Errorf("%s is available and attached to %v", r.Ref(), v.AttachedTo)
			}
			if r.State == inventory.StateInUse && !attached {
				tb.Errorf("%s is in use and unattached", r.Ref())
			}
		}
	}
}

func volume(r *inventory.Resource) (*inventory.Volume, bool) {
	v, ok := r.Detail.(*inventory.Volume)
	return v, ok && v != nil
}

// times checks that all times are in UTC and in the past; an unknown time is zero.
func times(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		ref := r.Ref()
		past := func(what string, t time.Time) {
			utc(tb, ref, what, t)
			if t.After(s.Query.Now) {
				tb.Errorf("%s: %s %s is after %s", ref, what, t, s.Query.Now)
			}
		}
		past("CreatedAt", r.CreatedAt)
		past("StateSince", r.StateSince)
		utc(tb, ref, "KeepUntil", r.KeepUntil)
		if !r.CreatedAt.IsZero() && !r.StateSince.IsZero() && r.StateSince.Before(r.CreatedAt) {
			tb.Errorf("%s is in its state since %s, before it was made at %s", ref, r.StateSince, r.CreatedAt)
		}
		if r.Detail == nil || reflect.ValueOf(r.Detail).IsNil() {
			continue
		}
		switch d := r.Detail.(type) {
		case *inventory.Image:
			past("LastLaunched", d.LastLaunched.Or(time.Time{}))
		case *inventory.Notebook:
			past("LastModified", d.LastModified)
			past("LastActivity", d.LastActivity.Or(time.Time{}))
		case *inventory.TrainingJob:
			past("StartedAt", d.StartedAt)
		case *inventory.Secret:
			past("LastAccessed", d.LastAccessed.Or(time.Time{}))
		case *inventory.Bucket:
			past("the oldest upload", d.Uploads.Or(inventory.Uploads{}).Oldest)
			for _, p := range d.Prefixes.Or(nil) {
				past("the newest object of "+p.Name, p.Newest)
				past("the oldest object of "+p.Name, p.Oldest)
				if p.Oldest.After(p.Newest) {
					tb.Errorf("%s: the oldest object of %s is younger than the newest", ref, p.Name)
				}
			}
		case *inventory.CapacityReservation:
			utc(tb, ref, "EndsAt", d.EndsAt)
		case *inventory.Commitment:
			// A reservation may be bought before it starts.
			utc(tb, ref, "StartsAt", d.StartsAt)
			utc(tb, ref, "EndsAt", d.EndsAt)
			if !d.EndsAt.IsZero() && d.EndsAt.Before(d.StartsAt) {
				tb.Errorf("%s ends before it starts", ref)
			}
		}
	}
}

func utc(tb testing.TB, ref inventory.Ref, what string, t time.Time) {
	if t.IsZero() {
		return
	}
	if t.Location() != time.UTC {
		tb.Errorf("%s: %s %s is not UTC", ref, what, t)
	}
}

// quantities checks that sizes and counts are not negative and that the parts of a prefix do not
// exceed its total.
func quantities(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		if r.Detail == nil || reflect.ValueOf(r.Detail).IsNil() {
			continue
		}
		negative(tb, r.Ref(), reflect.ValueOf(r.Detail).Elem().Type().Name(), reflect.ValueOf(r.Detail).Elem())
		switch d := r.Detail.(type) {
		case *inventory.Volume:
			if d.SizeGiB == 0 {
				tb.Errorf("%s has no size", r.Ref())
			}
		case *inventory.AutoScalingGroup:
			if d.Min > d.Max {
				tb.Errorf("%s: its minimum %d is over its maximum %d", r.Ref(), d.Min, d.Max)
			}
		case *inventory.CapacityReservation:
			if d.Available > d.Total {
				tb.Errorf("%s: %d are available of %d", r.Ref(), d.Available, d.Total)
			}
		case *inventory.LoadBalancer:
			if h, t := d.HealthyTargets.Or(0), d.Targets.Or(0); h > t && d.Targets.Known() {
				tb.Errorf("%s: %d targets are healthy of %d", r.Ref(), h, t)
			}
		case *inventory.Repository:
			if d.UntaggedImages+d.UnpulledImages > d.Images {
				tb.Errorf("%s: %d untagged and %d unpulled images of %d", r.Ref(), d.UntaggedImages,
					d.UnpulledImages, d.Images)
			}
		case *inventory.Bucket:
			for _, p := range d.Prefixes.Or(nil) {
				if p.Small.Bytes > p.Bytes || p.Small.Objects > p.Objects {
					tb.Errorf("%s: the small objects of %s are more than all of them", r.Ref(), p.Name)
				}
				for age, older := range p.OlderThan {
					if older.Bytes > p.Bytes-p.Small.Bytes || older.Objects > p.Objects-p.Small.Objects {
						tb.Errorf("%s: what is older than %d days in %s is more than all of it", r.Ref(), age, p.Name)
					}
				}
			}
		}
	}
}

// negative reports negative integers anywhere in a value.
func negative(tb testing.TB, ref inventory.Ref, where string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 {
			tb.Errorf("%s: %s is %d", ref, where, v.Int())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			negative(tb, ref, where+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			negative(tb, ref, where, v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			negative(tb, ref, where, it.Value())
		}
	}
}

// tagsRead checks that nil tags, which mean unreadable tags, have a blind spot about tags.
func tagsRead(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		if r.Tags == nil && !mentionedInBlindSpot(s, "tag") {
			tb.Errorf("%s: its tags were not read, and no blind spot says so", r.Ref())
		}
	}
}

// mentionedInBlindSpot reports whether a blind spot mentions a word, ignoring case.
func mentionedInBlindSpot(s *subject, word string) bool {
	return slices.ContainsFunc(s.first.BlindSpots, func(b inventory.BlindSpot) bool {
		return strings.Contains(strings.ToLower(b.What+" "+b.Why+" "+b.Effect), strings.ToLower(word))
	})
}

// owners checks that owners follow from the tags by the mapping.
func owners(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		want := inventory.Resource{ID: r.ID, Tags: r.Tags}
		if err := s.Tags.Apply(&want); err != nil && !mentionedInBlindSpot(s, r.ID) {
			tb.Errorf("%s: %v, and no blind spot says so", r.Ref(), err)
		}
		if r.Owner != want.Owner {
			tb.Errorf("%s: its owner is %+v, its tags say %+v", r.Ref(), r.Owner, want.Owner)
		}
		if r.Lifetime != want.Lifetime || r.Purpose != want.Purpose {
			tb.Errorf("%s: it is %q for %q, its tags say %q for %q", r.Ref(), r.Lifetime, r.Purpose, want.Lifetime,
				want.Purpose)
		}
		if r.Managed != want.Managed || !r.KeepUntil.Equal(want.KeepUntil) {
			tb.Errorf("%s: managed %v until %s, its tags say %v until %s", r.Ref(), r.Managed,
				r.KeepUntil, want.Managed,
				want.KeepUntil)
		}
	}
}

// references checks that resources referenced within the account and region are observed too,
// unless their kind could not be read. Volumes of snapshots may be deleted; images and reservations
// of machines may belong to other accounts.
func references(tb testing.TB, s *subject) {
	for _, r := range s.first.Resources {
		resolve := func(what string, kind inventory.Kind, ids ...string) {
			for _, id := range ids {
				ref := r.Ref()
				ref.Kind, ref.ID = kind, id
				if s.byRef[ref] == nil && !s.first.Unread[ref.Account+"/"+ref.Region+"/"+string(kind)] {
					tb.Errorf("%s: %s %q is not observed", r.Ref(), what, id)
				}
			}
		}
		if r.Detail == nil || reflect.ValueOf(r.Detail).IsNil() {
			continue
		}
		switch d := r.Detail.(type) {
		case *inventory.Instance:
			for _, disk := range d.Disks {
				resolve("disk", inventory.KindVolume, disk.VolumeID)
			}
			if r.Manager.Kind == inventory.ManagerAutoScaling {
				resolve("group", inventory.KindAutoScalingGroup, r.Manager.Name)
			}
		case *inventory.Volume:
			resolve("machine", inventory.KindInstance, d.AttachedTo...)
		case *inventory.Snapshot:
			if d.ImagesKnown {
				resolve("image", inventory.KindImage, d.Images...)
			} else if len(d.Images) > 0 {
				tb.Errorf("%s names images, which are said to be unknown", r.Ref())
			}
		case *inventory.Image:
			resolve("snapshot", inventory.KindSnapshot, d.SnapshotIDs...)
		case *inventory.Address:
			if d.InstanceID != "" {
				resolve("machine", inventory.KindInstance, d.InstanceID)
				if d.AssociationID == "" {
					tb.Errorf("%s is a machine's and not associated", r.Ref())
				}
			}
		case *inventory.AutoScalingGroup:
			resolve("member", inventory.KindInstance, d.Instances...)
		}
	}
}
