package config

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

const oneFleet = `fleets:
  - id: asg/embed
    profile: a=48ms,b=1.74s
    max_running: 48
    late_after: 4s
    demand: [{url: "http://127.0.0.1:9090", server: vllm, select: 'job="embed"'}]
`

func TestReadsFleets(t *testing.T) {
	c := Default()
	if err := Decode("curfew.yaml", []byte(oneFleet), &c); err != nil {
		t.Fatal(err)
	}
	got, err := c.Fleets[0].Decided()
	if err != nil || got.Server.Law != fleet.Concurrency || got.Server.Limit != 48 ||
		got.Server.Objective != 4*time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
}

// demandOfOne is the demand of oneFleet.
const demandOfOne = `demand: [{url: "http://127.0.0.1:9090", server: vllm, select: 'job="embed"'}]`

func TestRejectsFleets(t *testing.T) {
	for name, change := range map[string][2]string{
		"another kind of id": {"asg/embed", "embed"},
		"two laws":           {"    late_after", "    max_batch: 3\n    late_after"},
		"no law":             {"    max_running: 48\n", ""},
		"a slow replica":     {"late_after: 4s", "late_after: 1s"},
		"no profile":         {"a=48ms,b=1.74s", "fast"},
		"no selection":       {`'job="embed"'`, "''"},
		"no endpoint":        {demandOfOne, "demand: [{server: cloudwatch}]"},
		"no demand":          {demandOfOne, "demand: []"},
		"an unknown key":     {"late_after", "latency"},
		"another's size":     {"    late_after", "    scale: {command: [a], price: 1}\n    late_after"},
		"no size":            {"asg/embed", "custom/embed"},
		"two ways":           {"asg/embed\n", "custom/embed\n    scale: {command: [a], url: \"http://a\", price: 1}\n"},
		"no price":           {"asg/embed\n", "custom/embed\n    scale: {command: [a]}\n"},
		"an empty command":   {"asg/embed\n", "custom/embed\n    scale: {command: [\"\"], price: 1}\n"},
		"no URL":             {"asg/embed\n", "custom/embed\n    scale: {url: embed, price: 1}\n"},
		"a key for no URL":   {"asg/embed\n", "custom/embed\n    scale: {command: [a], key_env: K, price: 1}\n"},
	} {
		c := Default()
		if err := Decode("curfew.yaml", []byte(strings.Replace(oneFleet, change[0], change[1], 1)), &c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	c := Default()
	custom := strings.Replace(oneFleet, "asg/embed\n", "custom/embed\n    scale: {command: [a], price: \"1.5\"}\n", 1)
	if err := Decode("curfew.yaml", []byte(custom), &c); err != nil {
		t.Errorf("a command: %v", err)
	}
	c = Default()
	twice := oneFleet + strings.TrimPrefix(oneFleet, "fleets:\n")
	if err := Decode("curfew.yaml", []byte(twice), &c); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("a repeated fleet: %v", err)
	}
}
