package sim

import (
	"maps"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// machine is one row of the fleet.
type machine struct {
	name, machineType, region string
	owner                     owner
	// age is the time since launch; stopped the time since it was stopped, 0 when
	// it runs.
	age, stopped time.Duration
	// market defaults to on-demand.
	market    inventory.Market
	model     behavior
	telemetry telemetry
	outages   []outage
	// image is the name of one of the account's images; empty for a public one.
	image string
	// data lists data disks next to the root disk; they outlive the machine.
	data []disk
	// root is the root disk's type and size; gp3 of 200 GiB by default, 50 GiB
	// without accelerator.
	root               disk
	group, reservation string
	protected          bool
	planted            Planted
}

// disk is a volume to be made.
type disk struct {
	volumeType      string
	gib             int64
	iops, mibps     int64
	rules           []string
	note            string
	keepsNoPromises bool // delete on termination
}

func gp3(gib int64) disk { return disk{volumeType: "gp3", gib: gib, iops: 3000, mibps: 125} }

// gp2 returns a volume of the older type, which costs more and performs worse.
func gp2(gib int64) disk {
	return disk{
		volumeType: "gp2", gib: gib, iops: min(max(3*gib, 100), 16000), rules: []string{"volume-gp2"},
		note: "gp2 in use: gp3 is cheaper",
	}
}

// launch adds a machine with its disks.
func (a *account) launch(m machine) *entry {
	state, since := inventory.StateRunning, a.ago(m.age)
	if m.stopped > 0 {
		state, since = inventory.StateStopped, a.ago(m.stopped)
	}
	if m.market == inventory.MarketUnknown {
		m.market = inventory.OnDemand
	}
	h := hardwareOf(m.machineType)
	if m.root.gib == 0 {
		m.root = gp3(50)
		if h.gpus > 0 {
			m.root = gp3(200)
		}
	}
	m.root.keepsNoPromises = true
	z := zone(m.region, m.name)
	if m.group != "" {
		m.owner.extra = maps.Clone(m.owner.extra)
		if m.owner.extra == nil {
			m.owner.extra = map[string]string{}
		}
		m.owner.extra["aws:autoscaling:groupName"] = m.group
	}
	d := &inventory.Instance{
		Market: m.market, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
		TerminationProtected: inventory.Known(m.protected), SpotOnce: inventory.Known(m.market == inventory.Spot),
		ImageID: "ami-0" + newKey(0, "public/"+m.region).hex(16),
	}
	if m.image != "" {
		d.ImageID = a.image(m.image, m.region).resource.ID
	}
	if m.reservation != "" {
		d.CapacityReservationID = a.id(m.reservation)
	}
	e := a.add(inventory.Resource{
		Name: m.name, Kind: inventory.KindInstance, Region: m.region, Zone: z, Type: m.machineType,
		State: state, CreatedAt: a.ago(m.age), StateSince: since, Detail: d,
	}, "i-", 17, m.owner, m.planted)
	e.resource.Aliases = []string{e.key.hex(8) + ".internal.example"}
	if m.group != "" {
		e.resource.Manager = inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: m.group}
	}
	e.hardware, e.model, e.telemetry, e.outages = h, m.model, m.telemetry, m.outages
	e.signals = []usage.Signal{usage.CPUUtil, usage.NetBytes}
	for i, x := range append([]disk{m.root}, m.data...) {
		name := m.name + "-root"
		if i > 0 {
			name = m.name + "-data"
		}
		v := a.volume(name, m.region, z, x, m.owner, m.age+5*day)
		if i == 0 {
			v.resource.CreatedAt = a.ago(m.age)
		}
		v.resource.State, v.resource.Manager = inventory.StateInUse, e.resource.Manager
		v.resource.Detail.(*inventory.Volume).AttachedTo = []string{e.resource.ID}
		d.Disks = append(d.Disks, inventory.Disk{VolumeID: v.resource.ID, DeleteOnTermination: x.keepsNoPromises,
			Device: "/dev/xvd" + string(rune('a'+i)), Root: i == 0, SizeGiB: inventory.Known(x.gib)})
	}
	return e
}

// volume adds an unattached volume.
func (a *account) volume(name, region, zone string, x disk, o owner, age time.Duration) *entry {
	p := honest("a disk in use", x.rules...)
	if len(x.rules) > 0 {
		p = Planted{Rules: x.rules, Note: x.note}
	}
	o.purpose, o.lifetime = "", ""
	extra := maps.Clone(o.extra)
	maps.DeleteFunc(extra, func(k, _ string) bool { return k != "aws:autoscaling:groupName" })
	o.extra = extra
	return a.add(inventory.Resource{
		Name: name, Kind: inventory.KindVolume, Region: region, Zone: zone, Type: x.volumeType,
		State: inventory.StateAvailable, CreatedAt: a.ago(age),
		Detail: &inventory.Volume{SizeGiB: x.gib, IOPS: x.iops, ThroughputMiBps: x.mibps},
	}, "vol-", 18, o, p)
}
