package sessionfile

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/spec"
)

func pet() Machine {
	return Machine{
		ID: "i-0f3a", Name: "dev-box", Seen: "the scan of 2026-11-22", Type: "g5.12xlarge", Region: "us-east-1",
		Image: "ami-0abc", DiskGiB: 200,
		Owner: inventory.Owner{Team: "vision", User: "ana"}, Purpose: inventory.Experimentation,
		Hourly: inventory.Known(5672 * money.USD / 1000), Doing: "idle since 2026-11-16 08:00 UTC"}
}

// TestWhole checks what a file says, line by line, of a machine of which all is known.
func TestWhole(t *testing.T) {
	p95, peak, hourly, saving := 11.6, 9.84, money.Known(5672*money.USD/1000), money.Known(340604*money.Cent)
	size := &rightsize.Resource{
		Name: "dev-box", Type: "g5.12xlarge", Figures: rightsize.Figures{
			Verdict: "overprovisioned", UtilP95: &p95, MemoryPeakGiB: &peak, GPUs: 4,
			GPUsUsedMax: 1, HourlyUSD: hourly,
			Fits: []rightsize.Fit{
				{
					Type: "g2-standard-4", Cloud: "gcp", Region: "us-central1", HourlyUSD: 10 * money.Cent,
					SavingUSD: saving,
				},
				{
					Type: "g5.xlarge", Cloud: "aws", Region: "us-east-1", Accelerator: "A10G", GPUs: 1,
					HourlyUSD: 1006 * money.USD / 1000, SavingUSD: saving, Against: []string{"3 fewer GPUs"},
				},
			}}}
	from := time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)
	habit := &Habit{
		Trace: "gpus.csv", From: from, To: from.AddDate(0, 0, 21), Wait: 22 * time.Minute,
		Idle:         Idle(22 * time.Minute),
		MachineHours: 504, IdleHours: 380, SessionHours: 144, RestartHours: 2, Launches: 24,
		CostUSD: money.Known(285869 * money.Cent), SessionUSD: money.Known(82811 * money.Cent)}
	f, err := New(pet(), size, habit, Options{Lease: 4 * time.Hour, Idle: 30 * time.Minute, MaxLease: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const want = `# yaml-language-server: $schema=https://raw.githubusercontent.com/curfew-dev/curfew/main/schemas/session.v1.json
# A session instead of dev-box: g5.12xlarge in us-east-1, as the scan of 2026-11-22 has it.
# Kept on, it costs $5.67 an hour at list price, $4,141 a month.
# It was idle since 2026-11-16 08:00 UTC then.
# gpus.csv covers 21d of it, from 2026-10-05 to 2026-10-26. It did nothing for 15d 20h.
# As sessions it would have run for 6d 2h in 24 sessions, 2h of starts included: $828 instead of $2,859.
apiVersion: curfew.session/v1
name: dev-box
purpose: experimentation
owner: {team: vision, user: ana}
# Measured: 1 of 4 GPUs used, 12% of a GPU at p95, at most 9.8 GiB of its memory (overprovisioned).
# g5.xlarge (1 × A10G) fits that at $1.01 an hour, where g5.12xlarge costs $5.67: $3,406 less a month if it is kept on.
# Against it: 3 fewer GPUs.
resources: {instance_type: g5.xlarge}
regions: [us-east-1]
disk: 200GiB
# The image that it was started from. What was installed since is not in it: put that under setup.
image: ami-0abc
# Sessions would have run for 6h on average; the lease is about twice that, and ` + "`curfew extend`" + ` prolongs it.
lease: 12h
# In hindsight an end after 22m without work would have saved most; proposed are 10m to 2h, in steps of 5m.
idle: 25m
# This folder is saved while the session runs and before it ends, and is there again at the next start.
work: {dir: ~/work}
`
	if got := string(f.Text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s := f.Spec
	if s.Kind != spec.Session || s.Resources.InstanceType != "g5.xlarge" || s.DiskGiB != 200 ||
		s.Idle != 25*time.Minute || s.Lease != 12*time.Hour || s.Owner.User != "ana" {
		t.Errorf("it reads as %+v", s)
	}
}

// TestUnknown checks what a file says where little is known: no guess, and no dollars.
func TestUnknown(t *testing.T) {
	f, err := New(Machine{ID: "i-1", Type: "g6.2xlarge", Seen: "the trace"},
		&rightsize.Resource{Figures: rightsize.Figures{Verdict: "unknown", Why: "samples for 1 of 2 GPUs only"}}, nil,
		Options{Idle: 30 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Its price is not known.\n", "# No tag names its owner", "(samples for 1 of 2 GPUs only)",
		"resources: {instance_type: g6.2xlarge}\n", "lease: 4h\n", "idle: 30m\n",
	} {
		if !strings.Contains(string(f.Text), want) {
			t.Errorf("no %q in\n%s", want, f.Text)
		}
	}
	if strings.Contains(string(f.Text), "$0") || f.Spec.Owner != (inventory.Owner{}) {
		t.Errorf("it guesses:\n%s", f.Text)
	}
	if _, err := New(Machine{ID: "i-1"}, nil, nil, Options{}); err == nil || !strings.Contains(err.Error(), "--type") {
		t.Errorf("without a type: %v", err)
	}
}

// TestSmaller checks that only a cheaper type of the same cloud and region takes the place of a
// machine's own.
func TestSmaller(t *testing.T) {
	save, lose := money.Known(10*money.USD), money.Known(-3*money.USD)
	for _, c := range []struct {
		name string
		fits []rightsize.Fit
		want string
	}{
		{"none", nil, "g5.12xlarge"},
		{
			"of another cloud",
			[]rightsize.Fit{{Type: "x", Cloud: "gcp", Region: "us-east-1", HourlyUSD: 1 * money.USD, SavingUSD: save}},
			"g5.12xlarge",
		},
		{
			"of another region",
			[]rightsize.Fit{
				{Type: "g5.xlarge", Cloud: "aws", Region: "eu-west-1", HourlyUSD: 1 * money.USD, SavingUSD: save},
			},
			"g5.12xlarge",
		},
		{
			"no cheaper one",
			[]rightsize.Fit{
				{Type: "g5.24xlarge", Cloud: "aws", Region: "us-east-1", HourlyUSD: 8 * money.USD, SavingUSD: lose},
			},
			"g5.12xlarge",
		},
		{
			"its saving is unknown",
			[]rightsize.Fit{
				{Type: "g5.xlarge", Cloud: "aws", Region: "us-east-1", HourlyUSD: 1 * money.USD},
			}, "g5.12xlarge",
		},
		{
			"the first that is cheaper",
			[]rightsize.Fit{
				{Type: "g5.xlarge", Cloud: "aws", Region: "us-east-1", HourlyUSD: 1 * money.USD, SavingUSD: save},
				{Type: "g5.2xlarge", Cloud: "aws", Region: "us-east-1", HourlyUSD: 120 * money.Cent, SavingUSD: save},
			},
			"g5.xlarge",
		},
	} {
		f, err := New(pet(), &rightsize.Resource{
			Figures: rightsize.Figures{Verdict: "overprovisioned", Fits: c.fits},
		}, nil,
			Options{})
		if err != nil || f.Spec.Resources.InstanceType != c.want {
			t.Errorf("%s: %v, %v", c.name, f, err)
		}
	}
}

// TestIdleAndLease hold the bounds of what is proposed.
func TestIdleAndLease(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		0: 10 * time.Minute, 10*time.Minute + time.Second: 15 * time.Minute, 31 * time.Minute: 35 * time.Minute,
		5 * time.Hour: 2 * time.Hour,
	} {
		if got := Idle(wait); got != want {
			t.Errorf("after %s it proposes %s, want %s", wait, got, want)
		}
	}
	for _, c := range []struct{ mean, most, want time.Duration }{
		{time.Minute, 0, time.Hour}, {3 * time.Hour, 0, 6 * time.Hour}, {3*time.Hour + time.Minute, 0, 7 * time.Hour},
		{48 * time.Hour, 24 * time.Hour, 24 * time.Hour},
	} {
		if got := Lease(c.mean, c.most); got != c.want {
			t.Errorf("of %s on average it proposes %s, want %s", c.mean, got, c.want)
		}
	}
}

// TestWhateverItIsCalled checks that a file can be read and says what it was given, whatever tags,
// names and comments hold.
func TestWhateverItIsCalled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := pet()
		m.Name, m.ID = rapid.String().Draw(t, "name"), rapid.String().Draw(t, "id")
		m.Seen, m.Doing = rapid.String().Draw(t, "seen"), rapid.String().Draw(t, "doing")
		m.Owner = inventory.Owner{
			Team: rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "team"),
			User: rapid.SampledFrom([]string{
				"ana", "no", "0x1", "a: b", "# x", "'", `"`, "{", "~", "1e3", "Zoë", "null",
			}).Draw(
				t, "user"),
		}
		f, err := New(m, nil, nil, Options{})
		if err != nil {
			t.Fatalf("%v\n", err)
		}
		m.Owner.Team = strings.TrimSpace(m.Owner.Team)
		if f.Spec.Owner != m.Owner {
			t.Fatalf("the owner is %+v, was %+v:\n%s", f.Spec.Owner, m.Owner, f.Text)
		}
	})
}
