package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/money"
)

// jobHolds implements job.Holds.
type jobHolds struct{ sessions *Sessions }

// Close implements job.Holds.
func (h jobHolds) Close(ctx context.Context, j *job.Job, actual money.Amount, ran bool) error {
	run := heldRun{j.ID, j.HoldID, cmp.Or(j.CanceledBy, j.RequestedBy), j.RequestedAt}
	return h.sessions.closeHolds(ctx, run, actual, ran)
}

// jobPasses are the passes of a keeper over jobs.
type jobPasses struct {
	mu sync.Mutex
	// By job: whether a pass runs, the time of the next one, and the record version of the last one.
	busy map[string]bool
	due  map[string]time.Time
	seen map[string]int64
}

func newJobPasses() *jobPasses {
	return &jobPasses{busy: map[string]bool{}, due: map[string]time.Time{}, seen: map[string]int64{}}
}

// start starts a pass over each job that is due, and returns the number of open jobs.
func (p *jobPasses) start(ctx context.Context, a *Sessions, now time.Time, passes *sync.WaitGroup,
	log *slog.Logger) (open int) {
	if a.Jobs == nil {
		return 0
	}
	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := a.Jobs.Store.Jobs(readCtx, job.Query{OpenOnly: true})
	if err != nil {
		log.WarnContext(ctx, "the jobs could not be read", "error", err)
		return 1 // unknown is not none
	}
	keeper := a.Jobs
	for _, j := range list {
		if !a.reachesJob(&j) {
			continue
		}
		open++
		p.mu.Lock()
		skip := p.busy[j.ID] || now.Before(p.due[j.ID]) && p.seen[j.ID] == j.Version
		if !skip {
			p.busy[j.ID], p.seen[j.ID] = true, j.Version
		}
		p.mu.Unlock()
		if skip {
			continue
		}
		passes.Go(func() {
			passCtx, stop := context.WithTimeout(ctx, passTimeout)
			defer stop()
			after, err := keeper.Keep(passCtx, j.ID)
			if err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "a job could not be kept", "job", j.Name, "error", err)
				after = 5 * time.Second
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.busy[j.ID] = false
			p.due[j.ID] = time.Now().Add(min(after, maxLookInterval)) //nolint:forbidigo // the pace of this process
		})
	}
	return open
}

// reachesJob reports whether this process can launch the attempts of a job.
func (a *Sessions) reachesJob(j *job.Job) bool {
	return a.Keeper.Launchers[j.Provider] != nil &&
		(j.Provider != clouds.ProviderLocal || j.Account == "" || j.Account == runtime.HostName())
}

// checkNameFree refuses a session of the name of an open job.
func (a *Sessions) checkNameFree(ctx context.Context, name string) error {
	open, err := a.Jobs.Store.Jobs(ctx, job.Query{Name: name, OpenOnly: true})
	if err == nil && len(open) > 0 {
		err = &runtime.Error{
			Class: runtime.Usage, Code: "taken", Err: fmt.Errorf("%s is a job, and it is %s", name, open[0].State),
			Hint: "`curfew status " + name + "` shows it; give the session another name",
		}
	}
	return err
}

// jobProviders are the providers at which jobs run.
var jobProviders = []string{clouds.ProviderLocal, clouds.ProviderAWS, clouds.ProviderSimulated}

// Identify fills in the account, and the users, of a job at a provider.
func (a *Sessions) Identify(ctx context.Context, j *job.Job, who approval.Person) (err error) {
	if a.Keeper.Launchers[j.Provider] == nil {
		return noLauncher(j.Provider)
	}
	if err := checkLocalAllowed(a, j.Provider); err != nil {
		return err
	}
	if !slices.Contains(jobProviders, j.Provider) {
		return errors.New("jobs do not run at " + j.Provider)
	}
	j.Account, j.AllowedUser, j.RunAs, err = a.identify(ctx, j.Provider, who)
	return err
}

// identify returns the account that a person's machines at a provider are in, who may connect to them,
// and as whom they run.
func (a *Sessions) identify(ctx context.Context, provider string, who approval.Person) (account, allowed, runAs string,
	err error) {
	switch provider {
	case clouds.ProviderLocal:
		account = runtime.HostName()
		runAs, err = unixUser(ctx, a, provider, who.Name)
	case clouds.ProviderSimulated:
		account = sim.Account
	case clouds.ProviderAWS:
		if account, allowed, err = a.aws.account(ctx); err == nil {
			allowed = cmp.Or(a.Config.Sessions.Owner, allowed)
		}
	}
	return account, allowed, runAs, err
}
