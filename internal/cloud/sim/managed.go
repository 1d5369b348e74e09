package sim

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// managed adds the resources of the machine-learning service: notebooks, endpoints and training
// jobs.
func (a *account) managed() {
	a.notebooks()
	a.endpoints()
	a.jobs()
}

func (a *account) notebooks() {
	for _, x := range []struct {
		name, machineType, region string
		owner                     owner
		age, modified             float64 // days
		active                    float64 // days since use is recorded; negative: not recorded
		volume                    int64
		state                     inventory.State
		app                       bool
		model                     behavior // nil: nothing measures it
		planted                   Planted
	}{
		{
			"chloe-keypoints", "g4dn.xlarge", east, chloe.as("notebook"), 47, 26, 22, 100,
			inventory.StateRunning, false, nil,
			waste("unused for three weeks", "notebook-idle")},
		{
			"emeka-alignment", "g5.xlarge", west, emeka.as("notebook"), 33, 19, -1, 200, inventory.StateRunning, false,
			hold(0.7),
			waste("a kernel holds 16 GB and computes nothing", "notebook-idle")},
		{"onboarding-lab", "t3.xlarge", east, ops.as("notebook"), 40, 40, -1, 20, inventory.StateRunning, false, nil,
			waste("started once, never opened", "notebook-idle")},
		{
			"ivo-similarity", "m5.2xlarge", east, ivo.as("notebook").tagged(hasty), 29, 17, 15.5,
			50, inventory.StateRunning,
			false, nil,
			waste("unused for two weeks", "notebook-idle")},
		{
			"fatima-retrieval", "g5.xlarge", east, fatima.as("notebook"), 61, 35, -1, 100,
			inventory.StateRunning, false,
			experiment(0.7, 0.6),
			honest("not modified for a month, and its GPU is at work")},
		{"ana-masks", "g4dn.xlarge", east, ana.as("notebook"), 20, 1.2, 0.1, 100, inventory.StateRunning, true, nil,
			honest("used this morning")},
		{
			"hana-calibration", "m5.xlarge", east, hana.as("notebook"), 80, 30, -1, 30,
			inventory.StateStopped, false, nil,
			honest("stopped")},
	} {
		d := &inventory.Notebook{VolumeGiB: x.volume, LastModified: a.ago(days(x.modified)), IsApp: x.app}
		if x.active >= 0 {
			d.LastActivity = inventory.Known(a.ago(days(x.active)))
		}
		since := a.ago(days(x.modified))
		e := a.add(inventory.Resource{
			ID: x.name, Name: x.name, Kind: inventory.KindNotebook, Region: x.region,
			Type: x.machineType, State: x.state,
			CreatedAt: a.ago(days(x.age)), StateSince: since, Detail: d,
		}, "", 0, x.owner, x.planted)
		e.hardware, e.model, e.telemetry = hardwareOf(x.machineType), x.model, hosted
		e.signals = []usage.Signal{usage.CPUUtil}
	}
}

func (a *account) endpoints() {
	for _, x := range []struct {
		name, region string
		owner        owner
		age          float64
		machineType  string
		count        int64
		serverless   bool
		async        bool
		model        behavior
		planted      Planted
	}{
		{"feed-ranker-v1", east, goran.production().as("inference"), 190, "g4dn.xlarge", 1, false, false, rest,
			waste("v2 took its traffic in the spring", "endpoint-idle")},
		{"pose-demo", east, chloe.as("endpoint"), 74, "g4dn.xlarge", 1, false, false, rest,
			waste("made for a demonstration", "endpoint-idle")},
		{
			"nmt-gateway", east, emeka.production().as("inference"), 88, "g5.xlarge", 3, false,
			false, serve(2, 9, 0.3, 4),
			waste("three machines for a tenth of one", "inference-overprovisioned")},
		{
			"feed-ranker-v2", east, goran.production().as("inference"), 97, "g5.xlarge", 1, false, false,
			serve(34, 77, 0.5, 240),
			honest("inference with a daily curve")},
		{"doc-parser-async", east, fatima.as("inference"), 51, "g4dn.xlarge", 1, false, true, rest,
			honest("asynchronous: it scales by its queue")},
		{"intent-serverless", east, dmitri.production().as("inference"), 66, "", 0, true, false, nil,
			honest("serverless: it costs when it is called")},
		{"rerank-canary", east, fatima.as("inference"), 2.2, "g4dn.xlarge", 1, false, false, rest,
			honest("two days old: too young to be judged")},
	} {
		e := a.add(inventory.Resource{
			ID: x.name, Name: x.name, Kind: inventory.KindEndpoint, Region: x.region, Type: x.machineType,
			State:     inventory.StateRunning,
			CreatedAt: a.ago(days(x.age)), StateSince: a.ago(days(x.age) - 6*time.Minute),
			Detail: &inventory.Endpoint{
				Variants: []inventory.Variant{
					{Name: "main", Type: x.machineType, Count: x.count, Serverless: x.serverless},
				},
				Async: x.async},
		}, "", 0, x.owner, x.planted)
		e.hardware, e.model, e.telemetry = hardwareOf(x.machineType), x.model, hosted
		e.signals = []usage.Signal{usage.CPUUtil, usage.Requests}
	}
}

func (a *account) jobs() {
	for _, x := range []struct {
		name, machineType, region string
		owner                     owner
		age                       float64 // hours
		count                     int64
		spot                      bool
		limit                     time.Duration
		input                     string
		model                     behavior
		planted                   Planted
	}{
		{
			"seg-finetune-2231", "g5.2xlarge", east, run(ana), 6.4, 1, false, days(1),
			"s3://acme-vision-datasets/defect-frames/", train(92, 0.8),
			honest("six hours old and at work")},
		{
			"nmt-backtranslate-88", "g4dn.xlarge", east, run(emeka), 43, 1, false, days(5),
			"s3://acme-experiments/experiments/bt/", train(90, 0.7),
			honest("runs longer than a day, and is at work", "training-overrun")},
		{
			"ctr-ablation-512", "g4dn.xlarge", east, run(hana), 31, 1, false, days(5),
			"s3://acme-experiments/experiments/ctr/",
			until(hours(12), train(88, 0.6), hold(0.6)),
			waste("no step for nineteen hours: its data loader hangs", "training-stalled")},
		{
			"moe-probe-7", "g5.2xlarge", east, run(dmitri), 9, 1, true, days(2), "s3://acme-llm-checkpoints/sft-a100/",
			train(89, 0.75),
			honest("at work, with data of another region", "compute-away-from-data")},
	} {
		e := a.add(inventory.Resource{
			ID: x.name, Name: x.name, Kind: inventory.KindTrainingJob, Region: x.region, Type: x.machineType,
			State:     inventory.StateRunning,
			CreatedAt: a.ago(hours(x.age)), StateSince: a.ago(hours(x.age) - 4*time.Minute),
			Detail: &inventory.TrainingJob{
				Count: x.count, VolumeGiB: 100, Spot: x.spot,
				StartedAt: a.ago(hours(x.age) - 4*time.Minute), MaxRuntime: x.limit,
				InputURIs: []string{x.input}},
		}, "", 0, x.owner, x.planted)
		e.hardware, e.model, e.telemetry = hardwareOf(x.machineType), x.model, hosted
		e.signals = []usage.Signal{usage.CPUUtil}
	}
}
