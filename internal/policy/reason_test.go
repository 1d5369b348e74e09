package policy_test

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/policy"
)

// TestNormalizeReason checks that varying values do not make reasons different.
func TestNormalizeReason(t *testing.T) {
	for why, want := range map[string]string{
		`when: duty.lasting >= duration("5m") is false: duty.lasting is 2m13s`:                                                                             `when: duty.lasting >= duration("5m") is false`,
		`when: duty.state in ["idle", "held"] is false: duty.state is "busy"`:                                                                              `when: duty.state is busy`,
		`when: duty.why.contains("held") is false: duty.why is "it was launched 4m 38s ago"`:                                                               `when: duty.why is it was launched …m …s ago`,
		`when: duty.state is unknown: GPU 3: its newest sample is too old; duty.lasting is unknown: GPU 3: its newest sample is too old`:                   `when: duty is unknown: its newest sample is too old`,
		`when: duty.state is unknown: GPU 0:12: samples cover 72% of the time since it rests, duty.lasting is unknown: GPU 0:12: samples cover 72% of the`: `when: duty is unknown: samples cover …% of the time since it rests`,
		`when: duty.lasting is unknown: 7 of 8 GPUs were measured`:                                                                                         `when: duty is unknown: 7 of 8 GPUs were measured`,
		`when: resource.age is unknown: the time of its creation, or launch, is unknown`:                                                                   `when: resource.age is unknown: the time of its creation, or launch, is unknown`,
		`where: resource.tags.team == "vision" is false: tag team is "audio"`:                                                                              `where: tag team is audio`,
		`schedule: it is Thu 1 Jan 01:00, on until Fri 2 Jan 00:31`:                                                                                        `schedule: not due`,
		`select: lifetime is persistent, kind is node`:                                                                                                     `select: lifetime is persistent, kind is node`,
		`unknown`: `unknown`,
	} {
		if got := policy.NormalizeReason(why); got != want {
			t.Errorf("%s becomes %q, want %q", why, got, want)
		}
	}
}
