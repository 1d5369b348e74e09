package finding

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	spots "github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/usage"
)

// nineToSix is work on weekdays from 9 to 18 UTC.
func nineToSix(at time.Time) float64 {
	if h := at.Hour(); h >= 9 && h < 18 && at.Weekday() != time.Saturday && at.Weekday() != time.Sunday {
		return 60
	}
	return 0
}

// eightHours is work every day from midnight to 8 UTC.
func eightHours(at time.Time) float64 {
	if at.Hour() < 8 {
		return 70
	}
	return 0
}

func TestAlwaysOn(t *testing.T) {
	judged := func(build func(f *fixture)) func(f *fixture) {
		return func(f *fixture) { f.judge = true; build(f) }
	}
	runScenarios(t, []scenario{
		{
			// Five days of work from 9 to 18 touch two six-hour parts a day of a window of two
			// weeks: 60 of 168 hours stay on.
			name: "nine to six on weekdays, on for 24 hours",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "g6.2xlarge"), 14*day, 1, nineToSix, nineToSix)
			}),
			want: []string{"always-on i-1 458.77"},
		},
		{
			// Eight hours a day touch two six-hour parts: half of the week is off.
			name: "an evaluation of 8 hours each night",
			build: judged(func(f *fixture) {
				r := f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.Purpose = inventory.Evaluation
				})
				f.measured(r, 14*day, 1, eightHours, eightHours)
			}),
			want: []string{"always-on i-1 356.82"},
		},
		{
			name: "work for thirteen hours a day is no schedule",
			build: judged(func(f *fixture) {
				long := func(at time.Time) float64 {
					if at.Hour() >= 6 && at.Hour() < 19 {
						return 50
					}
					return 0
				}
				f.measured(f.running("i-1", "m5.large"), 14*day, 0, always(0), long)
			}),
		},
		{
			name: "a CPU machine",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "m5.large"), 14*day, 0, always(0), nineToSix)
			}),
			want: []string{"always-on i-1 45.05"},
		},
		{
			name: "a CPU machine with a little traffic at night",
			build: judged(func(f *fixture) {
				w := f.window(f.running("i-1", "m5.large"), 14*day)
				series(w, "", usage.CPUUtil, nineToSix)
				series(w, "", usage.NetBytes, func(at time.Time) float64 { return 40_000 + 1e7*nineToSix(at) })
			}),
			want: []string{"always-on i-1 45.05"},
		},
		{
			name: "a CPU machine that serves all night",
			build: judged(func(f *fixture) {
				w := f.window(f.running("i-1", "m5.large"), 14*day)
				series(w, "", usage.CPUUtil, nineToSix)
				series(w, "", usage.NetBytes, always(40e6))
			}),
		},
		{
			name: "a CPU machine with unmeasured traffic",
			build: judged(func(f *fixture) {
				series(f.window(f.running("i-1", "m5.large"), 14*day), "", usage.CPUUtil, nineToSix)
			}),
		},
		{
			name: "busy around the clock",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "m5.large"), 14*day, 0, always(0), always(50))
			}),
		},
		{
			name: "work at random hours has no pattern",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "m5.large"), 14*day, 0, always(0), func(at time.Time) float64 {
					if (at.YearDay()*24+at.Hour())%7 == 0 {
						return 50
					}
					return 0
				})
			}),
		},
		{
			name: "nights without samples are unknown, not off",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "m5.large"), 14*day, 0, always(0), func(at time.Time) float64 {
					if at.Hour() < 6 && at.Hour()%4 == 0 {
						return nineToSix(at)
					}
					if at.Hour() < 6 || at.Hour() >= 18 {
						return -1
					}
					return nineToSix(at)
				})
			}),
		},
		{
			name: "a window of three days shows no week",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "m5.large", func(r *inventory.Resource, _ *inventory.Instance) {
					r.CreatedAt = ago(3 * day)
				}), 3*day, 0, always(0), nineToSix)
			}),
		},
		{
			name: "inference follows its demand, not a schedule",
			build: judged(func(f *fixture) {
				f.measured(f.running("i-1", "m5.large", func(r *inventory.Resource, _ *inventory.Instance) {
					r.Purpose = inventory.Inference
				}), 14*day, 0, always(0), nineToSix)
			}),
		},
	})
}

func TestSchedulesStateLostData(t *testing.T) {
	f := newFixture(t)
	f.judge = true
	f.measured(f.running("i-1", "g6.2xlarge"), 14*day, 1, nineToSix, nineToSix)
	if got := only(t, f.evaluate(), "always-on").Fix; got.Undo != UndoPartial ||
		!strings.Contains(got.Note, "instance-store data is lost") {
		t.Errorf("%+v; want an undo in part and a note on its local disk", got)
	}
	f = newFixture(t)
	f.judge = true
	f.measured(f.running("i-1", "g5g.xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
		r.Manager = fleetGroup
	}), 14*day, 1, nineToSix, nineToSix)
	if got := only(t, f.evaluate(), "always-on").Fix; got.Undo != UndoPartial ||
		!strings.Contains(got.Note, "only through the group") {
		t.Errorf("%+v; want an undo in part and a note on its group", got)
	}
}

func TestTrainingOnDemand(t *testing.T) {
	runScenarios(t, []scenario{
		{
			name:  "idle training is another finding",
			build: func(f *fixture) { f.is(f.running("i-1", "g6.2xlarge", training, fresh), duty.Idle) },
		},
		{
			name: "spot already",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", training, fresh,
					func(_ *inventory.Resource, d *inventory.Instance) {
						d.Market = inventory.Spot
					}), duty.Busy)
			},
		},
		{
			name: "persistent machines are not interrupted",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", training, fresh,
					func(r *inventory.Resource, _ *inventory.Instance) {
						r.Lifetime = inventory.Persistent
					}), duty.Busy)
			},
		},
		{
			name:  "without a spot price the saving is not known",
			build: func(f *fixture) { f.is(f.running("i-1", "m5.large", training, fresh), duty.Busy) },
			want:  []string{"training-on-demand i-1 ?"},
		},
	})
	f := newFixture(t)
	f.is(f.running("i-1", "g6.2xlarge", training, fresh), duty.Busy)
	got := only(t, f.evaluate(), "training-on-demand")
	list, _ := f.Prices.OnDemand("g6.2xlarge", "us-east-1")
	spot, _ := f.Prices.Spot("g6.2xlarge", "us-east-1")
	month, _ := list.Cost(730, 1)
	paid, _ := spot.Cost(730, 1)
	// 0.33 interruptions an hour, each of which loses at most 10 minutes and takes 10 more.
	factor := (1/0.33 + 1.0/6) * math.Expm1(0.33/6) * 6
	if want := month - money.Amount(float64(paid)*factor); (got.Savings.Amount-want).Cents() != "0.00" ||
		got.Waste != 0 || got.Confidence != Medium {
		t.Errorf("saves %+v, wastes %s; want %s and no waste", got.Savings, got.Waste, want)
	}
	if rate, over := evidence(got, "interruptions"), evidence(got,
		"restart_overhead"); rate != "0.33/h (0.095/h to 1.39/h)" || over != "8% (2% to 39%)" {
		t.Errorf("the range is shown as %q and %q", rate, over)
	}
	f = newFixture(t)
	f.is(f.running("i-1", "g6.2xlarge", fresh, func(r *inventory.Resource, _ *inventory.Instance) {
		r.Purpose = inventory.Training
	}), duty.Busy)
	if open := only(t, f.evaluate(), "training-on-demand"); open.Confidence != Low || open.Savings != got.Savings ||
		evidence(open, "lifetime") != "unknown" {
		t.Errorf("of an unknown lifetime: %+v", open)
	}
	stated := Thresholds{Interruptions: spots.Configured(1)}
	if found, err := Evaluate(&f.Account, stated, nil); err != nil ||
		evidence(only(t, found, "training-on-demand"), "interruptions") != "1/h" {
		t.Errorf("a rate that is stated is not the one that is used: %+v, %v", found, err)
	}
	advisor, err := spots.ReadAdvisor("advisor.json", strings.NewReader(`{"ranges":[{"index":1,"label":"5-10%","max":11}],
"spot_advisor":{"us-east-1":{"Linux":{"g6.2xlarge":{"s":61,"r":1}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	advisor.AsOf = "2026-11-20"
	published, err := Evaluate(&f.Account, Thresholds{Advisor: &advisor}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range only(t, published, "training-on-demand").Evidence {
		if e.Signal == "published_interruptions" && (e.Source != "Spot Instance Advisor, 2026-11-20" ||
			!strings.HasPrefix(e.Value, "5-10% interrupted in a month")) {
			t.Errorf("the published band is %+v", e)
		}
	}
	if evidence(only(t, published, "training-on-demand"), "published_interruptions") ==
		"no published_interruptions" {
		t.Error("the published band is not shown")
	}
	if !strings.Contains(got.Fix.Note, "checkpoints") {
		t.Errorf("note %q says nothing of checkpoints", got.Fix.Note)
	}
}

// fresh makes machines younger than the limit of transient training.
func fresh(r *inventory.Resource, _ *inventory.Instance) { r.CreatedAt = ago(6 * time.Hour) }

func TestStickyGroups(t *testing.T) {
	group := func(min, desired int64, states ...duty.State) func(f *fixture) {
		return func(f *fixture) {
			var ids []string
			for i, s := range states {
				id := "i-" + string(rune('1'+i))
				ids = append(ids, id)
				f.is(f.running(id, "m5.large", func(r *inventory.Resource, _ *inventory.Instance) {
					r.Manager = fleetGroup
				}), s)
			}
			f.add(inventory.Resource{ID: "fleet", Kind: inventory.KindAutoScalingGroup,
				Detail: &inventory.AutoScalingGroup{
					Min: min, Max: 10, Desired: desired, Instances: ids, ScalingPolicies: inventory.Known(0),
				}})
		}
	}
	runScenarios(t, []scenario{
		{
			name:  "two of three idle: each is counted once",
			build: group(1, 3, duty.Idle, duty.Busy, duty.Idle),
			want: []string{
				"instance-idle i-1 70.08", "instance-idle i-3 70.08",
				"autoscaling-sticky fleet 0.00 after instance-idle i-1",
			},
		},
		{
			name:  "at its minimum",
			build: group(3, 3, duty.Idle, duty.Busy, duty.Idle),
			want:  []string{"instance-idle i-1 70.08", "instance-idle i-3 70.08"},
		},
		{name: "all busy", build: group(1, 2, duty.Busy, duty.Busy)},
		{name: "all unknown", build: group(1, 2, duty.Unknown, duty.Unknown)},
		{
			name: "a kept group wastes nothing",
			build: func(f *fixture) {
				group(1, 2, duty.Idle, duty.Busy)(f)
				f.Resources[2].KeepUntil = inventory.KeepForever
			},
			want: []string{"instance-idle i-1 70.08"},
		},
	})
	f := newFixture(t)
	group(1, 3, duty.Idle, duty.Busy, duty.Idle)(f)
	fix := only(t, f.evaluate(), "autoscaling-sticky").Fix
	want := change.Change{
		Verb: change.Scale, Arguments: change.Arguments{Count: new(int64(1)), Members: []string{"i-1", "i-3"}},
	}
	if !fix.Change.Equal(want) || fix.Undo != UndoPartial || !strings.Contains(fix.Note, "no others") {
		t.Errorf("%+v; want the idle members by name, and an undo in part", fix)
	}
	g := newFixture(t)
	group(2, 3, duty.Busy, duty.Idle, duty.Idle)(g)
	if got := only(t, g.evaluate(), "autoscaling-sticky").Fix.Change.Arguments; !slices.Equal(got.Members,
		[]string{"i-2"}) || *got.Count != 2 {
		t.Errorf("with a minimum of 2 it ends %v", got.Members)
	}
}

func TestComputeAwayFromData(t *testing.T) {
	data := func(uri string) func(f *fixture) {
		return func(f *fixture) {
			f.is(f.running("i-1", "m5.large"), duty.Busy).Tags = map[string]string{inventory.TagDataURI: uri}
			f.add(inventory.Resource{ID: "near", Kind: inventory.KindBucket, Detail: &inventory.Bucket{}})
			f.add(inventory.Resource{
				ID: "far", Kind: inventory.KindBucket, Region: "eu-west-1", Detail: &inventory.Bucket{},
			})
		}
	}
	runScenarios(t, []scenario{
		{name: "in another region", build: data("s3://far/imagenet"), want: []string{"compute-away-from-data i-1 ?"}},
		{name: "in the same region", build: data("s3://near/imagenet")},
		{name: "in a bucket that was not seen", build: data("s3://elsewhere/imagenet")},
		{name: "no address of a bucket", build: data("the usual place")},
		{
			name: "a training job's input",
			build: func(f *fixture) {
				data("s3://near/")(f)
				f.add(inventory.Resource{
					ID: "job", Kind: inventory.KindTrainingJob, Type: "g5.xlarge", State: inventory.StateRunning,
					Detail: &inventory.TrainingJob{Count: 1, InputURIs: []string{"s3://near/a", "s3://far/b"}}})
			},
			want: []string{"compute-away-from-data job ?"},
		},
	})
}

func TestGenerations(t *testing.T) {
	for _, tc := range []struct {
		machine string
		found   bool
	}{
		{"p2.xlarge", true}, {"p3.2xlarge", true}, {"g6.2xlarge", false},
		{"g6e.xlarge", false}, {"p5.48xlarge", false},
		{"m5.large", false},
	} {
		t.Run(tc.machine, func(t *testing.T) {
			f := newFixture(t)
			f.is(f.running("i-1", tc.machine), duty.Busy)
			found := f.evaluate()
			if !tc.found {
				for _, x := range found {
					if x.Rule == "generation-old" {
						t.Errorf("%s: %s", x.Because, show(found))
					}
				}
				return
			}
			got := only(t, found, "generation-old")
			cost, _ := f.Prices.OnDemand(tc.machine, "us-east-1")
			month, _ := cost.Cost(730, 1)
			if got.Waste != 0 || max(got.Savings.Amount, got.Savings.UpperBound) <= 0 || got.Savings.Amount >= month {
				t.Errorf("%s saves %+v of %s", got.Because, got.Savings, month)
			}
			t.Log(got.Because, got.Savings)
		})
	}
}

func TestModelOptimize(t *testing.T) {
	serving := func(util float64, machine string) func(f *fixture) {
		return func(f *fixture) {
			f.judge = true
			f.measured(f.running("i-1", machine, func(r *inventory.Resource, _ *inventory.Instance) {
				r.Purpose = inventory.Inference
			}), 14*day,
				map[string]int{"g6.2xlarge": 1, "g5.12xlarge": 4}[machine], always(util), always(30))
		}
	}
	has := func(build func(f *fixture)) bool {
		f := newFixture(t)
		build(f)
		for _, x := range f.evaluate() {
			if x.Rule == "model-optimize" {
				return !x.Savings.Known && !x.Savings.Bounded && x.Waste == 0
			}
		}
		return false
	}
	for _, tc := range []struct {
		name    string
		util    float64
		machine string
		want    bool
	}{
		{"expensive and well used", 75, "g5.12xlarge", true},
		{"expensive and hardly used", 20, "g5.12xlarge", false},
		{"cheap and well used", 75, "g6.2xlarge", false},
	} {
		if got := has(serving(tc.util, tc.machine)); got != tc.want {
			t.Errorf("%s: advice %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestReservations(t *testing.T) {
	reserve := func(total, available int64, used func(time.Time) float64) func(f *fixture) {
		return func(f *fixture) {
			r := f.add(inventory.Resource{
				ID: "cr-1", Kind: inventory.KindCapacityReservation, Type: "g6.2xlarge", CreatedAt: ago(60 * day),
				Detail: &inventory.CapacityReservation{
					Total: total, Available: available, Platform: "linux", Tenancy: "shared",
				}})
			if used != nil {
				series(f.window(r, 7*day), "", usage.Capacity, used)
			}
		}
	}
	runScenarios(t, []scenario{
		{
			name:  "half unused all week",
			build: reserve(2, 1, always(1)),
			want:  []string{"reservation-unused cr-1 713.65"},
		},
		{
			name:  "a tenth unused",
			build: reserve(10, 1, always(9)),
		},
		{
			name: "in full use at times: wasted in part, nothing to give back",
			build: reserve(2, 1, func(at time.Time) float64 {
				if at.Hour() < 12 {
					return 2
				}
				return 1
			}),
			want: []string{"reservation-unused cr-1 <=0.00 wasting 356.82"},
		},
		{
			name:  "no metric: what is unused now",
			build: reserve(2, 1, nil),
			want:  []string{"reservation-unused cr-1 713.65"},
		},
		{name: "all in use", build: reserve(2, 0, always(2))},
		{
			name: "kept",
			build: func(f *fixture) {
				reserve(2, 1, always(1))(f)
				f.Resources[0].KeepUntil = inventory.KeepForever
			},
		},
	})
}
