package cloudtest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestBrokenObserverFails breaks an observer in one way at a time and expects exactly the matching
// property to fail with the given message.
func TestBrokenObserverFails(t *testing.T) {
	machine := inventory.KindInstance
	var observed int
	for _, tc := range []struct {
		name     string
		property string
		says     string
		spoil    func(o *round.Observation)
		set      func(c *Case, a *account)
	}{
		{name: "no id", property: "identities", says: "id is", spoil: func(o *round.Observation) {
			of(o, inventory.KindSecret).ID = ""
		}},
		{
			name: "an account with a space", property: "identities", says: "account is",
			spoil: func(o *round.Observation) {
				of(o, inventory.KindSecret).Account = "1 "
			}},
		{name: "no region", property: "identities", says: "region is", spoil: func(o *round.Observation) {
			of(o, inventory.KindSecret).Region = ""
		}},
		{
			name: "a region that was not observed", property: "identities", says: "not among",
			spoil: func(o *round.Observation) { of(o, inventory.KindSecret).Region = "mars" },
		},
		{name: "another account", property: "identities", says: "not among", spoil: func(o *round.Observation) {
			of(o, inventory.KindSecret).Account = "2"
		}},
		{name: "another cloud", property: "identities", says: "another cloud", spoil: func(o *round.Observation) {
			of(o, inventory.KindSecret).Cloud = "moon"
		}},
		{name: "a foreign zone", property: "identities", says: "zone", spoil: func(o *round.Observation) {
			of(o, machine).Zone = "eu-west-1a"
		}},
		{name: "observed twice", property: "identities", says: "twice", spoil: func(o *round.Observation) {
			again := *of(o, inventory.KindSecret)
			o.Resources = append(o.Resources, &again)
		}},
		{name: "no cloud", property: "identities", says: "names no cloud", spoil: func(o *round.Observation) {
			o.Cloud = ""
		}},
		{name: "no accounts", property: "identities", says: "names no account", spoil: func(o *round.Observation) {
			o.Accounts = nil
		}},
		{name: "a region twice", property: "identities", says: "named twice", spoil: func(o *round.Observation) {
			o.Regions = append(o.Regions, "us-east-1")
		}},
		{name: "an empty region", property: "identities", says: "is empty", spoil: func(o *round.Observation) {
			o.Regions = append(o.Regions, "")
		}},

		{
			name: "lacks what it holds", property: "the account holds", says: "not observed",
			spoil: func(o *round.Observation) { of(o, machine).ID = "i-2" },
		},
		{
			name: "holds what is gone", property: "the account holds", says: "should not be",
			spoil: func(o *round.Observation) {
				gone := *of(o, machine)
				gone.ID = "i-gone"
				o.Resources = append(o.Resources, &gone)
			}},
		{
			name: "a kind is missing", property: "the account holds", says: "no database",
			set: func(c *Case, _ *account) {
				c.Kinds = append(c.Kinds, inventory.KindDatabase)
			}},

		{
			name: "an unknown kind", property: "kinds are in", says: "there is no kind",
			spoil: func(o *round.Observation) {
				of(o, inventory.KindSecret).Kind = "sekret"
			}},
		{
			name: "another kind's detail", property: "kinds are in", says: "its detail is",
			spoil: func(o *round.Observation) {
				of(o, inventory.KindSecret).Detail = &inventory.Volume{}
			}},
		{name: "a typed nil detail", property: "kinds are in", says: "nil itself", spoil: func(o *round.Observation) {
			of(o, inventory.KindSecret).Detail = (*inventory.Secret)(nil)
		}},

		{
			name: "the provider's own word for a state", property: "states", says: "no state",
			spoil: func(o *round.Observation) { of(o, machine).State = "InService" },
		},
		{name: "available and attached", property: "states", says: "attached to", spoil: func(o *round.Observation) {
			of(o, inventory.KindVolume).State = inventory.StateAvailable
		}},
		{
			name: "in use by nothing", property: "states", says: "unattached",
			spoil: func(o *round.Observation) {
				detail[*inventory.Volume](o).AttachedTo = nil
			}},

		{name: "made in the future", property: "times", says: "CreatedAt", spoil: func(o *round.Observation) {
			of(o, inventory.KindSecret).CreatedAt = now.Add(time.Second)
		}},
		{
			name: "in its state before it was made", property: "times", says: "before it was made",
			spoil: func(o *round.Observation) { of(o, machine).StateSince = time.Unix(0, 0).UTC() },
		},
		{name: "local time", property: "times", says: "is not UTC", spoil: func(o *round.Observation) {
			r := of(o, machine)
			r.CreatedAt = r.CreatedAt.In(time.FixedZone("here", 3600))
		}},
		{
			name: "an image launched in the future", property: "times", says: "LastLaunched",
			spoil: func(o *round.Observation) {
				detail[*inventory.Image](o).LastLaunched = inventory.Known(now.Add(time.Hour))
			}},
		{
			name: "a notebook used in the future", property: "times", says: "LastActivity",
			spoil: func(o *round.Observation) {
				detail[*inventory.Notebook](o).LastActivity = inventory.Known(now.Add(time.Hour))
			}},
		{
			name: "a notebook modified in the future", property: "times", says: "LastModified",
			spoil: func(o *round.Observation) { detail[*inventory.Notebook](o).LastModified = now.Add(time.Hour) },
		},
		{
			name: "a job that starts in the future", property: "times", says: "StartedAt",
			spoil: func(o *round.Observation) {
				detail[*inventory.TrainingJob](o).StartedAt = now.Add(time.Hour)
			}},
		{
			name: "a secret read in the future", property: "times", says: "LastAccessed",
			spoil: func(o *round.Observation) {
				of(o, inventory.KindSecret).Detail = &inventory.Secret{
					LastAccessed: inventory.Known(now.Add(time.Hour)),
				}
			}},
		{name: "an upload of the future", property: "times", says: "oldest upload", spoil: func(o *round.Observation) {
			detail[*inventory.Bucket](o).Uploads = inventory.Known(inventory.Uploads{
				Count: 1, Oldest: now.Add(time.Hour),
			})
		}},
		{name: "an object of the future", property: "times", says: "newest object", spoil: func(o *round.Observation) {
			prefix(o).Newest = now.Add(time.Hour)
		}},
		{
			name: "objects in the wrong order", property: "times", says: "younger than the newest",
			spoil: func(o *round.Observation) { prefix(o).Oldest = now },
		},
		{
			name: "a commitment that ends first", property: "times", says: "ends before",
			spoil: func(o *round.Observation) {
				detail[*inventory.Commitment](o).EndsAt = time.Unix(0, 0).UTC()
			}},
		{name: "a reservation in local time", property: "times", says: "EndsAt", spoil: func(o *round.Observation) {
			detail[*inventory.CapacityReservation](o).EndsAt = now.In(time.FixedZone("here", 3600))
		}},

		{name: "a negative count", property: "quantities", says: "is -1", spoil: func(o *round.Observation) {
			detail[*inventory.Repository](o).Images = -1
		}},
		{name: "a negative size in a fact", property: "quantities", says: "is -5", spoil: func(o *round.Observation) {
			detail[*inventory.Bucket](o).Sizes = inventory.Known(map[string]int64{"STANDARD": -5})
		}},
		{name: "a volume of no size", property: "quantities", says: "no size", spoil: func(o *round.Observation) {
			detail[*inventory.Volume](o).SizeGiB = 0
		}},
		{
			name: "a group upside down", property: "quantities", says: "over its maximum",
			spoil: func(o *round.Observation) {
				detail[*inventory.AutoScalingGroup](o).Min = 3
			}},
		{
			name: "more available than reserved", property: "quantities", says: "available of",
			spoil: func(o *round.Observation) { detail[*inventory.CapacityReservation](o).Available = 9 },
		},
		{
			name: "more healthy than there are", property: "quantities", says: "healthy of",
			spoil: func(o *round.Observation) {
				detail[*inventory.LoadBalancer](o).HealthyTargets = inventory.Known(9)
			}},
		{
			name: "more untagged images than images", property: "quantities", says: "untagged",
			spoil: func(o *round.Observation) { detail[*inventory.Repository](o).UntaggedImages = 9 },
		},
		{
			name: "more small objects than objects", property: "quantities", says: "small objects",
			spoil: func(o *round.Observation) { prefix(o).Small.Objects = 99 },
		},
		{
			name: "more old objects than objects", property: "quantities", says: "older than 30 days",
			spoil: func(o *round.Observation) { prefix(o).OlderThan[30] = inventory.Stored{Bytes: 99, Objects: 4} },
		},

		{name: "tags were not read", property: "tags are read", says: "not read", spoil: func(o *round.Observation) {
			retag(o, of(o, machine), nil)
		}},
		{name: "an owner from nowhere", property: "owners", says: "its owner is", spoil: func(o *round.Observation) {
			of(o, machine).Owner.Team = "ranking"
		}},
		{name: "a lifetime from nowhere", property: "owners", says: "its tags say", spoil: func(o *round.Observation) {
			of(o, machine).Lifetime = inventory.Ephemeral
		}},
		{name: "a purpose from nowhere", property: "owners", says: "its tags say", spoil: func(o *round.Observation) {
			of(o, machine).Purpose = inventory.Inference
		}},
		{
			name: "managed without a source", property: "owners", says: "managed true",
			spoil: func(o *round.Observation) {
				of(o, machine).Managed = true
			}},
		{name: "kept without a source", property: "owners", says: "until", spoil: func(o *round.Observation) {
			of(o, machine).KeepUntil = now
		}},
		{
			name: "a silent unreadable exemption", property: "owners", says: "no blind spot says so",
			spoil: func(o *round.Observation) {
				retag(o, of(o, machine), map[string]string{inventory.TagKeepUntil: "soon"})
			}},

		{name: "a disk that is not there", property: "references", says: "disk", spoil: func(o *round.Observation) {
			detail[*inventory.Instance](o).Disks[0].VolumeID = "vol-9"
		}},
		{name: "a group that is not there", property: "references", says: "group", spoil: func(o *round.Observation) {
			o.Resources[0].Manager.Name = "other"
		}},
		{
			name: "a disk of an unlisted machine", property: "references", says: "machine",
			spoil: func(o *round.Observation) {
				detail[*inventory.Volume](o).AttachedTo = []string{"i-9"}
			}},
		{name: "an image that is not there", property: "references", says: "image", spoil: func(o *round.Observation) {
			detail[*inventory.Snapshot](o).Images = []string{"ami-9"}
		}},
		{
			name: "images that are not known", property: "references", says: "said to be unknown",
			spoil: func(o *round.Observation) { detail[*inventory.Snapshot](o).ImagesKnown = false },
		},
		{
			name: "a snapshot that is not there", property: "references", says: "snapshot",
			spoil: func(o *round.Observation) {
				detail[*inventory.Image](o).SnapshotIDs = []string{"snap-9"}
			}},
		{
			name: "an address of a machine that is not there", property: "references", says: "machine",
			spoil: func(o *round.Observation) { detail[*inventory.Address](o).InstanceID = "i-9" },
		},
		{
			name: "an address of a machine and of nothing", property: "references", says: "not associated",
			spoil: func(o *round.Observation) { detail[*inventory.Address](o).AssociationID = "" },
		},
		{
			name: "a member that is not there", property: "references", says: "member",
			spoil: func(o *round.Observation) {
				detail[*inventory.AutoScalingGroup](o).Instances = []string{"i-9"}
			}},

		{
			name: "usage of nothing", property: "windows", says: "what is not observed",
			spoil: func(o *round.Observation) {
				o.Windows[inventory.Ref{Kind: machine, ID: "i-9"}] = usage.NewWindow(now.Add(-time.Hour),
					now, time.Minute, "test",
					nil)
			}},
		{name: "a nil window", property: "windows", says: "is nil", spoil: func(o *round.Observation) {
			o.Windows[of(o, machine).Ref()] = nil
		}},
		{name: "no step", property: "windows", says: "the step", spoil: func(o *round.Observation) {
			window(o).Step = 0
		}},
		{name: "no source", property: "windows", says: "no source", spoil: func(o *round.Observation) {
			window(o).Source = ""
		}},
		{name: "a window that ends later", property: "windows", says: "ends at", spoil: func(o *round.Observation) {
			window(o).To = now.Add(time.Minute)
		}},
		{
			name: "a window that begins too early", property: "windows", says: "before what was asked",
			spoil: func(o *round.Observation) { window(o).From = now.Add(-20 * 24 * time.Hour) },
		},
		{
			name: "a window before the machine", property: "windows", says: "before the resource",
			spoil: func(o *round.Observation) { of(o, machine).CreatedAt = now.Add(-time.Hour) },
		},
		{name: "an empty window", property: "windows", says: "is empty", spoil: func(o *round.Observation) {
			window(o).To = window(o).From
		}},
		{name: "a window in local time", property: "windows", says: "not UTC", spoil: func(o *round.Observation) {
			window(o).To = now.In(time.FixedZone("here", 3600))
		}},
		{name: "points before the window", property: "windows", says: "outside", spoil: func(o *round.Observation) {
			window(o).From = now.Add(-2 * time.Hour)
		}},
		{
			name: "points of a GPU after the window", property: "windows", says: "0 gpu_util has points",
			spoil: func(o *round.Observation) { window(o).To = now.Add(-2 * time.Hour) },
		},
		{name: "a figure that cannot be", property: "windows", says: "a mean of", spoil: func(o *round.Observation) {
			window(o).Machine.Stats(usage.CPUUtil).Max = 1
		}},
		{name: "a signal without points", property: "windows", says: "no samples", spoil: func(o *round.Observation) {
			window(o).Machine.Stats(usage.CPUUtil).Count = 0
		}},
		{name: "a GPU without a name", property: "windows", says: "without a name", spoil: func(o *round.Observation) {
			window(o).GPUs[0].Name = ""
		}},

		{
			name: "a blind spot without a reason", property: "blind spots", says: "its why",
			spoil: func(o *round.Observation) {
				o.BlindSpots = append(o.BlindSpots, inventory.BlindSpot{What: "metrics us-east-1", Effect: "none"})
			}},
		{
			name: "a blind spot of two lines", property: "blind spots", says: "its what",
			spoil: func(o *round.Observation) {
				o.BlindSpots = append(o.BlindSpots, inventory.BlindSpot{
					What: "metrics\nus-east-1", Why: "denied", Effect: "none",
				})
			}},
		{
			name: "a blind spot told twice", property: "blind spots", says: "told twice",
			spoil: func(o *round.Observation) {
				b := inventory.BlindSpot{What: "metrics us-east-1", Why: "denied", Effect: "none"}
				o.BlindSpots = append(o.BlindSpots, b, b)
			}},
		{
			name: "a blind spot out of nothing", property: "blind spots", says: "everything can be read",
			spoil: func(o *round.Observation) {
				o.BlindSpots = append(o.BlindSpots, inventory.BlindSpot{
					What: "metrics us-east-1", Why: "denied", Effect: "none",
				})
			}},
		{
			name: "blind and silent", property: "blind spots", says: "no blind spot says so",
			set: func(c *Case, _ *account) {
				c.Unreadable = true
			}},

		{
			name: "unread without a word", property: "kinds that were not read", says: "no blind spot speaks",
			spoil: func(o *round.Observation) { o.Unread["1/eu-west-1/volume"] = true },
		},
		{
			name: "unread and read", property: "kinds that were not read", says: "was read",
			spoil: func(o *round.Observation) {
				o.Unread["1/eu-west-1/volume"] = false
			}},
		{
			name: "unread in another form", property: "kinds that were not read", says: "does not name",
			spoil: func(o *round.Observation) { o.Unread["volume"] = true },
		},
		{
			name: "unread of no kind", property: "kinds that were not read", says: "there is no kind",
			spoil: func(o *round.Observation) { o.Unread["1/eu-west-1/volumes"] = true },
		},
		{
			name: "unread and observed", property: "kinds that were not read", says: "said not to be listed",
			spoil: func(o *round.Observation) { o.Unread["1/us-east-1/volume"] = true },
		},
		{
			name: "commitments unread and known", property: "kinds that were not read", says: "said to be known",
			spoil: func(o *round.Observation) { o.Unread["1/eu-west-1/commitment"] = true },
		},
		{
			name: "commitments unknown without a word", property: "kinds that were not read",
			says: "commitments are not known", spoil: func(o *round.Observation) { o.CommitmentsKnown = false },
		},

		{name: "no calls", property: "calls", says: "no calls", spoil: func(o *round.Observation) { o.Calls = nil }},
		{
			name: "a call without a service", property: "calls", says: "does not name",
			spoil: func(o *round.Observation) {
				o.Calls[0].API = "DescribeInstances"
			}},
		{name: "counted twice", property: "calls", says: "counted twice", spoil: func(o *round.Observation) {
			o.Calls[1].API = o.Calls[0].API
		}},
		{name: "a negative cost", property: "calls", says: "cost", spoil: func(o *round.Observation) {
			o.Calls[1].Cost = -1
		}},
		{name: "called no times", property: "calls", says: "0 calls", spoil: func(o *round.Observation) {
			o.Calls[1].Count = 0
		}},
		{
			name: "billed without a source", property: "calls", says: "the bill has source",
			spoil: func(o *round.Observation) {
				o.Billed = &round.Billed{Start: now.Add(-time.Hour), End: now}
			}},

		{name: "no progress", property: "progress", says: "no progress", set: says()},
		{
			name: "progress of nothing", property: "progress", says: "does not say",
			set: says(round.Progress{Done: 1, Total: 1}),
		},
		{
			name: "more done than there is", property: "progress", says: "more than all",
			set: says(round.Progress{What: "a", Done: 2, Total: 1}),
		},
		{
			name: "progress backwards", property: "progress", says: "comes after",
			set: says(round.Progress{What: "a", Done: 2, Total: 2}, round.Progress{What: "b", Done: 1, Total: 2}),
		},
		{
			name: "progress that never ends", property: "progress", says: "the last part",
			set: says(round.Progress{What: "a", Done: 1, Total: 2}),
		},
		{
			name: "more resources than there are", property: "progress", says: "resources were told",
			set: says(round.Progress{What: "a", Done: 1, Total: 1, Resources: 999}),
		},

		{
			name: "a second look finds another", property: "two observations are equal",
			says: "second inventory differs",
			spoil: func(o *round.Observation) {
				observed++
				of(o, inventory.KindSecret).Name = fmt.Sprint(observed)
			}},
		{
			name: "a second look measures another", property: "two observations are equal",
			says: "the usage of the second",
			spoil: func(o *round.Observation) {
				observed++
				window(o).Add("", usage.Power, usage.Point{
					Time: now.Add(-time.Hour), Mean: float64(observed), Max: float64(observed),
				})
			}},
		{
			name: "a second look measures less", property: "two observations are equal", says: "only in the first",
			spoil: func(o *round.Observation) {
				if observed++; observed%2 == 0 {
					clear(o.Windows)
				}
			}},
		{
			name: "a second look measures more", property: "two observations are equal", says: "only in the second",
			spoil: func(o *round.Observation) {
				if observed++; observed%2 == 1 {
					clear(o.Windows)
				}
			}},
		{
			name: "a second look is blind", property: "two observations are equal", says: "unread kinds differ",
			spoil: func(o *round.Observation) {
				observed++
				o.Unread[fmt.Sprintf("1/eu-west-1/volume%d", observed)] = true
			}},

		{
			name: "the same observation again", property: "two observations share nothing", says: "share it",
			set: func(c *Case, a *account) {
				kept := sample(a.tags, c.Query)
				a.instead = func(context.Context, round.Query) (*round.Observation, error) { return kept, nil }
			}},
		{
			name: "the same tags again", property: "two observations share nothing", says: "share it",
			set: func(_ *Case, a *account) {
				kept := map[string]string{"team": "vision", "purpose": "training"}
				a.spoil = func(o *round.Observation) { of(o, machine).Tags = kept }
			}},
		{
			name: "the same usage again", property: "two observations share nothing", says: "share its usage",
			set: func(c *Case, a *account) {
				kept := maps.Clone(sample(a.tags, c.Query).Windows)
				a.spoil = func(o *round.Observation) { o.Windows = kept }
			}},

		{
			name: "deaf", property: "a canceled observation returns", says: "returned <nil>",
			set: func(_ *Case, a *account) {
				a.instead = func(_ context.Context, q round.Query) (*round.Observation, error) {
					return sample(a.tags, q), nil
				}
			}},
		{
			name: "slow", property: "a canceled observation returns", says: "still at it",
			set: func(_ *Case, a *account) {
				a.instead = func(ctx context.Context, q round.Query) (*round.Observation, error) {
					if ctx.Err() != nil {
						time.Sleep(300 * time.Millisecond)
					}
					return sample(a.tags, q), ctx.Err()
				}
			}},
		{name: "a list with usage", property: "a list holds", says: "windows", set: func(_ *Case, a *account) {
			a.spoilList = func(o *round.Observation, q round.Query) { o.Windows = sample(a.tags, q).Windows }
		}},
		{
			name: "a list without a machine", property: "a list holds", says: "others than those observed",
			set: func(_ *Case, a *account) {
				a.spoilList = func(o *round.Observation, _ round.Query) { o.Resources = o.Resources[1:] }
			}},
		{
			name: "a list that is blind", property: "a list holds", says: "told by the list only",
			set: func(_ *Case, a *account) {
				a.spoilList = func(o *round.Observation, _ round.Query) {
					o.BlindSpots = []inventory.BlindSpot{{What: "a", Why: "b", Effect: "c"}}
				}
			}},
		{
			name: "a list that knows less", property: "a list holds", says: "unread kinds",
			set: func(_ *Case, a *account) {
				a.spoilList = func(o *round.Observation, _ round.Query) { o.CommitmentsKnown = false }
			}},
		{name: "some are all", property: "listing some", says: "others were listed", set: func(_ *Case, a *account) {
			a.spoilList = func(o *round.Observation, q round.Query) { o.Resources = sample(a.tags, q).Resources }
		}},
		{name: "none are all", property: "listing some", says: "asked for nothing", set: func(_ *Case, a *account) {
			a.spoilList = func(o *round.Observation, q round.Query) {
				if len(q.Only) == 0 {
					o.Resources = sample(a.tags, q).Resources
				}
			}
		}},
		{
			name: "another cloud is nowhere", property: "listing some", says: "of another cloud",
			set: func(_ *Case, a *account) {
				a.spoilList = func(*round.Observation, round.Query) {}
			}},
		{name: "measured less than observed", property: "lists and points", says: "not measured", set: modified(
			func([]*inventory.Resource, usage.Interval, *usage.SourceInfo, *usage.Point) bool { return false })},
		{name: "measured another", property: "lists and points", says: "differs from what is observed", set: modified(
			func(_ []*inventory.Resource, _ usage.Interval, _ *usage.SourceInfo, p *usage.Point) bool {
				p.Mean++
				return true
			})},
		{
			name: "observed nothing", property: "lists and points", says: "observed without usage",
			spoil: func(o *round.Observation) { clear(o.Windows) },
		},
		{
			name: "a call that is not counted", property: "lists and points", says: "make other calls",
			spoil: func(o *round.Observation) { o.Calls[0].Count++ },
		},
		{
			name: "a blind spot that is not told", property: "lists and points", says: "other blind spots",
			spoil: func(o *round.Observation) {
				o.BlindSpots = []inventory.BlindSpot{{What: "a", Why: "b", Effect: "c"}}
			}},
		{name: "measuring fails", property: "lists and points", says: "measure: ", set: func(_ *Case, a *account) {
			a.measure = func(context.Context, []*inventory.Resource, usage.Interval,
				func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
				return usage.MeasureResult{}, inventory.ErrDenied
			}
		}},
		{name: "a point twice", property: "points come in order", says: "comes after", set: modified(
			func(_ []*inventory.Resource, iv usage.Interval, _ *usage.SourceInfo, p *usage.Point) bool {
				p.Time = iv.From
				return true
			})},
		{name: "a point of the future", property: "points come in order", says: "is outside", set: modified(
			func(_ []*inventory.Resource, _ usage.Interval, _ *usage.SourceInfo, p *usage.Point) bool {
				p.Time = p.Time.Add(time.Hour)
				return true
			})},
		{name: "a point before what was opened", property: "points come in order", says: "is outside", set: modified(
			func(_ []*inventory.Resource, iv usage.Interval, o *usage.SourceInfo, _ *usage.Point) bool {
				o.From = iv.From.Add(2 * time.Hour)
				return true
			})},
		{name: "finer than wanted", property: "points come in order", says: "is opened for", set: modified(
			func(_ []*inventory.Resource, _ usage.Interval, o *usage.SourceInfo, _ *usage.Point) bool {
				o.Step = time.Minute
				return true
			})},
		{name: "another source", property: "points come in order", says: "is opened for", set: modified(
			func(_ []*inventory.Resource, _ usage.Interval, o *usage.SourceInfo, _ *usage.Point) bool {
				o.Source = "rumor"
				return true
			})},
		{
			name: "an unrequested resource", property: "points come in order", says: "not among the resources",
			set: func(_ *Case, a *account) {
				a.measure = func(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
					open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
					hand(sample(a.tags, round.Query{Now: now}).Resources, iv, open, nil)
					return usage.MeasureResult{}, nil
				}
			}},
		{
			name: "two at once", property: "points come in order", says: "two goroutines",
			set: func(_ *Case, a *account) {
				a.measure = func(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
					open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
					var g sync.WaitGroup
					for range 4 {
						g.Go(func() { hand(resources, iv, open, nil) })
					}
					g.Wait()
					return usage.MeasureResult{}, nil
				}
			}},
		{name: "another alone", property: "one resource", says: "measured alone", set: modified(
			func(resources []*inventory.Resource, _ usage.Interval, _ *usage.SourceInfo, p *usage.Point) bool {
				p.Max += float64(len(resources))
				return true
			})},
		{name: "another in parts", property: "an interval", says: "in parts", set: modified(
			func(_ []*inventory.Resource, iv usage.Interval, _ *usage.SourceInfo, p *usage.Point) bool {
				p.Max += float64(iv.From.Unix())
				return true
			})},
		{
			name: "calls for nothing", property: "what is not wanted", says: "takes the calls",
			set: func(_ *Case, a *account) {
				a.measure = func(context.Context, []*inventory.Resource, usage.Interval,
					func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
					return usage.MeasureResult{Calls: []inventory.Calls{measuring}}, nil
				}
			}},
		{
			name: "measures on and on", property: "a canceled measurement", says: "still at it",
			set: func(_ *Case, a *account) {
				a.measure = func(context.Context, []*inventory.Resource, usage.Interval,
					func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
					time.Sleep(300 * time.Millisecond)
					return usage.MeasureResult{}, nil
				}
			}},
		{
			name: "measures though it is canceled", property: "a canceled measurement", says: "returned <nil>",
			set: func(_ *Case, a *account) {
				a.measure = func(context.Context, []*inventory.Resource, usage.Interval,
					func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
					return usage.MeasureResult{}, nil
				}
			}},
		{
			name: "canceled and half an answer", property: "a canceled observation returns", says: "returned one",
			set: func(_ *Case, a *account) {
				a.instead = func(ctx context.Context, q round.Query) (*round.Observation, error) {
					return sample(a.tags, q), ctx.Err()
				}
			}},
		{
			name: "deaf once it has begun", property: "an observation canceled on its way", says: "after part 1 of 2",
			set: func(_ *Case, a *account) {
				a.instead = func(ctx context.Context, q round.Query) (*round.Observation, error) {
					if q.Progress != nil {
						q.Progress(round.Progress{What: "a", Done: 1, Total: 2})
						q.Progress(round.Progress{What: "b", Done: 2, Total: 2})
					}
					return sample(a.tags, q), nil
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				observed = 0
				c, a := valid()
				a.spoil = tc.spoil
				if tc.set != nil {
					tc.set(&c, a)
				}
				rec := &recorder{TB: t}
				s, err := observe(t.Context(), rec, c)
				if err != nil {
					t.Fatal(err)
				}
				checked := 0
				for _, p := range properties {
					if strings.HasPrefix(p.name, tc.property) {
						p.check(rec, s)
						checked++
					}
				}
				if checked != 1 {
					t.Fatalf("%d properties are called %q, want 1", checked, tc.property)
				}
				if !strings.Contains(strings.Join(rec.complaints, "\n"), tc.says) {
					t.Errorf("complaints: %q, want one with %q", rec.complaints, tc.says)
				}
				time.Sleep(time.Second) // goroutines that still run return meanwhile
			})
		})
	}
}

// modified modifies the resources of each observation.
func modified(spoil func([]*inventory.Resource, usage.Interval, *usage.SourceInfo, *usage.Point) bool) func(*Case,
	*account) {
	return func(_ *Case, a *account) { a.spoilPoint = spoil }
}

// prefix returns the bucket's only prefix.
func prefix(o *round.Observation) *inventory.Prefix {
	return &detail[*inventory.Bucket](o).Prefixes.Or(nil)[0]
}

// retag replaces a resource's tags and the facts derived from them.
func retag(_ *round.Observation, r *inventory.Resource, tags map[string]string) {
	r.Tags = tags
	_ = inventory.DefaultTagMapping().Apply(r)
}

// says makes an observer report the given progress.
func says(told ...round.Progress) func(*Case, *account) {
	return func(_ *Case, a *account) {
		a.instead = func(_ context.Context, q round.Query) (*round.Observation, error) {
			for _, p := range told {
				if q.Progress != nil {
					q.Progress(p)
				}
			}
			return sample(a.tags, q), nil
		}
	}
}

func TestInvalidCaseFails(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(c *Case, a *account)
	}{
		{"no time", func(c *Case, _ *account) { c.Query.Now = time.Time{} }},
		{"an error", func(_ *Case, a *account) {
			a.instead = func(context.Context, round.Query) (*round.Observation, error) {
				return nil, inventory.ErrDenied
			}
		}},
		{"nothing at all", func(_ *Case, a *account) {
			a.instead = func(context.Context, round.Query) (*round.Observation, error) { return nil, nil }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, a := valid()
			tc.set(&c, a)
			if _, err := observe(t.Context(), t, c); err == nil {
				t.Error("observe returned no error")
			}
		})
	}
}

func TestNilResourceFails(t *testing.T) {
	c, a := valid()
	a.spoil = func(o *round.Observation) { o.Resources = append(o.Resources, nil) }
	rec := &recorder{TB: t}
	if _, err := observe(t.Context(), rec, c); err != nil || len(rec.complaints) != 2 {
		t.Errorf("complaints %q, error %v; want one complaint for each observation", rec.complaints, err)
	}
}
