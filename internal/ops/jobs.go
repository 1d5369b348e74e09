package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/jobs"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

const jobsAtState = "jobs are in the state, and its process keeps them"

// RunInput describes a job to start.
type RunInput struct {
	Body struct {
		Content     string   `json:"content,omitempty" maxLength:"900000" doc:"The text of a job file (curfew.job/v1)."`
		File        string   `json:"file,omitempty" maxLength:"400" doc:"What the text is called, for messages."`
		Command     []string `json:"command,omitempty" maxItems:"1000" doc:"A command with its arguments, in place of a file."`
		Rerun       string   `json:"again,omitempty" maxLength:"100" doc:"A job that is over and is run again: from its newest snapshot, or from the beginning if it succeeded." flag:"again" help:"run the job <name> again: from its newest snapshot, or from the beginning if it succeeded"`
		Name        string   `json:"name,omitempty" maxLength:"100" example:"resnet50" doc:"The name; without it that of the file, or of the script." flag:"name" help:"name of the job (default: that of the file, or of the script)"`
		GPU         string   `json:"gpu,omitempty" maxLength:"80" doc:"An accelerator and how many, L4 or L4:2, or none." flag:"gpu" help:"accelerator and how many: L4, L4:2 or none"`
		Type        string   `json:"type,omitempty" maxLength:"80" doc:"A machine type, such as g6.2xlarge." flag:"type" help:"machine type, such as g6.2xlarge"`
		CPUs        int      `json:"cpus,omitempty" minimum:"0" maximum:"100000" doc:"CPUs of a machine without a GPU." flag:"cpus" help:"CPUs of a machine without a GPU"`
		Nodes       int      `json:"nodes,omitempty" minimum:"0" maximum:"1000" doc:"Machines that work together." flag:"nodes" help:"machines that work together (default 1)"`
		Spot        bool     `json:"spot,omitempty" doc:"Spot capacity: cheaper, and can be taken away." flag:"spot" help:"spot capacity: cheaper, and can be taken away"`
		Regions     []string `json:"regions,omitempty" maxItems:"50" doc:"Regions that it may run in, the preferred first." flag:"region" split:"comma" help:"regions that it may run in, the preferred first"`
		Cloud       string   `json:"cloud,omitempty" enum:"local,aws" doc:"Where it runs; without it as the configuration says." flag:"cloud" help:"where it runs: local or aws (default: sessions.cloud in curfew.yaml)"`
		MaxRuntime  string   `json:"max_runtime,omitempty" maxLength:"40" doc:"Machine time after which it ends, such as 12h." flag:"max-runtime" help:"machine time after which it ends, such as 12h (default: that of the file, else 24h)"`
		Deadline    string   `json:"deadline,omitempty" maxLength:"40" doc:"Time from now by which it has to be done, such as 24h." flag:"deadline" help:"time from now by which it has to be done, such as 24h"`
		MaxCost     string   `json:"max_cost,omitempty" maxLength:"40" doc:"The most dollars that it may cost." flag:"max-cost" help:"most <dollars> that it may cost"`
		KeepOnError string   `json:"keep_on_failure,omitempty" maxLength:"40" doc:"How long the machine is kept after a failure, such as 30m." flag:"keep-on-failure" help:"keep the machine so long after a failure, such as 30m"`
		NoCode      bool     `json:"no_code,omitempty" doc:"Copy no code. A service copies none." flag:"no-code" help:"copy no code to the machine"`
	}
	// Stdin is the file "-" of the command line.
	Stdin io.Reader
}

// options converts the input.
func (in RunInput) options() (jobs.RunOptions, error) {
	b := in.Body
	o := jobs.RunOptions{
		SpecOptions: sessions.SpecOptions{
			File: b.File, Stdin: in.Stdin, GPU: b.GPU, Type: b.Type, CPUs: b.CPUs, Nodes: b.Nodes, Spot: b.Spot,
			Regions: b.Regions, Cloud: b.Cloud,
		},
		Name: b.Name, Command: b.Command, Rerun: b.Rerun, NoCode: b.NoCode,
	}
	if b.Content != "" {
		o.File, o.Stdin, o.StdinName = "-", strings.NewReader(b.Content), b.File
	}
	given := 0
	for _, is := range []bool{o.File != "", len(o.Command) > 0, o.Rerun != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return o, usage(errors.New("a job is a file, a command after --, or --again NAME"))
	}
	var err error
	if o.MaxRuntime, err = ParseOptionalDuration("max-runtime", b.MaxRuntime); err != nil {
		return o, err
	}
	if o.Deadline, err = ParseOptionalDuration("deadline", b.Deadline); err != nil {
		return o, err
	}
	if o.KeepOnError, err = ParseOptionalDuration("keep-on-failure", b.KeepOnError); err != nil {
		return o, err
	}
	if b.MaxCost != "" {
		o.MaxCost, err = money.ParseAmount(strings.TrimPrefix(b.MaxCost, "$"))
		if err != nil || o.MaxCost <= 0 {
			return o, usage(fmt.Errorf("--max-cost %q: it is an amount of dollars over 0, such as 12.50", b.MaxCost))
		}
	}
	return o, nil
}

// jobs returns the jobs of the state.
func (c *Call) jobs(ctx context.Context) (*jobs.Jobs, error) {
	all, err := c.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	return jobs.Open(all), nil
}

// job returns a job that the caller may see, by its name or id.
func (c *Call) job(ctx context.Context, id string) (*jobs.Jobs, job.Job, view.Run, error) {
	all, err := c.jobs(ctx)
	if err != nil {
		return nil, job.Job{}, view.Run{}, err
	}
	j, err := all.Newest(ctx, id)
	if err != nil {
		return all, j, view.Run{}, err
	}
	r, err := all.Describe(ctx, j, nil)
	if err == nil && !c.seesRun(r) {
		err = jobs.NoJob(id)
	}
	return all, j, r, err
}

// RunJob starts a job.
var RunJob = declare(Operation[RunInput, view.Runs]{
	Info: Info{ID: "run-job", Method: post, Path: "jobs", Role: approval.RoleUser, Scoped: true,
		Summary: "Start a job by the gate's decision: a command that goes on after interruptions, within its budget",
		Schema:  view.RunsSchema,
		Example: map[string]any{"command": []string{"python", "train.py"}, "cpus": 1, "max_runtime": "4h"},
		Command: "run", Why: jobsAtState},
	Send: func(_ context.Context, c *Call, in *RunInput) (err error) {
		if _, err = in.options(); err != nil {
			return err
		}
		if !in.Body.NoCode && in.Body.Rerun == "" {
			return &runtime.Error{
				Class: runtime.Usage, Code: "no_code", Err: errors.New("a service takes no code with a job"),
				Hint: "give --no-code, and let setup or the image bring the code",
			}
		}
		if in.Body.File != "" {
			in.Body.Content, err = c.readWork(in.Body.File, in.Stdin)
		}
		return err
	},
	Do: func(ctx context.Context, c *Call, in RunInput) (Reply[view.Runs], error) {
		o, err := in.options()
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		all, err := c.jobs(ctx)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		o.Authorize = c.mayUp
		j, d, err := all.Run(ctx, o)
		if err != nil {
			return Reply[view.Runs]{}, inputError("error", err)
		}
		return decided(all.Describe(ctx, j, d))
	},
})

// JobsInput selects jobs.
type JobsInput struct {
	Paging
	All bool `query:"all" doc:"Those that ended as well."`
}

// ListJobs lists jobs, newest first.
var ListJobs = declare(Operation[JobsInput, view.Runs]{
	Info: Info{ID: "list-jobs", Method: get, Path: "jobs", Role: approval.RoleViewer, Scoped: true,
		Summary: "List the jobs, the newest first", Schema: view.RunsSchema},
	List: listOf(func(d *view.Runs) *[]view.Run { return &d.Runs }, func(r view.Run) string { return r.ID }),
	Do: func(ctx context.Context, c *Call, in JobsInput) (Reply[view.Runs], error) {
		all, err := c.jobs(ctx)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		doc, err := all.List(ctx, in.All)
		if err == nil {
			doc.Runs = only(doc.Runs, c.seesRun)
		}
		return reply(doc, err)
	},
})

// JobInput selects one job.
type JobInput struct{ ByID }

// GetJob shows one job.
var GetJob = declare(Operation[JobInput, view.Runs]{
	Info: Info{ID: "get-job", Method: get, Path: "jobs/{id}", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show one job, by its name or its id, with its attempts and what each cost", Schema: view.RunsSchema,
		Command: "explain", Why: jobsAtState},
	Do: func(ctx context.Context, c *Call, in JobInput) (Reply[view.Runs], error) {
		_, _, r, err := c.job(ctx, in.ID)
		return reply(oneRun(r), err)
	},
})

// GetJobLog shows the events and the output of one job.
var GetJobLog = declare(Operation[SessionLogInput, view.SessionLog]{
	Info: Info{ID: "get-job-log", Method: get, Path: "jobs/{id}/log", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show what happened to one job and what it printed, in all its attempts, in order",
		Schema:  view.SessionLogSchema},
	List: joined(func(d *view.SessionLog) *[]view.SessionEvent { return &d.Events }),
	Do: func(ctx context.Context, c *Call, in SessionLogInput) (r Reply[view.SessionLog], err error) {
		all, j, _, err := c.job(ctx, in.ID)
		if err != nil {
			return r, err
		}
		if in.Part != "" {
			r.Doc, err = all.Output(ctx, j, in.Part)
			return r, err
		}
		doc, keys, err := all.Journal(ctx, j)
		if err != nil {
			return r, err
		}
		return logPage(in.Paging, doc, keys)
	},
})

// CancelInput ends a job.
type CancelInput struct {
	ByID
	Body struct {
		Discard bool `json:"discard,omitempty" doc:"Give up unsaved work." flag:"discard" help:"give up unsaved work"`
	}
}

// CancelJob saves a job's work and ends it.
var CancelJob = declare(Operation[CancelInput, view.Runs]{
	Info: Info{ID: "cancel-job", Method: post, Path: "jobs/{id}/cancel", Role: approval.RoleUser, Scoped: true,
		Summary: "Save a job's work, and end the job: your own, or as an operator any", Schema: view.RunsSchema,
		Command: "cancel", Why: jobsAtState},
	Do: func(ctx context.Context, c *Call, in CancelInput) (Reply[view.Runs], error) {
		all, j, r, err := c.job(ctx, in.ID)
		if err == nil && !c.runs(r) {
			err = denied("not_yours", "the job "+plain.Line(r.Name)+" is another person's",
				"an operator may cancel it")
		}
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		if j, err = all.Cancel(ctx, j.ID, in.Body.Discard); err != nil {
			return Reply[view.Runs]{}, err
		}
		return decided(all.Describe(ctx, j, nil))
	},
})
