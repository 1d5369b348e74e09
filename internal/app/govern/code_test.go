package govern_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/govern"
)

// TestJobHashCoversCode checks that the gate's hash of a job file covers the folder that the file
// names, without files that .curfewignore matches.
func TestJobHashCoversCode(t *testing.T) {
	req := apptest.Request(t, "{}\n")
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(req.Dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("job.yaml", "apiVersion: curfew.job/v1\nname: a\nresources: {gpus: L4}\nworkdir: src\nrun: python train.py\n"+
		"max_runtime: 1h\nregions: [us-east-1]\n")
	write("src/train.py", "print(1)\n")
	write("src/.curfewignore", "*.log\n")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	hash := func(code bool) string {
		t.Helper()
		e, err := govern.Estimate(t.Context(), req, cfg, "job.yaml", govern.EstimateOptions{Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return e.SpecHash
	}
	first, without := hash(true), hash(false)
	write("src/out.log", "epoch 1\n")
	if hash(true) != first || first == without {
		t.Errorf("the hash does not stand for the code: %s, %s, without code %s", first, hash(true), without)
	}
	write("src/train.py", "print(2)\n")
	if hash(true) == first || hash(false) != without {
		t.Error("edited code has the hash of the code before")
	}
}
