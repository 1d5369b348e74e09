package round

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fewestTags is the fewest tags with which a shipped policy should act, and what its machines
// do; nil does nothing that is measured.
var fewestTags = map[string]struct {
	tags map[string]string
	does *activity
	know func(*policy.Facts)
}{
	"dead-mans-switch":   {tags: map[string]string{"Purpose": "transient-ml-training"}},
	"expired-lease":      {tags: leased(time.Hour), does: resting},
	"long-expired-lease": {tags: leased(25 * time.Hour), does: working},
	"idle-limit": {
		tags: map[string]string{"curfew:lifetime": "ephemeral", "curfew:idle": "10h"}, does: holding,
	},
	"idle-development": {tags: map[string]string{"curfew:lifetime": "ephemeral", "purpose": "dev"}, does: resting},
	"idle-ephemeral":   {tags: map[string]string{"curfew:lifetime": "ephemeral"}, does: resting},
	"held-gpus":        {tags: map[string]string{}, does: holding},
	"held-ephemeral":   {tags: map[string]string{"curfew:lifetime": "ephemeral"}, does: holding},
	"off-hours": {
		tags: map[string]string{"curfew:lifetime": "ephemeral", "purpose": "notebook"}, does: resting,
	},
	"friday-evening":   {tags: map[string]string{"Purpose": "transient-ml-training"}, does: resting},
	"stalled-training": {tags: map[string]string{"Purpose": "transient-ml-training"}, does: hanging},
	"budget-forecast": {tags: map[string]string{}, know: func(f *policy.Facts) {
		f.Budget = &policy.Budget{State: "warn", UsedShare: 0.8, ForecastShare: inventory.Known(1.5)}
	}},
	"over-budget": {tags: map[string]string{"curfew:lifetime": "ephemeral", "purpose": "train"}, does: resting,
		know: func(f *policy.Facts) { f.Budget = &policy.Budget{State: "over", UsedShare: 1.2} }},
	"price-drift": {tags: map[string]string{}, know: func(f *policy.Facts) { f.PriceDrift = inventory.Known(0.2) }},
	"untagged":    {tags: map[string]string{}},

	"gpu-underused": {tags: map[string]string{}, does: resting},
	"gpu-at-capacity": {
		tags: map[string]string{"purpose": "inference"}, does: &activity{util: 97, memory: 0.6},
	},
	"gpu-memory-nearly-full": {tags: map[string]string{"purpose": "train"}, does: &activity{util: 60, memory: 0.9}},
	"gpu-hot":                {tags: map[string]string{}, does: &activity{util: 60, temperature: 85}},
	"gpu-power":              {tags: map[string]string{"gpu-alerts": "power"}, does: &activity{util: 60, power: 1}},
	"runaway":                {tags: map[string]string{"purpose": "train"}, does: working, know: withoutProgress},
	"runaway-team":           {tags: map[string]string{"purpose": "train"}, does: working, know: withoutProgress},
	"gpu-low-occupancy": {
		tags: map[string]string{"Purpose": "training"}, does: &activity{util: 60, memory: 0.6, occupancy: 0.2},
	},
}

// withoutProgress makes the work one of thirty hours that reported no progress.
func withoutProgress(f *policy.Facts) {
	f.Progress = inventory.Known(duty.Progress{From: f.Now.Add(-30 * time.Hour)})
}

func leased(ago time.Duration) map[string]string {
	return map[string]string{"curfew:lifetime": "ephemeral", "curfew:lease-until": now.Add(-ago).Format(time.RFC3339)}
}

// activity is the load of the GPUs of a machine, in percent and as a share of memory, and whether
// its steps are counted, and stand still.
type activity struct {
	util, memory                  float64
	stands                        bool
	temperature, power, occupancy float64 // power is a share of the TDP; 0 is not measured
}

var (
	resting = &activity{}
	holding = &activity{memory: 0.6}
	working = &activity{util: 95, memory: 0.6}
	hanging = &activity{util: 95, memory: 0.6, stands: true}
)

// typeFleet is a machine of every accelerated type of the price book that has a price, all
// with the same tags and doing the same.
type typeFleet struct {
	*fleet
	book *price.Book
	does *activity
}

func (p *typeFleet) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	if p.does == nil {
		return usage.MeasureResult{}, nil
	}
	const step = 5 * time.Minute
	for _, r := range resources {
		w := open(r, usage.SourceInfo{Step: step, Source: "test"})
		for at := iv.From.Truncate(step); at.Before(iv.To); at = at.Add(step) {
			for g := range r.Size.GPUs.Or(0) {
				model, _ := p.book.Accelerator(r.Size.GPU)
				for s, v := range map[usage.Signal]float64{
					usage.GPUUtil: p.does.util, usage.MemUsed: p.does.memory * 24e9, usage.MemTotal: 24e9,
					usage.Temperature: p.does.temperature, usage.Power: p.does.power * float64(model.TDPWatts),
					usage.SMOccupancy: p.does.occupancy} {
					if s == usage.GPUUtil || s == usage.MemUsed || v > 0 {
						w.Add(strconv.Itoa(g), s, usage.Point{Time: at, Mean: v, Max: v})
					}
				}
			}
			w.Add("", usage.CPUUtil, usage.Point{Time: at, Mean: 1, Max: 1})
			w.Add("", usage.NetBytes, usage.Point{Time: at, Mean: 100, Max: 100})
			if p.does.stands {
				w.Add("", usage.Step, usage.Point{Time: at, Mean: 7, Max: 7})
			}
		}
	}
	return usage.MeasureResult{}, nil
}

// newParade has one machine of each type on demand, and one of a one-time spot request.
func newParade(t *testing.T, book *price.Book, tags map[string]string, does *activity) *typeFleet {
	t.Helper()
	p := &typeFleet{fleet: newFleet(0), book: book, does: does}
	add := func(id, typ string) *inventory.Resource {
		r := machine(id, typ, 13*time.Hour+24*time.Hour)
		r.Tags = maps.Clone(tags)
		if err := inventory.DefaultTagMapping().Apply(r); err != nil {
			t.Fatal(err)
		}
		r.Detail.(*inventory.Instance).Disks = []inventory.Disk{
			{VolumeID: "vol-" + id, DeleteOnTermination: true, Root: true},
		}
		p.machines = append(p.machines, r)
		return r
	}
	for _, m := range book.Machines() {
		if _, err := book.OnDemand(m.Type, "us-east-1"); err == nil && m.GPUs() > 0 {
			add(m.Type, m.Type)
		}
	}
	d := add("spot", "g4dn.12xlarge").Detail.(*inventory.Instance)
	d.Market, d.SpotOnce = inventory.Spot, inventory.Known(true)
	return p
}

// instantCloud carries out calls immediately.
type instantCloud map[string]policy.Verb

func (h instantCloud) Plan(_ context.Context, _ *inventory.Resource, do policy.Do) ([]action.Step, error) {
	return []action.Step{{Name: string(do.Verb)}}, nil
}

func (h instantCloud) Do(_ context.Context, t action.Task) (string, error) {
	h[t.Ref.ID] = t.Do.Verb
	return "done", nil
}

func (h instantCloud) Look(_ context.Context, t action.Task) (action.Progress, string, error) {
	if h[t.Ref.ID] == "" {
		return action.NotDone, "", nil
	}
	return action.Complete, "done", nil
}

func (h instantCloud) Rehearse(context.Context, action.Task) (string, error) { return "", nil }

func (h instantCloud) Undo(context.Context, action.Task) error { return nil }

// acceptingNotifier take every message.
type acceptingNotifier struct{}

func (acceptingNotifier) Notify(_ context.Context, to string, _ action.Message) (string, error) {
	return "test:" + to, nil
}

// TestShippedPoliciesAct checks that every shipped policy about machines acts on every accelerated
// type of the price book, with the least tags, and on a one-time spot machine, which it terminates.
func TestShippedPoliciesAct(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../examples/policies/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	var seen []string
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.Parse(file, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, pol := range set.Policies {
			if !slices.Contains(append(pol.Select.Kind, "instance")[:max(1, len(pol.Select.Kind))], "instance") {
				continue
			}
			seen = append(seen, pol.Name)
			t.Run(pol.Name, func(t *testing.T) {
				want, ok := fewestTags[pol.Name]
				if !ok {
					t.Fatal("nothing says with which tags it should act")
				}
				p := newParade(t, book, want.tags, want.does)
				if pol.Name == "budget-forecast" || strings.HasPrefix(pol.Name, "runaway") {
					// They care for machines of ten dollars an hour.
					p.machines = slices.DeleteFunc(p.machines, func(r *inventory.Resource) bool {
						return r.Type != "p4d.24xlarge" && r.Type != "p5.48xlarge"
					})
				}
				if pol.Name == "gpu-power" { // a price book knows the TDP of most
					p.machines = slices.DeleteFunc(p.machines, func(r *inventory.Resource) bool {
						book.Fill(r)
						model, _ := book.Accelerator(r.Size.GPU)
						return model.TDPWatts == 0
					})
					if len(p.machines) < 50 {
						t.Errorf("the TDP is known of %d machines", len(p.machines))
					}
				}
				pol.Mode = policy.Enforce
				memory, did, told := action.NewMemory(), instantCloud{}, map[string]bool{}
				s := Setting{
					Clock: p.now, Lister: p, Prices: book, Duty: duty.DefaultThresholds(),
					LookBack: pol.Horizon() + 2*time.Hour,
					Uncapped: true,
					Policies: &policy.Set{Policies: []*policy.Policy{pol}}, AddFacts: want.know,
					Sources:    []usage.Source{p},
					Governance: policy.Governance{{Select: policy.Select{Kind: []string{"instance"}}}},
					Ladder: func(account string) *action.Ladder {
						return &action.Ladder{
							Store: memory, Cloud: did, Notifier: acceptingNotifier{}, Account: account,
							Actor: "ana", Enforce: true,
							Clock: p.clock.Read, MaxRoundGap: 24 * time.Hour,
						}
					}}
				for range 3 {
					pass, err := New(s).Round(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, l := range pass.Lines() {
						told[l.Resource.ID] = told[l.Resource.ID] || l.Result == action.ResultWarned
						if l.Result == action.ResultRefused && did[l.Resource.ID] == "" {
							t.Errorf("%s is refused: %s", l.Resource.ID, l.Why)
						}
					}
					p.clock.Advance(pol.Warn.Grace + time.Minute)
				}
				for _, r := range p.machines {
					want := pol.Do.Verb
					switch {
					case !want.IsDestructive():
						want = ""
					case r.ID == "spot":
						want = policy.Terminate
					}
					if did[r.ID] != want || !told[r.ID] {
						t.Errorf("%s: %q, warned: %t, want %q", r.ID, did[r.ID], told[r.ID], want)
					}
				}
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fewestTags)) {
		if !slices.Contains(seen, name) {
			t.Errorf("%s is not shipped", name)
		}
	}
	if len(newParade(t, book, nil, nil).machines) < 60 {
		t.Error("there are too few types in the price book")
	}
	if !slices.ContainsFunc(newParade(t, book, nil, nil).machines, func(r *inventory.Resource) bool {
		return strings.HasPrefix(r.Type, "p5.")
	}) {
		t.Error("the book has no p5")
	}
}
