package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/finding"
	awsrules "github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

// CloudKind is one kind of account that curfew reads.
type CloudKind struct {
	// Name is the value of --cloud and the cloud of its resources.
	Name string
	// Fixable says that curfew carries fixes out there.
	Fixable bool
	// Simulated says that nothing there exists: nothing it costs is spent, and time jumps.
	Simulated bool
	// credentials says that --regions, --assume-role and --profile choose the account.
	credentials bool
	// rules are those in addition to the general ones.
	rules func() []finding.Rule
	open  func(ctx context.Context, rt *Runtime, f Source, cfg config.Config, book *price.Book, now time.Time) (round.Lister, error)
}

// kinds are the clouds, in the order in which they are listed to people.
func kinds() []CloudKind {
	return []CloudKind{
		{Name: "aws", rules: awsrules.Rules, Fixable: true, credentials: true, open: openAccount},
		// The simulated account has what AWS sells.
		{Name: sim.CloudName, rules: awsrules.Rules, Fixable: true, Simulated: true, open: openSimulated},
		{Name: local.CloudName, rules: noRules, open: openThisMachine},
		{Name: local.OnPremises, rules: noRules, open: openFleet},
	}
}

// CloudNames are the names of all clouds.
func CloudNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.Name)
	}
	return names
}

// CloudOf returns the cloud of a name. An unknown one is read as AWS, which is what no name
// stands for, and is not fixable.
func CloudOf(name string) CloudKind {
	all := kinds()
	if i := slices.IndexFunc(all, func(k CloudKind) bool { return k.Name == name }); i >= 0 {
		return all[i]
	}
	return CloudKind{Name: name, rules: awsrules.Rules, open: openAccount}
}

// RulesOf are the rules of a cloud in addition to the general ones.
func RulesOf(cloud string) []finding.Rule { return CloudOf(cloud).rules() }

func noRules() []finding.Rule { return nil }

// Lister opens the account that the flags and the configuration name.
func (rt *Runtime) Lister(ctx context.Context, f Source, cfg config.Config, book *price.Book, now time.Time) (round.Lister, error) {
	kind := CloudOf(f.Cloud)
	if !kind.credentials && (len(f.Regions)+len(f.AssumeRoles) > 0 || f.Profile != "") {
		return nil, invalid("--regions, --assume-role and --profile are for a real account of a cloud, not for --cloud %s", f.Cloud)
	}
	return kind.open(ctx, rt, f, cfg, book, now)
}

func openAccount(ctx context.Context, rt *Runtime, f Source, cfg config.Config, book *price.Book, _ time.Time) (round.Lister, error) {
	return rt.aws(ctx, f, cfg, book)
}

func openSimulated(_ context.Context, _ *Runtime, _ Source, cfg config.Config, _ *price.Book, now time.Time) (round.Lister, error) {
	return sim.New(sim.Options{Seed: SimSeed, Now: now, Tags: cfg.Tags}), nil
}

func openThisMachine(_ context.Context, rt *Runtime, _ Source, cfg config.Config, _ *price.Book, _ time.Time) (round.Lister, error) {
	own, _, err := rt.thisMachine(cfg)
	switch {
	case err != nil:
		return nil, err
	case own == nil:
		return nil, invalid("--cloud local: there is no data directory; name one with --data-dir")
	}
	return own, nil
}

func openFleet(_ context.Context, rt *Runtime, _ Source, cfg config.Config, book *price.Book, _ time.Time) (round.Lister, error) {
	own, _, err := rt.thisMachine(cfg)
	if err != nil {
		return nil, err
	}
	return NewFleet(cfg, book, own)
}
