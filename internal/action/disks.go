package action

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Loss is a disk whose content an action destroys, or would destroy.
type Loss struct {
	// Device is its name: "vol-0abc (/dev/xvda)", "2 instance-store disks".
	Device string
	// GB is its size in units of 10^9 bytes; 0 is unknown.
	GB int64
}

// String returns "2 instance-store disks, 900 GB".
func (l Loss) String() string {
	if l.GB == 0 {
		return l.Device
	}
	return fmt.Sprintf("%s, %d GB", l.Device, l.GB)
}

// Losses returns the disks of a machine whose content is gone once an action has ended it:
// instance-store disks, and those that are deleted with it and that no snapshot saves.
func Losses(r *inventory.Resource, do policy.Do) []Loss {
	lost, _ := disksOf(r, do)
	return lost
}

// disksOf returns what an action makes a machine lose, and which of it is not declared
// scratch. What is not known of a machine is in neither: its provider is asked.
func disksOf(r *inventory.Resource, do policy.Do) (lost, undeclared []Loss) {
	in := instance(r)
	if in == nil || !slices.Contains([]policy.Verb{policy.Stop, policy.Hibernate, policy.Terminate, policy.Scale},
		do.Verb) {
		return nil, nil
	}
	if gb := r.Size.InstanceStorageGB.Or(0); gb > 0 && r.State != inventory.StateStopped {
		name := "its instance-store disks"
		switch n := r.Size.InstanceDisks.Or(0); {
		case n == 1:
			name = "its instance-store disk"
		case n > 1:
			name = fmt.Sprintf("its %d instance-store disks", n)
		}
		lost = append(lost, Loss{Device: name, GB: gb})
		if !do.LosesInstanceStore() {
			undeclared = append(undeclared, lost[0])
		}
	}
	if do.Verb != policy.Terminate && do.Verb != policy.Scale || do.SaveDisks {
		return lost, undeclared
	}
	for _, d := range in.Disks {
		if !d.DeleteOnTermination {
			continue
		}
		l := Loss{Device: d.VolumeID}
		if d.Device != "" {
			l.Device += " (" + d.Device + ")"
		}
		if gib, known := d.SizeGiB.Get(); known {
			l.GB = (gib*(1<<30) + 999_999_999) / 1_000_000_000
		}
		lost = append(lost, l)
		if !do.MayLoseDisk(d.Root) {
			undeclared = append(undeclared, l)
		}
	}
	return lost, undeclared
}

// unsavedDisk protects what is on disks that end with the machine.
func unsavedDisk(c *ruleInput) string {
	_, undeclared := disksOf(c.Resource, c.Do)
	if len(undeclared) == 0 || c.assume.NoDisks {
		return ""
	}
	scratch, save := fmt.Sprintf("disks in the policy, instance_store in governance, the tag %s=scratch",
		inventory.TagDisks), ", or have them saved"
	if c.ByPerson {
		scratch, save = "--scratch-disks", ", or have them saved (--save-disks)"
	}
	if c.Do.Verb != policy.Terminate { // only that is preceded by snapshots
		save = fmt.Sprintf("; %s takes no snapshots, so save what matters by hand first", c.Do.Verb)
	}
	return fmt.Sprintf("%s would be lost: declare them scratch (%s)%s", listed(undeclared), scratch, save)
}

// listed joins disks for people.
func listed(disks []Loss) string {
	words := make([]string, len(disks))
	for i, d := range disks {
		words[i] = d.String()
	}
	return strings.Join(words, "; ")
}

// unsavedDiskRule names the refusal that the owner of a machine can lift.
const unsavedDiskRule = "unsaved-disk"

// askConsent refuses an item because of its disks, and asks its people once whether what
// is on them may be lost. The item stays on the first step, so that its people are asked only once.
func (s *pass) askConsent(ctx context.Context, it Item, p Proposal, refusal *Refusal) error {
	if !s.Enforce || s.report.Frozen != nil || it.Phase == Warned || p.ByPerson || p.Mode != policy.Enforce &&
		p.Mode != policy.Warn {
		return s.refuse(ctx, it, refusal)
	}
	why := refusal.Rule + ": " + refusal.Why
	if it.Alarm != why {
		m := s.message("notice", it, p)
		m.Because += "; but " + refusal.Why
		m.Consent = "curfew consent " + it.Ref.String() + " --reason TEXT"
		m.Know = strings.TrimPrefix(m.Know+"; nothing is done unless you consent to that loss: "+m.Consent, "; ")
		accepted, err := s.tell(ctx, p.Notify, m)
		if len(accepted) == 0 {
			refusal.Why += fmt.Sprintf("; no request for consent was delivered: %v", err)
			return s.refuse(ctx, it, refusal)
		}
		it.Alarm = why
		if _, err = s.save(ctx, it,
			s.entry(it, &p, EventAsked, "consent to lose "+listed(m.Loses)+" was asked of "+strings.Join(accepted,
				", "))); err != nil {
			return err
		}
	}
	s.say(it, Line{Result: ResultRefused, Rule: refusal.Rule, Why: why})
	return nil
}
