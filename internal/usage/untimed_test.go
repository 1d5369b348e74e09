package usage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

const untimedSMI = "index, utilization.gpu [%], memory.used [MiB]\n" +
	"0, 37 %, 1024 MiB\n1, 0 %, 3 MiB\n" +
	"0, 40 %, 1024 MiB\n" + // GPU 1 did not respond
	"0, 41 %, 1024 MiB\n1, 5 %, 3 MiB\n"

// TestDatesSMIByStep checks that a repeated GPU starts the next sample, one step later.
func TestDatesSMIByStep(t *testing.T) {
	first := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	f := usage.Format{Name: "smi.csv", Resource: "box", Step: 5 * time.Second, First: first}
	var got []string
	sum, err := usage.Read(t.Context(), strings.NewReader(untimedSMI), f, func(s *usage.Sample) error {
		got = append(got, s.GPU+" "+s.Time.Sub(first).String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "0 0s, 1 0s, 0 5s, 0 10s, 1 10s"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	if !sum.Untimed || !sum.First.Equal(first) || !sum.Last.Equal(first.Add(10*time.Second)) {
		t.Errorf("the summary is %+v", sum)
	}
}

func TestRefusesUntimedSMIWithoutStepOrIndex(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		step time.Duration
		want string
	}{
		"no step":  {untimedSMI, 0, "--step 5s"},
		"no index": {"utilization.gpu [%]\n37 %\n38 %\n", time.Second, "neither timestamp nor index"},
	} {
		f := usage.Format{Name: "smi.csv", Resource: "box", Step: tt.step}
		_, err := usage.Read(t.Context(), strings.NewReader(tt.text), f, func(*usage.Sample) error { return nil })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
