package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// lastScan names, for --against, what the newest scan saw.
const lastScan = "last"

// inventorySchema is the shape of what a scan keeps of the account for `policy check`.
const inventorySchema = "curfew.inventory/v1"

// Bounds of a kept inventory: some hundred thousand resources.
const (
	maxInventory       = 256 << 20
	maxInventoryValues = 20_000_000
)

// keptInventory is what a scan saw, as far as policies select by it.
type keptInventory struct {
	Schema    string         `json:"schema"`
	Cloud     string         `json:"cloud"`
	At        time.Time      `json:"at"`
	Resources []keptResource `json:"resources"`
}

// keptResource is one resource; what is not known is null.
type keptResource struct {
	Ref        inventory.Ref     `json:"ref"`
	Name       string            `json:"name,omitempty"`
	Zone       string            `json:"zone,omitempty"`
	Type       string            `json:"type,omitempty"`
	State      inventory.State   `json:"state,omitempty"`
	CreatedAt  time.Time         `json:"created_at,omitzero"`
	StateSince time.Time         `json:"state_since,omitzero"`
	Tags       map[string]string `json:"tags"`
	Manager    inventory.Manager `json:"manager,omitzero"`
	HourlyUSD  *money.Amount     `json:"hourly_nano_usd"`

	GPUs              *int   `json:"gpus"`
	InstanceStorageGB *int64 `json:"instance_storage_gb"`

	Instance     *keptMachine `json:"instance,omitempty"`
	Volume       *keptVolume  `json:"volume,omitempty"`
	LastActivity *time.Time   `json:"last_activity,omitempty"`
}

type keptMachine struct {
	Market    inventory.Market `json:"market,omitempty"`
	Protected *bool            `json:"protected"`
	SpotOnce  *bool            `json:"spot_once"`
	Disks     []keptDisk       `json:"disks"`
}

type keptDisk struct {
	VolumeID string `json:"volume_id"`
	Ends     bool   `json:"delete_on_termination"`
	Device   string `json:"device,omitempty"`
	Root     bool   `json:"root,omitempty"`
	SizeGiB  *int64 `json:"size_gib"`
}

type keptVolume struct {
	SizeGiB    int64    `json:"size_gib"`
	AttachedTo []string `json:"attached_to"`
}

// known is a fact in a document: null where it is not known.
func known[T any](f inventory.Fact[T]) *T {
	if v, ok := f.Get(); ok {
		return &v
	}
	return nil
}

// fact is what a document says.
func fact[T any](v *T) inventory.Fact[T] {
	if v == nil {
		return inventory.Fact[T]{}
	}
	return inventory.Known(*v)
}

// saveInventory keeps what a scan saw: the whole file or none.
func saveInventory(dir, cloud string, audit *round.Result) error {
	doc := keptInventory{Schema: inventorySchema, Cloud: cloud, At: audit.StartedAt.UTC(), Resources: []keptResource{}}
	for _, r := range audit.Resources {
		k := keptResource{Ref: r.Ref(), Name: r.Name, Zone: r.Zone, Type: r.Type, State: r.State, CreatedAt: r.CreatedAt, StateSince: r.StateSince,
			Tags: r.Tags, Manager: r.Manager, HourlyUSD: known(audit.Hourly(r.Ref())), GPUs: known(r.Size.GPUs), InstanceStorageGB: known(r.Size.InstanceStorageGB)}
		switch d := r.Detail.(type) {
		case *inventory.Instance:
			m := &keptMachine{Market: d.Market, Protected: known(d.TerminationProtected), SpotOnce: known(d.SpotOnce), Disks: []keptDisk{}}
			for _, x := range d.Disks {
				m.Disks = append(m.Disks, keptDisk{x.VolumeID, x.DeleteOnTermination, x.Device, x.Root, known(x.SizeGiB)})
			}
			k.Instance = m
		case *inventory.Volume:
			k.Volume = &keptVolume{d.SizeGiB, append([]string{}, d.AttachedTo...)}
		case *inventory.Notebook:
			k.LastActivity = known(d.LastActivity)
		}
		doc.Resources = append(doc.Resources, k)
	}
	dir = filepath.Join(dir, "inventories")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, cloud+".json"), func(w io.Writer) error { return json.NewEncoder(w).Encode(doc) })
}

// resource is what was kept, with its owner by the tags of the configuration.
func (k *keptResource) resource(tags inventory.TagMapping) *inventory.Resource {
	r := &inventory.Resource{ID: k.Ref.ID, Cloud: k.Ref.Cloud, Account: k.Ref.Account, Region: k.Ref.Region, Kind: k.Ref.Kind, Name: k.Name, Zone: k.Zone,
		Type: k.Type, State: k.State, CreatedAt: k.CreatedAt, StateSince: k.StateSince, Tags: k.Tags, Manager: k.Manager}
	r.Size.GPUs, r.Size.InstanceStorageGB = fact(k.GPUs), fact(k.InstanceStorageGB)
	switch {
	case k.Instance != nil:
		d := &inventory.Instance{Market: k.Instance.Market, TerminationProtected: fact(k.Instance.Protected), SpotOnce: fact(k.Instance.SpotOnce)}
		for _, x := range k.Instance.Disks {
			d.Disks = append(d.Disks, inventory.Disk{VolumeID: x.VolumeID, DeleteOnTermination: x.Ends, Device: x.Device, Root: x.Root, SizeGiB: fact(x.SizeGiB)})
		}
		r.Detail = d
	case k.Volume != nil:
		r.Detail = &inventory.Volume{SizeGiB: k.Volume.SizeGiB, AttachedTo: k.Volume.AttachedTo}
	case k.Ref.Kind == inventory.KindNotebook:
		r.Detail = &inventory.Notebook{LastActivity: fact(k.LastActivity)}
	}
	_ = tags.Apply(r) // a keep that cannot be read keeps
	return r
}

// inventories reads what the last scan of each cloud saw; none where nothing was scanned.
func inventories(dir string) ([]keptInventory, error) {
	files, err := filepath.Glob(filepath.Join(dir, "inventories", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("look for the last scan: %w", err)
	}
	var all []keptInventory
	for _, name := range files {
		f, err := config.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read the last scan: %w", err)
		}
		var doc keptInventory
		src, err := document.Read(name, f, maxInventory)
		if err == nil {
			err = document.CheckJSON(name, src, maxInventoryValues)
		}
		if err == nil {
			err = json.Unmarshal(src, &doc)
		}
		if err := errors.Join(err, f.Close()); err != nil || doc.Schema != inventorySchema {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s holds no inventory of a scan", name), hint: "run `curfew scan` again"}
		}
		all = append(all, doc)
	}
	return all, nil
}

// newestInventory reads what the last scan saw, of whichever cloud.
func newestInventory(dir string) (*keptInventory, error) {
	all, err := inventories(dir)
	if err != nil {
		return nil, err
	}
	var newest *keptInventory
	for i := range all {
		if newest == nil || all[i].At.After(newest.At) {
			newest = &all[i]
		}
	}
	if newest == nil {
		return nil, &failure{exit: ExitError, code: "no_scan", err: errors.New("there is no kept scan to check against"), hint: "run `curfew scan` first"}
	}
	return newest, nil
}

// reach is what a policy would find in an account, if all it selects met its condition.
type reach struct {
	Policy   string         `json:"name"`
	Selected int            `json:"selected"`
	Unknown  int            `json:"unknown"`
	CouldAct int            `json:"could_act"`
	Refused  map[string]int `json:"refused"`
}

// reaches asks every policy about everything that a scan saw. A machine counts as idle,
// measured and rested, so that only what the account itself says is in the way.
func reaches(set *policy.Set, doc *keptInventory, cfg config.Config, now time.Time) []reach {
	out := make([]reach, 0, len(set.Policies))
	for _, p := range set.Policies {
		n := reach{Policy: p.Name, Refused: map[string]int{}}
		for i := range doc.Resources {
			k := &doc.Resources[i]
			r := k.resource(cfg.Tags)
			switch p.Selects(&policy.Facts{Now: doc.At, Resource: r, Hourly: fact(k.HourlyUSD)}) {
			case usage.Unknown:
				n.Unknown++
			case usage.True:
				n.Selected++
				if rule := inTheWay(p, r, fact(k.HourlyUSD), cfg.Governance, now); rule != "" {
					n.Refused[rule]++
				} else {
					n.CouldAct++
				}
			}
		}
		out = append(out, n)
	}
	return out
}

// inTheWay names the rule by which a policy would be refused; empty where none is.
func inTheWay(p *policy.Policy, r *inventory.Resource, hourly inventory.Fact[money.Amount], g policy.Governance, now time.Time) string {
	do := round.Settle(p.Do, r, g)
	if r.Kind.Traits().Compute && do.Verb == policy.Stop && r.State != inventory.StateRunning {
		return "state"
	}
	q := action.Proposal{Source: p.Name, Resource: r, Do: do, Mode: policy.Enforce, Governed: g.Governs(r), Hourly: hourly, Condition: usage.True, ReadAt: now,
		Class: p.Class(), Duty: &duty.Verdict{State: duty.Idle, Since: r.CreatedAt, Until: now, Expires: now.Add(time.Hour)}}
	if p.Warn != nil {
		q.Grace = p.Warn.Grace
	}
	if refusal := action.Refuse(q, action.Item{}, now, nil); refusal != nil {
		return refusal.Rule
	}
	return ""
}

// printReaches is the table of `policy check --against`.
func (a *app) printReaches(doc *keptInventory, all []reach) error {
	plain.Fprintf(a.Stdout, "\nagainst the scan of %s, %s, %s\n", doc.Cloud, plain.When(doc.At, a.Now()), plain.Count(len(doc.Resources), "resource"))
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	plain.Fprintf(w, "policy\tselects\tcould act on\tunknown\t  refused by\n")
	for _, n := range all {
		var refused []string
		for _, rule := range slices.Sorted(maps.Keys(n.Refused)) {
			refused = append(refused, fmt.Sprintf("%s %d", rule, n.Refused[rule]))
		}
		plain.Fprintf(w, "%s\t%d\t%d\t%d\t  %s\n", n.Policy, n.Selected, n.CouldAct, n.Unknown, strings.Join(refused, ", "))
	}
	return w.Flush()
}
