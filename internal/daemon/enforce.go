package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// EnforceOptions say what passes of the policies read, by which policies, and whether they
// act.
type EnforceOptions struct {
	Source
	// Policies are files or directories; none are those of the configuration.
	Policies []string
	// Window is how far back usage is read; 0 is as configured.
	Window time.Duration
	// Enforce lets passes warn and act. Without it nothing is sent and nothing changes.
	Enforce bool
	// Wire, when set, takes the place of [Runtime.Enforcing]: a recorded account has wiring
	// of its own.
	Wire func(ctx context.Context, cfg config.Config, s *store.Store, o EnforceOptions, set *policy.Set) (round.Setting, error)
}

// Enforce makes one pass of the policies. Show gets what was done, also where the pass
// ended early.
func (rt *Runtime) Enforce(ctx context.Context, o EnforceOptions, show func(*round.Result, view.Enforce) error) error {
	cfg, err := rt.Config()
	if err != nil {
		return err
	}
	set, err := rt.Policies(cfg, o.Policies)
	if err != nil {
		return err
	}
	s, err := rt.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = rt.Governed(ctx, cfg, s); err != nil {
		return err
	}
	wire := o.Wire
	if wire == nil {
		wire = rt.Enforcing
	}
	setting, err := wire(ctx, cfg, s, o, set)
	if err != nil {
		return err
	}
	bar := rt.Progress(o.Cloud)
	setting.Query.Progress = bar.Report
	pass, err := round.New(setting).Round(ctx)
	bar.Finish()
	if pass == nil {
		return StateError(CloudError(err))
	}
	broken := err // what was done before it is shown all the same
	err = show(pass, view.NewEnforce(pass, !o.Enforce))
	fused := func(c round.Count) bool { return c.Fuse != nil }
	switch {
	case err != nil:
		return err
	case broken != nil:
		return StateError(CloudError(CutShort(broken, pass.Lines())))
	case len(pass.Unposted) > 0:
		return Unposted(pass, "nothing was acted on there")
	case o.Enforce && (pass.Frozen() != nil || slices.ContainsFunc(pass.Counts, fused)):
		return &Error{Class: Denied}
	case pass.Partial():
		return &Error{Class: Partial}
	}
	return nil
}

// Observing wires what a pass reads and judges by.
func (rt *Runtime) Observing(ctx context.Context, cfg config.Config, o EnforceOptions, set *policy.Set) (round.Setting, error) {
	if o.Window > 0 {
		cfg.Enforce.Window = o.Window
	}
	setting, err := rt.Setting(ctx, cfg, o.Source)
	setting.Source, setting.Policies, setting.Governance = "enforce", set, cfg.Governance
	setting.Query.Kinds = set.Kinds()
	setting.LookBack = LookBack(cfg, set)
	return setting, err
}

// Enforcing wires passes that act: the account, the state, the people to warn.
func (rt *Runtime) Enforcing(ctx context.Context, cfg config.Config, s *store.Store, o EnforceOptions, set *policy.Set) (round.Setting, error) {
	now, err := rt.StateClock(ctx, s)
	if now == nil || err != nil && o.Enforce {
		return round.Setting{}, err
	}
	setting, err := rt.Observing(ctx, cfg, o, set)
	if err != nil {
		return round.Setting{}, err
	}
	var cloud action.Cloud
	switch l := setting.Lister.(type) {
	case *AWS:
		cloud = rt.awsActs(cfg, s, l)
	case *local.Provider:
		cfg.Enforce.MirrorTag = false // there is no tag to be written
		cloud = l.Actions(func(ctx context.Context, id, why string) error { return rt.stopSession(ctx, cfg, s, id, why) })
	default:
		return round.Setting{}, invalid("--cloud %s: nothing is carried out there", o.Cloud)
	}
	setting.Books = ledger.Journal{Store: s.Ledger()}
	setting.Standing = func(ctx context.Context, _ time.Time) (func(*policy.Facts), error) {
		return Facts(ctx, cfg, s, now())
	}
	setting.Ladder, err = rt.Ladders(cfg, s, cloud, o.Enforce)
	return setting, err
}

// LookBack is how far back the verdict of now looks: as configured, and far enough for
// the longest duration that a policy asks for, with a fifth more for the samples at its
// edges.
func LookBack(cfg config.Config, set *policy.Set) time.Duration {
	var longest time.Duration
	for _, p := range set.Policies {
		longest = max(longest, p.Horizon())
	}
	return max(cfg.Enforce.Window, longest+longest/5)
}
