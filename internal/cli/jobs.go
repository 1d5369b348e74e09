package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newRun() *cobra.Command {
	var in ops.RunInput
	var detach, passthrough bool
	c := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a job: a command that goes on after interruptions, within its budget",
		Long: `Runs the job of FILE, the command after --, or with --again an earlier job. Estimates it, asks
the gate, reserves budget, copies the code, and runs the command on a machine of its own until it
ends. A job that is interrupted goes on from its newest complete
checkpoint. It never exceeds max_runtime, max_cost and deadline, and no machine is left.

The command finds CURFEW_CHECKPOINT_DIR, the folder that is saved and restored, and
CURFEW_RUN_DIR, in which it may declare steps and checkpoints (docs/training.md). The output of
the command is on standard output. An interrupt leaves the job running: ` + "`curfew logs -f NAME`" + `
follows it again, and ` + "`curfew cancel NAME`" + ` ends it.

The exit code is 10 where the job fails, and that of the command with --passthrough; 3 where an
approval is missing: once it is given, the same command starts the job. See docs/jobs.md.`,
		Example: `  curfew run job.yaml
  curfew run --gpu none -- python train.py
  curfew run --cloud aws --gpu L4 --spot --max-cost 20 -- python train.py
  curfew run --again train                   # from its newest checkpoint`,
		Args: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			switch {
			case in.Body.Rerun != "" && len(args) == 0:
			case dash == 0 && len(args) > 0:
			case dash < 0 && len(args) == 1 && in.Body.Rerun == "":
			default:
				return usageError("%s takes a job file, a command after --, or --again NAME", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case c.ArgsLenAtDash() == 0:
				in.Body.Command = args
			case len(args) == 1:
				in.Body.File = args[0]
			}
			in.Stdin = a.Stdin
			return a.runJob(c.Context(), in, detach, passthrough)
		},
	}
	a.outputs(c, tableJSON...)
	ops.RunJob.AddFlags(c.Flags(), &in)
	c.Flags().BoolVar(&detach, "detach", false, "return once the job is recorded")
	c.Flags().BoolVar(&passthrough, "passthrough", false, "exit with the exit code of the command")
	return c
}

// runJob starts a job and follows it to its end.
func (a *app) runJob(ctx context.Context, in ops.RunInput, detach, passthrough bool) error {
	run, err := ops.One(ops.RunJob.Call(ctx, a.at, in))
	if err != nil {
		return a.refused(run, err)
	}
	if err := a.ensureKeeper(ctx); err != nil {
		return err
	}
	if detach {
		return a.showRun(run)
	}
	if run, err = a.followJob(ctx, run); err != nil {
		if ctx.Err() != nil && !a.quiet {
			plain.Fprintf(a.Stderr, "curfew: job %s goes on: `curfew logs -f %s` follows it, `curfew cancel %s` ends it\n",
				run.Name, run.Name, run.Name)
		}
		return err
	}
	if a.format != "table" {
		if err := a.showRun(run); err != nil {
			return err
		}
	} else if !a.quiet {
		plain.Fprintf(a.Stderr, "curfew: %s %s: %s\n", run.Name, run.State, report.JobLine(run))
	}
	return jobFailure(run, passthrough)
}

// jobFailure returns the error of a job that did not succeed.
func jobFailure(run view.Run, passthrough bool) error {
	if job.State(run.State) == job.Succeeded {
		return nil
	}
	f := &failure{
		exit: ExitJob, code: "job_failed", err: fmt.Errorf("job %s %s: %s", run.Name, run.State, run.Why),
		hint: "`curfew explain " + run.Name + "` shows its attempts",
	}
	if code := run.Job.ExitCode; passthrough && code != nil && *code != 0 {
		f.exit = *code
	}
	return f
}

// jobPoll is the time between looks at a job.
const jobPoll = 300 * time.Millisecond

// followJob prints the output and the events of a job until it is over.
func (a *app) followJob(ctx context.Context, run view.Run) (view.Run, error) {
	said, checked, steps := map[string]bool{}, a.Now(), newJobSteps()
	for {
		steps.take(ctx, a, run)
		now, err := a.reread(ctx, run)
		if err != nil {
			return run, err
		}
		run = now
		log, err := a.logOf(ctx, run)
		if err != nil {
			return run, err
		}
		if err := a.printJobLog(ctx, run, log, said); err != nil {
			return run, err
		}
		if over(run) {
			return run, nil
		}
		if err := a.reviveKeeper(ctx, &checked); err != nil {
			return run, err
		}
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-time.After(jobPoll):
		}
	}
}

// jobSteps takes the missing steps of a job while a person waits for it, next to the keeper in the
// background: each is done by whichever is first.
type jobSteps struct {
	job, session *pace
	errorsShown  map[string]bool
}

func newJobSteps() *jobSteps { return &jobSteps{newPace(), newPace(), map[string]bool{}} }

// take takes steps of the job and of the session of its current attempt, where this machine keeps
// them. Errors are printed once; the next look tries again.
func (s *jobSteps) take(ctx context.Context, a *app, run view.Run) {
	if a.at.Service != nil {
		return
	}
	all, err := a.at.Local.Sessions(ctx)
	if err == nil {
		err = s.keep(ctx, all, run.ID)
	}
	if err == nil || ctx.Err() != nil || s.errorsShown[err.Error()] {
		return
	}
	s.errorsShown[err.Error()] = true
	plain.Fprintf(a.Stderr, "curfew: %s; it is tried again\n", oneLine(err.Error()))
}

func (s *jobSteps) keep(ctx context.Context, all *sessions.Sessions, id string) error {
	j, err := all.Jobs.Store.Job(ctx, id)
	if err != nil {
		return err
	}
	if current := j.Current(); current != nil {
		now, err := all.Keeper.Store.Session(ctx, current.Session)
		if err == nil {
			err = s.session.keep(now.Version, func() (time.Duration, error) { return all.Keeper.Keep(ctx, now.ID) })
		}
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return err
		}
	}
	return s.job.keep(j.Version, func() (time.Duration, error) { return all.Jobs.Keep(ctx, id) })
}

// printJobLog prints the new events of a job: its output as it is, and the rest as progress.
func (a *app) printJobLog(ctx context.Context, run view.Run, log view.SessionLog, said map[string]bool) error {
	counts := map[string]int{}
	for _, e := range log.Events {
		line := report.SessionLine(e)
		key := e.At.String() + line
		counts[key]++ // equal lines of one instant
		if key = fmt.Sprint(counts[key], key); said[key] {
			continue
		}
		said[key] = true
		switch {
		case e.Kind == "output" && a.format == "table":
			plain.Fprintln(a.Stdout, plain.Line(e.Text))
		case e.Kind == session.OutputPart && a.format == "table":
			if err := a.printPart(ctx, run, e, said, func(line string) string { return line }); err != nil {
				return err
			}
		case e.Kind == session.OutputPart:
		case !a.quiet && e.Kind != "skipped" && e.Kind != "state" && e.Kind != "output":
			plain.Fprintf(a.Stderr, "%s\n", line)
		}
	}
	return nil
}

// printPart prints the lines of a part of output that was not printed.
func (a *app) printPart(ctx context.Context, run view.Run, e view.SessionEvent, said map[string]bool,
	format func(line string) string) error {
	if said[e.Text] {
		return nil // its event was sent twice
	}
	part, err := a.logPart(ctx, run, e.Text)
	if err != nil {
		return err
	}
	said[e.Text] = true
	for _, o := range part.Events {
		for line := range strings.Lines(o.Text) {
			plain.Fprintln(a.Stdout, format(plain.Line(strings.TrimSuffix(line, "\n"))))
		}
	}
	return nil
}

func (a *app) newCancel() *cobra.Command {
	var in ops.CancelInput
	var detach bool
	c := &cobra.Command{
		Use:   "cancel NAME",
		Short: "Save a job's work, and end the job",
		Long: `Asks the command to save and stop, takes a last snapshot, and releases the machines. The job can
be run again from that snapshot: ` + "`curfew run --again NAME`" + `.`,
		Example: `  curfew cancel train
  curfew cancel train --discard   # unsaved work is lost`,
		Args: oneArg("the name of one job"),
		RunE: func(c *cobra.Command, args []string) error {
			in.ID = args[0]
			run, err := ops.One(ops.CancelJob.Call(c.Context(), a.at, in))
			if err != nil {
				return err
			}
			if err := a.ensureKeeper(c.Context()); err != nil {
				return err
			}
			steps := newJobSteps()
			for began := a.Now(); !detach && !over(run); {
				steps.take(c.Context(), a, run)
				if run, err = a.reread(c.Context(), run); err != nil {
					return err
				}
				if a.Now().Sub(began) > downFor {
					return &failure{
						exit: ExitPartial, code: "not_ended",
						err:  fmt.Errorf("job %s did not end yet: %s", run.Name, run.Why),
						hint: "`curfew cancel " + run.Name + " --discard` gives unsaved work up",
					}
				}
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case <-time.After(jobPoll):
				}
			}
			return a.showRun(run)
		},
	}
	ops.CancelJob.AddFlags(c.Flags(), &in)
	c.Flags().BoolVar(&detach, "detach", false, "do not wait until the machines are gone")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newExplain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain NAME",
		Short: "Show why a job waits, where it is, and what each attempt cost; or why a fleet has its size",
		Long: `Shows why a job waits, where it is, and what each attempt cost. For the id of a serving fleet it shows
from the audit log what was done to its size and why, and what was refused.`,
		Example: `  curfew explain train
  curfew explain train -o json
  curfew explain asg/embed`,
		Args: oneArg("the name of one job, or the id of one fleet"),
		RunE: func(c *cobra.Command, args []string) error {
			if policy.IsFleetID(args[0]) {
				return a.explainFleet(c.Context(), args[0])
			}
			doc, err := ops.GetJob.Call(c.Context(), a.at, ops.JobInput{ByID: ops.ByID{ID: args[0]}})
			if err != nil {
				return err
			}
			if err := a.replaceKeeper(c.Context(), doc); err != nil {
				return err
			}
			return a.show(doc, func() report.Sheet { return report.Explain(doc, a.Now()) })
		},
	}
	a.outputs(c, tableJSON...)
	return c
}

// explainFleet shows what was done to the size of a fleet.
func (a *app) explainFleet(ctx context.Context, id string) error {
	return shown(a, report.FleetHistory)(ops.GetFleetHistory.Call(ctx, a.at, ops.ByID{ID: id}))
}

// runOrJob returns the session or job of a name: one that is not over first, and a job before a
// session.
func (a *app) runOrJob(ctx context.Context, name string, hosts bool) (view.Runs, error) {
	jobs, jobErr := ops.GetJob.Call(ctx, a.at, ops.JobInput{ByID: ops.ByID{ID: name}})
	if jobErr == nil && len(jobs.Runs) == 1 && !over(jobs.Runs[0]) {
		return jobs, nil
	}
	doc, err := ops.GetSession.Call(ctx, a.at, ops.SessionInput{ByID: ops.ByID{ID: name}, Hosts: hosts})
	switch {
	case err == nil && (jobErr != nil || !over(doc.Runs[0]) ||
		doc.Runs[0].RequestedAt.After(jobs.Runs[0].RequestedAt)):
		return doc, nil //nolint:nilerr // no job has the name, or an older one
	case jobErr == nil:
		return jobs, nil
	case isMissing(err) && isMissing(jobErr):
		return doc, &failure{
			exit: ExitError, code: "no_session", err: fmt.Errorf("there is no session or job %q", name),
			hint: "`curfew ls --all` lists them",
		}
	}
	return doc, errors.Join(err)
}

// isMissing reports whether an error says that a session or job does not exist.
func isMissing(err error) bool {
	here, answered, code := (*runtime.Error)(nil), (*client.Error)(nil), ""
	switch {
	case errors.As(err, &here):
		code = here.Code
	case errors.As(err, &answered):
		code = answered.Code
	}
	return code == "no_session" || code == "no_job"
}

// reread returns the newest state of a session or job.
func (a *app) reread(ctx context.Context, run view.Run) (view.Run, error) {
	if run.Job != nil {
		return ops.One(ops.GetJob.Call(ctx, a.at, ops.JobInput{ByID: ops.ByID{ID: run.ID}}))
	}
	return a.session(ctx, run.ID)
}

// logOf returns the events of a session or job.
func (a *app) logOf(ctx context.Context, run view.Run) (view.SessionLog, error) {
	return a.logPart(ctx, run, "")
}

// logPart returns a part of the output of a session or job, or the events for an empty name.
func (a *app) logPart(ctx context.Context, run view.Run, name string) (view.SessionLog, error) {
	in := ops.SessionLogInput{ByID: ops.ByID{ID: run.ID}, Part: name}
	if run.Job != nil {
		return ops.GetJobLog.Call(ctx, a.at, in)
	}
	return ops.GetSessionLog.Call(ctx, a.at, in)
}
