package usage

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestWriteReadRoundTrip checks that samples survive a round trip through every format.
func TestWriteReadRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		about := []*Description{
			{
				Kind: inventory.KindInstance, Lifetime: inventory.Ephemeral,
				Purpose: inventory.Training, Type: "p4d.24xlarge",
				GPUs:     inventory.Known(8),
				Launched: time.Date(2026, 7, 1, 0, 0, 9, 0, time.UTC), Team: "a \"b\"", Project: "c,d", User: "ana",
				Environment: "dev", Tags: map[string]string{"Name": "n;o=p", "x": "ü"}},
			{GPUs: inventory.Known(0)},
			{},
		}
		var want []*Sample
		for i := range rapid.IntRange(0, 30).Draw(t, "samples") {
			s := &Sample{
				Resource: rapid.SampledFrom([]string{"i-1", "i-2", "a, b"}).Draw(t, "resource"),
				GPU:      rapid.SampledFrom([]string{"", "0", "GPU-1:3"}).Draw(t, "gpu"),
				Time: start.Add(time.Duration(i)*time.Minute + time.Duration(rapid.IntRange(0, 999).Draw(t, "ms"))*
					time.Millisecond), Description: rapid.SampledFrom(about).Draw(t, "about")}
			for sig := range numSignals {
				if sig != MemTotal && rapid.Bool().Draw(t, sig.String()) {
					s.Set(sig, rapid.Float64Range(0, 1).Draw(t, "value"))
				}
			}
			want = append(want, s)
		}
		name := rapid.SampledFrom([]string{"t.parquet", "t.CSV", "t.csv.gz"}).Draw(t, "name")
		var file bytes.Buffer
		w, err := NewWriter(&file, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range want {
			if err := w.Write(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var wrote, got []string
		for _, s := range want {
			s.derive()
			wrote = append(wrote, sampleText(s))
		}
		_, err = Read(context.Background(), bytes.NewReader(file.Bytes()), Format{}, func(s *Sample) error {
			got = append(got, sampleText(s))
			return nil
		})
		if diff := cmp.Diff(wrote, got); err != nil || diff != "" {
			t.Fatalf("%s: %v (-written +read):\n%s", name, err, diff)
		}
	})
	if _, err := NewWriter(nil, "trace.json"); err == nil {
		t.Error("a trace of JSON is written")
	}
}
