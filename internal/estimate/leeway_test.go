package estimate

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

const sessionFile = "apiVersion: curfew.session/v1\nname: nb\nlease: 10h\nregions: [us-east-1]\n"

func parseSession(t *testing.T, text string) *spec.Spec {
	t.Helper()
	s, err := spec.Parse("session.yaml", []byte(sessionFile+text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLeewayRaisesP95Only raises the p95 to the most expensive alternative within reach and leaves the p50; the
// lines add up.
func TestLeewayRaisesP95Only(t *testing.T) {
	for _, percent := range []int64{0, 50, 1000} {
		e, err := New(parseSession(t, "resources: {cpus: 4}\n"), testBook(t), Params{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		was := *e
		if err := e.Leeway(percent); err != nil {
			t.Fatal(err)
		}
		most := was.Hourly
		for _, a := range was.Alternatives {
			if limit, _ := was.Hourly.Mul(100+percent, 100); a.Hourly <= limit && a.Unknown == 0 && a.Hourly > most {
				most = a.Hourly
			}
		}
		p50, p95, err := sum(e.Lines)
		if err != nil || p50 != e.P50 || p95 != e.P95 {
			t.Errorf("%d%%: the lines come to %s and %s, %v; want %s and %s", percent, p50, p95, err, e.P50, e.P95)
		}
		if e.P50 != was.P50 || e.Hourly != most || (percent == 0) != (e.P95 == was.P95) ||
			!strings.Contains(e.Title, e.P95.Dollars()+" (p95)") {
			t.Errorf("%d%%: %s to %s, %s an hour, want %s; %s", percent, e.P50, e.P95, e.Hourly, most, e.Title)
		}
	}
}

// TestTypesByCPUs: machines without a GPU and with as many CPUs, or the fewest more.
func TestTypesByCPUs(t *testing.T) {
	book := testBook(t)
	for _, tc := range []struct{ wanted, has int }{{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {33, 36}} {
		s := parseSession(t, "resources: {cpus: 2}\n")
		s.Resources.CPUs = tc.wanted
		all, err := Types(s, book)
		if err != nil || len(all) == 0 {
			t.Fatalf("%d CPUs: %v", tc.wanted, err)
		}
		for _, m := range all {
			if m.VCPUs != tc.has || m.Accelerator != "" || m.Arch != "x86_64" || m.Cloud != "aws" {
				t.Errorf("%d CPUs: %+v", tc.wanted, m)
			}
		}
	}
	s := parseSession(t, "resources: {cpus: 2}\n")
	s.Resources.CPUs = 4000
	if all, err := Types(s, book); err == nil {
		t.Errorf("4000 CPUs: %v", all)
	}
	gpus, err := Types(parseSession(t, "resources: {gpus: \"L4:1\"}\n"), book)
	if err != nil || !slices.ContainsFunc(gpus, func(m price.Machine) bool { return m.Type == "g6.xlarge" }) {
		t.Errorf("an L4: %v, %v", gpus, err)
	}
}
