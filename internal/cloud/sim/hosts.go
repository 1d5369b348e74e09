package sim

import (
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// hosts adds the machines without accelerators.
func (a *account) hosts() {
	for _, m := range []machine{
		{
			name: "bastion", machineType: "t3.medium", region: east, owner: ops.production(),
			age: days(140), model: jump,
			protected: true,
			planted:   honest("next to no CPU, and people pass through it all day"),
		},
		{
			name: "airflow", machineType: "m6i.2xlarge", region: east, owner: ops.production(), age: days(92),
			model:   compute(38),
			planted: honest("at work"), data: []disk{gp2(300)},
		},
		{
			name: "mlflow", machineType: "m6i.xlarge", region: east, owner: ops.production(),
			age: days(92), model: compute(16),
			planted: honest("at work"),
		},
		{
			name: "grafana", machineType: "t3.large", region: east, owner: ops.production(),
			age: days(118), model: compute(11),
			planted: honest("at work"),
		},
		{
			name: "tokenizer-prep", machineType: "c6i.8xlarge", region: west, owner: dmitri.as("data"), age: days(6),
			model: compute(71),
			data:  []disk{gp3(1500)}, planted: honest("at work"),
		},
		{
			name: "feature-loader", machineType: "r6i.2xlarge", region: ireland, owner: goran.production().as("data"),
			age: days(54), model: compute(42),
			planted: honest("at work"),
		},
		{
			name: "label-studio", machineType: "m5.xlarge", region: east, owner: ben.production(), age: days(75),
			model:   compute(9),
			planted: honest("at work"), root: gp2(250),
		},
		{
			name: "frame-decoder", machineType: "c5.9xlarge", region: east, owner: ana.as("data"),
			age: days(13), model: rest,
			planted: waste("decoded a dataset once, idle since", "instance-idle"),
		},
		{
			name: "jenkins-old", machineType: "m5.2xlarge", region: east, owner: owner{
				team: "platform", user: "jonas", care: hasty,
			}, age: days(210), model: rest,
			root: gp2(500), planted: waste("replaced a year ago", "instance-idle"),
		},
		{
			name: "spark-master", machineType: "r5.2xlarge", region: ireland, owner: goran.as("data"), age: days(64),
			model:   rest,
			planted: waste("its workers are gone", "instance-idle"),
		},
		{
			name: "crawler", machineType: "m5.large", region: west, owner: emeka.as("data"),
			age: days(120), stopped: days(91),
			model: compute(20),
			data:  []disk{gp3(600)}, planted: waste("stopped for three months, its disks cost on", "instance-stopped"),
		},
		{
			name: "load-generator", machineType: "c5.2xlarge", region: east,
			owner: goran.as("evaluation"), age: days(9),
			stopped: days(4), model: compute(60),
			planted: honest("stopped four days ago"),
		},
		{
			name: "corpus-dedup", machineType: "c7i.4xlarge", region: west, owner: run(fatima), age: hours(7),
			model:   compute(83),
			planted: honest("at work"),
		},
	} {
		a.launch(m)
	}
}

// groups adds the Auto Scaling groups with their machines.
func (a *account) groups() {
	ranker := goran.production().as("inference")
	peak := hours(9*24 + 3)
	a.group("ranker-fleet", east, ranker, group{min: 2, max: 8, age: days(130), policies: 1,
		desired: func(age time.Duration) int64 {
			if age > peak {
				return 2
			}
			return 6
		}}, waste("scaled up for a load test nine days ago and never down", "autoscaling-sticky"))
	for i := range 6 {
		m := machine{
			name: "ranker-" + strconv.Itoa(i+1), machineType: "g5.xlarge", region: east,
			owner: ranker, group: "ranker-fleet",
			image: "ranker-v31",
			age:   days(26), model: serve(35, 78, 0.44, 180), telemetry: hosted,
			planted: honest("inference with a daily curve"),
		}
		if i >= 2 {
			m.age, m.model = peak-time.Duration(i)*time.Minute, rest
			m.planted = waste("scaled up for a load test, and never served since", "gpu-instance-idle")
		}
		a.join(a.launch(m))
	}
	a.group("console", east, ops.production(), group{min: 2, max: 6, age: days(160), policies: 2,
		desired: func(time.Duration) int64 { return 3 }}, honest("scales by demand"))
	for i := range 3 {
		a.join(a.launch(machine{
			name: "console-" + strconv.Itoa(i+1), machineType: "m6i.large", region: east, owner: ops.production(),
			group: "console",
			age:   days(20 - float64(i)), model: compute(24), planted: honest("at work"),
		}))
	}
}

// group is the configuration of an Auto Scaling group.
type group struct {
	min, max int64
	age      time.Duration
	policies int
	// desired returns the size wanted at a time before the account's now.
	desired func(before time.Duration) int64
}

func (a *account) group(name, region string, o owner, g group, p Planted) {
	e := a.add(inventory.Resource{
		ID: name, Name: name, Kind: inventory.KindAutoScalingGroup, Region: region, State: inventory.StateAvailable,
		CreatedAt: a.ago(g.age),
		Detail: &inventory.AutoScalingGroup{
			Min: g.min, Max: g.max, Desired: g.desired(0), ScalingPolicies: inventory.Known(g.policies),
		},
	}, "", 0, o, p)
	e.counted = usage.Capacity
	e.count = func(hour time.Time) (float64, bool) { return float64(g.desired(a.now.Sub(hour))), true }
}

// join lists a machine in its group.
func (a *account) join(e *entry) {
	g := a.named[e.resource.Manager.Name]
	d := g.resource.Detail.(*inventory.AutoScalingGroup)
	d.Instances = append(d.Instances, e.resource.ID)
}
