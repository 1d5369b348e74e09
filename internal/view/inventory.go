package view

import (
	"cmp"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
)

// InventorySchema is the shape of an [Inventory] in JSON.
const InventorySchema = "curfew.inventory/v1"

// Inventory is the resources of an account at one time, as far as policies select by them.
type Inventory struct {
	Schema    string         `json:"schema"`
	Cloud     string         `json:"cloud"`
	At        time.Time      `json:"at"`
	Resources []KeptResource `json:"resources"`
}

// KeptResource is one resource; unknown values are null.
type KeptResource struct {
	Ref   inventory.Ref   `json:"ref"`
	Name  string          `json:"name,omitempty"`
	Zone  string          `json:"zone,omitempty"`
	Type  string          `json:"type,omitempty"`
	State inventory.State `json:"state,omitempty"`
	// CreatedAt is when it was created.
	CreatedAt time.Time `json:"created_at,omitzero"`
	// StateSince is since when it is in its state.
	StateSince time.Time         `json:"state_since,omitzero"`
	Tags       map[string]string `json:"tags"`
	// Manager is the controller that manages the resource.
	Manager inventory.Manager `json:"manager,omitzero"`
	// HourlyUSD is the list price of an hour.
	HourlyUSD *money.Amount `json:"hourly_usd"`
	// HourlyNanoUSD is hourly_usd by its former name: in dollars all the same.
	HourlyNanoUSD *money.Amount `json:"hourly_nano_usd"`

	// GPUs are how many GPUs it has.
	GPUs *int `json:"gpus"`
	// InstanceStorageGB is the size of instance-store disks in GB.
	InstanceStorageGB *int64 `json:"instance_storage_gb"`

	Instance *KeptInstance `json:"instance,omitempty"`
	Volume   *KeptVolume   `json:"volume,omitempty"`
	// LastActivity is when it was last used.
	LastActivity *time.Time `json:"last_activity,omitempty"`
	// Progress is the progress of its work; absent for machines at rest and other resources.
	Progress *KeptProgress `json:"progress,omitempty"`
}

// KeptProgress is the progress of the work of a machine, up to an hour before the observation.
type KeptProgress struct {
	// From is since when it is known to have worked without a rest.
	From time.Time `json:"from"`
	// Since is when the work last made progress; absent where it never did.
	Since time.Time `json:"since,omitzero"`
	// Step is the highest training step of the run.
	Step float64 `json:"step,omitempty"`
	// Checkpoints is the newest value of the counter of complete checkpoints.
	Checkpoints float64 `json:"checkpoints,omitempty"`
	// Events is the newest value of the counter of declared events.
	Events float64 `json:"events,omitempty"`
	// Reported is set if the work ever reported steps, checkpoints or events.
	Reported bool `json:"reported"`
}

// KeptInstance has the fields of machines.
type KeptInstance struct {
	Market inventory.Market `json:"market,omitempty"`
	// Image is the id of the image that it was started from.
	Image string `json:"image,omitempty"`
	// Protected reports whether it is protected against termination.
	Protected *bool `json:"protected"`
	// SpotOnce reports whether it is a one-time spot request.
	SpotOnce *bool      `json:"spot_once"`
	Disks    []KeptDisk `json:"disks"`
}

// KeptDisk is a disk of a machine.
type KeptDisk struct {
	// VolumeID is the id of the volume.
	VolumeID string `json:"volume_id"`
	// Ends reports whether it is deleted with the machine.
	Ends   bool   `json:"delete_on_termination"`
	Device string `json:"device,omitempty"`
	Root   bool   `json:"root,omitempty"`
	// SizeGiB is the size in GiB.
	SizeGiB *int64 `json:"size_gib"`
}

// KeptVolume has the fields of volumes.
type KeptVolume struct {
	// SizeGiB is the size in GiB.
	SizeGiB int64 `json:"size_gib"`
	// AttachedTo are the ids of the machines that the volume is attached to.
	AttachedTo []string `json:"attached_to"`
}

// null is a fact in a document: null where it is unknown.
func null[T any](f inventory.Fact[T]) *T {
	if v, ok := f.Get(); ok {
		return &v
	}
	return nil
}

// fact is a value of a document.
func fact[T any](v *T) inventory.Fact[T] {
	if v == nil {
		return inventory.Fact[T]{}
	}
	return inventory.Known(*v)
}

// NewKeptResource returns a resource as it is kept, with its hourly cost.
func NewKeptResource(r *inventory.Resource, hourly inventory.Fact[money.Amount]) KeptResource {
	k := KeptResource{
		Ref: r.Ref(), Name: r.Name, Zone: r.Zone, Type: r.Type, State: r.State, CreatedAt: r.CreatedAt,
		StateSince: r.StateSince,
		Tags:       r.Tags, Manager: r.Manager, HourlyUSD: null(hourly), HourlyNanoUSD: null(hourly),
		GPUs: null(r.Size.GPUs), InstanceStorageGB: null(r.Size.InstanceStorageGB)}
	switch d := r.Detail.(type) {
	case *inventory.Instance:
		m := &KeptInstance{
			Market: d.Market, Image: d.ImageID, Protected: null(d.TerminationProtected), SpotOnce: null(d.SpotOnce),
			Disks: []KeptDisk{},
		}
		for _, x := range d.Disks {
			m.Disks = append(m.Disks, KeptDisk{x.VolumeID, x.DeleteOnTermination, x.Device, x.Root, null(x.SizeGiB)})
		}
		k.Instance = m
	case *inventory.Volume:
		k.Volume = &KeptVolume{d.SizeGiB, append([]string{}, d.AttachedTo...)}
	case *inventory.Notebook:
		k.LastActivity = null(d.LastActivity)
	}
	return k
}

// Hourly is the list price of an hour. What an earlier version kept has it by the former name
// alone.
func (k *KeptResource) Hourly() inventory.Fact[money.Amount] {
	return fact(cmp.Or(k.HourlyUSD, k.HourlyNanoUSD))
}

// Priced returns the resources, owned by the tags of the configuration, with their hourly
// cost.
func (doc *Inventory) Priced(tags inventory.TagMapping) []round.PricedResource {
	out := make([]round.PricedResource, len(doc.Resources))
	for i := range doc.Resources {
		out[i] = doc.Resources[i].Priced(tags)
	}
	return out
}

// Priced returns the resource, owned by the tags of the configuration, with its hourly cost.
func (k *KeptResource) Priced(tags inventory.TagMapping) round.PricedResource {
	r := &inventory.Resource{
		ID: k.Ref.ID, Cloud: k.Ref.Cloud, Account: k.Ref.Account, Region: k.Ref.Region, Kind: k.Ref.Kind, Name: k.Name,
		Zone: k.Zone,
		Type: k.Type, State: k.State, CreatedAt: k.CreatedAt, StateSince: k.StateSince,
		Tags: k.Tags, Manager: k.Manager}
	r.Size.GPUs, r.Size.InstanceStorageGB = fact(k.GPUs), fact(k.InstanceStorageGB)
	switch {
	case k.Instance != nil:
		d := &inventory.Instance{
			Market: k.Instance.Market, ImageID: k.Instance.Image, TerminationProtected: fact(k.Instance.Protected),
			SpotOnce: fact(k.Instance.SpotOnce),
		}
		for _, x := range k.Instance.Disks {
			d.Disks = append(d.Disks, inventory.Disk{
				VolumeID: x.VolumeID, DeleteOnTermination: x.Ends, Device: x.Device, Root: x.Root,
				SizeGiB: fact(x.SizeGiB),
			})
		}
		r.Detail = d
	case k.Volume != nil:
		r.Detail = &inventory.Volume{SizeGiB: k.Volume.SizeGiB, AttachedTo: k.Volume.AttachedTo}
	case k.Ref.Kind == inventory.KindNotebook:
		r.Detail = &inventory.Notebook{LastActivity: fact(k.LastActivity)}
	}
	_ = tags.Apply(r) // a keep that cannot be read keeps
	return round.PricedResource{Resource: r, Hourly: k.Hourly()}
}
