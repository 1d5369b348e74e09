package cli

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRefusesLargeFiles checks that no file that a command reads costs gigabytes or waits: it is
// refused with its name, line and limit before it is parsed.
func TestRefusesLargeFiles(t *testing.T) {
	d := newDesktop(t)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	d.write("deep.yaml", strings.Repeat("[", 200_000))
	var keys, laughs strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&keys, "key%d: v\n", i)
	}
	d.write("keys.yaml", keys.String())
	laughs.WriteString("a0: &a0 {x: y}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d {<<: [%s]}\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	d.write("aliases.yaml", laughs.String())
	d.write("deep.json", `{"format_version": "1.2", "terraform_version": "1.9", "planned_values": `+strings.Repeat("[",
		5_000)+strings.Repeat("]", 5_000)+"}")
	d.write("long.yaml", "name: "+strings.Repeat("a", 1<<20))
	var bomb strings.Builder
	packed := gzip.NewWriter(&bomb)
	for _, text := range []string{"resource,time,gpu_util\n", strings.Repeat(strings.Repeat(" ", 4096)+"\n", 160<<8)} {
		if _, err := packed.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	d.write("bomb.csv.gz", bomb.String())
	policies := filepath.Join(d.dir, "policies")
	if err := os.Mkdir(policies, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, pipe := range []string{filepath.Join(d.dir, "pipe"), filepath.Join(policies, "pipe.yaml")} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Skip(err)
		}
	}
	const endless = "read recorded usage /dev/zero: it is over 1 GiB; write it to a file first"
	const deep, wide, long = "deep.yaml:1:101: mappings and lists are more than 100 deep in one another",
		"keys.yaml:2001:8: a mapping has more than 2000 keys", "/dev/zero:1:1: the file is over 1 MiB"
	for _, tc := range []struct{ args, want string }{
		{"estimate deep.yaml", deep}, {"gate deep.yaml", deep}, {"policy check deep.yaml", deep},
		{"policy test deep.yaml", deep},
		{"gate job.yaml --votes deep.yaml", deep}, {"--config deep.yaml scan --demo", deep},
		{"backtest --policy deep.yaml --trace x.csv", deep},
		{"enforce --once --demo --policy deep.yaml", deep},
		{"estimate keys.yaml", wide}, {"policy check keys.yaml", wide}, {"--config keys.yaml budget", wide},
		{"estimate aliases.yaml", "more than 200000 values once aliases are followed"},
		{"policy check aliases.yaml", "aliases.yaml:1:5: an anchor or an alias"},
		{"--config aliases.yaml budget", "aliases.yaml:1:5: an anchor or an alias"},
		{"estimate deep.json", "objects and lists are more than 100 deep in one another"},
		{"estimate long.yaml", "long.yaml:1:1: the file is over 1 MiB"},
		{"estimate /dev/zero", long}, {"gate /dev/zero", long}, {"policy check /dev/zero", long},
		{"policy test /dev/zero", long},
		{"gate job.yaml --votes /dev/zero", long}, {"--config /dev/zero budget", long},
		{"scan --demo --usage /dev/zero", endless}, {"backtest --trace /dev/zero", endless},
		{"policy tune --trace /dev/zero", endless},
		{"scan --demo --usage pipe", "pipe: the file is empty"},
		{
			"backtest --trace pipe", "pipe: the file is empty",
		}, {"plan rightsize --usage /dev/zero --type p3.8xlarge", endless},
		{"backtest --trace bomb.csv.gz", "it unpacks to over 200 times its length"},
		{
			"estimate pipe", "pipe:1:1: the file is empty",
		}, {"policy check policies", "pipe.yaml:1:1: the file is empty"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			done := make(chan struct{})
			var code int
			var errs string
			go func() { code, _, errs = d.run(strings.Fields(tc.args)...); close(done) }()
			select {
			case <-done:
			case <-time.After(5 * time.Minute):
				t.Fatal("the command waits")
			}
			runtime.ReadMemStats(&after)
			if code != ExitUsage || !strings.Contains(errs, tc.want) {
				t.Errorf("exit %d, %q; want %d, %q", code, errs, ExitUsage, tc.want)
			}
			if cost := after.TotalAlloc - before.TotalAlloc; cost > 512<<20 {
				t.Errorf("%d MiB were allocated", cost>>20)
			}
		})
	}
}
