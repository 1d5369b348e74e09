package sim

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// hours is a duration of that many hours.
func hours(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }

// days is a duration of that many days.
func days(n float64) time.Duration { return hours(24 * n) }

// The people of the three teams and their projects.
var (
	ana    = who("vision/segmentation/ana")
	ben    = who("vision/defect-detection/ben")
	chloe  = who("vision/pose/chloe")
	dmitri = who("language/support-llm/dmitri")
	emeka  = who("language/translation/emeka")
	fatima = who("language/retrieval/fatima")
	goran  = who("ranking/feed-ranking/goran")
	hana   = who("ranking/ads-ctr/hana")
	ivo    = who("ranking/embeddings/ivo")
	ops    = who("platform/ml-platform/jonas")
)

// run is an owner's ephemeral training.
func run(o owner) owner {
	o.purpose, o.lifetime = "training", "ephemeral"
	return o
}

// transient is short-lived training, tagged by the convention of dead man's switches.
func transient(o owner) owner {
	o.purpose = ""
	return o.with("Purpose", "transient-ml-training")
}

// with returns the owner with an additional tag.
func (o owner) with(key, value string) owner {
	extra := map[string]string{key: value}
	for k, v := range o.extra {
		extra[k] = v
	}
	o.extra = extra
	return o
}

// tagged returns the owner with another quality of tags.
func (o owner) tagged(c care) owner {
	o.care = c
	return o
}

// fleet adds the accelerated machines.
func (a *account) fleet() {
	for _, team := range [][]machine{a.vision(), a.language(), a.ranking(), a.unclaimed()} {
		for _, m := range team {
			a.launch(m)
		}
	}
}

func (a *account) vision() []machine {
	return []machine{
		{
			name: "seg-pretrain-l40s", machineType: "g6e.2xlarge", region: east, owner: run(ana), age: days(8.2),
			image: "ml-train-v41",
			model: train(91, 0.83), telemetry: profiled, data: []disk{gp3(2000)},
			planted: honest("training at work for eight days, which could run on spot", "instance-overdue",
				"training-on-demand"),
		},
		{
			name: "seg-pretrain-a100", machineType: "p4de.24xlarge", region: east, owner: run(ana), age: days(40),
			stopped: days(11), image: "ml-train-v41",
			model: train(91, 0.27), telemetry: profiled, data: []disk{gp3(2000)},
			planted: honest("stopped eleven days ago, when its run ended"),
		},
		{
			name: "pose-lifter", machineType: "g5.xlarge", region: east, owner: chloe.as("training"), age: days(22),
			image: "ml-train-v41",
			model: train(70, 0.2), telemetry: hosted,
			planted: honest("computes well and uses 5 of 23 GB: cards with less memory lack bfloat16"),
		},
		{
			name: "defect-train-01", machineType: "g5.12xlarge", region: east, owner: run(ben), age: days(2.4),
			market: inventory.Spot,
			image:  "ml-train-v41", model: train(94, 0.81), telemetry: profiled, data: []disk{gp3(500)},
			planted: honest("training at work on spot", "instance-overdue"),
		},
		{
			name: "defect-train-02", machineType: "g5.12xlarge", region: east,
			owner: ben.as("training"), age: days(17),
			image: "ml-train-v41", model: sparing(1, train(78, 0.61)), telemetry: hosted, data: []disk{gp2(1000)},
			planted: honest("training that uses one GPU of four", "gpu-count-over"),
		},
		{
			name: "ana-dev", machineType: "g5.xlarge", region: east, owner: ana.as("experimentation"), age: days(44),
			model: office(-5, 0.4), telemetry: hosted, root: gp2(200),
			planted: waste("used in office hours, on all week", "always-on"),
		},
		{
			name: "ben-dev", machineType: "g5.2xlarge", region: east, owner: ben.as("dev"), age: days(61),
			model: office(-5, 0.55), telemetry: hosted,
			planted: waste("used in office hours, on all week", "always-on"),
		},
		{
			name: "chloe-scratch", machineType: "g4dn.xlarge", region: east,
			owner: chloe.as("experimentation").tagged(hasty),
			age:   days(38),
			model: rest, telemetry: hosted, root: gp2(120),
			planted: waste("nothing ran on it for weeks", "gpu-instance-idle"),
		},
		{
			name: "aug-bench", machineType: "g6.xlarge", region: east,
			owner: chloe.as("benchmark").with(inventory.TagLifetime,
				"ephemeral"), age: days(16.4),
			model: until(hours(30), train(70, 0.5), rest), telemetry: profiled,
			planted: waste("a benchmark that ended two weeks ago", "gpu-instance-idle"),
		},
		{
			name: "pose-exp-01", machineType: "g6.2xlarge", region: east,
			owner: chloe.as("experimentation"), age: days(21),
			model: experiment(0.72, 0.66), telemetry: hosted,
			planted: honest("experiments most of the time, day and night"),
		},
		{
			name: "pose-exp-02", machineType: "g6.2xlarge", region: east,
			owner: chloe.as("experimentation"), age: days(29),
			model: hold(0.64), telemetry: hosted,
			planted: waste("a kernel holds 15 GB and computes nothing", "gpu-held"),
		},
		{
			name: "label-assist-01", machineType: "g4dn.xlarge", region: east, owner: ben.production().as("inference"),
			age:   days(83),
			model: serve(18, 71, 0.52, 14), telemetry: hosted,
			planted: honest("inference with a daily curve"),
		},
		{
			name: "label-assist-02", machineType: "g4dn.xlarge", region: east, owner: ben.production().as("inference"),
			age:   days(83),
			model: serve(17, 69, 0.52, 14), telemetry: hosted,
			planted: honest("inference with a daily curve"),
		},
		{
			name: "imagenet-sync", machineType: "g4dn.2xlarge", region: west,
			owner: ana.as("data").with(inventory.TagDataURI,
				"s3://acme-vision-datasets/imagenet/"),
			age: days(3.3), model: download, telemetry: hosted, data: []disk{gp3(2000)},
			planted: honest(
				"copies a dataset: its GPU is idle, its CPUs and network are not; the dataset is in another region",
				"compute-away-from-data"),
		},
		{
			name: "viz-workstation", machineType: "g4dn.4xlarge", region: east,
			owner: ana.as("interactive"), age: days(52),
			model: office(-5, 0.3), telemetry: bare,
			planted: honest("its GPU is not measured", "telemetry-missing"),
		},
		{
			name: "defect-legacy", machineType: "p3.2xlarge", region: east, owner: ben.as("training"), age: days(25),
			image: "ml-train-v12",
			model: train(92, 0.83), telemetry: hosted, root: gp2(300),
			planted: honest("training at work on a card of 2017", "generation-old"),
		},
		{
			name: "ablation-07", machineType: "p3.2xlarge", region: east,
			owner: chloe.as("experimentation"), age: days(71),
			stopped: days(46),
			data:    []disk{gp3(1200)}, model: train(80, 0.7), telemetry: hosted,
			planted: waste("stopped for 46 days, its disks and its address cost on", "instance-stopped"),
		},
		{
			name: "ablation-08", machineType: "g5.xlarge", region: east,
			owner: chloe.as("experimentation"), age: days(12),
			stopped: days(2.6),
			model:   train(80, 0.7), telemetry: hosted,
			planted: honest("stopped the day before yesterday"),
		},
		{
			name: "frame-embed", machineType: "g5.xlarge", region: east, owner: run(ana), age: days(1.6),
			market: inventory.Spot,
			model:  train(89, 0.58), telemetry: hosted,
			planted: honest("a batch at work on spot", "instance-overdue"),
		},
		{
			name: "edge-export", machineType: "inf2.xlarge", region: east, owner: ben.as("evaluation"), age: days(19),
			model: compute(12), telemetry: bare,
			planted: honest("its accelerator is not measured", "telemetry-missing"),
		},
		{
			name: "distill-vit", machineType: "g6.xlarge", region: west, owner: run(chloe), age: days(4.4),
			model: trainQuietly(95, 0.62), telemetry: profiled,
			planted: honest("5% CPU, and 95% GPU", "instance-overdue", "training-on-demand"),
		},
	}
}

func (a *account) language() []machine {
	return []machine{
		{
			name: "sft-a100", machineType: "p4d.24xlarge", region: west, owner: run(dmitri), age: days(5.7),
			market: inventory.Spot,
			image:  "llm-train-v9", model: sparing(7, train(88, 0.86)), telemetry: profiled,
			data:    []disk{{volumeType: "gp3", gib: 3000, iops: 8000, mibps: 500}},
			planted: honest("training on seven of eight GPUs, on spot", "instance-overdue"),
		},
		{
			name: "llm-eval", machineType: "p4d.24xlarge", region: east,
			owner: dmitri.as("evaluation"), age: days(8.5),
			image: "llm-train-v9", model: until(hours(0.8), train(74, 0.92), hold(0.92)), telemetry: hosted,
			data:    []disk{gp3(2000)},
			planted: waste("an evaluation of an hour, and a process that has held 92% of memory since", "gpu-held"),
		},
		{
			name: "support-serve-01", machineType: "g5.12xlarge", region: east,
			owner: dmitri.production().as("inference"),
			age:   days(66),
			image: "llm-serve-v23", reservation: "support-serve", model: serve(58, 86, 0.88, 22), telemetry: profiled,
			planted: honest("inference well used, and costly: a smaller model would serve it", "model-optimize"),
		},
		{
			name: "rag-serve-01", machineType: "g6e.xlarge", region: east, owner: fatima.production().as("serving"),
			age:   days(40),
			image: "llm-serve-v23", model: serve(31, 79, 0.81, 9), telemetry: profiled,
			planted: honest("inference with a daily curve"),
		},
		{
			name: "rag-serve-02", machineType: "g6e.xlarge", region: east, owner: fatima.production().as("serving"),
			age:   days(40),
			image: "llm-serve-v23", model: serve(30, 78, 0.81, 9), telemetry: profiled,
			planted: honest("inference with a daily curve"),
		},
		{
			name: "rag-embed", machineType: "g6e.2xlarge", region: east,
			owner: fatima.as("experimentation"), age: days(33),
			model: serve(5, 13, 0.12, 6), telemetry: profiled,
			planted: honest("a tenth of an L40S is used", "gpu-underutilized"),
		},
		{
			name: "nmt-train-01", machineType: "g6.12xlarge", region: west,
			owner: emeka.as("training"), age: days(6.5),
			image: "ml-train-v41",
			model: until(days(3.1), train(90, 0.85), hold(0.85)), telemetry: profiled, data: []disk{gp3(1000)},
			planted: waste("a collective operation hangs: no step for three days, memory held", "training-stalled"),
		},
		{
			name: "nmt-train-02", machineType: "g6.12xlarge", region: west, owner: run(emeka), age: days(3.9),
			market: inventory.Spot, image: "ml-train-v41",
			model: train(93, 0.88), telemetry: profiled, data: []disk{gp3(1000)},
			planted: honest("training at work on spot", "instance-overdue"),
		},
		{
			name: "nmt-train-03", machineType: "g6.12xlarge", region: west, owner: run(emeka), age: days(3.9),
			market: inventory.Spot, image: "ml-train-v41",
			model: train(92, 0.88), telemetry: profiled, data: []disk{gp3(1000)},
			planted: honest("training at work on spot, detached from any session", "instance-overdue"),
		},
		{
			name: "dmitri-dev", machineType: "g6e.xlarge", region: east, owner: dmitri.as("dev"), age: days(36),
			model: office(1, 0.45), telemetry: hosted,
			planted: waste("used in office hours, on all week", "always-on"),
		},
		{
			name: "emeka-dev", machineType: "g6.2xlarge", region: west, owner: emeka.as("dev"), age: days(50),
			model: office(-8, 0.35), telemetry: hosted, root: gp2(400),
			planted: waste("used in office hours, on all week", "always-on"),
		},
		{
			name: "fatima-notebook", machineType: "g5.2xlarge", region: west,
			owner: fatima.as("notebook"), age: days(18),
			model: hold(0.91), telemetry: hosted, reservation: "retrieval-demo",
			planted: waste("a notebook kernel holds 20 GB and computes nothing", "gpu-held"),
		},
		{
			name: "lora-sweep-01", machineType: "g6e.xlarge", region: west, owner: run(dmitri), age: days(1.8),
			model: train(90, 0.77), telemetry: profiled,
			planted: honest("training at work, which could run on spot", "instance-overdue", "training-on-demand"),
		},
		{
			name: "lora-sweep-02", machineType: "g6e.xlarge", region: west, owner: run(dmitri), age: days(1.8),
			market: inventory.Spot,
			model:  train(91, 0.77), telemetry: profiled,
			planted: honest("training at work on spot", "instance-overdue"),
		},
		{
			name: "llm-playground", machineType: "p5.4xlarge", region: west,
			owner: dmitri.as("sandbox").tagged(hasty).with(inventory.TagLifetime, "ephemeral"), age: days(13),
			model: rest, telemetry: hosted,
			planted: waste("an unused H100", "gpu-instance-idle"),
		},
		{
			name: "quant-bench", machineType: "g6.2xlarge", region: east, owner: fatima.as("benchmark"), age: days(16),
			model: rest, telemetry: profiled,
			planted: waste("a benchmark that ended two weeks ago", "gpu-instance-idle"),
		},
		{
			name: "blackwell-trial", machineType: "g7e.2xlarge", region: east,
			owner: dmitri.as("evaluation"), age: days(7),
			model: latch, telemetry: profiled,
			planted: honest("reports 100% without process or memory: suspect, and not judged"),
		},
		{
			name: "neuron-port", machineType: "trn1.2xlarge", region: east,
			owner: emeka.as("experimentation"), age: days(15),
			model: compute(9), telemetry: bare,
			planted: honest("its accelerator is not measured", "telemetry-missing"),
		},
		{
			name: "neuron-compile", machineType: "trn1.2xlarge", region: west, owner: emeka.as("experimentation"),
			age: days(95), stopped: days(62),
			model: compute(40), telemetry: bare, data: []disk{gp2(800)},
			planted: waste("stopped for two months, its disks cost on", "instance-stopped"),
		},
		{
			name: "glossary-exp", machineType: "g5.xlarge", region: east,
			owner: emeka.as("experimentation"), age: hours(10),
			image: "ml-train-v41",
			model: rest, telemetry: hosted,
			planted: honest("ten hours old: too young to be judged"),
		},
		{
			name: "rerank-exp", machineType: "g5.2xlarge", region: east, owner: fatima.as("research"), age: days(27),
			model: experiment(0.66, 0.71), telemetry: hosted,
			planted: honest("experiments most of the time, day and night"),
		},
	}
}

func (a *account) ranking() []machine {
	return []machine{
		{
			name: "ctr-train", machineType: "g5.4xlarge", region: ireland, owner: hana.as("training"), age: days(31),
			image: "ctr-v17",
			model: rest, telemetry: hosted, data: []disk{gp2(500)},
			planted: waste("the model moved elsewhere, the machine stayed", "gpu-instance-idle"),
		},
		{
			name: "ctr-nightly", machineType: "g4dn.12xlarge", region: east, owner: transient(hana), age: days(5.2),
			image: "ml-train-v41",
			model: rest, telemetry: hosted,
			planted: waste("a nightly run that never began; its machine should have been gone five days ago",
				"instance-overdue", "gpu-instance-idle"),
		},
		{
			name: "ctr-weekly", machineType: "g4dn.12xlarge", region: ireland, owner: transient(hana), age: hours(31),
			market: inventory.Spot, image: "ctr-v17",
			model: train(93, 0.74), telemetry: hosted,
			planted: honest("a transient run that is late and at work", "instance-overdue"),
		},
		{
			name: "two-tower-train", machineType: "g5.2xlarge", region: ireland,
			owner: goran.as("training"), age: days(11),
			model: train(87, 0.69), telemetry: hosted,
			planted: honest("training at work"),
		},
		{
			name: "goran-dev", machineType: "g4dn.xlarge", region: ireland, owner: goran.as("dev"), age: days(58),
			model: office(0, 0.5), telemetry: hosted,
			planted: waste("used in office hours, on all week", "always-on"),
		},
		{
			name: "hana-dev", machineType: "g4dn.2xlarge", region: ireland, owner: hana.as("dev"), age: days(24),
			model: hold(0.47), telemetry: hosted,
			planted: waste("a debugger holds 7 GB and computes nothing", "gpu-held"),
		},
		{
			name: "ivo-demo", machineType: "g4dn.xlarge", region: ireland, age: days(20),
			owner: ivo.as("experimentation").with(inventory.TagKeepUntil, a.now.Add(days(6)).Format(time.DateOnly)),
			model: rest, telemetry: hosted,
			planted: honest("idle, and kept for a demonstration next week"),
		},
		{
			name: "feature-etl", machineType: "g4dn.xlarge", region: ireland, owner: goran.as("data"), age: days(30),
			model: rest, telemetry: hosted, outages: []outage{{days(19), days(24)}},
			planted: honest("five days of its telemetry are missing: it cannot be judged", "telemetry-missing"),
		},
		{
			name: "embed-refresh", machineType: "g5.2xlarge", region: east, owner: ivo.as("data"), age: days(48),
			model: nightly(4, 0.63), telemetry: hosted,
			planted: waste("four hours of work a night, on all day", "always-on"),
		},
		{
			name: "ads-serve-01", machineType: "g4dn.xlarge", region: ireland,
			owner: hana.production().as("inference"),
			age:   days(77),
			model: serve(22, 74, 0.6, 120), telemetry: hosted,
			planted: honest("inference with a daily curve"),
		},
		{
			name: "ads-serve-02", machineType: "g4dn.xlarge", region: ireland,
			owner: hana.production().as("inference"),
			age:   days(77),
			model: serve(21, 73, 0.6, 120), telemetry: hosted,
			planted: honest("inference with a daily curve"),
		},
		{
			name: "shadow-ranker", machineType: "g6.2xlarge", region: east,
			owner: goran.as("evaluation").with(inventory.TagLifetime, "ephemeral"), age: days(15.5),
			model: hold(0.38), telemetry: hosted,
			planted: waste("a shadow deployment whose mirror was switched off", "gpu-held"),
		},
		{
			name: "seq-model-train", machineType: "g6.4xlarge", region: east, owner: run(goran), age: days(2.2),
			image: "ml-train-v41",
			model: train(90, 0.8), telemetry: profiled, data: []disk{gp3(800)},
			planted: honest("training at work, which could run on spot", "instance-overdue", "training-on-demand"),
		},
		{
			name: "ivo-exp", machineType: "g5.xlarge", region: east, owner: ivo.as("experiment"), age: days(23),
			model: experiment(0.7, 0.6), telemetry: hosted,
			planted: honest("experiments most of the time, day and night"),
		},
	}
}

// unclaimed returns machines whose tags name no owner.
func (a *account) unclaimed() []machine {
	return []machine{
		{
			name: "test-gpu-2", machineType: "g5.2xlarge", region: east, owner: owner{care: careless}, age: days(88),
			model: rest, telemetry: hosted, root: gp2(500),
			planted: waste("unowned and idle", "gpu-instance-idle"),
		},
		{
			name: "jupyter-tmp", machineType: "g4dn.xlarge", region: west, owner: owner{care: careless}, age: days(34),
			model: hold(0.58), telemetry: hosted,
			planted: waste("unowned, and memory is held", "gpu-held"),
		},
		{
			name: "triton-poc", machineType: "g6.xlarge", region: east, owner: owner{care: careless}, age: days(28),
			model: serve(24, 66, 0.55, 8), telemetry: hosted,
			planted: honest("unowned, and at work"),
		},
	}
}
