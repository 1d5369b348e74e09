package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/jobs"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// scarceType is a machine type without spot capacity in the simulated account, so that a job waits;
// memoryFaultJob is a job whose command runs out of GPU memory.
const (
	scarceType     = "g6.12xlarge"
	memoryFaultJob = "ocr-large"
	memoryFaultAt  = 260
)

// simulatedLauncher launches the machines of sessions and jobs in the simulated account, with the
// prices of the price book.
func simulatedLauncher(cloud *sim.Cloud, clock func() time.Time, book *price.Book) *sim.Launcher {
	return cloud.Launcher(sim.LauncherOptions{
		Clock: clock, Rate: book.MachineRate, Scarce: []string{scarceType},
		Types:        func(s *spec.Spec) ([]string, error) { return estimate.TypeNames(s, book) },
		MemoryFaults: map[string]int64{memoryFaultJob: memoryFaultAt},
	})
}

// simulatedRun is a job or session that a person of the simulated company starts each day; an empty
// person is the viewer of the demonstration.
type simulatedRun struct{ by, name, file string }

var simulatedRuns = []simulatedRun{
	{"ben", "segmentation", `purpose: training
owner: {team: vision, project: shelf-vision, user: ben}
resources: {instance_type: g6.xlarge}
capacity: spot
regions: [us-east-1]
run: python train.py --model mask2former --resume
duration: 9h
max_runtime: 20h
`},
	{"hana", "ctr-retrain", `purpose: training
owner: {team: ranking, project: ctr, user: hana}
resources: {instance_type: g5.2xlarge}
capacity: auto
regions: [eu-west-1]
run: python retrain.py --days 30
duration: 5h
deadline: 16h
`},
	{"dmitri", "reward-model", `purpose: training
owner: {team: language, project: support-llm, user: dmitri}
resources: {instance_type: g6e.xlarge}
capacity: on-demand
regions: [us-east-1]
run: torchrun train_rm.py --epochs 2
duration: 7h
max_runtime: 12h
`},
	{"ben", memoryFaultJob, `purpose: training
owner: {team: vision, project: shelf-vision, user: ben}
resources: {instance_type: g5.xlarge}
capacity: on-demand
regions: [us-east-1]
run: python train_ocr.py --batch 96
duration: 6h
max_runtime: 8h
`},
	{"dmitri", "embedding-sweep", `purpose: experimentation
owner: {team: language, project: support-llm, user: dmitri}
resources: {instance_type: ` + scarceType + `}
capacity: spot
regions: [us-west-2]
run: python sweep.py --trials 40
duration: 4h
max_runtime: 10h
max_cost: 60
`},
	{"dmitri", "llm-sft", `purpose: training
owner: {team: language, project: support-llm, user: dmitri}
resources: {instance_type: p5.4xlarge}
capacity: on-demand
regions: [us-east-1]
run: torchrun sft.py --resume
duration: 18h
max_runtime: 24h
`},
	{"", "first-finetune", `purpose: training
resources: {instance_type: g5.xlarge}
capacity: spot
regions: [us-east-1]
run: python finetune.py --resume
duration: 7h
max_runtime: 14h
`},
}

// simulatedJobs keeps the jobs and sessions of the simulated company.
type simulatedJobs struct {
	process *runtime.Process
	// open holds the jobs of the process, opened once.
	open *jobs.Jobs
}

// of returns the request of a person; an empty name is the user of the process.
func (k *simulatedJobs) of(name string) *runtime.Request {
	req := k.process.Request()
	if name != "" {
		req.Caller = runtime.ServedCaller(approval.Person{
			Name:  name,
			Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: name},
		})
	}
	return req
}

// start makes people start their work. Running and waiting work is left unchanged.
func (k *simulatedJobs) start(ctx context.Context) error {
	for _, r := range simulatedRuns {
		if err := k.run(ctx, r); err != nil {
			return fmt.Errorf("start the job %s: %w", r.name, err)
		}
	}
	all, err := sessions.Open(ctx, k.of(""))
	if err != nil {
		return err
	}
	defer all.Close()
	_, _, err = all.Up(ctx, sessions.UpOptions{
		Name: "workbench", SpecOptions: sessions.SpecOptions{Type: "g6.xlarge", Cloud: sim.CloudName},
		Lease: 16 * time.Hour, Idle: 45 * time.Minute,
	})
	return decidedByGate(err)
}

// run starts one job unless it is open.
func (k *simulatedJobs) run(ctx context.Context, r simulatedRun) error {
	all, err := sessions.Open(ctx, k.of(r.by))
	if err != nil {
		return err
	}
	defer all.Close()
	own := jobs.Open(all)
	before, err := all.Store().Jobs().Jobs(ctx, job.Query{Name: r.name, OpenOnly: true})
	if err != nil || len(before) > 0 {
		return err
	}
	text := "apiVersion: curfew.job/v1\nname: " + r.name + "\n" + r.file
	_, _, err = own.Run(ctx, jobs.RunOptions{SpecOptions: sessions.SpecOptions{
		File: "-", Stdin: strings.NewReader(text), StdinName: r.name + ".yaml", Cloud: sim.CloudName,
	}})
	return decidedByGate(err)
}

// decidedByGate returns an error unless the gate asks or denies.
func decidedByGate(err error) error {
	var decided *runtime.Error
	if errors.As(err, &decided) && (decided.Class == runtime.Held || decided.Class == runtime.Denied) {
		return nil
	}
	return err
}

// keep takes the missing steps of all jobs and sessions.
func (k *simulatedJobs) keep(ctx context.Context) error {
	if k.open == nil {
		all, err := sessions.Open(ctx, k.of(""))
		if err != nil {
			return err
		}
		k.open = jobs.Open(all)
	}
	if err := k.keepJobs(ctx); err != nil {
		return err
	}
	open, err := k.open.Store().Sessions().Sessions(ctx, session.Query{OpenOnly: true})
	if err != nil {
		return err
	}
	for _, s := range open {
		if _, err := k.open.Keeper.Keep(ctx, s.ID); err != nil {
			return err
		}
	}
	return k.keepJobs(ctx)
}

func (k *simulatedJobs) keepJobs(ctx context.Context) error {
	list, err := k.open.Store().Jobs().Jobs(ctx, job.Query{OpenOnly: true})
	if err != nil {
		return err
	}
	for _, j := range list {
		if _, err := k.open.Sessions.Jobs.Keep(ctx, j.ID); err != nil {
			return err
		}
	}
	return nil
}

// close releases the jobs.
func (k *simulatedJobs) close() error {
	if k.open == nil {
		return nil
	}
	return k.open.Close()
}

// simulatedSessions configures the simulated account for sessions and jobs.
func simulatedSessions(cfg *config.Config) { cfg.Sessions.Cloud = sim.CloudName }
