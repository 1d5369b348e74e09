package usage

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestActivity(t *testing.T) {
	own := DefaultFloors()
	own[GPUUtil] = 0.2
	for _, tc := range []struct {
		name string
		a    Activity
		s    Signal
		v    float64
		want bool
	}{
		{"noise", Activity{}, GPUUtil, 0.9, false},
		{"at the floor", Activity{}, GPUUtil, 1, true},
		{"a configured floor", Activity{Floors: own}, GPUUtil, 0.3, true},
		{"a host at rest", Activity{}, CPUUtil, 4.9, false},
		{"a host at work", Activity{}, CPUUtil, 5, true},
		{"a trickle for a minute", Activity{}, NetBytes, 59e6, false},
		{"a stream for a minute", Activity{}, NetBytes, 60e6, true},
		{"a configured line", Activity{Network: 1e3}, NetBytes, 60e3, true},
		{"disks", Activity{}, DiskBytes, 60e6, false},
		{"disks that stream", Activity{}, DiskBytes, 600e6, true},
	} {
		if got := tc.v >= tc.a.Floor(tc.s, time.Minute); got != tc.want {
			t.Errorf("%s: it works is %v, want %v", tc.name, got, tc.want)
		}
	}
	if !slices.Equal(RestSignals(), ComputeSignals()[:2]) {
		t.Errorf("%v vouch, of %v", RestSignals(), ComputeSignals())
	}
}

// TestCompareGPUs checks that names have one order, with the instances of a GPU after it.
func TestCompareGPUs(t *testing.T) {
	names := []string{"0", "0:1", "0:2", "0:10", "2", "10", "10:1", "GPU-a", "GPU-a:1", "GPU-b", "MIG-0", "a:b"}
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.Permutation(names).Draw(t, "names")
		if slices.SortFunc(got, CompareGPUs); !slices.Equal(got, names) {
			t.Fatalf("got %q, want %q", got, names)
		}
	})
	for i, a := range names {
		for j, b := range names {
			if CompareGPUs(a, b) != cmp.Compare(i, j) {
				t.Errorf("%q against %q is %d", a, b, CompareGPUs(a, b))
			}
		}
	}
}
