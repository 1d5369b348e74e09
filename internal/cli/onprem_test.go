package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLedgerChargesOnPremisesMachines scans twice, ten hours apart: the idle machine that
// is paid for since January has wasted ten hours at its rate, so has the one without a
// date that was measured all the time, and of the one without dates or measurements only
// the time is charged that the scans vouch for.
func TestLedgerChargesOnPremisesMachines(t *testing.T) {
	l := &ladderTest{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)}
	l.write("curfew.yaml", `machines:
  - {name: dgx, gpu: H100, gpus: 2, since: 2026-01-15, tags: {team: vision}}
  - {name: guest, gpu: H100, gpus: 2, tags: {team: guests}}
  - {name: stranger, gpu: H100, gpus: 2, tags: {team: strangers}}
  - {name: half, gpu: H100, gpus: 3, since: 2026-01-15, tags: {team: lab}}
  - {name: old, gpu: K80, gpus: 1, since: 2026-01-15, tags: {team: attic}}
rates: {gpu_hour: {H100-80GB: 2.10}, source: finance, as_of: 2026-01-01}
`)
	var samples strings.Builder
	samples.WriteString("resource,time,gpu,gpu_util,mem_used_bytes,cpu_util,net_bytes\n")
	for at := l.now.Add(-48 * time.Hour); at.Before(l.now.Add(10 * time.Hour)); at = at.Add(5 * time.Minute) {
		for gpu := range 2 {
			for _, name := range []string{"dgx", "guest", "half"} {
				fmt.Fprintf(&samples, "%s,%d,%d,0,0,1,0\n", name, at.Unix(), gpu)
			}
		}
	}
	l.write("gpus.csv", samples.String())
	scan := func() { l.curfew(ExitDone, "scan", "--cloud", "onprem", "--usage", "gpus.csv", "--window", "47h") }
	scan()
	l.jump(10 * time.Hour)
	scan()
	for team, want := range map[string]struct{ total, wasted, cannot string }{
		"vision": {"42.00", "42.00", "0.00"}, // 10 h × 2 × $2.10
		"guests": {"42.00", "42.00", "0.00"}, // it was measured, and so it ran
		"lab":    {"63.00", "0.00", "63.00"}, // one of its three GPUs was not measured
		"attic":  {"0.00", "0.00", "0.00"},   // no rate: shown as not known, never as a price
	} {
		got := l.costs("--where", "team="+team).Total
		if got.Total != want.total || got.Wasted != want.wasted || got.Cannot != want.cannot {
			t.Errorf("%s: %+v, want %+v", team, got, want)
		}
	}
	if got := l.costs("--where", "team=attic").Total; got.Unknown != 36000 {
		t.Errorf("ten hours without a rate are %d s of unknown cost", got.Unknown)
	}
	if got := l.costs("--where", "team=strangers").Total; got.Unknown == 0 ||
		amount(t, got.Total) >= amount(t, "42.00") {
		t.Errorf("no source says that the stranger was there throughout, and it has %+v", got)
	}
}
