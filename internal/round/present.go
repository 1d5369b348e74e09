package round

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// presence is what a machine does now; a machine of a gang does what the gang does.
type presence struct {
	duty *duty.Verdict
	gang []inventory.Ref // the others
	// missing says that machines of the gang may not have been seen.
	missing bool
}

// gangID names a gang, whose machines lie in one account; false where there is none.
func gangID(r *inventory.Resource) (string, bool) {
	return r.Cloud + "/" + r.Account + "/" + r.Gang, r.Gang != "" && measurable(r.Kind)
}

// present judges what every machine does now. Machines that rest for good, because they
// are stopped or on their way there, have no part in their gang; one that begins to
// run, or whose state nobody knows, has. Where not all of an account's machines could
// be read, some of a gang may be missing, and what it does is unknown.
func present(o *Observation, t duty.Thresholds, now time.Time) map[inventory.Ref]presence {
	out := map[inventory.Ref]presence{}
	gangs := map[string][]inventory.Ref{}
	missing := map[string]bool{}
	for _, r := range o.Resources {
		if !measurable(r.Kind) {
			continue
		}
		ref, w := r.Ref(), o.Windows[r.Ref()]
		if w != nil {
			if w.GPUMemory == 0 {
				w.GPUMemory = float64(r.Size.GPUMemory.Or(0))
			}
			w.Launched = r.CreatedAt
		}
		id, inGang := gangID(r)
		switch {
		case r.State == inventory.StateRunning:
			v := duty.Now(w, gpus(r), now, t)
			out[ref] = presence{duty: &v}
		case inGang && (r.State == inventory.StatePending || r.State == inventory.StateUnknown):
			out[ref] = presence{duty: &duty.Verdict{Why: "nobody knows what " + r.ID + " does, which is only starting"}}
		default:
			continue
		}
		if inGang {
			gangs[id] = append(gangs[id], ref)
			missing[id] = missing[id] || unreadIn(o.Unread, r.Account, r.Kind)
		}
	}
	for id, members := range gangs {
		if len(members) < 2 && !missing[id] {
			continue
		}
		verdicts := make([]duty.Verdict, 0, len(members)+1)
		for _, ref := range members {
			verdicts = append(verdicts, *out[ref].duty)
		}
		if missing[id] {
			verdicts = append(verdicts, duty.Verdict{Why: fmt.Sprintf("%d machines of it were seen, and not every region could be read", len(members))})
		}
		whole := duty.Gang(verdicts)
		for i, ref := range members {
			others := append(append([]inventory.Ref{}, members[:i]...), members[i+1:]...)
			out[ref] = presence{duty: &whole, gang: others, missing: missing[id]}
		}
	}
	return out
}

// unreadIn says whether a kind could not be listed somewhere in an account.
func unreadIn(unread map[string]bool, account string, kind inventory.Kind) bool {
	for key, yes := range unread {
		if yes && strings.HasPrefix(key, account+"/") && strings.HasSuffix(key, "/"+string(kind)) {
			return true
		}
	}
	return false
}
