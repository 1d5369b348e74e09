package finding

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/cputime"
)

func (f *fixture) snapshot(id, volume string, age time.Duration,
	change ...func(*inventory.Resource, *inventory.Snapshot)) *inventory.Resource {
	d := &inventory.Snapshot{
		VolumeID: volume, VolumeSizeGiB: 100, ImagesKnown: true, Launchers: inventory.Known([]string{}),
		Locked: inventory.Known(false),
	}
	r := inventory.Resource{
		ID: id, Kind: inventory.KindSnapshot, State: inventory.StateAvailable, CreatedAt: ago(age), Detail: d,
	}
	for _, c := range change {
		c(&r, d)
	}
	return f.add(r)
}

func imaged(ids ...string) func(*inventory.Resource, *inventory.Snapshot) {
	return func(_ *inventory.Resource, d *inventory.Snapshot) { d.Images = ids }
}

func backedUp(r *inventory.Resource, _ *inventory.Snapshot) {
	r.Manager = inventory.Manager{Kind: inventory.ManagerBackup}
}

func locked(is inventory.Fact[bool]) func(*inventory.Resource, *inventory.Snapshot) {
	return func(_ *inventory.Resource, d *inventory.Snapshot) { d.Locked = is }
}

func TestSnapshots(t *testing.T) {
	image := func(f *fixture, id string, state inventory.State, launched time.Duration, snapshots ...string) {
		f.add(inventory.Resource{ID: id, Kind: inventory.KindImage, State: state, CreatedAt: ago(400 * day),
			Detail: &inventory.Image{
				SnapshotIDs: snapshots, LastLaunched: inventory.Known(ago(launched)),
				Launchers: inventory.Known([]string{}),
			}})
	}
	launched := func(f *fixture, by inventory.Fact[[]string]) {
		f.add(inventory.Resource{
			ID: "ami-1", Kind: inventory.KindImage, State: inventory.StateAvailable, CreatedAt: ago(400 * day),
			Detail: &inventory.Image{
				SnapshotIDs: []string{"snap-1"}, LastLaunched: inventory.Known(ago(120 * day)), Launchers: by,
			}})
	}
	runScenarios(t, []scenario{
		{
			name:  "old and alone of its volume",
			build: func(f *fixture) { f.snapshot("snap-1", "vol-1", 100*day) },
			want:  []string{"snapshot-old snap-1 5.00"},
		},
		{
			name:  "89 days",
			build: func(f *fixture) { f.snapshot("snap-1", "vol-1", 89*day) },
		},
		{
			name: "a young one of the chain may share its blocks",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 100*day)
				f.snapshot("snap-2", "vol-1", 10*day)
			},
			want: []string{"snapshot-old snap-1 <=5.00"},
		},
		{
			name: "a whole old chain: the later ones' blocks are not published",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 200*day)
				f.snapshot("snap-2", "vol-1", 100*day)
			},
			want: []string{"snapshot-old snap-1 5.00", "snapshot-old snap-2 <=5.00"},
		},
		{
			name: "an old incremental one",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 200*day, imaged("ami-other"))
				f.snapshot("snap-2", "vol-1", 100*day)
			},
			want: []string{"snapshot-old snap-2 <=5.00"},
		},
		{
			name: "copies are chains of their own",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-ffffffff", 200*day)
				f.snapshot("snap-2", "vol-ffffffff", 100*day)
			},
			want: []string{"snapshot-old snap-1 5.00", "snapshot-old snap-2 5.00"},
		},
		{
			name: "a disabled image still needs its snapshot",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateDisabled, 300*day, "snap-1")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
			},
		},
		{
			name: "images that could not be read leave snapshots unknown",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 100*day, func(_ *inventory.Resource, d *inventory.Snapshot) {
					d.ImagesKnown = false
				})
			},
		},
		{
			name: "images that could not be listed leave snapshots unknown",
			build: func(f *fixture) {
				f.Unread = map[string]bool{"123456789012/us-east-1/image": true}
				f.snapshot("snap-1", "vol-1", 100*day)
			},
		},
		{
			name: "kept",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 100*day, func(r *inventory.Resource, _ *inventory.Snapshot) {
					r.KeepUntil = inventory.KeepForever
				})
			},
		},
		{
			name:  "AWS Backup alone deletes its recovery points",
			build: func(f *fixture) { f.snapshot("snap-1", "vol-1", 400*day, backedUp) },
		},
		{
			name: "a recovery point in the chain stays, and may share its blocks",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 200*day, backedUp)
				f.snapshot("snap-2", "vol-1", 100*day)
			},
			want: []string{"snapshot-old snap-2 <=5.00"},
		},
		{
			name:  "a locked snapshot",
			build: func(f *fixture) { f.snapshot("snap-1", "vol-1", 400*day, locked(inventory.Known(true))) },
		},
		{
			name:  "locks that could not be read: no more than a bound, and no waste",
			build: func(f *fixture) { f.snapshot("snap-1", "vol-1", 400*day, locked(inventory.Fact[bool]{})) },
			want:  []string{"snapshot-old snap-1 <=5.00"},
		},
		{
			name: "a locked snapshot of an image stays",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1", "snap-2")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"), locked(inventory.Known(true)))
				f.snapshot("snap-2", "vol-2", 400*day, imaged("ami-1"))
			},
			want: []string{"image-unused ami-1 5.00"},
		},
		{
			name: "an image of AWS Backup",
			build: func(f *fixture) {
				f.add(inventory.Resource{
					ID: "ami-1", Kind: inventory.KindImage, State: inventory.StateAvailable, CreatedAt: ago(400 * day),
					Manager: inventory.Manager{
						Kind: inventory.ManagerBackup,
					}, Detail: &inventory.Image{
						SnapshotIDs: []string{"snap-1"}, Launchers: inventory.Known([]string{}),
					}})
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"), backedUp)
			},
		},
		{
			name: "an image without a launch for 120 days",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
			},
			want: []string{"image-unused ami-1 5.00"},
		},
		{
			name: "an image that was launched last month",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 30*day, "snap-1")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
			},
		},
		{
			name: "an image that a machine runs from",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
				f.running("i-1", "m5.large", func(_ *inventory.Resource, d *inventory.Instance) {
					d.ImageID = "ami-1"
				})
			},
		},
		{
			name: "an image that is protected from being deregistered",
			build: func(f *fixture) {
				f.add(inventory.Resource{
					ID: "ami-1", Kind: inventory.KindImage, State: inventory.StateAvailable, CreatedAt: ago(400 * day),
					Detail: &inventory.Image{
						SnapshotIDs: []string{"snap-1"}, Protected: true, Launchers: inventory.Known([]string{}),
					}})
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
			},
		},
		{
			name: "an image that a launch template names",
			build: func(f *fixture) {
				launched(f, inventory.Known([]string{"launch template web version 3"}))
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
			},
		},
		{
			name: "launch templates that could not be read",
			build: func(f *fixture) {
				launched(f, inventory.Fact[[]string]{})
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
				f.snapshot("snap-2", "vol-2", 400*day, func(_ *inventory.Resource, d *inventory.Snapshot) {
					d.Launchers = inventory.Fact[[]string]{}
				})
			},
		},
		{
			name: "a snapshot that a fleet makes disks of",
			build: func(f *fixture) {
				f.snapshot("snap-1", "vol-1", 400*day, func(_ *inventory.Resource, d *inventory.Snapshot) {
					d.Launchers = inventory.Known([]string{"spot fleet sfr-1"})
				})
			},
		},
		{
			name: "an image that another account's machine runs from",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
				f.running("i-1", "m5.large", func(r *inventory.Resource, d *inventory.Instance) {
					r.Cloud, r.Account, d.ImageID = "aws", "210987654321", "ami-1"
				})
			},
		},
		{
			name: "a kept snapshot of an image stays, and its chain with it",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1", "snap-2")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
				f.snapshot("snap-2", "vol-1", 300*day, imaged("ami-1"),
					func(r *inventory.Resource, _ *inventory.Snapshot) {
						r.KeepUntil = inventory.KeepForever
					})
			},
			want: []string{"image-unused ami-1 <=5.00"},
		},
		{
			name: "an image where another account's machines could not be listed",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1"))
				f.Unread = map[string]bool{"210987654321/us-east-1/instance": true}
			},
		},
		{
			name: "a snapshot that another image needs stays",
			build: func(f *fixture) {
				image(f, "ami-1", inventory.StateAvailable, 120*day, "snap-1", "snap-2")
				f.snapshot("snap-1", "vol-1", 400*day, imaged("ami-1", "ami-2"))
				f.snapshot("snap-2", "vol-2", 400*day, imaged("ami-1"))
			},
			want: []string{"image-unused ami-1 5.00"},
		},
	})
}

// TestLongSnapshotChain checks that the chain of a volume with very many snapshots is not walked
// once per snapshot, which would take a quarter of a minute.
func TestLongSnapshotChain(t *testing.T) {
	f := newFixture(t)
	for i := range 20_000 {
		f.snapshot(fmt.Sprintf("snap-%05d", i), "vol-1", time.Duration(100+i%100)*day)
	}
	begun := cputime.Now(t)
	if found := f.evaluate(); len(found) != 20_000 {
		t.Errorf("%d findings, want one for each snapshot", len(found))
	}
	if took := cputime.Now(t) - begun; took > 8*time.Second {
		t.Errorf("took %s", took)
	}
}
