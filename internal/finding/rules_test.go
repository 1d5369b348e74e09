package finding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// requiredTags are the tags that the tests require of each resource.
var requiredTags = []string{"team", "project", "environment", "cost-center"}

// TestHasEveryInventoryRule checks that every rule that an inventory can decide exists in its step;
// the others need a bill.
func TestHasEveryInventoryRule(t *testing.T) {
	want := map[Step]string{
		StepMeasure: "tag-missing telemetry-missing",
		StepIdle: "gpu-instance-idle gpu-held instance-idle instance-overdue instance-stopped endpoint-idle " +
			"notebook-idle " +
			"database-idle cache-idle table-idle vpc-endpoint-idle " +
			"load-balancer-idle nat-gateway-idle address-unused training-overrun training-stalled always-on",
		StepStorage: "volume-unattached volume-gp2 snapshot-old image-unused bucket-no-lifecycle bucket-multipart " +
			"bucket-noncurrent " +
			"checkpoint-stale log-group-no-retention repository-no-lifecycle repository-untagged",
		StepEgress: "compute-away-from-data",
		StepSpot:   "training-on-demand",
		StepRightsize: "cpu-underutilized gpu-underutilized gpu-count-over gpu-memory-over inference-overprovisioned " +
			"inference-saturated " +
			"autoscaling-sticky database-oversized table-overprovisioned",
		StepModel:  "model-optimize",
		StepCommit: "generation-old commitment-unused reservation-unused cluster-extended-support",
	}
	got := map[string]Step{}
	for _, r := range slices.Concat([]Rule{tagRule}, rules, registered) {
		got[r.ID] = r.Step
	}
	wanted := map[string]Step{}
	for step, ids := range want {
		for _, id := range strings.Fields(ids) {
			wanted[id] = step
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestUnusableArguments(t *testing.T) {
	ok := &Account{Now: now}
	for _, tc := range []struct {
		name       string
		account    *Account
		thresholds Thresholds
		want       string
	}{
		{"no account", nil, Thresholds{}, "no time to judge at"},
		{"no time", &Account{}, Thresholds{}, "no time to judge at"},
		{"a share over one", ok, Thresholds{Coverage: 1.5}, "coverage_share"},
		{"a negative age", ok, Thresholds{SnapshotAge: -time.Hour}, "snapshot_age"},
		{"negative days", ok, Thresholds{ExpireDays: -1}, "negative"},
		{"a target over 100%", ok, Thresholds{InferenceTarget: 101}, "inference_target_pct"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Evaluate(tc.account, tc.thresholds, nil); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("Evaluate: %v, want an error with %q", err, tc.want)
			}
		})
	}
	if found, err := Evaluate(ok, Thresholds{}, requiredTags); err != nil || len(found) != 0 {
		t.Errorf("an empty account gives %v, %v", found, err)
	}
}

// TestZeroThresholdsAreDefaults checks that an omitted threshold never means "0 days".
func TestZeroThresholdsAreDefaults(t *testing.T) {
	got, err := Thresholds{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultThresholds(), got); diff != "" {
		t.Errorf("zero thresholds (-default +got):\n%s", diff)
	}
	changed, err := Thresholds{SnapshotAge: 30 * day}.withDefaults()
	if err != nil || changed.SnapshotAge != 30*day || changed.StoppedAge != DefaultThresholds().StoppedAge {
		t.Errorf("one threshold changed: %+v, %v", changed, err)
	}
}

// TestDuplicateResourceCountsOnce checks that a resource on two pages of a listing counts once.
func TestDuplicateResourceCountsOnce(t *testing.T) {
	f := newFixture(t)
	f.is(f.running("i-1", "m5.large"), duty.Idle)
	f.running("i-1", "m5.large")
	if got := show(f.evaluate()); len(got) != 1 || got[0] != "instance-idle i-1 70.08" {
		t.Errorf("found %v, want one finding", got)
	}
}

// TestWithoutPrices checks that without a price book everything is listed and nothing costs zero.
func TestWithoutPrices(t *testing.T) {
	f := newFixture(t)
	f.is(f.running("i-1", "m5.large"), duty.Idle).Size.GPUs = inventory.Known(0)
	f.volume("vol-1", "gp2", 100, func(r *inventory.Resource, d *inventory.Volume) {
		r.State, d.AttachedTo = inventory.StateInUse, []string{"i-1"}
	})
	f.snapshot("snap-1", "vol-1", 100*day)
	f.bucket("data")
	f.Prices, f.Charges = nil, nil
	found, err := Evaluate(&f.Account, Thresholds{}, requiredTags)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"bucket-no-lifecycle data ?", "instance-idle i-1 ?", "snapshot-old snap-1 ?", "volume-gp2 vol-1 ?",
	}
	if diff := cmp.Diff(want, show(found)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestRanking checks the order: known dollars, then bounds, then unmeasured findings.
func TestRanking(t *testing.T) {
	f := newFixture(t)
	f.is(f.running("i-small", "m5.large"), duty.Idle)
	f.is(f.running("i-large", "g6.2xlarge"), duty.Idle)
	f.is(f.running("i-unmeasured", "p4d.24xlarge"), duty.Unknown)
	f.bucket("data")
	var got []string
	for _, x := range f.evaluate() {
		got = append(got, x.Resource.ID)
	}
	if diff := cmp.Diff([]string{"i-large", "i-small", "data", "i-unmeasured"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// FuzzBucketOf checks that the bucket of an address has no slash and is part of the address.
func FuzzBucketOf(f *testing.F) {
	for _, s := range []string{"s3://data/imagenet", "s3://data", "s3://", "https://data", " s3://data/ ", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, ok := bucketOf(s)
		if ok && (name == "" || strings.Contains(name, "/") || !strings.Contains(s, name)) {
			t.Errorf("bucketOf(%q) = %q", s, name)
		}
	})
}
