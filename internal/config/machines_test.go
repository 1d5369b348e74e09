package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/document"
)

const listed = `machines:
  - name: dgx
    gpu: H100
    gpus: 8
    vcpus: 224
    count: 4
    since: 2026-01-15
    tags: {team: vision, "curfew:keep-until": 2027-01-01}
rates:
  gpu_hour: {H100: 2.10, my own: $0.30}
  vcpu_hour: 0.01
  source: finance
  as_of: 2026-01-01
`

func TestMachinesAndRates(t *testing.T) {
	c := Default()
	if err := Decode("curfew.yaml", []byte(listed), &c); err != nil {
		t.Fatal(err)
	}
	if m := c.Machines[0]; len(c.Machines) != 1 || m.GPUs != 8 || m.Count != 4 || m.Since != "2026-01-15" ||
		m.Tags["curfew:keep-until"] != "2027-01-01" {
		t.Errorf("got machines %+v", c.Machines)
	}
	if c.Rates.GPUHour["H100"] != "2.1" || c.Rates.VCPUHour != "0.01" || c.Rates.AsOf != "2026-01-01" {
		t.Errorf("got rates %+v", c.Rates)
	}
	if _, err := local.NewFleet(local.FleetOptions{Machines: c.Machines, Rates: c.Rates}); err != nil {
		t.Error(err)
	}
}

func TestMistakesInMachinesHavePositions(t *testing.T) {
	for _, tc := range []struct {
		name, old, new string
		line, column   int
		message        string
	}{
		{name: "unknown key", old: "    count: 4", new: "    cuont: 4", line: 6, column: 5, message: "unknown field"},
		{name: "unknown rate", old: "vcpu_hour", new: "cpu_hour", line: 11, column: 3, message: "unknown field"},
		{name: "a field", old: "gpus: 8", new: "gpus: -8", line: 4, column: 11, message: "machines[0].gpus: -8"},
		{
			name: "a word for a number", old: "gpus: 8", new: "gpus: eight", line: 4, column: 11,
			message: "cannot unmarshal",
		},
		{name: "a name", old: "name: dgx", new: "name: dgx/1", line: 2, column: 11, message: "machines[0].name"},
		{
			name: "a field that is missing", old: "    gpu: H100\n", new: "", line: 2, column: 5,
			message: "machines[0].gpu: ",
		},
		{
			name: "a rate of nothing", old: "vcpu_hour: 0.01", new: "vcpu_hour: 0", line: 11, column: 14,
			message: "above zero",
		},
		{
			name: "what is priced and not listed", old: "    vcpus: 224\n", new: "", line: 2, column: 5,
			message: "machines[0].vcpus: dgx does not say",
		},
		{name: "no source", old: "  source: finance\n", new: "", line: 10, column: 3, message: "rates.source"},
		{name: "no date", old: "as_of: 2026-01-01", new: "as_of: today", line: 13, column: 10, message: "rates.as_of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			err := Decode("curfew.yaml", []byte(strings.Replace(listed, tc.old, tc.new, 1)), &c)
			var e *document.Error
			if !errors.As(err, &e) || e.Line != tc.line || e.Column != tc.column ||
				!strings.Contains(e.Message, tc.message) {
				t.Errorf("got %v, want %d:%d with %q", err, tc.line, tc.column, tc.message)
			}
		})
	}
}

func TestLocal(t *testing.T) {
	c := Default()
	if c.Local.Serve {
		t.Error("the API starts sessions without being told so")
	}
	if err := Decode("curfew.yaml",
		[]byte("local:\n  serve: true\n  gpus: [{model: L4, count: 2}]\n"), &c); err != nil ||
		!c.Local.Serve || len(c.Local.GPUs) != 1 || c.Local.GPUs[0] != (local.ConfiguredGPU{Model: "L4", Count: 2}) {
		t.Errorf("%+v, %v", c.Local, err)
	}
	for text, want := range map[string]string{
		"local:\n  serv: true":                                "2:3",
		"local:\n  serve: perhaps":                            "2:10",
		"local:\n  gpus:\n    - model: L4\n      count: 0":    "4:14",
		"local:\n  gpus:\n    - count: 1":                     "3:7",
		"local:\n  gpus:\n    - model: ' L4'\n      count: 1": "3:14",
	} {
		c := Default()
		var e *document.Error
		if err := Decode("curfew.yaml", []byte(text), &c); !errors.As(err, &e) ||
			fmt.Sprintf("%d:%d", e.Line, e.Column) != want {
			t.Errorf("%q: %v, want it at %s", text, err, want)
		}
	}
}

// FuzzMachines checks that a valid configuration can be observed, and that an invalid one is
// reported with its place in the file.
func FuzzMachines(f *testing.F) {
	f.Add(listed)
	f.Add("machines: [{name: a, vcpus: 1}, {name: b, gpu: T4, gpus: 1}]")
	f.Add("machines: [{name: a-1, vcpus: 1}, {name: a, vcpus: 1, count: 2}]\nrates: {gpu_hour: {a: 1}}")
	f.Fuzz(func(t *testing.T, s string) {
		c := Default()
		if err := Decode("f.yaml", []byte(s), &c); err != nil {
			var e *document.Error
			if !errors.As(err, &e) {
				t.Fatalf("%q: %v is not a *document.Error", s, err)
			}
			return
		}
		if _, err := local.NewFleet(local.FleetOptions{Machines: c.Machines, Rates: c.Rates}); err != nil {
			t.Fatalf("%q passed: %v", s, err)
		}
	})
}

func TestLocalUsersAndLimits(t *testing.T) {
	for text, want := range map[string]string{
		"users: {ana: ana, \"bo@example.com\": bob}\n  dir: /srv/sessions\n  limits: {memory: 64GiB, processes: 100}": "",
		"limits: {memory: 50%}":        "",
		"users: {ana: root}":           "no session runs as root",
		"users: {ana: \"\"}":           "no name of a Unix user",
		"users: {ana: \"a b\"}":        "no name of a Unix user",
		"users: {ana: \"../x\"}":       "no name of a Unix user",
		"users: {ana: 0}":              "no name of a Unix user",
		"users: {\" \": ana}":          "a person has a name",
		"users: [ana]":                 "mapping is expected",
		"dir: sessions":                "absolute path",
		"dir: /":                       "absolute path",
		"limits: {memory: 64}":         "such as 64GiB",
		"limits: {memory: 0%}":         "from 1% to 100%",
		"limits: {memory: 101%}":       "from 1% to 100%",
		"limits: {memory: 1MiB}":       "needs 256MiB",
		"limits: {processes: -1}":      "more than zero",
		"limits: {processes: 3}":       "at least 16",
		"limits: {memory: 1GiB, x: 1}": "x",
	} {
		c := Default()
		err := Decode("curfew.yaml", []byte("local:\n  "+text+"\n"), &c)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	c := Default()
	if err := Decode("curfew.yaml", []byte("sessions: {end_limit: 10s}\n"), &c); err == nil ||
		!strings.Contains(err.Error(), "a minute") {
		t.Errorf("an end limit of 10 seconds: %v", err)
	}
}
