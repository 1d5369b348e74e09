package price_test

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/price"
)

func TestSizeFlexibleByFamilyAndSize(t *testing.T) {
	for machineType, want := range map[string]bool{
		"p3.8xlarge": true, "m7i.large": true, "trn1.2xlarge": true, "u-6tb1.112xlarge": true, "t3.nano": true,
		// of an unknown factor
		"m9.20xlarge": true,
		"g5.xlarge":   false, "g6e.12xlarge": false, "p5.48xlarge": false, "inf2.xlarge": false, // excluded families
		"m5.metal": false, "i4i.metal-24xl": false, // no factor
		"ml.p3.2xlarge": false, "db.m5.large": false, // other services
		"a2-highgpu-1g": false, "compute": false, "box.large": false,
	} {
		if got := price.SizeFlexible(machineType); got != want {
			t.Errorf("%s: got %v, want %v", machineType, got, want)
		}
	}
}

// TestSizeFactorsScaleWithSize checks that from xlarge up the factor is 8 per xlarge (32
// quarters).
func TestSizeFactorsScaleWithSize(t *testing.T) {
	for machineType, quarters := range map[string]int64{
		"t3.nano": 1, "m5.large": 16, "m5.xlarge": 32, "m5.12xlarge": 12 * 32, "c5.18xlarge": 18 * 32,
		"u-6tb1.56xlarge": 56 * 32, "m5.metal": 0, "m5": 0,
	} {
		if got := price.SizeFactor(machineType); got != quarters {
			t.Errorf("%s: got %d quarters, want %d", machineType, got, quarters)
		}
	}
}
