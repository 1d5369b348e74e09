package cli

import (
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
)

// addFleet adds the flags of a replay of recorded arrivals.
func (f *backtestFlags) addFleet(fl *pflag.FlagSet) {
	fl.StringVar(&f.fleet.Arrivals, "arrivals", "",
		"recorded requests (CSV) `file` to replay policies of serving fleets on, in place of --trace")
	fl.StringVar(&f.fleet.Profile, "profile", "", "with --arrivals: time of n requests on a replica, `a=48ms,b=1.74s` is a·n + b")
	fl.StringVar(&f.fleet.ProfileTokens, "profile-tokens", "",
		"with --arrivals: tokens `in,out` of the requests of the profile (default: the mean of the file)")
	fl.IntVar(&f.fleet.MaxBatch, "max-batch", 0, "with --arrivals: most requests of a batch")
	fl.IntVar(&f.fleet.MaxRunning, "max-running", 0,
		"with --arrivals: most requests side by side, of a server that batches continuously")
	fl.StringVar(&f.fleet.LateAfter, "late-after", "", "with --arrivals: `latency` after which an answer is late: 4s")
	fl.StringVar(&f.fleet.ColdStart, "cold-start", "3m", "with --arrivals: `time` from the start of a replica until it serves")
}

// addPolicies adds the flag of the policies to replay.
func (f *backtestFlags) addPolicies(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.policies, "policy", nil, "policy `file` or directory to replay; repeatable")
}

// ofFleets are the flags that only a replay of arrivals has, ofTraces those that it has not.
var (
	ofFleets = []string{"profile", "profile-tokens", "max-batch", "max-running", "late-after", "cold-start", "tune"}
	ofTraces = []string{
		"trace", "step", "restart-cost", "idle-below", "resource", "tz", "as-sessions", "idle", "caps", "every",
		"decisions", "baselines",
	}
)

// checkFleetFlags refuses flags of one kind of replay with the other.
func (f *backtestFlags) checkFleetFlags(verb string, changed func(string) bool) error {
	refused, with := ofFleets, "needs --arrivals"
	if f.fleet.Arrivals != "" {
		refused, with = ofTraces, "does not go with --arrivals"
	}
	for _, flag := range refused {
		if changed(flag) {
			return usageError("curfew %s: --%s %s", verb, flag, with)
		}
	}
	if f.fleet.Arrivals != "" && len(f.policies) == 0 {
		return usageError("curfew %s: --arrivals needs --policy: a file with do: scale and fleet", verb)
	}
	return nil
}

// backtestFleets replays policies of serving fleets on recorded arrivals.
func (a *app) backtestFleets(f backtestFlags) error {
	set, err := govern.ReadPolicies(a.req, f.policies)
	if err != nil {
		return err
	}
	f.fleet.Columns, f.fleet.Price = f.columns, f.price
	doc, err := replay.Fleets(a.req, f.fleet, set)
	if err != nil {
		return err
	}
	next := []string{"curfew policy check"}
	for _, p := range f.policies {
		next[0] += " " + plain.Shell(p)
	}
	return a.show(doc, func() report.Sheet { return report.FleetReplay(doc, next) })
}

// tuneFleets fits policies of serving fleets on recorded arrivals, and writes those.
func (a *app) tuneFleets(f backtestFlags, write string) error {
	set, err := govern.ReadPolicies(a.req, f.policies)
	if err != nil {
		return err
	}
	f.fleet.Columns, f.fleet.Price, f.fleet.Tune = f.columns, f.price, true
	doc, err := replay.Fleets(a.req, f.fleet, set)
	if err != nil {
		return err
	}
	text := replay.Tuned(set, doc).YAML()
	if err := a.writePolicies(write, text); err != nil {
		return err
	}
	var next []string
	if write != "" {
		next = []string{"curfew policy check " + plain.Shell(write)}
	}
	err = a.show(doc, func() report.Sheet { return report.TunedFleets(doc, next) })
	if err != nil || a.format != "table" || write != "" {
		return err
	}
	plain.Fprintln(a.Stdout)
	return report.YAML(a.Stdout, a.Width, string(text))
}
