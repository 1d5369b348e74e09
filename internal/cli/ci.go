package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/connect"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

func (a *app) newCI() *cobra.Command {
	c := &cobra.Command{
		Use:     "ci",
		Short:   "Run one command of a pipeline on a temporary machine",
		Example: `  curfew ci run --cloud local --gpu L4 --timeout 1h -- make train`,
		Args:    noSuchVerb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newCIRun())
	return c
}

// ciFlags are the flags of ci run.
type ciFlags struct {
	sessions.UpOptions
	timeout   string
	checkout  string
	excludes  []string
	artifacts []string
	command   []string
	// retries is the number of starts after spot machines that were taken away.
	retries int
}

func (a *app) newCIRun() *cobra.Command {
	var f ciFlags
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND",
		Short: "Start a session, run a command in the checkout, keep its artifacts, and end the session",
		Long: `Starts a session, copies the checkout into its work folder, runs the command there, copies the
artifacts back and ends the session, whatever the command does. The output is the command's,
and so is the exit code. Progress and errors of curfew are on standard error.

An interrupt and the time-out end the session too. Where this process is killed, the lease ends
the session: it is the time-out and 10 minutes. It never asks and never waits for an approval:
the exit code is 3 then, and with --name the same command runs once the approval is given.

The session runs on this machine (--cloud local) or on a machine of its own at AWS (--cloud
aws), which needs the Session Manager plugin here. There the command has the environment of the
session, and not that of this process. Where the connection ends before the command returned its
exit code, the exit code is 1. A command whose spot machine was taken away starts again on another
one, with an empty work folder and the same checkout, within --timeout. Artifacts that could not
be copied make it 5, and the work folder is saved.`,
		Example: `  curfew ci run --cloud local --gpu L4 --timeout 1h --artifacts results -- make train
  curfew ci run --cloud aws --gpu L4 --timeout 1h --artifacts results -- make train
  curfew ci run --cloud aws --gpu L4 --spot --timeout 1h -- make train
  curfew ci run -f session.yaml --timeout 2h -- python train.py
  curfew ci run --cloud local --cpus 2 -- make test`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || c.ArgsLenAtDash() != 0 {
				return usageError("%s takes a command after --", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if f.Timeout, err = ops.ParseOptionalDuration("timeout", f.timeout); err != nil {
				return err
			}
			f.command, f.OneShot = args, true
			return a.ciRun(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Name, "name", "", "name of the session (default: one that no other run has)")
	fl.StringVar(&f.GPU, "gpu", "", "accelerator and how many: L4 or L4:2")
	fl.BoolVar(&f.Spot, "spot", false, "use spot capacity")
	fl.IntVar(&f.retries, "retries", 3, "how often the command starts again after its spot machine was taken away")
	fl.IntVar(&f.CPUs, "cpus", 0, "CPUs of a machine without a GPU")
	fl.Var(ops.NewChoice("cloud", &f.Cloud, []string{clouds.ProviderLocal, clouds.ProviderAWS}), "cloud",
		"where it runs: local or aws (default: sessions.cloud in curfew.yaml)")
	fl.StringVarP(&f.File, "file", "f", "", "session `file` (curfew.session/v1)")
	fl.StringVar(&f.timeout, "timeout", "",
		"how long it may take, start included, such as 1h (default: what the lease "+
			"of the file or of curfew.yaml leaves)")
	fl.StringVar(&f.checkout, "checkout", ".", "`folder` that is copied into the work folder")
	fl.StringArrayVar(&f.excludes, "exclude", nil,
		"leave out paths that match a `pattern`, such as .git or *.pt; repeatable")
	fl.StringArrayVar(&f.artifacts, "artifacts", nil,
		"`path` in the work folder that is copied back, also where the command fails; repeatable")
	return c
}

const (
	// ciDrain bounds the wait for the end of a one-shot session after an interrupt; its keeper
	// continues after that.
	ciDrain = time.Minute
	// ciCopy is how long the copy of artifacts may take at least, and is left of the lease after it.
	ciCopy = 5 * time.Minute
	// ciNoticed is how long it may take until a session shows as ended whose connection was lost, and
	// ciGone how long where its spot machine was launched just now and does not run any more: listings
	// of machines lag behind, so its keeper believes them late.
	ciNoticed = 12 * time.Second
	ciGone    = 3 * time.Minute
)

// ciRun runs a command on a session of its own, which ends whatever happens.
func (a *app) ciRun(ctx context.Context, f ciFlags) error {
	for _, p := range f.artifacts {
		if !filepath.IsLocal(filepath.FromSlash(p)) {
			return usageError("--artifacts %q: it is a path in the work folder", p)
		}
	}
	dir := a.path(f.checkout)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return usageError("--checkout %s: it is no folder", f.checkout)
	}
	all, err := a.at.Local.Sessions(ctx)
	if err != nil {
		return err
	}
	skip, err := connect.SkipPatterns(all, dir, f.excludes)
	if err != nil {
		return err
	}
	if f.retries < 0 {
		return usageError("--retries %d: expected 0 or more", f.retries)
	}
	named, until := f.Name != "", a.Now().Add(f.Timeout)
	for try := 1; ; try++ {
		if !named {
			if f.Name, err = connect.NewOneShotName(); err != nil {
				return err
			}
		}
		err := a.ciTry(ctx, all, f, dir, skip, named)
		taken := (*failure)(nil)
		if ctx.Err() != nil || !errors.As(err, &taken) || taken.code != "interrupted" || try > f.retries {
			return err
		}
		if f.Timeout > 0 {
			if f.Timeout = until.Sub(a.Now()); f.Timeout <= 0 {
				return err
			}
		}
		plain.Fprintf(a.Stderr, "curfew: %s; the command starts again (%d of %d)\n", oneLine(err.Error()), try, f.retries)
	}
}

// ciTry runs the command once, on a session of its own, which ends whatever happens.
func (a *app) ciTry(ctx context.Context, all *sessions.Sessions, f ciFlags, dir string, skip func(string) bool,
	named bool) (err error) {
	began := a.Now()
	a.saidSince = began.Add(-time.Second) // the clock of the state is a coarse one
	s, d, err := all.Up(ctx, f.UpOptions)
	if err != nil {
		return errors.Join(err, a.ciGone(ctx, all, s))
	}
	if d != nil && d.Decision != gate.Allow {
		return a.ciRefused(ctx, all, s, *d, named)
	}
	if err := all.EnsureKeeper(ctx); err != nil {
		return errors.Join(err, a.ciDown(ctx, all, s, true))
	}
	bounded, stop := context.WithTimeoutCause(ctx,
		connect.OneShotTimeout(s, f.Timeout)-a.Now().Sub(began), errTimedOut)
	defer stop()
	ran, code, err := a.ciWork(bounded, all, s, f, dir, skip)
	if errors.Is(context.Cause(bounded), errTimedOut) {
		err = &failure{
			exit: ExitError, code: "timed_out",
			err: fmt.Errorf("the command did not end within %s",
				plain.Duration(connect.OneShotTimeout(s, f.Timeout))),
			hint: "--timeout says how long it may take",
		}
	}
	also := func(failed error) {
		switch {
		case failed == nil:
		case err == nil && code == 0:
			err = failed
		default:
			plain.Fprintf(a.Stderr, "curfew: %s\n", oneLine(failed.Error()))
		}
	}
	// What was asked for and did not come back is worth a snapshot; the rest is given up.
	discard := true
	if ctx.Err() == nil && ran && len(f.artifacts) > 0 {
		copied, failed := a.ciKeep(ctx, all, s, f, dir)
		also(failed)
		discard = copied || ctx.Err() != nil
	}
	also(a.ciDown(ctx, all, s, discard))
	if err == nil && code != 0 {
		err = &failure{
			exit: code, code: "command_failed", err: fmt.Errorf("the command ended with exit code %d", code),
		}
	}
	return err
}

var errTimedOut = errors.New("timed out")

// ciWork waits until the session is ready, copies the checkout and runs the command.
// It says whether the command began.
func (a *app) ciWork(ctx context.Context, all *sessions.Sessions, s session.Session, f ciFlags, dir string,
	skip func(string) bool) (ran bool, code int, err error) {
	if _, err = a.follow(ctx, s.ID, settled); err != nil {
		return false, 0, err
	}
	_, now, err := all.Run(ctx, s.ID)
	if err != nil {
		return false, 0, err
	}
	if now.State != session.Ready {
		code := "not_ready"
		if takenAway(now) {
			code = "interrupted"
		}
		return false, 0, &failure{
			exit: ExitError, code: code,
			err: fmt.Errorf("session %s did not become ready: %s", s.Name, now.EndReason),
		}
	}
	err = connect.UseFirstMachine(ctx, all, s.ID, os.Environ(), a.Stderr,
		func(ctx context.Context, m *connect.Machine) error {
			if err := m.CopyIn(ctx, dir, skip); err != nil {
				return err
			}
			ran = true
			if code, err = m.Run(ctx, f.command, strings.NewReader(""), a.raw.out, a.raw.err); err != nil {
				return fmt.Errorf("whether the command succeeded is not known: %w", err)
			}
			return nil
		})
	switch {
	case ctx.Err() != nil:
		return ran, 0, errors.Join(ctx.Err(), err)
	case err != nil || code != 0: // the command's own doing, or that of an end that came before it
		if code, why := a.ciEnded(ctx, all, s, err != nil && s.Provider == clouds.ProviderAWS); why != "" {
			return ran, 0, &failure{
				exit: ExitError, code: code,
				err: fmt.Errorf("session %s ended before the command did: %s", s.Name, why),
			}
		}
	}
	return ran, code, err
}

// takenAway reports whether a session lost its spot machine, for no reason of its own.
func takenAway(s session.Session) bool {
	byItself := s.EndedBy == session.KeeperActor || s.EndedBy == session.HostActor
	return s.Pool.Spot && len(s.Machines) > 0 && byItself && s.EndingAt.Before(s.LeaseUntil)
}

// ciEnded returns the reason why a session ended, and its code; empty while it runs. A lost connection is the
// first sign of an end, so after one the session is read until its keeper would know.
func (a *app) ciEnded(ctx context.Context, all *sessions.Sessions, s session.Session, lost bool) (code,
	why string) {
	limit := ciNoticed
	if lost && a.ciStopped(ctx, all, s) {
		limit = ciGone
	}
	within, stop := context.WithTimeout(ctx, limit)
	defer stop()
	for {
		after, err := a.step(within, newPace(), s.ID)
		if err != nil {
			after = time.Second
		}
		if _, now, err := all.Run(ctx, s.ID); err == nil && now.State != session.Ready {
			if code = "ended"; takenAway(now) {
				code = "interrupted"
			}
			return code, first(now.EndReason, "it is "+string(now.State))
		}
		if !lost {
			return "", ""
		}
		select {
		case <-within.Done():
			return "", ""
		case <-time.After(min(after, time.Second)):
		}
	}
}

// ciStopped reports whether the spot machine of a session does not run any more.
func (a *app) ciStopped(ctx context.Context, all *sessions.Sessions, s session.Session) bool {
	_, now, err := all.Run(ctx, s.ID)
	if err != nil || !now.Pool.Spot || now.State != session.Ready {
		return false
	}
	within, stop := context.WithTimeout(ctx, ciNoticed)
	defer stop()
	err = connect.UseFirstMachine(within, all, s.ID, os.Environ(), io.Discard,
		func(context.Context, *connect.Machine) error { return nil })
	refused := (*runtime.Error)(nil)
	return errors.As(err, &refused) && refused.Code == "not_running"
}

// ciKeep copies the artifacts, and says whether all was copied that the command left.
func (a *app) ciKeep(ctx context.Context, all *sessions.Sessions, s session.Session, f ciFlags,
	dir string) (copied bool, err error) {
	// a command that ended early leaves time
	ctx, stop := context.WithTimeout(ctx, max(ciCopy, s.LeaseUntil.Sub(a.Now())-ciCopy))
	defer stop()
	var missing, left []string
	err = connect.UseFirstMachine(ctx, all, s.ID, os.Environ(), a.Stderr,
		func(ctx context.Context, m *connect.Machine) (err error) {
			missing, left, err = m.CopyOut(ctx, f.artifacts, dir)
			return err
		})
	var said []string
	if err != nil {
		said = append(said, "keep the artifacts: "+err.Error())
	}
	if len(missing) > 0 {
		said = append(said, "the command left no "+plain.Few(missing))
	}
	if len(left) > 0 {
		said = append(said, "left out were links that lead out of the artifacts, devices or sockets: "+plain.Few(left))
	}
	if len(said) == 0 {
		return true, nil
	}
	return err == nil && len(left) == 0, &failure{
		exit: ExitPartial, code: "artifacts", err: errors.New(strings.Join(said, "; ")),
		hint: "--artifacts names files and folders in the work folder",
	}
}

// ciDown ends the session and waits until it is gone. After an interrupt it does not wait for long,
// because the keeper continues. Unless it is discarded, work is saved and confirmed first.
func (a *app) ciDown(ctx context.Context, all *sessions.Sessions, s session.Session, discard bool) error {
	wait := downFor
	if ctx.Err() != nil {
		wait = ciDrain
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer stop()
	if _, err := all.Down(ctx, s.ID, discard); err != nil {
		return err
	}
	now, err := a.follow(ctx, s.ID, over)
	if err != nil {
		return &failure{
			exit: ExitPartial, code: "not_ended",
			err:  fmt.Errorf("session %s did not end yet: %s", s.Name, first(now.Why, err.Error())),
			hint: "its lease ends it; `curfew down " + s.Name + " --discard` does so at once",
		}
	}
	if !discard && now.Checkpoint != nil {
		plain.Fprintf(a.Stderr, "curfew: the work folder is saved: `curfew up %s` starts the session again with it\n",
			s.Name)
	}
	return nil
}

// ciGone withdraws a session that failed before it was asked for in full.
func (a *app) ciGone(ctx context.Context, all *sessions.Sessions, s session.Session) error {
	if s.ID == "" || s.State != session.Requested {
		return nil
	}
	return all.Withdraw(context.WithoutCancel(ctx), s, "the run was given up")
}

// ciRefused prints the decision of the gate. A request that no later run could find is withdrawn.
func (a *app) ciRefused(ctx context.Context, all *sessions.Sessions, s session.Session, d gate.Decision,
	named bool) error {
	why := strings.Join(d.Reasons, "; ")
	if d.Decision != gate.Held {
		return &failure{exit: ExitDenied, code: "denied", err: fmt.Errorf("session %s is denied: %s", s.Name, why)}
	}
	hint := fmt.Sprintf("an approver gives `curfew approve %s`; then give the same command again", d.ApprovalID)
	if !named {
		if err := all.Withdraw(ctx, s, "it needs an approval, and no later run has its name"); err != nil {
			return err
		}
		hint = "give --name, so that an approval counts for the next run of that name"
	}
	return &failure{
		exit: ExitHeld, code: "needs_approval", err: fmt.Errorf("session %s needs approval: %s",
			s.Name, why), hint: hint,
	}
}
