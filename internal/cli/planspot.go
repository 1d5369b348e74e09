package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/report"
)

// spotTraceFlags describe the format of an availability trace.
type spotTraceFlags struct {
	trace, columns, gap, zones string
	nodes                      int64
}

func (f *spotTraceFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.trace, "trace", "", "CSV `file` of recorded availability: zone,time,length,up and optional price")
	fl.StringVar(&f.columns, "map", "",
		"names of the columns in the file: `zone=trace,time=t_s,length=len_s,up=nodes_up`")
	fl.StringVar(&f.gap, "gap", "", "sampling step: `195s`")
	fl.StringVar(&f.zones, "zones", "", "only zones that match a `pattern`, such as 'us-east-1*'")
	fl.Int64Var(&f.nodes, "nodes", 1, "number of machines that must be available")
}

// read reads the trace.
func (f *spotTraceFlags) read(a *app, verb string) (spot.Trace, error) {
	if f.trace == "" {
		return spot.Trace{}, usageError("curfew %s: give --trace FILE", verb)
	}
	gap, err := durationFlag("gap", f.gap)
	if err != nil {
		return spot.Trace{}, err
	}
	m := spot.Map{Gap: gap, Zones: f.zones, Nodes: f.nodes}
	if m.Columns, err = columnMap(f.columns, "zone", "time", "length", "up", "price"); err != nil {
		return spot.Trace{}, err
	}
	return runtime.ReadPlan(a.req, f.trace, func(name string, r io.Reader) (spot.Trace, error) {
		return spot.Read(r, name, m)
	})
}

// columnMap reads --map: names of columns of the planner to those of the file.
func columnMap(text string, ours ...string) (map[string]string, error) {
	m := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, theirs, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if _, twice := m[name]; !ok || twice || theirs == "" || !slices.Contains(ours, name) {
			return nil, usageError("--map %q: expected NAME=COLUMN, once for each of %s", pair,
				strings.Join(ours, ", "))
		}
		m[name] = theirs
	}
	return m, nil
}

// durationFlag reads a duration that is needed.
func durationFlag(flag, text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usageError("--%s %q: expected a duration, such as 12m", flag, text)
	}
	return d, nil
}

// spotFlags are the flags of plan spot.
type spotFlags struct {
	spotTraceFlags
	work, deadline, restart, every, spotPrice, onDemandPrice string
	acrossZones                                              bool
	advisor, machine, region, profile                        string
	scores                                                   bool
}

func (a *app) newPlanSpot() *cobra.Command {
	var f spotFlags
	c := &cobra.Command{
		Use:   "spot",
		Short: "Compare spot strategies for work with a deadline",
		Long: `Replays work with a deadline on recorded spot availability and prices, under several
strategies that see only the past: spot whenever available (greedy), uniform progress, and
curfew's, which learns how long runs and outages last. Perfect foresight is the upper
bound of the saving.`,
		Example: `  curfew plan spot --trace examples/data/spot.csv --gap 5m --work 48h --deadline 1.5x --spot-price 0.918 --on-demand-price 3.06
  curfew plan spot --trace examples/data/spot.csv --gap 5m --work 12h --deadline 18h --restart 5m --spot-price 3.67 --on-demand-price 12.24 --across-zones`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.planSpot(c.Context(), f) },
	}
	f.add(c)
	a.outputs(c, reports...)
	fl := c.Flags()
	fl.StringVar(&f.work, "work", "48h", "duration of the work without interruption")
	fl.StringVar(&f.deadline, "deadline", "1.5x", "deadline: a multiple of the work, or a duration")
	fl.StringVar(&f.restart, "restart", "12m", "paid time without progress for each start or move")
	fl.StringVar(&f.every, "every", "12h", "time from the start of one case to the next")
	fl.StringVar(&f.spotPrice, "spot-price", "", "spot price in `dollars` an hour, where the trace has none")
	fl.StringVar(&f.onDemandPrice, "on-demand-price", "", "on-demand price in `dollars` an hour")
	fl.StringVar(&f.advisor, "advisor", "",
		"`file` with the published data of the Spot Instance Advisor (spot-advisor-data.json), for the band of --type")
	fl.StringVar(&f.machine, "type", "", "machine `type` of the trace, for --advisor and --scores")
	fl.StringVar(&f.region, "region", "us-east-1", "region of the trace, for --advisor and --scores")
	fl.BoolVar(&f.scores, "scores", false,
		"read the spot placement scores of --type from AWS: the likelihood of a launch now, by zone")
	fl.StringVar(&f.profile, "profile", "", "AWS profile, for --scores")
	fl.BoolVar(&f.acrossZones, "across-zones", false, "allow moves between all zones of the trace")
	return c
}

func (a *app) planSpot(ctx context.Context, f spotFlags) error {
	tr, err := f.read(a, "plan spot")
	if err != nil {
		return err
	}
	p := spot.Params{AcrossZones: f.acrossZones}
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"work", f.work, &p.Work}, {"restart", f.restart, &p.Restart}, {"every", f.every, &p.Every}} {
		if *d.to, err = durationFlag(d.flag, d.text); err != nil {
			return err
		}
	}
	if p.Deadline, err = spot.ParseDeadline(f.deadline, p.Work); err != nil {
		return usageError("--deadline: %w", err)
	}
	if p.OnDemandPrice, err = ops.ParseDollars("on-demand-price", f.onDemandPrice); err != nil {
		return err
	}
	if f.spotPrice != "" {
		if p.SpotPrice, err = ops.ParseDollars("spot-price", f.spotPrice); err != nil {
			return err
		}
	}
	if f.scores && f.machine == "" {
		return usageError("curfew plan spot --scores: give --type, the machine type of the trace")
	}
	var band *spot.Band
	if f.advisor != "" {
		if band, err = a.advisorBand(f, tr); err != nil {
			return err
		}
	}
	bar := a.newProgress("the replay")
	r, err := spot.Replay(tr, p)
	bar.Finish()
	if err != nil {
		return runtime.PlanError(err)
	}
	r.Advisor = band
	if f.scores {
		if r.Placements, err = a.placements(ctx, f); err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.CoverageNotes = append(r.CoverageNotes, "placement scores are not visible: "+err.Error()+
				" (they take the permission ec2:GetSpotPlacementScores)")
		}
	}
	return a.show(r, func() report.Sheet { return report.Spot(r) })
}

// advisorBand reads the published band of the machine type of a trace, with the date of the file.
func (a *app) advisorBand(f spotFlags, tr spot.Trace) (*spot.Band, error) {
	if f.machine == "" {
		return nil, usageError("curfew plan spot --advisor: give --type, the machine type of the trace")
	}
	advisor, err := a.req.Advisor(f.advisor)
	if err != nil {
		return nil, err
	}
	band, err := advisor.Band(f.machine, f.region, tr)
	if err != nil {
		return nil, usageError("curfew plan spot --advisor %s: %w", f.advisor, err)
	}
	return &band, nil
}

// placements reads the placement scores of the machine type of a trace.
func (a *app) placements(ctx context.Context, f spotFlags) (*spot.Placements, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	cloud, err := clouds.OpenAWS(ctx, cfg, f.profile, []string{f.region})
	if err != nil {
		return nil, err
	}
	all, err := cloud.PlacementScores(ctx, f.machine, int(f.nodes), f.region)
	if err != nil {
		return nil, err
	}
	scores := make([]spot.Placement, len(all))
	for i, s := range all {
		scores[i] = spot.Placement{ZoneID: s.ZoneID, Score: s.Score}
	}
	p := spot.NewPlacements(f.machine, f.region, f.nodes, a.Now(), scores)
	return &p, nil
}

// checkpointFlags are the flags of plan checkpoint.
type checkpointFlags struct {
	spotTraceFlags
	write, restart string
}

func (a *app) newPlanCheckpoint() *cobra.Command {
	var f checkpointFlags
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Plan the checkpoint interval for work on spot machines",
		Long: `Replays recorded runs of spot machines under several rules for the interval between
checkpoints: Young's and Daly's formulas, the best fixed interval with perfect foresight,
and curfew's, which adapts the interval to the age of a run.`,
		Example: `  curfew plan checkpoint --trace examples/data/spot.csv --gap 5m --write 120s --restart 180s`,
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.planCheckpoint(f) },
	}
	f.add(c)
	a.outputs(c, reports...)
	fl := c.Flags()
	fl.StringVar(&f.write, "write", "", "duration of a checkpoint write: `120s`")
	fl.StringVar(&f.restart, "restart", "", "time from an interruption until work continues: `180s`")
	return c
}

func (a *app) planCheckpoint(f checkpointFlags) error {
	tr, err := f.read(a, "plan checkpoint")
	if err != nil {
		return err
	}
	var p spot.CheckpointParams
	if p.Write, err = durationFlag("write", f.write); err != nil {
		return err
	}
	if p.Restart, err = durationFlag("restart", f.restart); err != nil {
		return err
	}
	r, err := spot.Checkpoint(tr, p)
	if err != nil {
		return runtime.PlanError(err)
	}
	return a.show(r, func() report.Sheet { return report.Checkpoint(r) })
}
