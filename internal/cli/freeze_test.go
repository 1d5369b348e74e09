package cli

import (
	"strings"
	"testing"
)

// A mistake in the configuration keeps no one from freezing, here or at a service; every other
// command refuses it.
func TestFreezeWithInvalidConfiguration(t *testing.T) {
	d := newDesktop(t)
	const wrong = gateConfig + "bogus: 1\nscan: {window: soon}\n"
	d.write("curfew.yaml", wrong)
	code, out, errs := d.run("freeze", "--reason", "an incident")
	if code != ExitDone || !strings.Contains(out, "Frozen") || !strings.Contains(errs, "read without bogus, scan") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := d.run("unfreeze", "--reason", "over"); code != ExitUsage ||
		!strings.Contains(errs, "scan.window") {
		t.Errorf("unfreeze: exit %d: %s", code, errs)
	}
	d.write("curfew.yaml", gateConfig)
	if code, out, errs := d.run("audit", "--what", "freeze"); code != ExitDone ||
		!strings.Contains(out, "an incident") {
		t.Errorf("the audit log: exit %d: %s%s", code, out, errs)
	}

	srv := serveState(t, t.TempDir(), d.dir+"/theirs", func() string { return "ana" }, d.clock, nil)
	srv.owned(t, d.dir+"/theirs", d.dir+"/none")
	d.write("curfew.yaml", "server: "+srv.URL+"\n"+wrong)
	got := d.giveAt(d.dir+"/none", 0, map[string]string{}, "freeze", "--reason", "at the service")
	if got.code != ExitDone || !strings.Contains(got.out, "Frozen") {
		t.Errorf("at a service: exit %d: %s%s", got.code, got.out, got.errs)
	}
	// A file that does not tell where the state is is not guessed.
	d.write("curfew.yaml", "database_url: [postgres://db/curfew]\n")
	if code, _, errs := d.run("freeze", "--reason", "x"); code != ExitUsage ||
		!strings.Contains(errs, "to freeze by hand") {
		t.Errorf("without a place: exit %d: %s", code, errs)
	}
}
