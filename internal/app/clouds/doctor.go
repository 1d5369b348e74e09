package clouds

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/prom"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// MachineKinds are the kinds of resources that are judged by metrics.
var MachineKinds = map[inventory.Kind]bool{
	inventory.KindInstance: true, inventory.KindNode: true, inventory.KindNotebook: true,
}

// DoctorMetrics reads the running machines of an account and their metrics of the last window, and
// lists the present and the missing ones of each machine.
func DoctorMetrics(ctx context.Context, req *runtime.Request, f Source, window time.Duration) (view.Doctor, error) {
	cfg, err := req.Config()
	if err != nil {
		return view.Doctor{}, err
	}
	setting, err := Setting(ctx, req, cfg, f)
	if err != nil {
		return view.Doctor{}, err
	}
	bar := req.Progress(f.Cloud)
	defer bar.Finish()
	setting.Source, setting.Query = "doctor", round.Query{Window: window, Progress: bar.Report, Kinds: MachineKinds}
	disputes := map[inventory.Ref][]inventory.Dispute{}
	if setting.Owners != nil {
		o := &owners{tags: cfg.Tags}
		for _, s := range setting.Sources {
			if server, ok := s.(*prom.Source); ok {
				o.servers = append(o.servers, server)
			}
		}
		setting.Owners = func(ctx context.Context, resources []*inventory.Resource,
			now time.Time) (spots []inventory.BlindSpot, err error) {
			spots, disputes, err = o.disputes(ctx, resources, now)
			return spots, err
		}
	}
	setting.Policies = &policy.Set{} // no policies, so that every machine is judged
	r, err := round.New(setting).Round(ctx)
	if err != nil {
		return view.Doctor{}, CloudError(err)
	}
	duties := map[inventory.Ref]duty.Verdict{}
	for _, f := range r.Facts {
		if f.Duty != nil {
			duties[f.Resource.Ref()] = *f.Duty
		}
	}
	rules := &round.Audit{Thresholds: cfg.Thresholds, Rules: RulesOf(f.Cloud), Tags: cfg.Tags}
	audited, spots, err := auditAgain(ctx, setting, r, cfg.Scan.Window, rules,
		func(m *inventory.Resource) bool { return m.State == inventory.StateRunning })
	if err != nil {
		return view.Doctor{}, err
	}
	found, err := foundAtRest(audited)
	if err != nil {
		return view.Doctor{}, err
	}
	holders := map[inventory.Ref][]view.DoctorHolder{}
	for _, s := range setting.Sources {
		server, ok := s.(*prom.Source)
		if !ok {
			continue
		}
		for _, m := range r.Resources {
			for _, h := range server.Holders(m.Ref()) {
				holders[m.Ref()] = append(holders[m.Ref()], view.DoctorHolder(h))
			}
		}
	}
	return view.NewDoctor(view.Telemetry{
		At: r.StartedAt, Holders: holders, Disputes: disputes, Window: window,
		AuditWindow: cfg.Scan.Window, Verdicts: audited.Verdicts, Found: found, Duties: duties,
		Thresholds: setting.Duty,
		Resources:  r.Resources, Windows: r.Windows,
		Sources: usageSummary(setting.Sources), BlindSpots: append(r.BlindSpots, spots...)}), nil
}
