package action

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// LostDisk is a disk whose content an action destroys, or would destroy.
type LostDisk struct {
	// Device names it: "vol-0abc (/dev/xvda)", "2 instance-store disks".
	Device string
	// GB is its size in 10^9 bytes; 0 is unknown.
	GB int64
}

// String returns "2 instance-store disks, 900 GB".
func (l LostDisk) String() string {
	if l.GB == 0 {
		return l.Device
	}
	return fmt.Sprintf("%s, %d GB", l.Device, l.GB)
}

// LostDisks returns the disks of a machine whose content an action destroys: instance-store disks,
// and those deleted with the machine that no snapshot saves.
func LostDisks(r *inventory.Resource, do policy.Do) []LostDisk {
	lost, _ := classifyDisks(r, do)
	return lost
}

// classifyDisks returns the disks that an action destroys, and those of them not declared scratch.
// Unknown disks are in neither: the provider is asked.
func classifyDisks(r *inventory.Resource, do policy.Do) (lost, undeclared []LostDisk) {
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
		lost = append(lost, LostDisk{Device: name, GB: gb})
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
		l := LostDisk{Device: d.VolumeID}
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

// unsavedDiskRefusal protects the content of disks that are deleted with the machine.
func unsavedDiskRefusal(c *ruleInput) string {
	_, undeclared := classifyDisks(c.Resource, c.Do)
	if len(undeclared) == 0 || c.assume.NoDisks {
		return ""
	}
	scratch, save := fmt.Sprintf("disks in the policy, instance_store in governance, the tag %s=scratch",
		inventory.TagDisks), ", or have them saved"
	if c.ByPerson {
		scratch, save = "--scratch-disks", ", or have them saved (--save-disks)"
	}
	if c.Do.Verb != policy.Terminate { // only termination takes snapshots first
		save = fmt.Sprintf("; %s takes no snapshots, so save what matters by hand first", c.Do.Verb)
	}
	return fmt.Sprintf("%s would be lost: declare them scratch (%s)%s", diskList(undeclared), scratch, save)
}

// diskList joins disks for people.
func diskList(disks []LostDisk) string {
	words := make([]string, len(disks))
	for i, d := range disks {
		words[i] = d.String()
	}
	return strings.Join(words, "; ")
}

// ruleUnsavedDisk is the refusal that the owner of a machine can lift.
const ruleUnsavedDisk = "unsaved-disk"

// askConsent refuses an item because of its disks, and asks its owners once to accept the loss. The
// item stays in the first phase, so that they are asked only once.
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
		accepted, err := s.sendToAll(ctx, p.Notify, m)
		if len(accepted) == 0 {
			refusal.Why += fmt.Sprintf("; no request for consent was delivered: %v", err)
			return s.refuse(ctx, it, refusal)
		}
		it.Alarm = why
		if _, err = s.save(ctx, it,
			s.entry(it, &p, EventAsked,
				"consent to lose "+diskList(m.LostDisks)+" was asked of "+strings.Join(accepted,
					", "))); err != nil {
			return err
		}
	}
	s.reportItem(it, Line{Result: ResultRefused, Rule: refusal.Rule, Why: why})
	return nil
}
