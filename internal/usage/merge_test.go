package usage

import (
	"testing"
	"time"
)

func TestMerge(t *testing.T) {
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	to := from.Add(24 * time.Hour)
	window := func(source string, step time.Duration) *Window { return NewWindow(from, to, step, source, nil) }
	point := func(v float64) Point { return Point{Time: from.Add(23 * time.Hour), Mean: v, Max: v} }

	cloud := window("cloudwatch", time.Hour)
	cloud.Add("GPU-1", GPUUtil, point(90))
	cloud.Add("", CPUUtil, point(3))
	cloud.Add("", NetBytes, point(7))

	recorded := window("recorded", time.Minute)
	recorded.Add("0", GPUUtil, point(1))
	recorded.Add("", CPUUtil, point(50))
	if !recorded.Merge(cloud) {
		t.Fatal("windows over the same time did not merge")
	}
	if len(recorded.GPUs) != 1 || recorded.GPUs[0].Name != "0" {
		t.Errorf("GPUs after the merge: %v, want only the recorded one", recorded.GPUs)
	}
	if v, _ := recorded.Machine.Stats(CPUUtil).Mean(); v != 50 {
		t.Errorf("CPU is %v, want the recorded 50", v)
	}
	net := recorded.Machine.Stats(NetBytes)
	if v, _ := net.Mean(); v != 7 || recorded.SourceOf(net) != "cloudwatch" {
		t.Errorf("network is %v from %s, want 7 from cloudwatch", v, recorded.SourceOf(net))
	}
	// Each signal stays fresh by its own step.
	if !recorded.Fresh(net, to) || recorded.Fresh(recorded.Machine.Stats(CPUUtil), to) {
		t.Error("an hour-old sample is fresh at a step of an hour, not at one of a minute")
	}

	cloud.Launched = from.Add(time.Hour)
	if recorded.Merge(cloud); !recorded.Launched.Equal(cloud.Launched) {
		t.Errorf("launched at %s, want what the other knows", recorded.Launched)
	}
	cloud.Launched = from
	if recorded.Merge(cloud); recorded.Launched.Equal(from) {
		t.Error("the launch that was known before the merge is lost")
	}

	onlyCPU := window("recorded", time.Minute)
	onlyCPU.Add("", CPUUtil, point(50))
	onlyCPU.Merge(cloud)
	if len(onlyCPU.GPUs) != 1 || onlyCPU.GPUs[0].Name != "GPU-1" {
		t.Errorf("GPUs after the merge: %v, want the account's", onlyCPU.GPUs)
	}

	shifted := NewWindow(from.Add(time.Hour), to, time.Hour, "recorded", nil)
	if shifted.Merge(cloud) || shifted.Machine.Stats(CPUUtil) != nil {
		t.Error("windows over different times merged")
	}
}
