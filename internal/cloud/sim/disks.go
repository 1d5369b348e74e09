package sim

import (
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// disks adds unattached volumes.
func (a *account) disks() {
	orphan := func(name, region string, x disk, o owner, age float64) {
		x.rules, x.note = append(x.rules, "volume-unattached"), "its machine is gone"
		a.volume(name, region, zone(region, name), x, o, days(age))
	}
	orphan("imagenet-copy", east, gp3(2000), ana, 150)
	orphan("coco-copy", east, gp2(1000), ana, 210)
	orphan("pose-mocap", east, gp3(500), chloe, 63)
	orphan("sft-scratch", west, disk{volumeType: "io2", gib: 1000, iops: 8000}, dmitri, 41)
	orphan("nmt-corpus-2", west, gp3(1500), emeka, 97)
	orphan("", east, gp2(400), owner{care: careless}, 330)
	orphan("", ireland, disk{volumeType: "st1", gib: 4000}, owner{care: careless}, 270)
	orphan("ctr-features-old", ireland, gp3(800), hana, 120)

	// Look-alikes.
	recent := a.volume("defect-frames", east, zone(east, "defect-frames"), gp3(700), ben, days(58))
	recent.planted = honest("written to until yesterday, when it was detached")
	recent.counted = usage.DiskOps
	recent.count = func(hour time.Time) (float64, bool) {
		return recent.key.between(streamNet, hour.Unix()/3600, 800, 9000), a.now.Sub(hour) > hours(27)
	}
	a.volume("rag-index-next", east, zone(east, "rag-index-next"), gp3(900), fatima, days(2)).planted =
		honest("made two days ago")
}

// machine images of the account, by region.
func (a *account) images() {
	for _, x := range []struct {
		name, region string
		gib          int64
		age          float64
		launched     float64 // days ago; negative is never since records began
		owner        owner
		state        inventory.State
		planted      Planted
	}{
		{"ml-train-v41", east, 180, 36, 0.4, ops, inventory.StateAvailable, honest("in use")},
		{"ml-train-v41", west, 180, 36, 3.9, ops, inventory.StateAvailable, honest("in use")},
		{"ml-train-v12", east, 150, 640, 25, ops, inventory.StateAvailable, honest("old, and in use")},
		{"llm-train-v9", east, 240, 14, 6.2, dmitri, inventory.StateAvailable, honest("in use")},
		{"llm-train-v9", west, 240, 14, 5.7, dmitri, inventory.StateAvailable, honest("in use")},
		{"llm-serve-v23", east, 160, 101, 40, fatima, inventory.StateAvailable, honest("in use")},
		{"ctr-v17", ireland, 150, 62, 1.2, hana, inventory.StateAvailable, honest("in use")},
		{"ranker-v31", east, 140, 45, 9, goran, inventory.StateAvailable, honest("in use by a group")},
		{
			"ml-train-v33", east, 180, 290, 214, ops, inventory.StateAvailable,
			waste("not launched for seven months", "image-unused"),
		},
		{
			"ml-train-v29", east, 180, 410, 331, ops, inventory.StateAvailable,
			waste("not launched for eleven months", "image-unused"),
		},
		{
			"pose-rig", west, 300, 380, 260, chloe, inventory.StateAvailable,
			waste("not launched for eight months", "image-unused"),
		},
		{"audit-2025", east, 120, 420, 350, ops, inventory.StateDisabled, honest("disabled and kept for an audit")},
	} {
		detail := &inventory.Image{
			LastLaunched: inventory.Known(a.ago(days(x.launched))), Launchers: inventory.Known([]string{}),
		}
		e := a.add(inventory.Resource{
			Name: x.name, Kind: inventory.KindImage, Region: x.region, State: x.state, CreatedAt: a.ago(days(x.age)),
			Detail: detail,
		}, "ami-", 17, x.owner, x.planted)
		s := a.snapshot(x.name+"-root", x.region, "", x.gib, x.age, x.owner, honest("an image needs it"))
		s.resource.Detail.(*inventory.Snapshot).Images = []string{e.resource.ID}
		detail.SnapshotIDs = []string{s.resource.ID}
		a.named["image/"+x.region+"/"+x.name] = e
	}
}

// image returns the image of that name in a region.
func (a *account) image(name, region string) *entry { return a.named["image/"+region+"/"+name] }

// snapshot adds a snapshot of a volume, or of a deleted one if volumeID is empty.
func (a *account) snapshot(name, region, volumeID string, gib int64, age float64, o owner, p Planted) *entry {
	if volumeID == "" {
		volumeID = "vol-0" + newKey(a.seed, "gone/"+region+"/"+name).hex(17)
	}
	o.purpose, o.lifetime, o.extra = "", "", nil
	return a.add(inventory.Resource{
		Name: name, Kind: inventory.KindSnapshot, Region: region, State: inventory.StateAvailable,
		CreatedAt: a.ago(days(age)),
		Detail: &inventory.Snapshot{
			VolumeID: volumeID, VolumeSizeGiB: gib, ImagesKnown: true, Launchers: inventory.Known([]string{}),
			Locked: inventory.Known(false)},
	}, "snap-", 18, o, p)
}

// backups adds the snapshots without an image.
func (a *account) backups() {
	old := func(name, region string, gib int64, age float64, o owner) {
		a.snapshot(name, region, "", gib, age, o, waste("a snapshot of a machine that is gone", "snapshot-old"))
	}
	old("imagenet-prepared", east, 2000, 240, ana)
	old("seg-2024-final", east, 800, 510, ana)
	old("pose-mocap-raw", west, 1200, 190, chloe)
	old("nmt-wmt-2024", west, 900, 405, emeka)
	old("llm-eval-suite", east, 300, 133, dmitri)
	old("ctr-holdout", ireland, 650, 288, hana)
	for i := range 5 {
		// A chain of one volume: the oldest holds its blocks, the others the changes.
		volumeID := "vol-0" + newKey(a.seed, "gone/feed-features").hex(17)
		a.snapshot("feed-features-"+strconv.Itoa(i+1), east, volumeID, 1500, 300-30*float64(i), goran,
			waste("a chain of monthly copies of a disk that is gone", "snapshot-old"))
	}
	// Look-alikes: young ones, and the daily backups of a disk in use.
	a.snapshot("defect-frames-v3", east, "", 700, 41, ben, honest("six weeks old"))
	for i := range 7 {
		a.snapshot("airflow-daily-"+strconv.Itoa(i+1), east, a.id("airflow-data"), 300, float64(i)+0.3, ops,
			honest("a daily backup of the last week"))
	}
}
