package sim

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

var now = time.Date(2026, 11, 20, 12, 34, 56, 0, time.UTC)

func at(seed uint64, t time.Time) *Cloud { return New(Options{Seed: seed, Now: t}) }

func observe(t testing.TB, c *Cloud, q round.Query) *round.Observation {
	t.Helper()
	o, err := cloudtest.Observe(context.Background(), c, q)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestConformance(t *testing.T) {
	kinds := []inventory.Kind{
		inventory.KindAddress, inventory.KindAutoScalingGroup, inventory.KindBucket, inventory.KindCapacityReservation,
		inventory.KindCommitment, inventory.KindDatabase, inventory.KindEndpoint, inventory.KindFileSystem,
		inventory.KindImage,
		inventory.KindInstance, inventory.KindLoadBalancer, inventory.KindLogGroup, inventory.KindNATGateway,
		inventory.KindNotebook,
		inventory.KindRepository, inventory.KindSecret, inventory.KindSnapshot, inventory.KindTrainingJob,
		inventory.KindVolume,
	}
	for _, tc := range []struct {
		name  string
		blind []Blindness
		query round.Query
		lacks []inventory.Kind
	}{
		{name: "as laid out", query: round.Query{Now: now}},
		{name: "a short window", query: round.Query{Now: now, Window: 26 * time.Hour}},
		{name: "thirty days", query: round.Query{Now: now, Window: 30 * 24 * time.Hour}},
		{name: "a fortnight before", query: round.Query{Now: now.AddDate(0, 0, -14)}},
		{name: "three days later", query: round.Query{Now: now.AddDate(0, 0, 3)}},
		{name: "without usage in one region", query: round.Query{Now: now}, blind: []Blindness{{Region: ireland}}},
		{
			name: "without images", query: round.Query{Now: now}, blind: []Blindness{{Kind: inventory.KindImage}},
			lacks: []inventory.Kind{inventory.KindImage},
		},
		{
			name: "without commitments", query: round.Query{
				Now: now,
			}, blind: []Blindness{{Kind: inventory.KindCommitment}},
			lacks: []inventory.Kind{inventory.KindCommitment},
		},
		{
			name: "without volumes", query: round.Query{Now: now}, blind: []Blindness{{Kind: inventory.KindVolume}},
			lacks: []inventory.Kind{inventory.KindVolume},
		},
	} {
		if slices.Contains([]string{"thirty days", "a fortnight before"}, tc.name) && os.Getenv("CURFEW_SLOW") == "" {
			continue // make test-slow SUITE=plans
		}
		t.Run(tc.name, func(t *testing.T) {
			want := slices.DeleteFunc(slices.Clone(kinds), func(k inventory.Kind) bool {
				return slices.Contains(tc.lacks, k)
			})
			if tc.query.Now.Before(now.AddDate(0, 0, -2)) {
				// The training jobs had not begun.
				want = slices.DeleteFunc(want, func(k inventory.Kind) bool { return k == inventory.KindTrainingJob })
			}
			cloudtest.Run(t, cloudtest.Case{
				New: func(testing.TB) cloudtest.Cloud {
					return New(Options{Seed: 7, Now: now, BlindSpots: tc.blind})
				},
				Query: tc.query, Tags: inventory.DefaultTagMapping(), Kinds: want, Unreadable: len(tc.blind) > 0,
			})
		})
	}
}

// TestShape checks the account's outline: a company of three teams with some sixty accelerated
// machines in three regions.
func TestShape(t *testing.T) {
	o := observe(t, at(1, now), round.Query{Now: now})
	teams, regions, accelerated := map[string]int{}, map[string]int{}, 0
	for _, r := range o.Resources {
		if r.Kind == inventory.KindInstance && hardwareOf(r.Type).gpus > 0 {
			accelerated++
			teams[r.Owner.Team]++
			regions[r.Region]++
		}
	}
	if accelerated < 55 || accelerated > 70 {
		t.Errorf("%d accelerated machines, want some sixty", accelerated)
	}
	for _, team := range []string{"vision", "language", "ranking", ""} {
		if teams[team] < 3 {
			t.Errorf("team %q has %d accelerated machines", team, teams[team])
		}
	}
	for _, region := range Regions() {
		if regions[region] < 5 {
			t.Errorf("%s has %d accelerated machines", region, regions[region])
		}
	}
	if len(o.BlindSpots) > 0 || len(o.Unread) > 0 || !o.CommitmentsKnown {
		t.Errorf("blind spots %v, unread %v, commitments known %v; want a clear view", o.BlindSpots, o.Unread,
			o.CommitmentsKnown)
	}
}

// TestTruth checks that every resource has one entry, each says something, and every rule that an
// inventory can decide has something to find.
func TestTruth(t *testing.T) {
	c := at(1, now)
	o := observe(t, c, round.Query{Now: now})
	truth := c.Truth()
	planted := map[inventory.Ref]Planted{}
	found := map[string]int{}
	for _, p := range truth {
		if _, twice := planted[p.Ref]; twice {
			t.Errorf("%s is planted twice", p.Ref)
		}
		planted[p.Ref] = p
		if p.Note == "" {
			t.Errorf("%s has no note", p.Ref)
		}
		if !p.Honest && len(p.Rules) == 0 {
			t.Errorf("%s is neither honest nor to be found", p.Ref)
		}
		for _, rule := range p.Rules {
			found[rule]++
		}
	}
	for _, r := range o.Resources {
		if _, ok := planted[r.Ref()]; !ok {
			t.Errorf("%s: nothing is known of it", r.Ref())
		}
	}
	if len(truth) != len(o.Resources) {
		t.Errorf("%d resources are known, %d observed", len(truth), len(o.Resources))
	}
	// Nothing is planted for gpu-memory-over: no card that the work could move to has less memory, the
	// same compute and bfloat16.
	for _, rule := range strings.Fields(`tag-missing telemetry-missing
		gpu-instance-idle gpu-held instance-idle instance-overdue instance-stopped endpoint-idle notebook-idle load-balancer-idle
		nat-gateway-idle address-unused training-overrun training-stalled always-on
		volume-unattached volume-gp2 snapshot-old image-unused bucket-no-lifecycle bucket-multipart bucket-noncurrent
		checkpoint-stale log-group-no-retention repository-no-lifecycle repository-untagged
		compute-away-from-data training-on-demand
		gpu-underutilized gpu-count-over inference-overprovisioned autoscaling-sticky
		model-optimize generation-old commitment-unused reservation-unused`) {
		if found[rule] == 0 {
			t.Errorf("nothing is planted for %s", rule)
		}
		delete(found, rule)
	}
	if len(found) > 0 {
		t.Errorf("planted for rules there are not: %v", found)
	}
}

// TestPlantedTags: resources planted as untagged lack a required tag, and no others do.
func TestPlantedTags(t *testing.T) {
	c := at(1, now)
	o := observe(t, c, round.Query{Now: now})
	planted := map[inventory.Ref]Planted{}
	for _, p := range c.Truth() {
		planted[p.Ref] = p
	}
	for _, r := range o.Resources {
		missing, known := r.MissingFields(RequiredTags)
		if !known {
			t.Errorf("%s: its tags are not known", r.Ref())
		}
		if got, want := len(missing) > 0, slices.Contains(planted[r.Ref()].Rules, "tag-missing"); got != want {
			t.Errorf("%s (%s) lacks %v; planted for tag-missing: %v", r.Ref(), r.Name, missing, want)
		}
	}
}

// TestPlantedUsage looks at the windows of machines by name, the way the rules do.
func TestPlantedUsage(t *testing.T) {
	o := observe(t, at(1, now), round.Query{Now: now})
	windows := map[string]*usage.Window{}
	for _, r := range o.Resources {
		if w := o.Windows[r.Ref()]; w != nil {
			windows[r.Name] = w
		}
	}
	active := func(st *usage.Stats) float64 {
		t.Helper()
		share, err := st.ActiveShare()
		if err != nil {
			t.Fatal(err)
		}
		return share
	}
	for _, tc := range []struct {
		name     string
		coverage float64 // of every GPU at least
		active   [2]float64
		memory   [2]float64 // share of device memory, most of the time
		cpu      [2]float64 // maximum
		daily    [2]float64 // network, MB a day
	}{
		{
			"seg-pretrain-l40s", 0.99, [2]float64{1, 1}, [2]float64{0.82, 0.84}, [2]float64{30, 60},
			[2]float64{1e5, 1e9},
		},
		{"llm-playground", 0.99, [2]float64{0, 0}, [2]float64{0, 0}, [2]float64{0, 4.9}, [2]float64{0, 4.9}},
		{"llm-eval", 0.99, [2]float64{0, 0.0099}, [2]float64{0.91, 0.93}, [2]float64{0, 60}, [2]float64{0, 1e9}},
		{"pose-exp-02", 0.99, [2]float64{0, 0}, [2]float64{0.63, 0.65}, [2]float64{0, 4.9}, [2]float64{0, 4.9}},
		{"distill-vit", 0.98, [2]float64{1, 1}, [2]float64{0.6, 0.64}, [2]float64{2, 4.9}, [2]float64{0, 4.9}},
		{"ana-dev", 0.99, [2]float64{0.14, 0.2}, [2]float64{0, 0.41}, [2]float64{5, 40}, [2]float64{0, 1e9}},
		{"embed-refresh", 0.99, [2]float64{0.15, 0.2}, [2]float64{0, 0.64}, [2]float64{5, 60}, [2]float64{0, 1e9}},
		{"pose-exp-01", 0.99, [2]float64{0.5, 0.95}, [2]float64{0, 0.67}, [2]float64{5, 40}, [2]float64{0, 1e9}},
		{"imagenet-sync", 0.98, [2]float64{0, 0}, [2]float64{0, 0}, [2]float64{40, 80}, [2]float64{1e6, 1e9}},
		{"blackwell-trial", 0.99, [2]float64{1, 1}, [2]float64{0, 0}, [2]float64{0, 4.9}, [2]float64{0, 4.9}},
		{"nmt-train-01", 0.99, [2]float64{0.4, 0.55}, [2]float64{0.8, 0.9}, [2]float64{30, 60}, [2]float64{0, 1e9}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := windows[tc.name]
			if w == nil {
				t.Fatal("no window")
			}
			within := func(what string, v float64, bounds [2]float64) {
				t.Helper()
				if v < bounds[0] || v > bounds[1] {
					t.Errorf("%s is %g, want %g to %g", what, v, bounds[0], bounds[1])
				}
			}
			for _, g := range w.GPUs {
				util, memory := g.Stats(usage.GPUUtil), g.Stats(usage.MemUsed)
				if c := w.Coverage(util); c < tc.coverage {
					t.Errorf("GPU %s: coverage %g, want %g", g.Name, c, tc.coverage)
				}
				if !w.Fresh(util, now) {
					t.Errorf("GPU %s: its newest sample is old", g.Name)
				}
				within("active share of GPU "+g.Name, active(util), tc.active)
				held, err := memory.Quantile(usage.MemUsed, 0.9)
				if err != nil {
					t.Fatal(err)
				}
				total, err := g.Stats(usage.MemTotal).Mean()
				if err != nil {
					t.Fatal(err)
				}
				within("memory of GPU "+g.Name, held/total, tc.memory)
			}
			within("CPU", w.Machine.Stats(usage.CPUUtil).Max, tc.cpu)
			net := w.Machine.Stats(usage.NetBytes)
			within("network", net.Sum/1e6/(float64(net.Count)/24), tc.daily)
		})
	}
	t.Run("one idle GPU of eight", func(t *testing.T) {
		var idle []string
		for _, g := range windows["sft-a100"].GPUs {
			if active(g.Stats(usage.GPUUtil)) == 0 {
				idle = append(idle, g.Name)
			}
		}
		if !slices.Equal(idle, []string{"7"}) {
			t.Errorf("idle GPUs %v, want 7 alone", idle)
		}
	})
	t.Run("five days without telemetry", func(t *testing.T) {
		w := windows["feature-etl"]
		if c := w.Coverage(w.GPUs[0].Stats(usage.GPUUtil)); c > 0.7 || c < 0.6 {
			t.Errorf("coverage %g, want 9 of 14 days", c)
		}
	})
	t.Run("the accelerator is not measured", func(t *testing.T) {
		for _, name := range []string{"viz-workstation", "neuron-port", "edge-export"} {
			if w := windows[name]; len(w.GPUs) > 0 || w.Machine.Stats(usage.GPUUtil) != nil ||
				w.Machine.Stats(usage.CPUUtil) == nil {
				t.Errorf("%s: want CPU and no GPU", name)
			}
		}
	})
	t.Run("a gateway without a byte", func(t *testing.T) {
		w := windows["nat-euw1"]
		st := w.Machine.Stats(usage.NetBytes)
		if w.To.Sub(w.From) != gatewayWindow || st.Max != 0 || w.Coverage(st) < 0.99 {
			t.Errorf("%s of %g bytes at most, coverage %g", w.To.Sub(w.From), st.Max, w.Coverage(st))
		}
	})
	t.Run("an endpoint without calls", func(t *testing.T) {
		w := windows["feed-ranker-v1"]
		if w.Machine.Stats(usage.Requests) != nil || w.Coverage(w.Machine.Stats(usage.CPUUtil)) < 0.99 {
			t.Error("want CPU throughout and no requests")
		}
	})
	t.Run("detached yesterday", func(t *testing.T) {
		st := windows["defect-frames"].Machine.Stats(usage.DiskOps)
		if since := now.Sub(st.Last); since < 24*time.Hour || since > 48*time.Hour {
			t.Errorf("last operations %s ago", since)
		}
	})
}

// TestBehaviorIsPure checks that a machine's state at a time depends neither on earlier reads nor
// on the time of the observation.
func TestBehaviorIsPure(t *testing.T) {
	c := at(3, now)
	var refs []inventory.Ref
	for _, r := range observe(t, c, round.Query{Now: now}).Resources {
		if _, ok := c.At(r.Ref(), now.Add(-time.Hour)); ok {
			refs = append(refs, r.Ref())
		}
	}
	if len(refs) < 70 {
		t.Fatalf("%d resources have a behavior", len(refs))
	}
	rapid.Check(t, func(t *rapid.T) {
		ref := rapid.SampledFrom(refs).Draw(t, "resource")
		when := now.Add(-time.Duration(rapid.Int64Range(0, int64(30*24*time.Hour)).Draw(t, "ago")))
		first, ok := c.At(ref, when)
		c.At(ref, when.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "other"))))
		again, okAgain := at(3, now).At(ref, when)
		if ok != okAgain || !cmp.Equal(first, again) {
			t.Fatalf("%s at %s: %+v, then %+v", ref, when, first, again)
		}
		for _, g := range first.GPUs {
			if g.Util < 0 || g.Util > 100 || g.SMActive < 0 || g.SMActive > 1 || g.Memory < 0 || g.Power < 0 {
				t.Fatalf("%s at %s: %+v is out of range", ref, when, g)
			}
		}
		if first.CPU < 0 || first.CPU > 100 || first.Network < 0 || first.Requests < 0 {
			t.Fatalf("%s at %s: %+v is out of range", ref, when, first)
		}
	})
}

func TestAtOfWhatHasNoBehavior(t *testing.T) {
	c := at(1, now)
	instance := func(name string) inventory.Ref {
		for _, r := range observe(t, c, round.Query{Now: now}).Resources {
			if r.Name == name {
				return r.Ref()
			}
		}
		t.Fatalf("no %s", name)
		return inventory.Ref{}
	}
	for _, tc := range []struct {
		name string
		ref  inventory.Ref
		at   time.Time
		want bool
	}{
		{"nothing of that name", inventory.Ref{Kind: inventory.KindInstance, ID: "i-0"}, now, false},
		{"a bucket", instance("acme-experiments"), now, false},
		{"a running machine", instance("ana-dev"), now, true},
		{"before its launch", instance("ana-dev"), now.AddDate(-1, 0, 0), false},
		{"a stopped machine", instance("ablation-07"), now, false},
		{"before it was stopped", instance("ablation-07"), now.AddDate(0, 0, -50), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, got := c.At(tc.ref, tc.at); got != tc.want {
				t.Errorf("At says %v, want %v", got, tc.want)
			}
		})
	}
}

// TestSeeds: another seed is another account of the same shape; another time is
// the same account, aged.
func TestSeeds(t *testing.T) {
	ids := func(o *round.Observation) map[string]string {
		out := map[string]string{}
		for _, r := range o.Resources {
			if r.Kind == inventory.KindInstance {
				out[r.Name] = r.ID
			}
		}
		return out
	}
	one := ids(observe(t, at(1, now), round.Query{Now: now}))
	two := ids(observe(t, at(2, now), round.Query{Now: now}))
	later := now.AddDate(0, 2, 3)
	aged := ids(observe(t, at(1, later), round.Query{Now: later}))
	if !cmp.Equal(one, aged) {
		t.Error("identifiers change with the time")
	}
	for name, id := range one {
		if two[name] == "" || two[name] == id {
			t.Errorf("%s is %s with both seeds", name, id)
		}
		if len(id) != len("i-0f3a9c1d2b4e5f607") || !strings.HasPrefix(id, "i-0") {
			t.Errorf("%s has the identifier %s", name, id)
		}
	}
}

// TestEarlier: resources that were created or stopped later are seen as they were.
func TestEarlier(t *testing.T) {
	c := at(1, now)
	before := now.AddDate(0, 0, -20)
	o := observe(t, c, round.Query{Now: before})
	byName := map[string]*inventory.Resource{}
	for _, r := range o.Resources {
		byName[r.Name] = r
	}
	if byName["llm-eval"] != nil {
		t.Error("a machine is there before it was launched")
	}
	if g := byName["ranker-fleet"].Detail.(*inventory.AutoScalingGroup); g.Desired != 2 || len(g.Instances) != 2 {
		t.Errorf("the group wants %d and has %d machines, want 2", g.Desired, len(g.Instances))
	}
	if s := byName["ablation-07"].State; s != inventory.StateStopped {
		t.Errorf("stopped for longer, and %s", s)
	}
	if s := observe(t, c, round.Query{Now: now.AddDate(0, 0, -50)}); s == nil {
		t.Error("no observation")
	} else {
		for _, r := range s.Resources {
			if r.Name == "ablation-07" && r.State != inventory.StateRunning {
				t.Errorf("stopped later, and %s before", r.State)
			}
		}
	}
}

// TestHardware compares the table of machines with the price book: the number of accelerators is
// the book's, the memory less the driver's share.
func TestHardware(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range machineTypes {
		m, ok := book.Machine(name)
		if !ok || m.GPUs() != h.gpus {
			t.Errorf("%s has %d accelerators, the book knows %d", name, h.gpus, m.GPUs())
		}
		if share := h.memory / mib / float64(m.AcceleratorMemoryMiB); h.nvidia && (share < 0.9 || share > 1.03) {
			t.Errorf("%s: %g of the book's accelerator memory", name, share)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	_, err := cloudtest.Observe(ctx, at(1, now), round.Query{Now: now, Progress: func(round.Progress) {
		if n++; n == 4 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestMapping(t *testing.T) {
	c := New(Options{Seed: 1, Now: now, Tags: inventory.TagMapping{Team: []string{"squad"}}})
	teams := map[string]bool{}
	for _, r := range observe(t, c, round.Query{Now: now}).Resources {
		teams[r.Owner.Team] = true
	}
	if !cmp.Equal(teams, map[string]bool{"": true, "ranking": true}) {
		t.Errorf("teams %v, want ranking and none", teams)
	}
}

func BenchmarkObserve(b *testing.B) {
	c := at(1, now)
	for b.Loop() {
		observe(b, c, round.Query{Now: now})
	}
}
