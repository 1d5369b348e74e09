package aws

import "testing"

func TestPrefixKinds(t *testing.T) {
	for name, want := range map[string]prefixKind{
		"imagenet/": dataPrefix, "checkpoints/": checkpointPrefix, "llama-ckpt/": checkpointPrefix,
		"Experiments/": experimentPrefix,
		"exp_2024/":    experimentPrefix, "expense-reports/": dataPrefix, "": dataPrefix, "runs/": experimentPrefix,
		"trainruns/": dataPrefix,
	} {
		if got := kindOf(name); got != want {
			t.Errorf("kindOf(%q) = %d, want %d", name, got, want)
		}
	}
}

// TestGP2Performance compares the performance of gp2 volumes with the included one of gp3.
func TestGP2Performance(t *testing.T) {
	for _, tc := range []struct{ gib, iops, mibps int64 }{
		{1, 0, 0}, {333, 0, 0}, {334, 0, 125}, {1000, 0, 125}, {1001, 3, 125},
		{5334, 13_000, 125}, {16_384, 13_000, 125},
	} {
		if iops, mibps := gp2Performance(tc.gib); iops != tc.iops || mibps != tc.mibps {
			t.Errorf("%d GiB: %d IOPS and %d MiB/s more, want %d and %d", tc.gib, iops, mibps, tc.iops, tc.mibps)
		}
	}
}
