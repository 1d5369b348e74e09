package backtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// accountOf reads a trace from its lines.
func accountOf(t testingTB, lines ...string) *Account {
	t.Helper()
	p := accountParams()
	p.Size = func(typ string) (inventory.Size, bool) {
		return inventory.Size{GPUs: inventory.Known(8), GPU: "A100"}, typ == "p4d.24xlarge"
	}
	a, err := ReadAccount(context.Background(), strings.NewReader(strings.Join(lines, "\n")+"\n"), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func clock(minutes int) time.Time { return time.Unix(int64(minutes)*60, 0).UTC() }

// transcript is everything that an account says up to a time: each sample, and each
// change of a resource. Whether samples come alone or in runs does not show in it.
func transcript(a *Account, until time.Time) []string {
	var out []string
	f, last := a.Feed(nil), map[string]string{}
	for {
		next, ok := f.NextTime()
		if !ok || next.After(until) {
			slices.Sort(out)
			return out
		}
		f.Advance(next, func(h Heard) {
			for i := range h.Count {
				if at := h.Start.Add(time.Duration(i) * time.Minute); !at.After(until) {
					out = append(out, fmt.Sprintf("%s %s %s %s %v %v", a.resources[h.Resource].name,
						h.GPU, h.Signal, at, h.Value,
						h.Late))
				}
			}
		})
		for _, r := range f.List() {
			gpus, _ := r.Size.GPUs.Get()
			if now := fmt.Sprintf("%s %+v %d %v", r.ID, r.Owner, gpus, r.Tags); last[r.ID] != now {
				last[r.ID] = now
				out = append(out, fmt.Sprintf("%s from %s", now, next))
			}
		}
	}
}

// TestAccountIgnoresOrder checks that the order of rows changes nothing.
func TestAccountIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := traces().Draw(t, "trace")
		g := rapid.Permutation(f).Draw(t, "another order")
		want, got := transcript(f.account(t), clock(1e6)), transcript(g.account(t), clock(1e6))
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("the order of rows changes the account (-want +got):\n%s", diff)
		}
	})
}

// TestAccountSeesThePastOnly: samples that become known after a time change no fact known by then,
// and of a release only its end if it is after that time.
func TestAccountSeesThePastOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := traces().Draw(t, "trace")
		whole := f.account(t)
		cut := rapid.SampledFrom(f).Draw(t, "cut").known
		part := slices.DeleteFunc(slices.Clone(f), func(r fact) bool { return r.known > cut })
		a := part.account(t)
		if diff := gocmp.Diff(transcript(a, instant(cut)), transcript(whole, instant(cut))); diff != "" {
			t.Fatalf("what comes later changes what was known at %d (-part +whole):\n%s", cut, diff)
		}
		for i, r := range a.resources {
			j, _ := whole.Index(r.name)
			at := instant(cut - rapid.Int64Range(0, 20).Draw(t, "before")*minute)
			short, long := a.Released(i, at, false), whole.Released(j, at, false)
			if slices.ContainsFunc(f, func(r fact) bool { return r.known != r.at }) {
				continue // the past may become known later
			}
			// Up to half a step a sample may yet come that is not missing.
			before := min(short.End.UnixMicro(), cut)
			if long.End.UnixMicro() < before || !short.End.Equal(long.End) && short.End.UnixMicro() < cut-minute/2 {
				t.Fatalf("a release of %s at %s ends at %s in the part, at %s in the whole", r.name,
					at, short.End, long.End)
			}
		}
	})
}

// TestStated follows the description of a resource in a trace, as it becomes known.
func TestStated(t *testing.T) {
	a := accountOf(t, "resource,gpu,time,gpu_util,type,gpus,team,environment,launched,tags,received",
		"a,0,0,0,,,,,,,", // nothing is said yet
		"a,0,60,0,p4d.24xlarge,,vision,Dev,30,,",
		"a,0,120,0,p4d.24xlarge,4,vision,Dev,30,,",
		"a,0,180,0,p4d.24xlarge,4,robots,Dev,170,team=x;curfew:managed=false;project=p,",
		"a,0,150,0,,,speech,,,,300", // late, and older than the known one
		"a,0,240,0,,,,,,,",
		"b,,0,0,,,,,,,", "b,1,60,0,,,,,,,", "b,2,120,0,,,,,,,", "b,2:1,180,0,,,,,,,",
		"c,0,0,0,,2,b,,,,", "c,1,0,0,,2,a,,,,", "c,0,60,0,,,a,,,,",
		"d,0,0,0,x9.huge,,,,,,",
	)
	type known struct {
		Minute      int
		GPUs        inventory.Fact[int]
		Model, Team string
		Launched    time.Time
		Managed     bool
		Tags        int
	}
	var got []known
	for _, m := range []int{0, 1, 2, 3, 4, 6} {
		r := a.Resource(0, clock(m))
		got = append(got, known{m, r.Size.GPUs, r.Size.GPU, r.Owner.Team, r.CreatedAt, r.Managed, len(r.Tags)})
	}
	first, second := time.Unix(30, 0).UTC(), time.Unix(170, 0).UTC()
	want := []known{
		{0, inventory.Known(1), "", "", time.Time{}, true, 0},
		{1, inventory.Known(8), "A100", "vision", first, true, 0},
		{2, inventory.Known(4), "A100", "vision", first, true, 0},
		{3, inventory.Known(4), "A100", "robots", second, false, 3},
		{4, inventory.Known(4), "A100", "robots", second, false, 3},
		{6, inventory.Known(4), "A100", "robots", second, false, 3},
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(inventory.Fact[int]{})); diff != "" {
		t.Errorf("what is known of it differs (-want +got):\n%s", diff)
	}
	r := a.Resource(0, clock(4))
	if r.Ref().String() != "trace///instance/a" || r.Owner.Project != "p" || r.Owner.Environment != "dev" ||
		r.Incarnation != "recorded" ||
		r.Lifetime != inventory.Ephemeral || r.Purpose != inventory.Experimentation {
		t.Errorf("the resource is %+v", r)
	}
	var seen []int
	for _, m := range []int{0, 1, 2, 3} {
		seen = append(seen, a.Resource(1, clock(m)).Size.GPUs.Or(-1))
	}
	if want := []int{1, 1, 2, 2}; !slices.Equal(seen, want) {
		t.Errorf("%v GPUs are seen minute by minute, want %v", seen, want)
	}
	if team := a.Resource(2, clock(0)).Owner.Team; team != "b" {
		t.Errorf("of two teams at one time %q counts", team)
	}
	if team := a.Resource(2, clock(1)).Owner.Team; team != "a" {
		t.Errorf("a newer team does not count, but %q", team)
	}
	if size := a.Resource(3, clock(1)).Size; size != (inventory.Size{}) {
		t.Errorf("an unknown type has %+v", size)
	}
	if r := a.Resource(0, clock(-1)); r != nil || len(a.List(clock(-1))) != 0 || len(a.List(clock(0))) != 4 {
		t.Errorf("resources are there before their first sample")
	}
	if diff := gocmp.Diff(Assumptions{
		Resources: 4, Governed: 3, Tags: 3, Launched: 3, GPUs: 1, Size: 1, Kind: 4, Lifetime: 4, Purpose: 4,
	}, a.Assumptions()); diff != "" {
		t.Errorf("assumptions differ (-want +got):\n%s", diff)
	}
}

// TestGovernedByConfiguration assumes nothing where the configuration decides.
func TestGovernedByConfiguration(t *testing.T) {
	p := accountParams()
	p.Governed = true
	a, err := ReadAccount(context.Background(),
		strings.NewReader("resource,time,gpu_util,tags\na,0,0,\nb,0,0,curfew:managed=true\n"), p)
	if err != nil {
		t.Fatal(err)
	}
	if a.Resource(0, clock(0)).Managed || !a.Resource(1, clock(0)).Managed || a.Assumptions().Governed != 0 {
		t.Error("a resource is governed by assumption")
	}
}

func TestGroups(t *testing.T) {
	a := accountOf(t, "resource,time,gpu_util,tags",
		"a,0,0,", "b,0,0,curfew:gang=x", "c,0,0,curfew:gang=y", "d,0,0,curfew:gang=x", "d,60,0,curfew:gang=y",
		"e,0,0,curfew:gang=z")
	if diff := gocmp.Diff([][]int{{0}, {1, 2, 3}, {4}}, a.Groups()); diff != "" {
		t.Errorf("groups differ (-want +got):\n%s", diff)
	}
}

// TestReleased ends releases where the contract says.
func TestReleased(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lines   []string
		at      time.Time
		stalled bool
		want    Released
	}{
		{
			"work returns", []string{
				"resource,time,gpu_util", "a,0,0", "a,60,0", "a,120,0.9", "a,180,1",
			}, clock(1), false,
			Released{clock(3), true, 2 * time.Minute}},
		{
			"between samples", []string{"resource,time,gpu_util", "a,0,0", "a,60,0", "a,120,5"},
			clock(1).Add(-20 * time.Second), false,
			Released{clock(2), true, 80 * time.Second}},
		{"a sample is missing", []string{"resource,time,gpu_util", "a,0,0", "a,60,0", "a,180,5"}, clock(0), false,
			Released{clock(2), false, 2 * time.Minute}},
		{
			"the trace ends", []string{"resource,time,gpu_util", "a,0,0", "a,60,0"}, clock(1), false,
			Released{clock(2), false, time.Minute},
		},
		{
			"within a gap", []string{"resource,time,gpu_util", "a,0,0", "a,300,0"}, clock(3), false,
			Released{clock(3).Add(time.Microsecond), false, 0},
		},
		{
			"memory traffic is work", []string{
				"resource,time,gpu_util,dram_active", "a,0,0,0", "a,60,0,0.2",
			}, clock(0),
			false, Released{clock(1), true, time.Minute},
		},
		{
			"a host's work is none where GPUs are measured", []string{
				"resource,time,gpu_util,cpu_util", "a,0,0,0", "a,60,0,90",
			}, clock(0), false,
			Released{clock(2), false, 2 * time.Minute}},
		{
			"a host without GPUs works", []string{
				"resource,time,cpu_util", "a,0,0", "a,60,4.9", "a,120,5",
			}, clock(0), false,
			Released{clock(2), true, 2 * time.Minute},
		},
		{
			"one of two GPUs works", []string{
				"resource,gpu,time,gpu_util", "a,0,0,0", "a,1,0,0", "a,0,60,0", "a,1,60,9",
			},
			clock(0), false,
			Released{clock(1), true, time.Minute}},
		{
			"one of two GPUs is missing", []string{
				"resource,gpu,time,gpu_util", "a,0,0,0", "a,1,0,0", "a,0,60,0", "a,0,120,0", "a,1,120,0",
			}, clock(0), false,
			Released{clock(1), false, time.Minute}},
		{
			"stalled work gets on", []string{
				"resource,time,gpu_util,step", "a,0,100,7", "a,60,100,7", "a,120,100,", "a,180,100,8",
			}, clock(0), true,
			Released{clock(3), true, 3 * time.Minute}},
		{
			"stalled work starts again", []string{
				"resource,time,gpu_util,step", "a,0,100,7", "a,60,100,0", "a,120,100,1",
			},
			clock(0), true,
			Released{clock(2), true, 2 * time.Minute}},
		{
			"work that was received late", []string{
				"resource,time,gpu_util,received", "a,0,0,", "a,60,50,600", "a,120,0,",
			},
			clock(0), false,
			Released{clock(1), true, time.Minute}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := accountOf(t, tc.lines...)
			f := a.Feed(nil)
			f.Advance(tc.at, func(Heard) {})
			if got, fed := a.Released(0, tc.at, tc.stalled), f.Release(0, tc.stalled); got != tc.want ||
				fed != tc.want {
				t.Errorf("got %+v and %+v, want %+v", got, fed, tc.want)
			}
		})
	}
}

// TestRunsAhead delivers equal samples together, and after a release the rest of them.
func TestRunsAhead(t *testing.T) {
	lines := []string{"resource,time,gpu_util"}
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("a,%d,%d", i*60, i/90*50))
	}
	f := accountOf(t, lines...).Feed(nil)
	var got []string
	step := func(to time.Time) {
		f.Advance(to, func(h Heard) {
			got = append(got, fmt.Sprintf("%d+%d=%v", h.Start.Unix()/60, h.Count, h.Value))
		})
	}
	step(clock(0))
	if next, _ := f.NextTime(); !next.Equal(clock(90)) {
		t.Errorf("more is known at %s, want the end of the run", next)
	}
	step(clock(20))
	f.SamplesSince(0, clock(10), func(h Heard) {
		got = append(got, fmt.Sprintf("since %d+%d", h.Start.Unix()/60, h.Count))
	})
	if r := f.Release(0, false); !r.End.Equal(clock(90)) || f.Resource(0) != nil {
		t.Errorf("released until %s", r.End)
	}
	step(clock(95))
	if want := []string{"0+90=0", "since 10+80", "90+10=50"}; !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
	if f.Resource(0) == nil {
		t.Error("it is not back")
	}
}

// TestSourceAt measures with the knowledge of a process at a time.
func TestSourceAt(t *testing.T) {
	a := accountOf(t, "resource,gpu,time,gpu_util,cpu_util,received", "a,0,0,0,1,", "a,0,60,7,1,", "a,0,120,8,1,200",
		"a,0,180,9,1,", "a,0,240,9,1,", "b,0,0,5,,")
	src := a.SourceAt(clock(3), func(i int) time.Time { return []time.Time{clock(1), {}}[i] })
	var got []string
	resources := append(a.List(clock(3)), &inventory.Resource{ID: "a", Cloud: "aws"})
	m, err := src.Measure(context.Background(), resources, usage.Interval{From: clock(-10), To: clock(3)},
		func(r *inventory.Resource, o usage.SourceInfo) usage.Sink {
			if o.Step != time.Minute || o.Source != src.Name() || !o.Aggregated {
				t.Errorf("opened for %+v", o)
			}
			if r.ID == "b" {
				return nil
			}
			return usage.SinkFunc(func(gpu string, s usage.Signal, p usage.Point) bool {
				got = append(got, fmt.Sprintf("%s %s %d %v", gpu, s, p.Time.Unix()/60, p.Max))
				return true
			})
		})
	want := []string{"0 gpu_util 1 7", " cpu_util 1 1", "0 gpu_util 3 9", " cpu_util 3 1"}
	if err != nil || len(m.BlindSpots) > 0 || !slices.Equal(got, want) {
		t.Errorf("measured %q, %v; want %q", got, err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := src.Measure(ctx, resources, usage.Interval{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled, it returns %v", err)
	}
}

func TestReadAccountRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "resource,time,gpu_util\n", "read trace.csv: no samples"},
		{"a broken row", "resource,time,gpu_util\na,0,x\n", `trace.csv:2:3: gpu_util "x" is not a number`},
		{"a finer step", "resource,time,gpu_util\na,0,1\na,20,1\na,40,1\n", "samples are 20s apart"},
	} {
		_, err := ReadAccount(context.Background(), strings.NewReader(tc.in), accountParams())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
	p := accountParams()
	p.Format.Step = 0
	if _, err := ReadAccount(context.Background(), strings.NewReader(""), p); err == nil {
		t.Error("a trace without a step is read")
	}
}

// TestManyBlocks reads back a long series of values of every kind.
func TestManyBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var f facts
	for i := range int64(20000) {
		r := fact{resource: "a", gpu: "0", at: i * minute, values: map[usage.Signal]float64{
			usage.GPUUtil: float64(rng.IntN(100001)) / 1000, usage.MemUsed: float64(rng.Int64N(80 << 30)),
			usage.Power: rng.Float64() * 400,
		}}
		if rng.IntN(3) > 0 {
			r.values[usage.Step] = float64(i)
		}
		if r.known = r.at; rng.IntN(100) == 0 {
			r.known += 7 * minute
		}
		f = append(f, r)
	}
	rng.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	a := f.account(t)
	if n := len(a.resources[0].series[0].blocks); n < 20 {
		t.Fatalf("there are only %d blocks", n)
	}
	for _, now := range []int64{0, 777, 13000, 30000} {
		var got []measurement
		a.Points(0, clock(500), clock(19000), clock(int(now)), func(h Heard) { got = append(got, collected(h)...) })
		if want := f.measured("a", 500*minute, 19000*minute, now*minute); !slices.Equal(sorted(got), want) {
			t.Errorf("at %d there are %d values, want %d", now, len(got), len(want))
		}
	}
}

// TestTrackersHearTheSame checks that a tracker which hears a feed, in runs that go on after the
// moment and made again where something is late, tells what one tells that takes all samples known
// by then one after the other.
func TestTrackersHearTheSame(t *testing.T) {
	const lookBack = 20 * time.Minute
	opened := usage.SourceInfo{Step: time.Minute, Source: source, Aggregated: true}
	begin := func() *duty.Tracker { return duty.NewTracker(duty.Thresholds{}, usage.Activity{}, lookBack) }
	rapid.Check(t, func(t *rapid.T) {
		f := traces().Draw(t, "trace")
		a := f.account(t)
		feed := a.Feed(nil)
		trackers := make([]*duty.Tracker, a.Len())
		for i := range trackers {
			trackers[i] = begin()
		}
		from := make([]int64, a.Len())
		for next, ok := feed.NextTime(); ok; next, ok = feed.NextTime() {
			now := next.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "by")) * time.Second)
			hear := func(h Heard) bool {
				return trackers[h.Resource].AddRun(opened, h.GPU, h.Signal, h.Start, h.Count, h.Value)
			}
			late := map[int]bool{}
			feed.Advance(now, func(h Heard) {
				late[h.Resource] = late[h.Resource] || h.Late
				if !late[h.Resource] && !hear(h) {
					t.Fatalf("what is not late is refused: %+v", h)
				}
			})
			for i, r := range a.resources {
				if late[i] {
					trackers[i] = begin()
					feed.SamplesSince(i, duty.Horizon(now, lookBack), func(h Heard) {
						if !hear(h) {
							t.Fatalf("what is handed over again is refused: %+v", h)
						}
					})
				}
				plain := begin()
				sink := plain.Open(opened)
				for _, m := range f.measured(r.name, from[i], now.UnixMicro()+1, now.UnixMicro()) {
					sink.Add(m.gpu, m.signal, usage.Point{Time: instant(m.at), Mean: m.value, Max: m.value})
				}
				machine := duty.Machine{GPUs: inventory.Known(r.gpus(now.UnixMicro()))}
				want, got := plain.Explain(now, machine), trackers[i].Explain(now, machine)
				want.Next, got.Next = time.Time{}, time.Time{} // of a run it knows more
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("%s at %s differs (-plain +heard):\n%s", r.name, now, diff)
				}
				if feed.Resource(i) != nil && rapid.IntRange(0, 9).Draw(t, "release") == 0 {
					from[i], trackers[i] = feed.Release(i, false).End.UnixMicro(), begin()
				}
			}
		}
	})
}
