package clouds

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/finding"
	awsrules "github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

// Cloud is one kind of account that curfew reads.
type Cloud struct {
	// Name is the value of --cloud and the cloud of its resources.
	Name string
	// Fixable is true if curfew carries out fixes there.
	Fixable bool
	// Simulated is true if nothing there is real: nothing is spent, and time jumps.
	Simulated bool
	// credentials is true if --regions, --assume-role and --profile choose the account.
	credentials bool
	// rules returns the rules in addition to the general ones.
	rules func() []finding.Rule
	open  func(ctx context.Context, req *runtime.Request, f Source, cfg config.Config, book *price.Book,
		now time.Time) (round.Lister, error)
}

// kinds returns the clouds in display order.
func kinds() []Cloud {
	return []Cloud{
		{Name: "aws", rules: awsrules.Rules, Fixable: true, credentials: true, open: openAccount},
		// The simulated account has what AWS sells.
		{Name: sim.CloudName, rules: awsrules.Rules, Fixable: true, Simulated: true, open: openSimulated},
		{Name: local.CloudName, rules: noRules, open: openThisMachine},
		{Name: local.OnPremises, rules: noRules, open: openFleet},
	}
}

// Names returns the names of all clouds.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.Name)
	}
	return names
}

// Of returns the cloud of a name. An empty name is AWS; an unknown one is read as AWS and is not
// fixable.
func Of(name string) Cloud {
	all := kinds()
	if i := slices.IndexFunc(all, func(k Cloud) bool { return k.Name == name }); i >= 0 {
		return all[i]
	}
	return Cloud{Name: name, rules: awsrules.Rules, open: openAccount}
}

// RulesOf returns the rules of a cloud in addition to the general ones.
func RulesOf(cloud string) []finding.Rule { return Of(cloud).rules() }

func noRules() []finding.Rule { return nil }

// Lister opens the account selected by the flags and the configuration.
func Lister(ctx context.Context, req *runtime.Request, f Source, cfg config.Config, book *price.Book,
	now time.Time) (round.Lister, error) {
	kind := Of(f.Cloud)
	if !kind.credentials && (len(f.Regions)+len(f.AssumeRoles) > 0 || f.Profile != "") {
		return nil, runtime.Invalid(
			"--regions, --assume-role and --profile are for a real account of a cloud, not for --cloud %s", f.Cloud)
	}
	return kind.open(ctx, req, f, cfg, book, now)
}

func openAccount(ctx context.Context, req *runtime.Request, f Source, cfg config.Config, book *price.Book,
	_ time.Time) (round.Lister, error) {
	return OpenAccount(ctx, req, f, cfg, book)
}

func openSimulated(_ context.Context, _ *runtime.Request, _ Source, cfg config.Config, _ *price.Book,
	now time.Time) (round.Lister, error) {
	return sim.New(sim.Options{Seed: SimSeed, Now: now, Tags: cfg.Tags}), nil
}

func openThisMachine(_ context.Context, req *runtime.Request, _ Source, cfg config.Config, _ *price.Book,
	_ time.Time) (round.Lister, error) {
	own, _, err := thisMachine(req, cfg)
	switch {
	case err != nil:
		return nil, err
	case own == nil:
		return nil, runtime.Invalid("--cloud local: there is no data directory; name one with --data-dir")
	}
	return own, nil
}

func openFleet(_ context.Context, req *runtime.Request, _ Source, cfg config.Config, book *price.Book,
	_ time.Time) (round.Lister, error) {
	own, _, err := thisMachine(req, cfg)
	if err != nil {
		return nil, err
	}
	return NewFleet(cfg, book, own)
}

// Providers of sessions.
const (
	ProviderLocal = "local"
	ProviderAWS   = "aws"
	// ProviderSimulated is the simulated account that a process serves.
	ProviderSimulated = sim.CloudName
)
