package act

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// EnforceOptions choose the accounts, the policies, and whether passes act.
type EnforceOptions struct {
	clouds.Source
	// Policies are files or directories; empty uses those of the configuration.
	Policies []string
	// Window is how far back usage is read; 0 uses the configured window.
	Window time.Duration
	// Enforce allows passes to warn and act. Without it nothing is sent and nothing changes.
	Enforce bool
	// Refusals collects the completed passes, for [LookForAlerts] after the last one.
	Refusals *Refusals
	// Wire, if set, replaces [EnforceSetting]: a recorded account has its own wiring.
	Wire func(ctx context.Context, cfg config.Config, s *store.Store, o EnforceOptions,
		set *policy.Set) (round.Setting,
		error)
}

// Enforce makes one pass of the policies. show receives what was done, even if the pass ended
// early.
func Enforce(ctx context.Context, req *runtime.Request, o EnforceOptions,
	show func(*round.Result, view.Enforce) error) error {
	cfg, err := req.Config()
	if err != nil {
		return err
	}
	set, err := govern.Policies(req, cfg, o.Policies)
	if err != nil {
		return err
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = req.Governed(ctx, cfg, s); err != nil {
		return err
	}
	wire := o.Wire
	if wire == nil {
		wire = func(ctx context.Context, cfg config.Config, s *store.Store, o EnforceOptions, set *policy.Set) (
			round.Setting, error) {
			return EnforceSetting(ctx, req, cfg, s, o, set)
		}
	}
	setting, err := wire(ctx, cfg, s, o, set)
	if err != nil {
		return err
	}
	bar := req.Progress(o.Cloud)
	setting.Query.Progress = bar.Report
	pass, err := round.New(setting).Round(ctx)
	bar.Finish()
	if pass == nil {
		return runtime.StateError(clouds.CloudError(err))
	}
	broken := err // what was done before the error is still shown
	err = show(pass, view.NewEnforce(pass, !o.Enforce))
	if o.Enforce && o.Wire == nil && broken == nil && o.Refusals != nil {
		o.Refusals.Add(pass)
	}
	if broken == nil {
		broken = keepSmall(ctx, req, s, pass)
	}
	fused := func(c round.PolicyCount) bool { return c.Fuse != nil }
	switch {
	case err != nil:
		return err
	case broken != nil:
		return runtime.StateError(clouds.CloudError(runtime.CutShort(broken, pass.Lines())))
	case len(pass.Unposted) > 0:
		return audit.Unposted(pass, "nothing was acted on there")
	case o.Enforce && (pass.Freeze() != nil || slices.ContainsFunc(pass.Counts, fused)):
		return &runtime.Error{Class: runtime.Denied}
	case pass.IsPartial():
		return &runtime.Error{Class: runtime.Partial}
	}
	return nil
}

// keepSmall folds everything in the ledger that can be folded, in short transactions, and records
// the size of the state: if passes only run from cron, nothing else does, and the next pass may be
// a day away.
func keepSmall(ctx context.Context, req *runtime.Request, s *store.Store, pass *round.Result) error {
	for more := true; more; {
		var err error
		if more, err = audit.FoldLedger(ctx, s, pass); err != nil {
			return err
		}
	}
	size, err := s.Size(ctx)
	if err == nil {
		openSizes(req).add(pass.StartedAt, size)
	}
	return err
}

// ObserveSetting wires what a pass reads and judges by.
func ObserveSetting(ctx context.Context, req *runtime.Request, cfg config.Config, o EnforceOptions, set *policy.Set) (
	round.Setting, error) {
	if o.Window > 0 {
		cfg.Enforce.Window = o.Window
	}
	setting, err := clouds.Setting(ctx, req, cfg, o.Source)
	setting.Source, setting.Policies, setting.Governance = "enforce", set, cfg.Governance
	setting.Query.Kinds = set.Kinds()
	setting.LookBack = govern.LookBack(cfg, set)
	return setting, err
}

// EnforceSetting wires passes that act: the account, the state, the people to warn.
func EnforceSetting(ctx context.Context, req *runtime.Request, cfg config.Config, s *store.Store, o EnforceOptions,
	set *policy.Set) (round.Setting, error) {
	now, err := req.StateClock(ctx, s)
	if now == nil || err != nil && o.Enforce {
		return round.Setting{}, err
	}
	setting, err := ObserveSetting(ctx, req, cfg, o, set)
	if err != nil {
		return round.Setting{}, err
	}
	var cloud action.Cloud
	switch l := setting.Lister.(type) {
	case *clouds.AWS:
		cloud = sessions.AWSActions(req, cfg, s, l)
	case *local.Provider:
		cfg.Enforce.MirrorTag = false // there is no tag to write
		cloud = l.Actions(func(ctx context.Context, id, why string) error {
			return sessions.Stop(ctx, req, cfg, s, id, why)
		})
	case *local.Fleet:
		cloud = notifyOnly("curfew acts on no on-premises machine; policies there can notify")
	default:
		return round.Setting{}, runtime.Invalid("--cloud %s: nothing is carried out there", o.Cloud)
	}
	setting.Books = ledger.Journal{Store: s.Ledger()}
	setting.ChargeFacts = func(ctx context.Context, _ time.Time) (func(*policy.Facts), error) {
		return spend.Facts(ctx, cfg, s, now())
	}
	if slices.ContainsFunc(set.Policies, (*policy.Policy).AsksProgress) {
		if setting.Progress, err = audit.KeptProgress(ctx, s); err != nil {
			return setting, err
		}
	}
	setting.Ladder, err = clouds.Ladders(req, cfg, s, cloud, o.Enforce)
	return setting, err
}
