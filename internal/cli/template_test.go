package cli

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/test/data"
)

// pod is one pod of the public trace: its samples in order.
type pod struct{ at, util []float64 }

// publicPods reads whole pods of the public trace.
func publicPods(t *testing.T, most int) (names []string, pods map[string]*pod) {
	t.Helper()
	f, err := os.Open(data.Path(t, "alibaba-gentd26/pod_gpu_duty_cycle.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	pods = map[string]*pod{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		c := strings.Split(lines.Text(), ",")
		if c[0] == "pod" {
			continue
		}
		p := pods[c[0]]
		if p == nil {
			if len(pods) == most {
				return names, pods
			}
			p = &pod{}
			pods[c[0]] = p
			names = append(names, c[0])
		}
		at, err := strconv.ParseFloat(c[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		util, err := strconv.ParseFloat(c[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		p.at, p.util = append(p.at, at), append(p.util, util)
	}
	return names, pods
}

// asSessions is a pod as sessions, counted sample by sample: each ends after a time at rest,
// and starts again with the next busy sample that ends the rest. A missing sample ends a rest
// too, and no start follows from it. Under 1% is rest.
func (p *pod) asSessions(step, idle float64) (ran, rested float64, launches int) {
	launches = 1
	run := 0 // idle samples in a row
	end := func(busy bool) {
		if over := float64(run)*step - idle; over > 0 {
			ran -= over
			if busy {
				launches++
			}
		}
		run = 0
	}
	for i, util := range p.util {
		ran += step
		if i > 0 && p.at[i]-p.at[i-1] > step {
			end(false)
		}
		if util < 1 {
			run++
			rested += step
			continue
		}
		end(true)
	}
	end(false)
	return ran, rested, launches
}

// TestTemplateFromTrace writes session files of machines that only a public trace knows.
// Each can be read and priced, and its hours are those that the samples come to by hand.
func TestTemplateFromTrace(t *testing.T) {
	names, pods := publicPods(t, 6)
	d := newDesktop(t)
	d.write("curfew.yaml", "sessions: {max_lease: 24h}\n")
	path := data.Path(t, "alibaba-gentd26/pod_gpu_duty_cycle.csv.gz")
	for _, name := range names {
		code, out, errs := d.run("session", "template", "--from", name, "--trace", path, "--map",
			"resource=pod,time=t_s,gpu_util=gpu_util_pct", "--step", "57s", "--type",
			"g5.xlarge", "--restart-cost", "0s",
			"--idle-below", "1")
		if code != ExitDone {
			t.Fatalf("%s: %s", name, errs)
		}
		s, err := spec.Parse(name, []byte(out))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ran, rested, launches := pods[name].asSessions(57, s.Idle.Seconds())
		text := func(seconds float64) string {
			return plain.Duration(time.Duration(seconds * float64(time.Second)).Round(time.Minute))
		}
		for _, want := range []string{
			"covers " + text(float64(len(pods[name].at))*57) + " of it",
			"It did nothing for " + text(rested) + ".",
			fmt.Sprintf("it would have run for %s in %s,", text(ran), plain.Count(launches, "session")),
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, out)
			}
		}
		if s.Resources.InstanceType == "" || s.Idle < 10*time.Minute || s.Idle > 2*time.Hour || s.Lease < time.Hour ||
			s.Lease > 24*time.Hour {
			t.Errorf("%s: it says %+v", name, s)
		}
		if err := os.WriteFile(filepath.Join(d.dir, "pet.yaml"), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := d.run("estimate", "pet.yaml"); code != ExitDone {
			t.Errorf("%s: estimate: %s", name, errs)
		}
	}
	for _, c := range []struct{ want, args []string }{
		{[]string{"has no samples of no-such-machine: it has those of"}, []string{"--from", "no-such-machine"}},
		{[]string{"does not say of which type", "--type"}, []string{"--from", names[0]}},
		{[]string{"not in the price book"}, []string{"--from", names[0], "--type", "g99.huge"}},
	} {
		code, _, errs := d.run(append([]string{
			"session", "template", "--trace", path, "--map", "resource=pod,time=t_s,gpu_util=gpu_util_pct",
		}, c.args...)...)
		for _, want := range c.want {
			if code == ExitDone || !strings.Contains(errs, want) {
				t.Errorf("%v: %d, %s", c.args, code, errs)
			}
		}
	}
}

// TestTemplateIsRightSized writes the file of a machine of the example that a smaller type fits.
func TestTemplateIsRightSized(t *testing.T) {
	d := newDesktop(t)
	trace, err := filepath.Abs("../../examples/data/gpus.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	smaller := 0
	for _, name := range []string{"train-a", "notebook-ana", "notebook-left", "sweep-1", "eval-held"} {
		code, out, errs := d.run("session", "template", "--from", name, "--trace", trace)
		if code != ExitDone {
			t.Fatalf("%s: %s", name, errs)
		}
		s, err := spec.Parse(name, []byte(out))
		if err != nil {
			t.Fatal(err)
		}
		_, plan, _ := d.run("plan", "rightsize", "--usage", trace, "-o", "json")
		if strings.Contains(out, "fits that at") {
			smaller++
			if !strings.Contains(plan, `"type": "`+s.Resources.InstanceType+`"`) {
				t.Errorf("%s: plan rightsize knows no %s", name, s.Resources.InstanceType)
			}
		}
	}
	if smaller == 0 {
		t.Error("no machine of the example gets a smaller type")
	}
}
