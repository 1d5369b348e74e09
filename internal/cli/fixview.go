package cli

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// foreseen are the refusals of a fix that the last scan already shows. What a machine does,
// who keeps it, and what its provider answers is asked when the fix is carried out.
func foreseen(f view.Finding, kept []view.Inventory, cfg config.Config, flags fixFlags, now time.Time) []view.Refusal {
	do, carried := policy.Of(f.Fix.Change)
	if !carried || f.Resource.Cloud != "aws" && f.Resource.Cloud != sim.CloudName {
		return []view.Refusal{{Rule: view.ByHandRule, Why: "only a person carries this fix out"}}
	}
	do.ScratchDisks, do.SaveDisks = do.ScratchDisks || flags.scratch, do.SaveDisks || flags.save
	does := duty.Verdict{State: duty.Idle, Until: now, Expires: now.Add(time.Hour)}
	if kind := inventory.Kind(f.Resource.Kind); f.Confidence == finding.Low && (kind == inventory.KindEndpoint || kind == inventory.KindNotebook) {
		does = duty.Verdict{Why: "the evidence is weak: " + f.Because}
	}
	for i := range kept {
		at := slices.IndexFunc(kept[i].Resources, func(k view.KeptResource) bool { return k.Ref == daemon.RefOf(f.Resource) })
		if at < 0 {
			continue
		}
		listed := kept[i].Resources[at].Priced(cfg.Tags)
		if refusal := action.Refuse(action.Proposal{Source: round.FindingSource(f.ID), Resource: listed.Resource, Do: do, Mode: policy.Enforce, Governed: true, ByPerson: true,
			Condition: usage.True, ReadAt: now, Class: "finding", Grace: time.Minute, Duty: &does, Hourly: listed.Hourly}, action.Item{}, now, nil); refusal != nil {
			return []view.Refusal{{Rule: refusal.Rule, Why: refusal.Why}}
		}
	}
	return []view.Refusal{}
}
