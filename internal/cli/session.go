package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	appruntime "github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newUp() *cobra.Command {
	var in ops.UpInput
	var detach bool
	c := &cobra.Command{
		Use:   "up NAME",
		Short: "Start a session: a machine for you, with a lease, gone when the work is done",
		Long: `Estimates the session, asks the gate, reserves budget, launches the machines and waits until
they are ready. The session ends when its lease is over, when it has been idle for a while,
or by ` + "`curfew down`" + `. Its work folder is saved while it runs and before it ends.

A session that is over starts again with its work. For a running session its state is shown.
The exit code is 3 where an approval is missing: once it is given, the same command starts
the session. See docs/sessions.md.`,
		Example: `  curfew up demo --gpu L4                    # one L4, for 4 hours
  curfew up demo --type g6.2xlarge --spot --lease 8h
  curfew up demo --cloud local --cpus 2      # on this machine
  curfew up demo -f session.yaml --detach    # do not wait until it is ready
  curfew up demo                             # the session of that name again, with its work`,
		Args: oneArg("the name of one session"),
		RunE: func(c *cobra.Command, args []string) error {
			in.Body.Name, in.Stdin = args[0], a.Stdin
			return a.up(c.Context(), in, detach)
		},
	}
	a.outputs(c, tableJSON...)
	ops.Up.AddFlags(c.Flags(), &in)
	c.Flags().BoolVar(&detach, "detach", false, "return once the launch is recorded")
	return c
}

// up starts a session and follows it until it is ready.
func (a *app) up(ctx context.Context, in ops.UpInput, detach bool) error {
	a.saidSince = a.Now().Add(-time.Second) // the clock of the state is a coarse one
	run, err := ops.One(ops.Up.Call(ctx, a.at, in))
	for isEnding(err) { // it starts again from the newest save
		if err := a.awaitEnd(ctx, in.Body.Name); err != nil {
			return err
		}
		run, err = ops.One(ops.Up.Call(ctx, a.at, in))
	}
	if err != nil {
		return a.refused(run, err)
	}
	if err := a.ensureKeeper(ctx); err != nil {
		return err
	}
	decided := run.Gate
	if !detach {
		if run, err = a.follow(ctx, run.ID, settled); err != nil {
			return err
		}
	}
	run.Gate = decided
	if err := a.showRun(run); err != nil {
		return err
	}
	if run.State == string(session.Ready) && !a.quiet {
		for _, note := range run.Notes {
			plain.Fprintf(a.Stderr, "curfew: note: %s\n", note)
		}
	}
	if !detach && run.State != string(session.Ready) {
		return &failure{
			exit: ExitError, code: "not_ready",
			err:  fmt.Errorf("session %s did not become ready: %s", run.Name, run.Why),
			hint: "`curfew logs " + run.Name + "` shows what happened",
		}
	}
	return nil
}

// isEnding reports whether a session was not started because the one before it is ending.
func isEnding(err error) bool {
	wired := (*appruntime.Error)(nil)
	return errors.As(err, &wired) && wired.Code == "ending"
}

// awaitEnd waits until a session that is ending has ended.
func (a *app) awaitEnd(ctx context.Context, name string) error {
	run, err := a.session(ctx, name)
	if err != nil {
		return err
	}
	if !a.quiet {
		plain.Fprintf(a.Stderr, "curfew: session %s is ending (%s): waiting for its end\n", run.Name, run.Why)
	}
	if err := a.ensureKeeper(ctx); err != nil {
		return err
	}
	_, err = a.follow(ctx, run.ID, over)
	return err
}

// settled reports whether a session is ready, or will not be any more.
func settled(r view.Run) bool {
	return r.State == string(session.Ready) || r.State == string(session.Ending) || over(r)
}

// over reports whether nothing of a session is left or will be.
func over(r view.Run) bool {
	if r.Job != nil {
		return job.State(r.State).IsFinal()
	}
	return session.State(r.State).IsFinal()
}

// refused shows the session that the gate did not let pass, where it is one, and returns why.
func (a *app) refused(run view.Run, why error) error {
	if run.ID == "" {
		return why
	}
	if err := a.showRun(run); err != nil {
		return err
	}
	return why
}

// showRun shows one session.
func (a *app) showRun(r view.Run) error {
	doc := view.Runs{Schema: view.RunsSchema, Runs: []view.Run{r}}
	return a.show(doc, func() report.Sheet { return report.Status(doc, a.Now()) })
}

// follow advances a session and prints its events until a condition holds. It returns the session
// then.
func (a *app) follow(ctx context.Context, id string, until func(view.Run) bool) (view.Run, error) {
	if a.said == nil {
		a.said = map[string]bool{}
	}
	if a.saidSince.IsZero() {
		a.saidSince = a.Now().Add(-time.Second) // the command only follows
	}
	said, beganAt, checked, p := a.said, a.Now(), a.Now(), newPace()
	for {
		after, keepErr := a.step(ctx, p, id)
		if ctx.Err() != nil {
			return view.Run{}, ctx.Err()
		}
		run, err := a.session(ctx, id)
		if err != nil {
			return run, err
		}
		if err := a.progressed(ctx, run, said, beganAt); err != nil {
			return run, err
		}
		if until(run) {
			return run, nil
		}
		if keepErr != nil {
			line := keepErr.Error()
			if !said[line] {
				said[line] = true
				plain.Fprintf(a.Stderr, "curfew: %s; it is tried again\n", line)
			}
		}
		if err := a.reviveKeeper(ctx, &checked); err != nil {
			return run, err
		}
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-time.After(after):
		}
	}
}

// progressed prints the events since the last call, with the time and the dollars so far.
func (a *app) progressed(ctx context.Context, run view.Run, said map[string]bool, began time.Time) error {
	if a.quiet {
		return nil
	}
	log, err := a.sessionLog(ctx, run.ID)
	if err != nil {
		return err
	}
	for i, e := range log.Events {
		node := -1
		if e.Node != nil {
			node = *e.Node
		}
		key := fmt.Sprint(e.At.UnixNano(), node, e.Kind, e.Text)
		if said[key] {
			continue
		}
		said[key] = true
		if e.At.Before(a.saidSince) {
			continue // it was said by an earlier command
		}
		if e.Kind == "skipped" || begunOnly(log.Events[i:]) {
			continue // `curfew logs` has them
		}
		dollars := ""
		if run.CostUSD.Known() {
			dollars = "  " + run.CostUSD.String()
		}
		plain.Fprintf(a.Stderr, "%7s%s  %-12s %s\n",
			plain.Duration(max(0, e.At.Sub(began)).Round(100*time.Millisecond)),
			dollars, e.Kind, e.Text)
	}
	return nil
}

// begunOnly reports whether the first of these events is the begin of a step that a later one
// ends.
func begunOnly(events []view.SessionEvent) bool {
	first := events[0]
	name, running := session.RunningStep(first.Text)
	return first.Kind == "step" && running && slices.ContainsFunc(events[1:], func(e view.SessionEvent) bool {
		return (e.Kind == "step" || e.Kind == "skipped") && (e.Node == nil) == (first.Node == nil) &&
			(e.Node == nil || *e.Node == *first.Node) && strings.HasPrefix(e.Text, name+": ")
	})
}

func (a *app) newLs() *cobra.Command {
	var in ops.SessionsInput
	c := &cobra.Command{
		Use:   "ls",
		Short: "List sessions and jobs with their state, saved work and cost",
		Example: `  curfew ls
  curfew ls --all
  curfew ls -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.ListSessions.Call(c.Context(), a.at, in)
			if err != nil {
				return err
			}
			jobs, err := ops.ListJobs.Call(c.Context(), a.at, ops.JobsInput{All: in.All})
			if err != nil {
				return err
			}
			doc.Runs = append(doc.Runs, jobs.Runs...)
			if err := a.replaceKeeper(c.Context(), doc); err != nil {
				return err
			}
			return a.show(doc, func() report.Sheet { return report.Runs(doc, a.Now()) })
		},
	}
	ops.ListSessions.AddFlags(c.Flags(), &in)
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newStatus() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "status NAME",
		Short: "Show a session or job with what its machines are doing",
		Example: `  curfew status demo
  curfew status demo --watch`,
		Args: oneArg("the name of one session or job"),
		RunE: func(c *cobra.Command, args []string) error { return a.status(c.Context(), args[0], watch) },
	}
	c.Flags().BoolVar(&watch, "watch", false, "show it again every 2 seconds, until it has ended")
	a.outputs(c, tableJSON...)
	return c
}

// status shows a session, once or again and again.
func (a *app) status(ctx context.Context, name string, watch bool) error {
	for {
		doc, err := a.runOrJob(ctx, name, true)
		if err != nil {
			return err
		}
		if watch && a.Width > 0 && a.format == "table" {
			_, _ = io.WriteString(a.Stdout, "\x1b[H\x1b[2J") // clears the terminal
		}
		if err := a.show(doc, func() report.Sheet { return report.Status(doc, a.Now()) }); err != nil {
			return err
		}
		if !watch || doc.Runs[0].EndedAt != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
		}
	}
}

func (a *app) newLogs() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what happened to a session or job, in order, with what a job printed",
		Example: `  curfew logs demo
  curfew logs demo -f`,
		Args: oneArg("the name of one session or job"),
		RunE: func(c *cobra.Command, args []string) error { return a.logs(c.Context(), args[0], follow) },
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show new lines, until the session or job has ended")
	a.outputs(c, tableJSON...)
	return c
}

// logs shows the journal of a session.
func (a *app) logs(ctx context.Context, name string, follow bool) error {
	found, err := ops.One(a.runOrJob(ctx, name, false))
	if err != nil {
		return err
	}
	if !follow {
		doc, err := a.logOf(ctx, found)
		if err != nil {
			return err
		}
		err = a.show(doc, func() report.Sheet { return report.SessionLog(doc) })
		if a.format == "table" && err == nil {
			err = a.printParts(ctx, found, doc)
		}
		return err
	}
	if a.format != "table" {
		return usageError("logs --follow prints lines: leave -o out")
	}
	said, checked := map[string]bool{}, time.Time{}
	for {
		run, err := a.reread(ctx, found)
		if err == nil && !over(run) { // nothing would happen to follow
			err = a.reviveKeeper(ctx, &checked)
		}
		if err != nil {
			return err
		}
		doc, err := a.logOf(ctx, run)
		if err != nil {
			return err
		}
		for _, e := range doc.Events {
			line := report.SessionLine(e)
			key := e.At.String() + line
			if said[key] {
				continue
			}
			said[key] = true
			if e.Kind != session.OutputPart {
				plain.Fprintln(a.Stdout, line)
				continue
			}
			if err := a.printPart(ctx, run, e, said, func(line string) string {
				return report.SessionLine(view.SessionEvent{At: e.At, Node: e.Node, Kind: "output", Text: line})
			}); err != nil {
				return err
			}
		}
		if over(run) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// printParts prints the output that is not in the events of a log.
func (a *app) printParts(ctx context.Context, run view.Run, log view.SessionLog) error {
	said := map[string]bool{}
	for _, e := range log.Events {
		if e.Kind != session.OutputPart {
			continue
		}
		if err := a.printPart(ctx, run, e, said, func(line string) string { return line }); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) newSessionExtend() *cobra.Command {
	var in ops.ExtendSessionInput
	c := &cobra.Command{
		Use:     "extend NAME --for DURATION",
		Short:   "Let a session run longer, within the lease policy and the budget",
		Example: `  curfew extend demo --for 2h`,
		Args:    oneArg("the name of one session"),
		RunE: func(c *cobra.Command, args []string) error {
			in.ID = args[0]
			run, err := ops.One(ops.ExtendSession.Call(c.Context(), a.at, in))
			if err != nil {
				return a.refused(run, err)
			}
			return a.showRun(run)
		},
	}
	ops.ExtendSession.AddFlags(c.Flags(), &in)
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newDown() *cobra.Command {
	var every, discard, detach bool
	c := &cobra.Command{
		Use:   "down NAME | --all",
		Short: "Save a session's work, confirm that it is saved, and end the session",
		Long: `Asks the machines to save the work folder, waits until the snapshot is confirmed, and releases
them. Without a confirmed snapshot nothing is released until sessions.end_limit has passed;
the exit code is then 5, with the reason in the output. --discard gives up unsaved work.`,
		Example: `  curfew down demo
  curfew down demo --discard   # unsaved work is lost
  curfew down --all`,
		Args: func(c *cobra.Command, args []string) error {
			if (len(args) == 1) == every || len(args) > 1 {
				return usageError("%s takes the name of one session, or --all", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.down(c.Context(), args, discard, detach) },
	}
	fl := c.Flags()
	fl.BoolVar(&every, "all", false, "all sessions")
	fl.BoolVar(&discard, "discard", false, "give up unsaved work")
	fl.BoolVar(&detach, "detach", false, "do not wait until the machines are gone")
	a.outputs(c, tableJSON...)
	return c
}

// downFor is how long down waits for snapshots that do not come.
const downFor = 15 * time.Minute

// down ends sessions and waits until they are gone.
func (a *app) down(ctx context.Context, names []string, discard, detach bool) error {
	if len(names) == 0 {
		mine, err := ops.ListSessions.Call(ctx, a.at, ops.SessionsInput{Yours: true})
		if err != nil {
			return err
		}
		for _, r := range mine.Runs {
			names = append(names, r.Name)
		}
	}
	a.saidSince = a.Now().Add(-100 * time.Millisecond) // the clock of the state is a coarse one
	doc := view.Runs{Schema: view.RunsSchema, Runs: []view.Run{}}
	for _, name := range names {
		in := ops.DownInput{ByID: ops.ByID{ID: name}}
		in.Body.Discard = discard
		run, err := ops.One(ops.Down.Call(ctx, a.at, in))
		if err != nil {
			return err
		}
		doc.Runs = append(doc.Runs, run)
	}
	if err := a.disconnect(ctx); err != nil {
		plain.Fprintf(a.Stderr, "curfew: %v\n", err)
	}
	left, lost := 0, 0
	for i, run := range doc.Runs {
		if !detach {
			began := a.Now()
			var err error
			if run, err = a.follow(ctx, run.ID, func(r view.Run) bool {
				return over(r) || a.Now().Sub(began) > downFor
			}); err != nil {
				return err
			}
			doc.Runs[i] = run
		}
		if !over(run) {
			left++
		}
		if run.Lost != "" {
			lost++
		}
	}
	if detach && left > 0 {
		if err := a.ensureKeeper(ctx); err != nil {
			return err
		}
		left = 0
	}
	if err := a.show(doc, func() report.Sheet { return report.Status(doc, a.Now()) }); err != nil {
		return err
	}
	if left > 0 {
		return &failure{
			exit: ExitPartial, code: "not_ended", err: fmt.Errorf("%s did not end yet", plain.Count(left, "session")),
			hint: "the output says why; `curfew down NAME --discard` gives unsaved work up",
		}
	}
	if lost > 0 {
		return &failure{
			exit: ExitPartial, code: "not_saved",
			err:  fmt.Errorf("%s ended before the work was saved", plain.Count(lost, "session")),
			hint: "the output names missing artifacts, and where files are kept",
		}
	}
	return nil
}

// newCage returns the hidden command that starts the processes of local sessions.
func (a *app) newCage() *cobra.Command {
	return &cobra.Command{
		Use: "cage", Short: "What local sessions start processes through", Hidden: true, DisableFlagParsing: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := local.Helper(args, a.Stderr); code != 0 {
				return &failure{
					exit: code, code: "cage", err: errors.New("the process could not be started in its cage"),
				}
			}
			return nil
		},
	}
}
