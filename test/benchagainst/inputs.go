package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/billfile/billtest"
	"github.com/curfew-dev/curfew/test/trace"
	"github.com/curfew-dev/curfew/test/wire"
)

const benchPolicies = `apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    where: resource.gpus > 0 && resource.environment != "production"
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then: [{warn: {notify: [owner], grace: 15m}}, {do: stop}]
`

// perEntry is the number of machines in one entry of the configuration.
const perEntry = 1000

// benchmarks writes the inputs of the commands, and starts the stand-in account.
func benchmarks(dir string, s sizes) (all []benchmark, end func(), err error) {
	var machines strings.Builder
	machines.WriteString("identity: bench\nrequired_tags: [team]\nmachines:\n")
	for i := 0; i < s.resources; i += perEntry {
		fmt.Fprintf(&machines,
			"  - {name: m%d, gpu: H100-80GB, gpus: 8, vcpus: 192, memory_gib: 2048, count: %d, site: fra-%d,\n"+
				"     tags: {team: team-%d, purpose: training, lifetime: ephemeral}}\n",
			i/perEntry, min(perEntry, s.resources-i), i%3, i/perEntry%10)
	}
	machines.WriteString("rates: {source: finance, as_of: 2026-11-01, gpu_hour: {H100-80GB: \"2.10\"}}\n")
	for name, text := range map[string]string{
		"machines.yaml": machines.String(), "policy.yaml": benchPolicies,
		"account.yaml": "identity: bench\naws: {requests_per_second: 100000, regions: [us-east-1]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := writeTrace(filepath.Join(dir, "trace.csv"), s.rows); err != nil {
		return nil, nil, err
	}
	if _, err := billtest.Write(filepath.Join(dir, "bill.parquet"), s.billRows); err != nil {
		return nil, nil, fmt.Errorf("write a bill: %w", err)
	}
	account := wire.NewFleet(wire.Fleet{Machines: s.machines, Now: time.Now()})
	if err := account.Listen(0); err != nil {
		return nil, nil, err
	}
	partial := []int{5} // the exit code reports unknown values
	scan := []string{"--config", "machines.yaml", "scan", "--cloud", "onprem", "--quiet", "-o", "json"}
	return []benchmark{
		{name: "Rules", args: append(scan, "--no-save"), exit: partial},
		{
			name:    "Policy",
			args:    []string{"--config", "machines.yaml", "policy", "check", "--against", "last", "policy.yaml"},
			prepare: scan,
			exit:    partial,
		},
		{
			name: "Replay",
			args: []string{"backtest", "--trace", "trace.csv", "--policy", "policy.yaml", "--step", "1m",
				"--baselines=false", "--quiet", "-o", "json"},
		},
		{name: "Bill", args: []string{"bill", "import", "bill.parquet", "-o", "json"}, fresh: true, exit: partial},
		{
			name: "Audit",
			args: []string{"--config", "account.yaml", "scan", "--quiet", "--no-save", "-o", "json"},
			env: []string{
				"AWS_ENDPOINT_URL=" + account.URL(), "AWS_ACCESS_KEY_ID=testing", "AWS_SECRET_ACCESS_KEY=testing",
				"AWS_REGION=us-east-1", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
			},
			exit: partial,
		},
		{name: "Start", args: []string{"--help"}, repeat: s.starts},
	}, func() { _ = account.Close() }, nil
}

// writeTrace writes the trace to replay.
func writeTrace(name string, rows int) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write a trace: %w", err)
	}
	defer file.Close()
	if err := trace.Write(file, rows, true); err != nil {
		return fmt.Errorf("write a trace: %w", err)
	}
	return file.Close()
}
