package finding

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

func ephemeral(r *inventory.Resource, _ *inventory.Instance) { r.Lifetime = inventory.Ephemeral }

func training(r *inventory.Resource, _ *inventory.Instance) {
	r.Lifetime, r.Purpose = inventory.Ephemeral, inventory.Training
}

// measured gives a machine an hourly window of GPU and CPU utilization.
func (f *fixture) measured(r *inventory.Resource, length time.Duration, gpus int, gpu,
	cpu func(time.Time) float64) *usage.Window {
	w := f.window(r, length)
	for i := range gpus {
		name := string(rune('0' + i))
		series(w, name, usage.GPUUtil, gpu)
		series(w, name, usage.MemUsed, always(1<<20))
		series(w, name, usage.MemTotal, always(24<<30))
	}
	series(w, "", usage.CPUUtil, cpu)
	series(w, "", usage.NetBytes, always(0))
	return w
}

func TestIdleMachines(t *testing.T) {
	runScenarios(t, []scenario{
		{
			name:  "idle GPU machine",
			build: func(f *fixture) { f.is(f.running("i-1", "g6.2xlarge"), duty.Idle) },
			want:  []string{"gpu-instance-idle i-1 713.65"},
		},
		{
			name:  "held GPU machine",
			build: func(f *fixture) { f.is(f.running("i-1", "g6.2xlarge"), duty.Held) },
			want:  []string{"gpu-held i-1 713.65"},
		},
		{
			name:  "idle CPU machine",
			build: func(f *fixture) { f.is(f.running("i-1", "m5.large"), duty.Idle) },
			want:  []string{"instance-idle i-1 70.08"},
		},
		{
			name:  "held CPU machine",
			build: func(f *fixture) { f.is(f.running("i-1", "m5.large"), duty.Held) },
			want:  []string{"instance-idle i-1 70.08"},
		},
		{
			name: "5% CPU with 95% GPU is busy",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge"), 14*day, 1, always(95), always(5))
			},
		},
		{
			name: "0% GPU, 0% CPU and no memory is idle",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge"), 14*day, 1, always(0), always(1))
			},
			want: []string{"gpu-instance-idle i-1 713.65"},
		},
		{
			name: "0% GPU with 92% of memory is held",
			build: func(f *fixture) {
				f.judge = true
				w := f.window(f.running("i-1", "g6.2xlarge"), 14*day)
				series(w, "0", usage.GPUUtil, always(0))
				series(w, "0", usage.MemUsed, always(0.92*24*(1<<30)))
				series(w, "0", usage.MemTotal, always(24<<30))
				series(w, "", usage.CPUUtil, always(1))
				series(w, "", usage.NetBytes, always(0))
			},
			want: []string{"gpu-held i-1 713.65"},
		},
		{
			name: "busy machines whose first datapoint is idle are busy",
			build: func(f *fixture) {
				f.judge = true
				start := ago(14 * day)
				f.measured(f.running("i-1", "g6.2xlarge"), 14*day, 1, func(at time.Time) float64 {
					if at.Equal(start) {
						return 0
					}
					return 80
				}, always(3))
			},
		},
		{
			name: "a single datapoint proves nothing",
			build: func(f *fixture) {
				f.judge = true
				w := f.window(f.running("i-1", "m5.large"), 14*day)
				w.Add("", usage.CPUUtil, usage.Point{Time: ago(time.Hour)})
				w.Add("", usage.NetBytes, usage.Point{Time: ago(time.Hour)})
			},
		},
		{
			name: "a gap of three days is unknown time",
			build: func(f *fixture) {
				f.judge = true
				w := f.window(f.running("i-1", "m5.large"), 14*day)
				gap := func(at time.Time) float64 {
					if at.After(ago(6*day)) && at.Before(ago(3*day)) {
						return -1
					}
					return 0
				}
				series(w, "", usage.CPUUtil, gap)
				series(w, "", usage.NetBytes, gap)
			},
		},
		{
			name: "one idle GPU of eight does not make a machine idle",
			build: func(f *fixture) {
				f.judge = true
				w := f.window(f.running("i-1", "p4d.24xlarge"), 14*day)
				for i, name := range []string{"0", "1", "2", "3", "4", "5", "6", "7"} {
					series(w, name, usage.GPUUtil, always([]float64{90, 90, 90, 90, 90, 90, 90, 0}[i]))
					series(w, name, usage.MemUsed, always(39<<30))
					series(w, name, usage.MemTotal, always(40<<30))
				}
				series(w, "", usage.CPUUtil, always(40))
			},
		},
		{
			name: "a machine of 10 hours is not idle yet",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.CreatedAt = ago(10 * time.Hour)
				}), duty.Idle)
			},
		},
		{
			name: "too little coverage is unknown",
			build: func(f *fixture) {
				r := f.is(f.running("i-1", "m5.large"), duty.Idle)
				v := f.Verdicts[r.Ref()]
				v.Coverage = 0.8
				f.Verdicts[r.Ref()] = v
			},
		},
		{
			name: "a kept machine is no finding",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.KeepUntil = now.Add(day)
				}), duty.Idle)
			},
		},
		{
			name: "a keep that has ended does not keep",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.KeepUntil = ago(time.Minute)
				}), duty.Idle)
			},
			want: []string{"gpu-instance-idle i-1 713.65"},
		},
		{
			name: "a machine on its way out is no finding",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.State = inventory.StateDeleting
				}), duty.Idle)
			},
		},
		{
			name: "an accelerated type that the book does not know is not judged by its CPU",
			build: func(f *fixture) {
				f.is(f.running("i-1", "p99.48xlarge"), duty.Idle)
			},
		},
		{
			name: "a type without a price is visible and not zero",
			build: func(f *fixture) {
				r := f.is(f.running("i-1", "zz9.large"), duty.Idle)
				r.Size.GPUs = inventory.Known(0)
			},
			want: []string{"instance-idle i-1 ?"},
		},
		{
			name: "an unknown type is not judged by its CPU, whatever its name looks like",
			build: func(f *fixture) {
				f.is(f.running("i-1", "zz9.large"), duty.Idle)
			},
			want: []string{},
		},
		{
			name: "a Windows machine has no price in the book",
			build: func(f *fixture) {
				f.is(f.running("i-1", "m5.large", func(_ *inventory.Resource, d *inventory.Instance) {
					d.Platform = "windows"
				}),
					duty.Idle)
			},
			want: []string{"instance-idle i-1 ?"},
		},
		{
			name: "unread commitments leave savings unknown and waste known",
			build: func(f *fixture) {
				f.CommitmentsKnown = false
				f.is(f.running("i-1", "g6.2xlarge"), duty.Idle)
			},
			want: []string{"gpu-instance-idle i-1 <=713.65 wasting 713.65"},
		},
		{
			name: "commitments do not apply to spot machines",
			build: func(f *fixture) {
				f.CommitmentsKnown = false
				f.is(f.running("i-1", "g6.2xlarge", func(_ *inventory.Resource, d *inventory.Instance) {
					d.Market = inventory.Spot
				}), duty.Idle)
			},
			want: []string{"gpu-instance-idle i-1 " + spotMonth(t, "g6.2xlarge")},
		},
		{
			name: "a machine in a capacity reservation: the reservation goes on costing",
			build: func(f *fixture) {
				f.is(f.running("i-1", "g6.2xlarge", func(_ *inventory.Resource, d *inventory.Instance) {
					d.CapacityReservationID = "cr-1"
				}), duty.Idle)
			},
			want: []string{"gpu-instance-idle i-1 <=713.65 wasting 713.65"},
		},
	})
}

func spotMonth(t *testing.T, machineType string) string {
	t.Helper()
	p, err := newFixture(t).Prices.Spot(machineType, "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	month, err := p.Cost(730, 1)
	if err != nil {
		t.Fatal(err)
	}
	return month.Cents()
}

func TestTelemetryMissing(t *testing.T) {
	runScenarios(t, []scenario{
		{
			name:  "an unmeasured GPU machine cannot be judged",
			build: func(f *fixture) { f.is(f.running("i-1", "g6.2xlarge"), duty.Unknown) },
			want:  []string{"telemetry-missing i-1 ?"},
		},
		{
			name: "CPU metrics do not measure GPUs",
			build: func(f *fixture) {
				f.judge = true
				w := f.window(f.running("i-1", "g6.2xlarge"), 14*day)
				series(w, "", usage.CPUUtil, always(0))
				series(w, "", usage.NetBytes, always(0))
			},
			want: []string{"telemetry-missing i-1 ?"},
		},
		{
			name: "one GPU of eight measured",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "p4d.24xlarge"), 14*day, 1, always(0), always(0))
			},
			want: []string{"telemetry-missing i-1 ?"},
		},
		{
			name: "telemetry with a hole",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge"), 14*day, 1, func(at time.Time) float64 {
					if at.After(ago(5*day)) && at.Before(ago(2*day)) {
						return -1
					}
					return 0
				}, always(0))
			},
			want: []string{"telemetry-missing i-1 ?"},
		},
		{
			name: "a young machine with telemetry lacks none",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.CreatedAt = ago(10 * time.Hour)
				}),
					10*time.Hour, 1, always(0), always(0))
			},
		},
		{
			name:  "a CPU machine needs no GPU telemetry",
			build: func(f *fixture) { f.is(f.running("i-1", "m5.large"), duty.Unknown) },
		},
	})
	f := newFixture(t)
	f.is(f.running("i-1", "g6.2xlarge"), duty.Unknown)
	got := only(t, f.evaluate(), "telemetry-missing")
	if got.Cost.Cents() != "713.65" || got.Waste != 0 || !strings.Contains(got.Fix.Command, "doctor metrics") {
		t.Errorf("cost %s, waste %s, command %q; want the cost apart from waste and the command that measures",
			got.Cost,
			got.Waste, got.Fix.Command)
	}
}

func TestTagMissing(t *testing.T) {
	f := newFixture(t)
	tagged := f.is(f.running("i-1", "m5.large"), duty.Busy)
	tagged.Tags, tagged.Owner = map[string]string{"team": "vision"}, inventory.Owner{Team: "vision"}
	f.is(f.running("i-2", "m5.large"), duty.Busy)
	f.is(f.running("i-3", "m5.large"), duty.Busy).Tags = nil
	f.add(inventory.Resource{ID: "ami-1", Kind: inventory.KindImage, Detail: &inventory.Image{}})
	found := f.evaluate("team", "project")
	if got := show(found); len(got) != 2 || got[0] != "tag-missing i-1 0.00" || got[1] != "tag-missing i-2 0.00" {
		t.Fatalf("findings %v; want i-1 and i-2: unread tags and what costs nothing are left out", got)
	}
	for _, x := range found {
		want := map[string]string{"i-1": "project", "i-2": "team, project"}[x.Resource.ID]
		if evidence(x, "tags_missing") != want || x.Cost.Cents() != "70.08" || x.Fix.Change.Verb != change.Tag {
			t.Errorf("%s: missing %q, cost %s, action %s; want %q and its cost", x.Resource.ID,
				evidence(x, "tags_missing"),
				x.Cost, x.Fix.Change.Verb, want)
		}
	}
}

func TestStoppedMachines(t *testing.T) {
	stopped := func(f *fixture, since time.Duration) *inventory.Resource {
		f.add(inventory.Resource{
			ID: "vol-1", Kind: inventory.KindVolume, Type: "gp3", State: inventory.StateInUse,
			CreatedAt: ago(90 * day),
			Detail:    &inventory.Volume{SizeGiB: 100, IOPS: 3000, ThroughputMiBps: 125, AttachedTo: []string{"i-1"}}})
		return f.running("i-1", "g6.2xlarge", func(r *inventory.Resource, d *inventory.Instance) {
			r.State, r.StateSince = inventory.StateStopped, ago(since)
			d.Disks = []inventory.Disk{{VolumeID: "vol-1", DeleteOnTermination: true}}
		})
	}
	address := func(f *fixture) {
		f.add(inventory.Resource{ID: "eipalloc-1", Kind: inventory.KindAddress, State: inventory.StateInUse,
			Detail: &inventory.Address{AssociationID: "eipassoc-1", InstanceID: "i-1"}})
	}
	runScenarios(t, []scenario{
		{
			name:  "stopped for 40 days, pays for its disk",
			build: func(f *fixture) { stopped(f, 40*day) },
			want:  []string{"instance-stopped i-1 3.00 wasting 8.00"}, // its snapshot costs 5.00
		},
		{
			name: "a disk that stays when it is terminated saves nothing",
			build: func(f *fixture) {
				stopped(f, 40*day).Detail.(*inventory.Instance).Disks[0].DeleteOnTermination = false
			},
			want: []string{"instance-stopped i-1 0.00 wasting 8.00"},
		},
		{
			name: "of two disks the one that stays is waste, and not saved",
			build: func(f *fixture) {
				d := stopped(f, 40*day).Detail.(*inventory.Instance)
				f.add(inventory.Resource{
					ID: "vol-2", Kind: inventory.KindVolume, Type: "gp3", State: inventory.StateInUse,
					CreatedAt: ago(90 * day),
					Detail: &inventory.Volume{
						SizeGiB: 200, IOPS: 3000, ThroughputMiBps: 125, AttachedTo: []string{"i-1"},
					}})
				d.Disks = append(d.Disks, inventory.Disk{VolumeID: "vol-2"})
			},
			want: []string{"instance-stopped i-1 3.00 wasting 24.00"},
		},
		{
			name:  "its address is a finding of its own",
			build: func(f *fixture) { stopped(f, 40*day); address(f) },
			want:  []string{"instance-stopped i-1 3.00 wasting 8.00", "address-unused eipalloc-1 3.65"},
		},
		{
			name:  "stopped for 3 days: only its address is unused",
			build: func(f *fixture) { stopped(f, 3*day); address(f) },
			want:  []string{"address-unused eipalloc-1 3.65"},
		},
		{
			name:  "since when it is stopped is not known",
			build: func(f *fixture) { stopped(f, 0).StateSince = time.Time{} },
		},
		{
			name: "volumes could not be listed",
			build: func(f *fixture) {
				stopped(f, 40*day)
				f.Unread = map[string]bool{"123456789012/us-east-1/volume": true}
			},
		},
		{
			name:  "a kept machine keeps its address",
			build: func(f *fixture) { stopped(f, 40*day).KeepUntil = now.Add(day); address(f) },
		},
	})
}

func TestOverdueTraining(t *testing.T) {
	old := func(r *inventory.Resource, _ *inventory.Instance) { r.CreatedAt = ago(20 * time.Hour) }
	for _, tc := range []struct {
		name string
		duty duty.State
		risk Level
	}{
		{"busy", duty.Busy, None},
		{"unknown", duty.Unknown, None},
		{"idle", duty.Idle, Low},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.is(f.running("i-1", "m5.large", training, old), tc.duty)
			found := f.evaluate()
			got := only(t, found, "instance-overdue")
			if got.Waste != 0 || !got.Savings.Known || got.Savings.Amount != 0 || got.Cost.Cents() != "70.08" ||
				got.Fix.Risk != tc.risk {
				t.Errorf("%+v; want a warning without waste, its cost, risk %s", got, tc.risk)
			}
		})
	}
	runScenarios(t, []scenario{
		{
			name: "under 12 hours",
			build: func(f *fixture) {
				f.is(f.running("i-1", "m5.large", training, func(r *inventory.Resource, _ *inventory.Instance) {
					r.CreatedAt = ago(11 * time.Hour)
				}), duty.Unknown)
			},
		},
		{
			name: "a persistent training machine has no such limit",
			build: func(f *fixture) {
				f.is(f.running("i-1", "m5.large", training, func(r *inventory.Resource, _ *inventory.Instance) {
					r.Lifetime = inventory.Persistent
				}), duty.Busy)
			},
		},
	})
}

func TestStalledTraining(t *testing.T) {
	worked := func(until time.Duration) func(time.Time) float64 {
		return func(at time.Time) float64 {
			if at.Before(ago(until)) {
				return 80
			}
			return 0
		}
	}
	persistent := func(r *inventory.Resource, _ *inventory.Instance) {
		r.Purpose, r.Lifetime = inventory.Training, inventory.Persistent
	}
	runScenarios(t, []scenario{
		{
			name: "a training machine at 0% for 10 hours",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge", persistent), 14*day, 1,
					worked(10*time.Hour), worked(10*time.Hour))
			},
			want: []string{"training-stalled i-1 713.65"},
		},
		{
			name: "a training machine that computes all the time while its step counter stands still",
			build: func(f *fixture) {
				f.judge = true
				r := f.running("i-1", "g6.2xlarge", persistent)
				f.measured(r, 14*day, 1, always(95), always(40))
				series(f.Windows[r.Ref()], "", usage.Step, func(at time.Time) float64 {
					if at.After(ago(10 * time.Hour)) {
						at = ago(10 * time.Hour)
					}
					return at.Sub(ago(14 * day)).Hours()
				})
			},
			want: []string{"training-stalled i-1 713.65"},
		},
		{
			name: "its twin whose steps go on",
			build: func(f *fixture) {
				f.judge = true
				r := f.running("i-1", "g6.2xlarge", persistent)
				f.measured(r, 14*day, 1, always(95), always(40))
				series(f.Windows[r.Ref()], "", usage.Step, func(at time.Time) float64 {
					return at.Sub(ago(14 * day)).Hours()
				})
			},
		},
		{
			name: "a training machine of 10 hours that never computed is not stalled: its idle window is not over",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge", persistent,
					func(r *inventory.Resource, _ *inventory.Instance) {
						r.CreatedAt = ago(10 * time.Hour)
					}),
					10*time.Hour, 1, always(0), always(0))
			},
		},
		{
			name: "for 3 hours it may evaluate",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge", persistent), 14*day, 1,
					worked(3*time.Hour), worked(3*time.Hour))
			},
		},
		{
			name: "busy CPUs prepare data",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge", persistent), 14*day, 1, worked(10*time.Hour), always(60))
			},
		},
		{
			name: "a missing hour is unknown, not stalled",
			build: func(f *fixture) {
				f.judge = true
				f.measured(f.running("i-1", "g6.2xlarge", persistent), 14*day, 1, func(at time.Time) float64 {
					if at.After(ago(4*time.Hour)) && at.Before(ago(2*time.Hour)) {
						return -1
					}
					return worked(10 * time.Hour)(at)
				}, always(0))
			},
		},
		{
			name: "a managed job at 0%",
			build: func(f *fixture) {
				r := f.add(inventory.Resource{
					ID: "job", Kind: inventory.KindTrainingJob, Type: "g5.xlarge", State: inventory.StateRunning,
					CreatedAt: ago(20 * time.Hour), Detail: &inventory.TrainingJob{
						Count: 1, StartedAt: ago(20 * time.Hour),
					}})
				series(f.window(r, 20*time.Hour), "", usage.GPUUtil, worked(10*time.Hour))
			},
			want: []string{"training-stalled job " + managedMonth(t, "g5.xlarge")},
		},
		{
			name: "one host of two does not speak for the other",
			build: func(f *fixture) {
				r := f.add(inventory.Resource{
					ID: "job", Kind: inventory.KindTrainingJob, Type: "g5.xlarge", State: inventory.StateRunning,
					CreatedAt: ago(20 * time.Hour), Detail: &inventory.TrainingJob{
						Count: 2, StartedAt: ago(20 * time.Hour),
					}})
				series(f.window(r, 20*time.Hour), "", usage.GPUUtil, always(0))
			},
		},
		{
			name: "a maximum over both hosts does",
			build: func(f *fixture) {
				r := f.add(inventory.Resource{
					ID: "job", Kind: inventory.KindTrainingJob, Type: "g5.xlarge", State: inventory.StateRunning,
					CreatedAt: ago(20 * time.Hour), Detail: &inventory.TrainingJob{
						Count: 2, StartedAt: ago(20 * time.Hour),
					}})
				w := f.window(r, 20*time.Hour)
				w.Aggregated = true
				series(w, "", usage.GPUUtil, always(0))
			},
			want: []string{"training-stalled job 2055.68"},
		},
		{
			name: "a managed job that prepares data",
			build: func(f *fixture) {
				r := f.add(inventory.Resource{
					ID: "job", Kind: inventory.KindTrainingJob, Type: "g5.xlarge", State: inventory.StateRunning,
					CreatedAt: ago(20 * time.Hour), Detail: &inventory.TrainingJob{
						Count: 1, StartedAt: ago(20 * time.Hour),
					}})
				w := f.window(r, 20*time.Hour)
				series(w, "", usage.GPUUtil, always(0))
				series(w, "", usage.CPUUtil, always(80))
			},
		},
		{
			name: "a job that runs for 30 hours",
			build: func(f *fixture) {
				f.add(inventory.Resource{
					ID: "job", Kind: inventory.KindTrainingJob, Type: "g5.xlarge", State: inventory.StateRunning,
					Detail: &inventory.TrainingJob{Count: 1, StartedAt: ago(30 * time.Hour)}})
			},
			want: []string{"training-overrun job 0.00"},
		},
	})
}

func managedMonth(t *testing.T, machineType string) string {
	t.Helper()
	p, err := newFixture(t).Prices.Managed("sagemaker", machineType, "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	month, err := p.Cost(730, 1)
	if err != nil {
		t.Fatal(err)
	}
	return month.Cents()
}

func TestFixesOfIdleMachines(t *testing.T) {
	for _, tc := range []struct {
		name         string
		change       func(*inventory.Resource, *inventory.Instance)
		machine      string
		action, note string
		undo         Undo
		risk         Level
	}{
		{
			name: "unknown lifetime is stopped", machine: "g5g.xlarge",
			change: func(*inventory.Resource, *inventory.Instance) {},
			action: "stop", undo: UndoFull, risk: Medium, note: "lack of capacity"},
		{name: "ephemeral is terminated", machine: "g6.2xlarge", change: ephemeral,
			action: "terminate", undo: UndoNone, risk: Low, note: "instance-store data is lost"},
		{name: "ephemeral in production is stopped, at high risk", machine: "g6.2xlarge",
			change: func(r *inventory.Resource, d *inventory.Instance) {
				ephemeral(r, d)
				r.Owner.Environment = "production"
			}, action: "stop", undo: UndoPartial, risk: High, note: "production"},
		{name: "inference is high risk", machine: "g6.2xlarge",
			change: func(r *inventory.Resource, d *inventory.Instance) { r.Purpose = inventory.Inference },
			action: "stop", undo: UndoPartial, risk: High, note: "inference"},
		{name: "a GPU machine that production stops may not start again", machine: "g5g.xlarge",
			change: func(r *inventory.Resource, d *inventory.Instance) {
				ephemeral(r, d)
				r.Owner.Environment = "production"
			}, action: "stop", undo: UndoFull, risk: High, note: "lack of capacity"},
		{name: "a spot machine's disks may hold unsaved data too", machine: "m5.large",
			change: func(_ *inventory.Resource, d *inventory.Instance) { d.Market = inventory.Spot },
			action: "terminate", undo: UndoNone, risk: Medium, note: "unsaved data"},
		{name: "a member is scaled through its group", machine: "g6.2xlarge",
			change: func(r *inventory.Resource, _ *inventory.Instance) { r.Manager = fleetGroup },
			action: "scale", undo: UndoPartial, risk: Medium, note: "only through the group"},
		{name: "its disks end with a member", machine: "g6.2xlarge",
			change: func(r *inventory.Resource, _ *inventory.Instance) { r.Manager = fleetGroup },
			action: "scale", undo: UndoPartial, risk: Medium, note: "disks end with it"},
		{name: "a disk that was not seen is not deleted with the machine", machine: "m5.large",
			change: func(r *inventory.Resource, d *inventory.Instance) {
				ephemeral(r, d)
				d.Disks = []inventory.Disk{{VolumeID: "vol-9", DeleteOnTermination: true}}
			}, action: "stop", undo: UndoFull, risk: Low, note: "disks go on costing"},
		{name: "a disk that is kept is not deleted with the machine", machine: "m5.large",
			change: func(r *inventory.Resource, d *inventory.Instance) {
				ephemeral(r, d)
				d.Disks = []inventory.Disk{{VolumeID: "vol-2", DeleteOnTermination: true}}
			}, action: "stop", undo: UndoFull, risk: Low, note: "disks go on costing"},
		{name: "a disk declared persistent is not deleted with the machine", machine: "m5.large",
			change: func(r *inventory.Resource, d *inventory.Instance) {
				ephemeral(r, d)
				d.Disks = []inventory.Disk{{VolumeID: "vol-1", DeleteOnTermination: true}}
			}, action: "stop", undo: UndoFull, risk: Low, note: "disks go on costing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.add(inventory.Resource{
				ID: "vol-1", Kind: inventory.KindVolume, Type: "gp3", State: inventory.StateInUse,
				Lifetime: inventory.Persistent,
				Detail:   &inventory.Volume{SizeGiB: 1, AttachedTo: []string{"i-1"}}})
			f.add(inventory.Resource{
				ID: "vol-2", Kind: inventory.KindVolume, Type: "gp3", State: inventory.StateInUse,
				KeepUntil: inventory.KeepForever,
				Detail:    &inventory.Volume{SizeGiB: 1, AttachedTo: []string{"i-1"}}})
			f.is(f.running("i-1", tc.machine, tc.change), duty.Idle)
			var got Fix
			for _, x := range f.evaluate() {
				if x.Step == StepIdle {
					got = x.Fix
				}
			}
			if got.Change.Action() != tc.action || got.Undo != tc.undo || got.Risk != tc.risk ||
				!strings.Contains(got.Note, tc.note) {
				t.Errorf("%+v; want %s, undo %s, risk %s, a note with %q", got, tc.action, tc.undo, tc.risk, tc.note)
			}
		})
	}
}
